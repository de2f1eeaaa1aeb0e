//! A worker's machine traps under load and is created again (`failure_policy: FAIL_RELOAD`).
//! Requests that waited in it are lost: Envoy's own time-out ends them.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::crowd::gather;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::{self, TempDir};

use crate::envoy_life::{
    PATIENCE, Tally, counted, crowd, filter, get, listener, log, passed_and_lost, with_code,
};
use crate::envoy_life_module::{FATAL_HEADERS, that_traps};
use crate::envoy_server::{Envoy, Listener, Setup};

const KEYS: usize = 12;
const LIMIT: usize = 900;
const WAITERS: usize = 40;
const SLOW: usize = 16;

/// The time-out in `envoy/envoy.yaml`, and the one here, which keeps the test short.
const SHIPPED: &str = "stream_idle_timeout: 60s";
const TIMEOUT: Duration = Duration::from_secs(7);

/// An origin that responds after a second.
fn slow_origin() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let serve = |mut stream: TcpStream| {
        while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
            thread::sleep(Duration::from_secs(1));
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    port
}

fn rules() -> [Value; 3] {
    [
        json!({
            "name": "api", "when": {"paths": ["/api"]}, "key": [{"header": "x-key"}],
            "quotas": [log("day", LIMIT)],
        }),
        json!({
            "name": "line", "when": {"paths": ["/wait"]}, "key": [],
            "quotas": [{"limit": 10, "window": "1s", "burst": 100, "algorithm": "leaky-queue"}],
            "action": {"delay": {"max": "60s"}},
        }),
        json!({
            "name": "shut", "when": {"paths": ["/shut"]}, "key": [],
            "quotas": [{"limit": 200, "window": "1h", "burst": 1}],
            "action": {"delay": {"max": "5m"}},
        }),
    ]
}

/// The filter that can be made to trap, and is then created again.
fn trapping(dir: &TempDir) -> Value {
    let path = dir.path().join("traps.wasm");
    fs::write(&path, that_traps()).expect("a file");
    let mut filter = with_code(filter(&rules(), 0), &path);
    filter["typed_config"]["config"]["failure_policy"] = json!("FAIL_RELOAD");
    filter
}

fn start(dir: &TempDir, manager: Value) -> Envoy {
    let mut listener = listener(process::free_port(), trapping(dir));
    let slow = json!({"match": {"prefix": "/slow"}, "route": {"cluster": "origin"}});
    listener.routes.as_array_mut().expect("routes").insert(0, slow);
    listener = Listener { manager, ..listener };
    let mut setup = Setup::new(2, vec![listener]);
    setup.origin = slow_origin();
    setup.start()
}

/// A request that is allowed and charged, and traps the worker that handles it.
fn fatal() -> Request {
    let request = Request::get("/api").header("x-key", "fatal");
    (0..FATAL_HEADERS).fold(request, |request, i| request.header(format!("x-{i}"), "1"))
}

fn api(key: usize) -> Request {
    Request::get("/api").header("x-key", format!("client-{key}"))
}

/// The time until no client gets 503 any more.
fn until_served(envoy: &Envoy) -> Duration {
    let started = Instant::now();
    process::wait_until("all workers serve again", PATIENCE, || {
        let serves = |client: &mut Client| client.send(&Request::get("/free")).status == 200;
        envoy.clients(16).iter_mut().all(serves).then_some(())
    });
    started.elapsed()
}

