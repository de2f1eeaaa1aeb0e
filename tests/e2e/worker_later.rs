//! Work after a response, when it panics or fails: alarms, and timers that write or flush. No
//! caller waits for it or learns of it: it must be repeated, or the next run must do it.
//!
//! The faults are `worker_panics`'.

use std::thread;
use std::time::Duration;

use serde_json::json;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::workerd::{Setup, Workerd, answer, check_request};

use crate::worker_admin::{ADMIN, asks, left, limited, operated};
use crate::worker_durable::tables;
use crate::worker_panics::{FAULTS, KINDS, arm, is_armed, used, with_tenants};

const PATIENCE: Duration = Duration::from_secs(120);

fn wait_for_faults(worker: &Workerd) {
    wait_until("the faults", PATIENCE, || {
        thread::sleep(Duration::from_millis(20));
        (!is_armed(worker)).then_some(())
    });
}

// Guards: an alarm that panics and is never run again: its storage would stay for ever.
#[test]
fn an_alarm_that_fails_rings_again() {
    let policy = json!({"version": 1, "rules": [{"name": "r", "key": ["client_ip"], "quotas":
        [{"name": "q", "algorithm": "gcra", "limit": 2, "window": "1s"}]}]});
    for kind in KINDS {
        let worker = Setup::new(&policy).front(FAULTS).start();
        assert!(left(&mut worker.client(), "192.0.2.1").starts_with("allow"));
        assert_eq!(tables(&worker), 1);
        arm(&worker, "Limiter.alarm", 0, kind);
        wait_for_faults(&worker);
        assert!(left(&mut worker.client(), "192.0.2.2").starts_with("allow"), "another client");
        wait_until("the deletion", Duration::from_secs(90), || {
            (tables(&worker) <= 1).then_some(())
        });
    }
}

// Guards: a panic or a failure of a delayed write of counts: the next ones are written.
#[test]
fn a_write_that_fails_later_spoils_no_request() {
    let mut policy = limited(1_000_000);
    policy["rules"][0]["durability"] = json!("relaxed");
    let mut worker = Setup::new(&policy).front(FAULTS).start();
    let mut used_before = 0;
    for kind in KINDS {
        arm(&worker, "Limiter.save", 0, kind);
        let mut client = worker.client();
        used_before = used(&mut client, "192.0.2.1").max(used_before);
        wait_for_faults(&worker);
        // Counts that storage rejected are still in memory; those of an instance that ended are
        // not.
        let now = used(&mut worker.client(), "192.0.2.1");
        assert!(now == used_before + 1 || kind == "trap" && now == used_before, "{kind}: {now}");
        used_before = now;
    }
    thread::sleep(Duration::from_secs(1));
    worker.kill();
    worker.restart();
    assert_eq!(used(&mut worker.client(), "192.0.2.1"), used_before + 1, "all is written");
}

// Guards: an entry that a tenant's object has not received because delivery failed, and then the
// alarm that should deliver it failed, too, in any step: it would never be in force.
#[test]
fn entries_of_tenants_are_in_force_although_their_alarm_fails() {
    let places = ["Tenants.due", "Tenants.call", "Tenants.delivered"];
    let of_kind =
        |kind| places.map(move |place| format!("Tenants.due 0 throws, {place}@alarm 0 {kind}"));
    let mut faults: Vec<String> = KINDS.into_iter().flat_map(of_kind).collect();
    faults.push("Tenants.due 0 throws, Tenants.due@alarm 0 throws, between@alarm 0 throws".into());
    let play = |faults: &str| {
        let worker = operated(with_tenants()).front(FAULTS).start();
        worker.client().send(&Request::get("/fault").header("x-fault", faults));
        let entry = json!({"tier": "gold"}).to_string();
        let tenant = "/.well-known/tollgate/admin/tenants/t1";
        let put = asks(ADMIN, "PUT", tenant, &entry).header("if-none-match", "*");
        let response = worker.client().send(&put);
        assert_ne!(response.status, 201, "{faults}: it is not handed on");
        wait_for_faults(&worker);
        let asked = json!({"method": "GET", "path": "/", "headers": {"x-org": "t1"}, "client_ip": "192.0.2.1"});
        let asked = check_request("GET", "/", "192.0.2.1").body(asked.to_string());
        wait_until(&format!("the entry in force after {faults}"), PATIENCE, || {
            thread::sleep(Duration::from_millis(300));
            let answer = answer(&worker.client().send(&asked));
            let field = answer["headers"]["ratelimit-policy"].as_str().unwrap_or_default();
            field.contains(";q=9;").then_some(())
        });
    };
    thread::scope(|scope| {
        let play = &play;
        let running: Vec<_> =
            faults.iter().map(|faults| scope.spawn(move || play(faults))).collect();
        running.into_iter().for_each(|one| one.join().expect("it is in force"));
    });
}

