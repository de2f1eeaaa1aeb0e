//! The Worker in front of real origins: spellings that they read as one resource have one count.

use tollgate_e2e::differential::{self, REQUESTS};
use tollgate_e2e::http::Request;
use tollgate_e2e::origins::{Kind, Origin};
use tollgate_e2e::workerd::{Setup, Workerd};

fn start(policy: &serde_json::Value, origin: &Origin) -> Workerd {
    let url = format!("http://127.0.0.1:{}", origin.port);
    Setup::new(policy).binding("ORIGIN", url).files_in_memory().start()
}

// Every spelling that nginx serves as /login or /admin is counted by its rule; none is exempt.
#[test]
fn nginx_serves_nothing_uncounted() {
    let origin = Origin::start(Kind::Nginx);
    let policy = differential::guarded();
    let worker = start(&policy, &origin);
    let edge = |target: &str| Request::get(target).header("cf-connecting-ip", "192.0.2.9");
    differential::check_spellings(&mut worker.client(), edge);
}

// Not by host: `fetch` requests the origin by its own name, whatever the host of the client's
// request.
#[test]
fn one_thing_has_one_count_at_every_origin() {
    let mut policy = differential::policy();
    let rules = policy["rules"].as_array_mut().expect("rules");
    rules.retain(|rule| rule["name"] != "host");
    for (seed, kind) in (100..).zip(Kind::ALL) {
        let origin = Origin::start(kind);
        let worker = start(&policy, &origin);
        let surface = format!("the Worker to {kind:?}");
        differential::check(&surface, worker.port, seed, REQUESTS / 5 / 3);
    }
}