// Guards: requests that wait in a machine that traps and hang for ever; a client that gets a fresh
// count from a machine that is created again, or passes while there is none; and a shipped
// configuration without the time-out that ends waiting requests.
#[test]
fn a_machine_that_traps_under_load_loses_only_what_it_held() {
    assert!(include_str!("../../envoy/envoy.yaml").contains(SHIPPED), "no {SHIPPED}");
    let dir = TempDir::new("trap");
    let timeout = format!("{}s", TIMEOUT.as_secs());
    let envoy = start(&dir, json!({"stream_idle_timeout": timeout}));
    let (port, tally) = (envoy.ports[0], Tally::new(KEYS));
    let ask = |path: &'static str, count| {
        move || passed_and_lost(&gather(port, crowd(path, count), PATIENCE))
    };
    let (waited, slow, served, waiting) = thread::scope(|scope| {
        for renewed_after in [usize::MAX, usize::MAX, 5, 5] {
            let tally = &tally;
            scope.spawn(move || tally.hammer(port, api, renewed_after));
        }
        let slow = scope.spawn(ask("/slow", SLOW));
        let waiting = || envoy.stat("wasmcustom.tollgate.waiting");
        let waited = scope.spawn(ask("/wait", WAITERS));
        process::wait_until("all have come", PATIENCE, || {
            (counted(&envoy, "line") == WAITERS).then_some(())
        });
        assert_eq!(envoy.client().send(&fatal()).status, 503);
        let served = until_served(&envoy);
        // All clients have used their whole limit in every case.
        process::wait_until("all is used", PATIENCE, || {
            (tally.counts() == [LIMIT; KEYS]).then_some(())
        });
        tally.wait_for_refusals(4 * KEYS * 10);
        tally.end();
        let (waited, slow) = (waited.join().expect("a crowd"), slow.join().expect("a crowd"));
        (waited, slow, served, waiting())
    });
    println!(
        "served again after {served:?}; of {WAITERS} who waited {} passed and {} were ended by the \
         time-out, of {SLOW} at the origin {} were answered with 503, of the others {}; the gauge \
         of who waits stays at {waiting}",
        waited.0,
        waited.1,
        slow.1,
        get(&tally.failed)
    );
    let log = envoy.server.log();
    assert_eq!(log.matches("Function: proxy_on_request_headers failed").count(), 1, "{log}");
    assert_eq!(envoy.stat("wasm.tollgate.vm_reload_success"), 1);
    // Waiting requests that were not released were ended by the time-out.
    assert!(waited.1 > 0, "{waited:?}");
    assert_eq!(envoy.stat("http.main.downstream_rq_idle_timeout"), waited.1 as u64);
    // No request passed uncounted, and no count was reset.
    let counts = tally.counts();
    assert_eq!(get(&tally.lost), 0);
    assert_eq!(counts, [LIMIT; KEYS]);
    // Only the counters of that machine's last tenth of a second are missing.
    let known = counted(&envoy, "api");
    println!("{known} of {} admissions are in the counters", KEYS * LIMIT + 1);
    assert!((1..=KEYS * LIMIT + 1).contains(&known), "{known}");
}

// Guards: the document's statements about Envoy's other time-outs, of which an operator may have
// one already: these end requests that wait in a lost machine, and that of a route does not.
#[test]
fn several_time_outs_end_who_waits_in_a_lost_machine() {
    const EACH: usize = 3;
    let dir = TempDir::new("trap");
    let filter = trapping(&dir);
    let duration = json!({"max_stream_duration": "2s"});
    let (never, none) = (json!("0s"), json!({}));
    let cases = [
        ("idle", json!({"stream_idle_timeout": "2s"}), none.clone()),
        ("request", json!({"stream_idle_timeout": never, "request_timeout": "2s"}), none.clone()),
        (
            "duration",
            json!({"stream_idle_timeout": never, "common_http_protocol_options": duration}),
            none,
        ),
        ("route-idle", json!({"stream_idle_timeout": never}), json!({"idle_timeout": "2s"})),
        ("route", json!({"stream_idle_timeout": never}), json!({"timeout": "2s"})),
    ];
    let listeners = cases.map(|(name, manager, mut route)| {
        route["cluster"] = json!("origin");
        let routes = json!([{"match": {"prefix": "/"}, "route": route}]);
        Listener { manager, routes, ..Listener::new(name, vec![filter.clone()]) }
    });
    let mut setup = Setup::new(1, listeners.into());
    setup.origin = slow_origin();
    let envoy = setup.start();
    // No other request gets a turn while this test runs.
    assert_eq!(envoy.client().send(&Request::get("/shut")).status, 200);
    let connect = |port: &u16| (0..EACH).map(|_| Client::connect(*port)).collect();
    let mut clients: Vec<Vec<Client>> = envoy.ports.iter().map(connect).collect();
    let mut fatal_one = envoy.client();
    for client in clients.iter_mut().flatten() {
        client.start(&Request::get("/shut")).expect("taken");
    }
    process::wait_until("all wait", PATIENCE, || {
        (envoy.stat("wasmcustom.tollgate.waiting") as usize == 5 * EACH).then_some(())
    });
    assert_eq!(fatal_one.send(&fatal()).status, 503);
    let (hang, end) = clients.split_last_mut().expect("five");
    let mut ended = [0; 4];
    for (ended, clients) in ended.iter_mut().zip(end) {
        for client in clients {
            let status = client.finish(false).expect("answered").status;
            assert!([503, 504].contains(&status), "{status}");
            *ended += 1;
        }
    }
    assert_eq!(ended, [EACH; 4]);
    assert!(hang.iter().all(|client| !client.has_answer()), "a route's time-out ends it, too");
}
