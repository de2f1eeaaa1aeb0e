//! The Worker in front of real origins: what they take for one resource is one, however it is
//! spelled.

use tollgate_e2e::differential::{self, REQUESTS};
use tollgate_e2e::http::Request;
use tollgate_e2e::origins::{Kind, Origin};
use tollgate_e2e::workerd::{Setup, Workerd};

fn start(policy: &serde_json::Value, origin: &Origin) -> Workerd {
    let url = format!("http://127.0.0.1:{}", origin.port);
    Setup::new(policy).binding("ORIGIN", url).files_in_memory().start()
}

// Every spelling that nginx serves as /login or /admin is counted by the rule for it, and none is
// let off.
#[test]
fn nginx_serves_nothing_uncounted() {
    let origin = Origin::start(Kind::Nginx);
    let policy = differential::guarded();
    let worker = start(&policy, &origin);
    let edge = |target: &str| Request::get(target).header("cf-connecting-ip", "192.0.2.9");
    differential::check_spellings(&mut worker.client(), edge);
}

// Not by host: `fetch` asks the origin by its own name, whatever the client asked the Worker by.
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
