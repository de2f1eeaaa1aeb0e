//! A control plane changes the filter while clients that have used their whole limit continue to
//! send requests. The used amounts survive every kind of replacement, and an invalid update changes
//! nothing.

use std::thread;

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process;

use crate::envoy_life::{By, Life, PATIENCE, Tally, filter, get, log, with_code};
use crate::envoy_life_module::that_is_other_code;
use crate::envoy_server::{As, Listener, Setup, tollgate};

const PLAIN: usize = 8;
/// The number of clients of the tier.
const GOLD: usize = 4;

fn request(key: usize) -> Request {
    let request = Request::get("/api").header("x-key", format!("client-{key}"));
    if key < PLAIN { request } else { request.header("x-plan", "gold") }
}

/// A rule by client with a tier, and one for all clients together.
fn rules(limit: usize, gold: usize) -> Vec<Value> {
    let paths = json!({"paths": ["/api"]});
    let gold = json!({
        "name": "gold", "when": {"headers": {"x-plan": "gold"}},
        "quotas": [log("gold", gold), log("gold-more", 900)],
    });
    let silver = json!({
        "name": "silver", "when": {"headers": {"x-plan": "silver"}}, "quotas": [log("silver", 9)],
    });
    vec![
        json!({
            "name": "api", "when": paths, "key": [{"header": "x-key"}],
            "quotas": [log("day", limit), log("more", 900)], "tiers": [gold, silver],
        }),
        json!({"name": "all", "when": paths, "key": [], "quotas": [log("all", 1_000)]}),
    ]
}

/// The same in another order: rules, quotas and tiers.
fn in_another_order(mut rules: Vec<Value>) -> Vec<Value> {
    let reverse = |value: &mut Value| value.as_array_mut().expect("a list").reverse();
    reverse(&mut rules[0]["quotas"]);
    reverse(&mut rules[0]["tiers"]);
    reverse(&mut rules[0]["tiers"][1]["quotas"]);
    rules.reverse();
    rules
}

/// Clients that have used their whole limit under the policy in force continue to send requests:
/// each key has been allowed this many, and stays at that number.
fn settle(tally: &Tally, [plain, gold]: [usize; 2], what: &str) {
    let expected = [vec![plain; PLAIN], vec![gold; GOLD]].concat();
    let is_there = || (tally.counts() == expected).then_some(());
    let is_over = |counts: &[usize]| counts.iter().zip(&expected).any(|(it, most)| it > most);
    process::wait_until(what, PATIENCE, || {
        assert!(!is_over(&tally.counts()), "{what}: {:?} of {expected:?}", tally.counts());
        is_there()
    });
    tally.wait_for_refusals(4 * expected.len() * 3);
    assert_eq!(tally.counts(), expected, "{what}");
}

/// Envoy rejects and reports them, and policy `last` stays in force.
fn bad_updates_change_nothing(life: &mut Life, by: By, last: usize, settle: &dyn Fn(&str)) {
    let garbage = life.file("garbage.wasm", b"no module");
    let good = filter(&rules(900, 900), 77);
    let missing = with_code(good.clone(), &garbage.with_extension("missing"));
    let bad = [filter(&rules(0, 20), 77), with_code(good, &garbage), missing.clone()];
    for (count, bad) in (1..).zip(bad) {
        assert!(!life.put(&bad), "it was taken");
        assert_eq!(life.rejected(), count);
        settle("a bad update: nothing");
        assert!(life.all_have(last), "the last good one stays");
    }
    // Envoy counts the same invalid extension as accepted when it comes again; it still changes
    // nothing.
    assert_eq!(life.put(&missing), by == By::Extension);
    settle("a bad update once more: nothing");
    assert!(life.all_have(last), "the last good one stays");
}

