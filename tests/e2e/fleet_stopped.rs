//! A proxy that is stopped for longer than its leases live, and resumes under load: the units that
//! it held are counted as spent by then, and others have been given the units that were returned
//! since.
//!
//! Each round has a key of its own. One Envoy leases units of it, is stopped with units in hand,
//! and receives requests that it handles when it resumes; at that instant another Envoy requests
//! all that the key has. With the first one's old units in addition, more than the quota would be
//! allowed.
//!
//! `TOLLGATE_STOPS=1000` is the long form: this number of rounds.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::{allow_open_files, times, wait_until};

use crate::envoy_server::Envoy;
use crate::leasing_envoys::{SOON, envoy, fleet_stat, get, policy};
use crate::server;

const BURST: u64 = 200;
/// Per second.
const RATE: u64 = 150;
/// The life of the lease: half a second; until the authority has counted all of it as spent,
/// another second; until that is returned, BURST / 2 / RATE.
const STOPPED: Duration = Duration::from_millis(2_300);
/// Connections to the stopped one, each with a waiting request.
const CONNECTIONS: usize = 120;

fn signal(envoy: &Envoy, signal: Signal) {
    let pid = i32::try_from(envoy.server.pid()).ok().and_then(Pid::from_raw).expect("a pid");
    kill_process(pid, signal).expect("it runs");
}

/// True when every thread of it is stopped.
fn is_stopped(envoy: &Envoy) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", envoy.server.pid())).expect("it runs");
    threads.flatten().all(|thread| {
        let text = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        text.lines().any(|line| line.starts_with("State:\tT"))
    })
}

/// The result of one round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Allowed by the stopped one, after it resumed.
    late: u64,
    /// Allowed by both, after it resumed.
    admitted: u64,
    /// The most that the quota has in that time.
    most: u64,
    /// Leases that it was granted before the stop.
    granted: u64,
}

/// 503: on a busy machine the authority may be late; then no request is allowed.
fn is_admitted(status: u16) -> bool {
    assert!([200, 429, 503].contains(&status), "{status}");
    status == 200
}

fn admitted(client: &mut Client, request: &Request) -> u64 {
    let status = client.send(request).status;
    is_admitted(status).into()
}

/// Sends requests at less than the quota's rate until `is_over`.
fn warm(envoy: &Envoy, request: &Request, is_over: &AtomicBool) {
    let mut client = envoy.client();
    while !is_over.load(Ordering::Relaxed) {
        admitted(&mut client, request);
        thread::sleep(Duration::from_millis(8));
    }
}

fn round(stopped: &Envoy, other: &Envoy, key: &str) -> Round {
    let (request, is_over) = (get(key), AtomicBool::new(false));
    let before = fleet_stat(stopped, "granted");
    let mut waiting = stopped.clients(CONNECTIONS);
    thread::scope(|scope| {
        let warming = scope.spawn(|| warm(stopped, &request, &is_over));
        let granted = wait_until("it holds units", SOON, || {
            thread::sleep(Duration::from_millis(200));
            let granted = fleet_stat(stopped, "granted") - before;
            (granted > 1).then_some(granted)
        });
        // In the middle of its work.
        signal(stopped, Signal::STOP);
        wait_until("it stands still", SOON, || is_stopped(stopped).then_some(()));
        is_over.store(true, Ordering::Relaxed);
        for client in &mut waiting {
            client.start(&request).expect("the kernel takes it");
        }
        thread::sleep(STOPPED);
        let began = Instant::now();
        signal(stopped, Signal::CONT);
        let (late, by_other) = thread::scope(|inner| {
            let ask = || {
                let mut client = other.client();
                (0..BURST / 4 + 10).map(|_| admitted(&mut client, &request)).sum::<u64>()
            };
            let asking: Vec<_> = (0..4).map(|_| inner.spawn(ask)).collect();
            let mut late = 0;
            for client in &mut waiting {
                let status = client.finish(false).expect("an answer").status;
                late += u64::from(is_admitted(status));
            }
            let by_other = asking.into_iter().map(|it| it.join().expect("it is answered"));
            (late, by_other.sum::<u64>())
        });
        let lasted = u64::try_from(began.elapsed().as_micros()).expect("a short time");
        warming.join().expect("its last request is answered");
        let most = BURST + RATE * lasted / 1_000_000 + 1;
        Round { late, admitted: late + by_other, most, granted }
    })
}

// Guards: units of an expired lease that are spent because the clock was not read again.
#[test]
fn a_proxy_that_stood_still_spends_nothing_of_what_it_held() {
    allow_open_files(8_000);
    let rounds = times("TOLLGATE_STOPS", 12);
    let lanes = rounds.div_ceil(3).min(16);
    let policy = policy(&json!([{
        "name": "each", "key": [{"header": "x-key"}], "scope": "fleet", "lease": "500ms",
        "on_failure": "deny",
        "quotas": [{"limit": RATE, "window": "1s", "burst": BURST}],
    }]));
    let server = server(&policy);
    let proxy = || envoy(&policy, server.port, &json!({"timeout": "10s"}));
    let other = proxy();
    let stopped: Vec<Envoy> = (0..lanes).map(|_| proxy()).collect();
    let all: Vec<Round> = thread::scope(|scope| {
        let other = &other;
        let lane = move |(lane, envoy): (usize, &Envoy)| -> Vec<Round> {
            let rounds = (lane..rounds).step_by(lanes);
            rounds.map(|number| round(envoy, other, &format!("round-{number}"))).collect()
        };
        let running: Vec<_> =
            stopped.iter().enumerate().map(|it| scope.spawn(move || lane(it))).collect();
        let done: Vec<Vec<Round>> =
            running.into_iter().map(|it| it.join().expect("a lane")).collect();
        done.concat()
    });
    let sum = |of: fn(&Round) -> u64| all.iter().map(of).sum::<u64>();
    println!(
        "{} rounds: {} admitted of at most {}, {} of them late; {} leases before",
        all.len(),
        sum(|round| round.admitted),
        sum(|round| round.most),
        sum(|round| round.late),
        sum(|round| round.granted),
    );
    assert_eq!(all.len(), rounds);
    for (number, round) in all.iter().enumerate() {
        assert!(round.admitted <= round.most, "{number}: {round:?}");
    }
    // The key was whole again: units still in hand would have exceeded the bound.
    let whole = all.iter().filter(|round| round.admitted >= BURST).count();
    assert!(whole * 4 >= rounds, "only {whole} of {rounds} rounds would have shown it");
}
