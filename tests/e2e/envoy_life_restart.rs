//! A hot restart: another process takes over the sockets while the earlier one drains. Each process
//! has its own counts; no request hangs, and the losses are known.

use std::thread;
use std::time::Instant;

use serde_json::json;
use tollgate_e2e::crowd::gather;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process;

use crate::envoy_life::{PATIENCE, Tally, crowd, filter, get, listener, log, passed_and_lost};
use crate::envoy_server::{Envoy, Setup};

const KEYS: usize = 8;
const LIMIT: usize = 100;
const COUNT: usize = 20;
/// The earlier process ends after this many seconds.
const PARENT_S: u32 = 7;

fn start() -> Envoy {
    let line = |name: &str, limit: u32, window: &str| {
        json!({
            "name": name, "when": {"paths": [format!("/{name}")]}, "key": [],
            "quotas": [{"limit": limit, "window": window, "burst": 100, "algorithm": "leaky-queue"}],
            "action": {"delay": {"max": "60s"}},
        })
    };
    let api = json!({
        "name": "api", "when": {"paths": ["/api"]}, "key": [{"header": "x-key"}],
        "quotas": [log("day", LIMIT)],
    });
    // 20 within 2 s; one per second.
    let rules = [api, line("quick", 10, "1s"), line("slow", 1, "1s")];
    let filter = filter(&rules, 0);
    let mut setup = Setup::new(2, vec![listener(process::free_port(), filter)]);
    (setup.drain_s, setup.parent_s) = (2, PARENT_S);
    setup.start()
}

/// True once the later process responds, and accepts connections.
fn is_live(admin: u16) -> bool {
    let ask = || {
        let mut client = Client::try_connect(admin).ok()?;
        client.try_send(&Request::get("/stats?filter=%5Eserver")).ok()
    };
    let said = ask().map(|answer| answer.text()).unwrap_or_default();
    said.contains("server.hot_restart_epoch: 1") && said.contains("server.live: 1")
}

// Guards: a hot restart in which a request hangs, in which a key gets more than its limit in each
// process, or a queue more than its rate from each process, and requests that pass uncounted.
#[test]
fn a_hot_restart_gives_every_key_its_limit_once_more_and_nobody_hangs() {
    let mut envoy = start();
    let (port, admin) = (envoy.ports[0], envoy.admin);
    let request = |key: usize| Request::get("/api").header("x-key", format!("client-{key}"));
    let tally = Tally::new(KEYS);
    let wait =
        |path: &'static str| move || passed_and_lost(&gather(port, crowd(path, COUNT), PATIENCE));
    thread::scope(|scope| {
        for renewed_after in [usize::MAX, usize::MAX, 5, 5] {
            let tally = &tally;
            scope.spawn(move || tally.hammer(port, request, renewed_after));
        }
        process::wait_until("all is used", PATIENCE, || {
            (tally.counts() == [LIMIT; KEYS]).then_some(())
        });
        tally.wait_for_refusals(100);
        assert_eq!(tally.counts(), [LIMIT; KEYS]);
        let crowds = [scope.spawn(wait("/quick")), scope.spawn(wait("/slow"))];
        process::wait_until("they wait", PATIENCE, || {
            (envoy.stat("wasmcustom.tollgate.waiting") as usize > COUNT / 2).then_some(())
        });
        let restarted = Instant::now();
        let mut parent = envoy.hot_restart();
        process::wait_until("the later one is live", PATIENCE, || is_live(admin).then_some(()));
        let live = restarted.elapsed();
        // Counts start at zero, also while the earlier process drains.
        process::wait_until("all is used again", PATIENCE, || {
            let most = get(&tally.lost);
            tally.counts().iter().all(|count| count + most >= 2 * LIMIT).then_some(())
        });
        let status = parent.wait_for_exit();
        assert!(status.success(), "{status}: {}", parent.log());
        let ended = restarted.elapsed();
        tally.wait_for_refusals(4 * KEYS * 10);
        tally.end();
        let [quick, slow] = crowds.map(|crowd| crowd.join().expect("a crowd"));
        println!(
            "live after {live:?}, the earlier one ended after {ended:?}; {} admitted of a limit of \
             {LIMIT} for {KEYS} keys; {} answers of clients without a pause were lost; of {COUNT} \
             who waited up to 2 s {} were lost, of {COUNT} up to 20 s {}, ended after {PARENT_S} s",
            tally.sum(),
            get(&tally.lost),
            quick.1,
            slow.1
        );
        assert!(slow.0 > 0 && slow.1 > 0, "{slow:?}");
    });
    let counts = tally.counts();
    assert!(counts.iter().all(|count| *count <= 2 * LIMIT), "{counts:?}");
    assert_eq!(get(&tally.failed), 0, "503 to clients who do not wait");
    // Counters are passed on from process to process; the last counts of the earlier one may be
    // missing.
    let allowed = envoy.decisions("api", "allowed");
    assert!(allowed >= tally.sum() as u64, "{allowed} counted, {counts:?}");
    process::wait_until("the gauge is that of one process", PATIENCE, || {
        (envoy.stat("wasmcustom.tollgate.waiting") == 0).then_some(())
    });
}