/// Every change in turn, under the load of four clients that have used their whole limit, two of
/// them on connections from before the change.
fn what_was_used_goes_on(by: By) {
    let mut number = 0;
    let mut life = Life::start(by, &filter(&rules(10, 12), number), 3_600);
    let tally = Tally::new(PLAIN + GOLD);
    let port = life.envoy.ports[0];
    thread::scope(|scope| {
        for renewed_after in [usize::MAX, usize::MAX, 20, 20] {
            let tally = &tally;
            scope.spawn(move || tally.hammer(port, request, renewed_after));
        }
        let mut change = |life: &mut Life, rules: &[Value]| {
            number += 1;
            life.change(&filter(rules, number), number);
            number
        };
        settle(&tally, [10, 12], "everything");
        change(&mut life, &rules(15, 12));
        settle(&tally, [15, 12], "a limit is raised: the difference");
        change(&mut life, &rules(15, 20));
        settle(&tally, [15, 20], "a tier is raised: the difference");
        change(&mut life, &in_another_order(rules(15, 20)));
        settle(&tally, [15, 20], "another order: nothing");
        for capacity in [500_000, 1_000] {
            let mut sized = rules(15, 20);
            sized[0]["capacity"] = json!(capacity);
            change(&mut life, &sized);
            settle(&tally, [15, 20], "another capacity: nothing");
        }
        let last = change(&mut life, &rules(5, 20));
        settle(&tally, [15, 20], "a limit is lowered: nothing");
        bad_updates_change_nothing(&mut life, by, last, &|what| settle(&tally, [15, 20], what));

        // Under the limit of 5 at most 5 were remembered.
        let last = change(&mut life, &rules(17, 20));
        settle(&tally, [15 + 12, 20], "raised after a lower one: what that could not count");
        let other = life.file("other.wasm", &that_is_other_code());
        let machines = life.envoy.stat("wasm.envoy.wasm.runtime.v8.created");
        let number = last + 1;
        life.change(&with_code(filter(&rules(17, 20), number), &other), number);
        assert!(life.envoy.stat("wasm.envoy.wasm.runtime.v8.created") > machines, "the same code");
        settle(&tally, [15 + 12, 20], "other code: nothing");
        tally.end();
    });
    let admitted = tally.sum();
    assert_eq!([get(&tally.failed), get(&tally.lost)], [0, 0], "{by:?}");
    assert_eq!(life.envoy.decisions("api", "allowed"), admitted as u64, "all are counted");
    let told = life.envoy.client().send(&request(0)).header("ratelimit").expect("fields");
    assert!(told.contains(&format!(r#""all";r={}"#, 1_000 - admitted)), "{admitted}: {told}");
    for name in ["failures", "evictions"] {
        assert_eq!(life.envoy.stat(&format!("wasmcustom.tollgate.{name}")), 0, "{name}");
    }
    println!("{by:?}: {admitted} admitted, {} refused, none lost", get(&tally.refused));
}

// Guards: a change of a limit, a tier, the order, the capacity or the code that gives clients a
// fresh count after they have used their whole limit; a rejected update that changes anything; and
// a request that passes uncounted during one.
#[test]
fn what_was_used_goes_on_when_listeners_are_replaced() {
    what_was_used_goes_on(By::Listeners);
}

// The same without another listener: connections stay, and the new policy applies to them at once.
#[test]
fn what_was_used_goes_on_when_the_extension_is_replaced() {
    what_was_used_goes_on(By::Extension);
}

/// How many of `tries` requests of the key are allowed.
fn admitted(client: &mut Client, tries: usize) -> usize {
    let request = Request::get("/").header("x-key", "k");
    (0..tries).filter(|_| client.send(&request).status == 200).count()
}

// Guards: two listeners with one plugin that count separately, an update of one of them that resets
// the counts, an update that is invalid for one and blocks the other, and counts that are lost with
// a listener while another one exists.
#[test]
fn two_listeners_of_one_plugin_share_counts_through_changes_of_one() {
    let ports = [process::free_port(), process::free_port()];
    let listener = |index: usize, limit: usize| {
        let rule = json!({"name": "r", "key": [{"header": "x-key"}], "quotas": [log("q", limit)]});
        let filter = tollgate(&json!({"version": 1, "rules": [rule]}), "vm", As::Text);
        let name = ["first", "second"][index];
        Listener { port: ports[index], ..Listener::new(name, vec![filter]) }
    };
    let mut setup = Setup::new(2, vec![listener(0, 10), listener(1, 10)]);
    setup.dynamic = true;
    let mut envoy = setup.start();
    let limit_of = |index: usize| {
        let request = Request::get("/").header("x-key", "nobody");
        let said = Client::connect(ports[index]).send(&request).header("ratelimit-policy");
        said.expect("fields")
    };
    let in_force = |index: usize, limit: usize| {
        process::wait_until("it is in force", PATIENCE, || {
            (0..16).all(|_| limit_of(index).contains(&format!("q={limit};"))).then_some(())
        });
    };
    let ask = |index: usize| admitted(&mut Client::connect(ports[index]), 20);
    assert_eq!(admitted(&mut Client::connect(ports[0]), 6), 6);
    assert_eq!(ask(1), 4, "ten in all");
    // The last configuration applies in both to the keys that it has seen.
    assert!(envoy.replace_listeners(&[listener(0, 15), listener(1, 10)]));
    in_force(0, 15);
    assert_eq!(ask(0), 5, "raised for one: the difference");
    assert_eq!(ask(1), 0, "and not once more through the other");
    // One is invalid, the other is accepted.
    let refused = envoy.stat("listener_manager.lds.update_rejected");
    assert!(!envoy.replace_listeners(&[listener(0, 0), listener(1, 18)]));
    assert_eq!(envoy.stat("listener_manager.lds.update_rejected"), refused + 1);
    in_force(1, 18);
    assert_eq!([ask(1), ask(0)], [3, 0], "the difference, once");
    // Removed and added again: the other one keeps the counts.
    assert!(envoy.replace_listeners(&[listener(1, 18)]));
    process::wait_until("nobody listens", PATIENCE, || {
        Client::try_connect(ports[0]).is_err().then_some(())
    });
    process::wait_until("it is drained", PATIENCE, || {
        (envoy.stat("listener_manager.total_listeners_draining") == 0).then_some(())
    });
    assert!(envoy.replace_listeners(&[listener(0, 18), listener(1, 18)]));
    process::wait_until("it is back", PATIENCE, || Client::try_connect(ports[0]).ok());
    assert_eq!([ask(0), ask(1)], [0, 0], "nobody begins anew");
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}