// Guards: an isolate that never counts again because its flush ended in the middle, or that repeats
// counts without knowing that they have arrived. Counts that it had not delivered to the sums are
// lost with it.
#[test]
fn an_isolate_whose_flush_fails_counts_on() {
    const METRICS: &str = "/.well-known/tollgate/metrics";
    let policy = limited(1_000_000);
    let line = "tollgate_decisions_total{rule=\"client\",quota=\"\",tier=\"\",result=\"allowed\"} ";
    let play = |kind: &str| {
        let setup = operated(&policy).binding("METRICS_INTERVAL_S", 2);
        let setup = setup.binding("METRICS_TOKEN", "m").front(FAULTS);
        let worker = setup.files_in_memory().beside(&policy).start();
        // The sums are in another isolate, so that only the counts of this one can be lost.
        let mut client = Client::connect(worker.ports[1]);
        let mut fault = |fault: Option<&str>| {
            let request = Request::get("/fault");
            let request = fault.into_iter().fold(request, |to, it| to.header("x-fault", it));
            client.send(&request).text() == "armed"
        };
        let mut asker = Client::connect(worker.ports[1]);
        let mut send = || {
            let answer = answer(&asker.send(&check_request("GET", "/", "192.0.2.1")));
            assert_eq!(answer["decision"], "allow", "{answer}");
        };
        let counted = || {
            let request = Request::get(METRICS).header("authorization", "Bearer m");
            let text = worker.client().send(&request).text();
            let found = text.lines().find_map(|of| of.strip_prefix(line)?.parse::<u64>().ok());
            found.unwrap_or_default()
        };
        let (mut sent, mut spoilt) = (0, 0);
        // An instance's first flush has steps that the later ones do not have.
        for after in [0, 0, 1, 2] {
            let before = counted();
            fault(Some(&format!("flush {after} {kind}")));
            send();
            sent += 1;
            let is_spoilt = wait_until("a flush", PATIENCE, || {
                thread::sleep(Duration::from_millis(20));
                if !fault(None) {
                    return Some(true);
                }
                (counted() > before).then_some(false)
            });
            spoilt += u64::from(is_spoilt);
            fault(Some("nowhere 0 trap"));
            // The isolate responds, and its counts from now on arrive.
            send();
            sent += 1;
            let expected = if is_spoilt { before + 1 } else { before + 2 };
            wait_until("the next flush", PATIENCE, || {
                thread::sleep(Duration::from_millis(20));
                (counted() >= expected).then_some(())
            });
            assert!(counted() <= sent, "{} of {sent}", counted());
            if !is_spoilt {
                break;
            }
        }
        println!("flush, {kind}: {spoilt} steps spoilt, {} of {sent} counted", counted());
        assert_eq!(spoilt, if kind == "trap" { 2 } else { 1 }, "{kind}");
        assert!(counted() + spoilt >= sent, "only what was under way is lost");
    };
    thread::scope(|scope| {
        let play = &play;
        let running = KINDS.map(|kind| scope.spawn(move || play(kind)));
        running.into_iter().for_each(|one| one.join().expect("it counts on"));
    });
}
