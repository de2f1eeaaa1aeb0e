//! Costs that are corrected afterwards, in a real workerd: by HTTP and by a service binding,
//! through several isolates at once, across crashes, deployments and ten minutes.
//!
//! The effect on a count is tested without workerd, on random schedules
//! (`tollgate-policy/tests/settle.rs`).

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request, Response};
use tollgate_e2e::workerd::{Setup, answer};

const SECRET: &str = "the secret that names objects";
const LIMIT: u64 = 100;
/// A quiet moment, in milliseconds since 1970.
const START: u64 = 1_780_000_000_000;

fn rule(name: &str, key: &str, durability: &str) -> Value {
    let quota =
        json!({"name": "year", "algorithm": "fixed-window", "limit": LIMIT, "window": "366d"});
    json!({"name": name, "key": [{"header": key}], "quotas": [quota], "durability": durability,
        "cost": {"header": "x-cost", "max": 50}})
}

fn policy(rules: Value) -> Value {
    json!({"version": 1, "rules": rules})
}

fn one_rule() -> Value {
    policy(json!([rule("tokens", "x-key", "strict")]))
}

fn setup(policy: &Value) -> Setup {
    Setup::new(policy).binding("HASH_KEY", SECRET)
}

fn described(key: &str, cost: u64) -> Value {
    json!({"method": "POST", "path": "/", "headers": {"x-key": key, "x-cost": cost.to_string()}, "settle": true})
}

fn check(client: &mut Client, asked: &Value) -> Value {
    answer(&client.send(&Request::post("/check", asked.to_string())))
}

/// The id of an allowed request.
fn id(client: &mut Client, key: &str, cost: u64) -> String {
    let answer = check(client, &described(key, cost));
    assert_eq!(answer["decision"], "allow", "{answer}");
    answer["id"].as_str().unwrap_or_else(|| panic!("no id: {answer}")).to_owned()
}

fn settle_request(id: &str, cost: impl Into<Value>) -> Request {
    let cost: Value = cost.into();
    Request::post("/check/settle", json!({"id": id, "cost": cost}).to_string())
}

fn settle(client: &mut Client, id: &str, cost: u64) -> Value {
    answer(&client.send(&settle_request(id, cost)))
}

fn settled(cost: u64, charged: u64) -> Value {
    json!({"result": "settled", "cost": cost, "charged": charged})
}

/// The used units of the key, by a request that costs one.
fn used(client: &mut Client, key: &str) -> u64 {
    let answer = check(client, &described(key, 1));
    let field = answer["headers"]["ratelimit"].as_str().expect("a field").to_owned();
    let left = field.split(";r=").nth(1).and_then(|rest| rest.split(';').next());
    LIMIT - left.and_then(|left| left.parse::<u64>().ok()).expect("a number") - 1
}

fn problem(response: &Response, status: u16) -> String {
    assert_eq!(response.status, status, "{}", response.text());
    let problem: Value = serde_json::from_slice(&response.body).expect("a problem");
    problem["errors"][0]["detail"]
        .as_str()
        .or(problem["detail"].as_str())
        .expect("a detail")
        .to_owned()
}

// Guards: a cost that is settled twice, or to another value than the caller sent; and an id for a
// request that was not charged.
#[test]
fn a_lower_cost_comes_back_and_a_higher_one_is_charged() {
    let worker = setup(&one_rule()).start();
    let mut client = worker.client();
    let lower = id(&mut client, "a", 30);
    assert_eq!(settle(&mut client, &lower, 10), settled(10, 10));
    assert_eq!(settle(&mut client, &lower, 10), settled(10, 10));
    let other = json!({"result": "conflict", "cost": 10});
    assert_eq!(settle(&mut client, &lower, 11), other);
    assert_eq!(settle(&mut client, &lower, 0), other);
    assert_eq!(used(&mut client, "a"), 10);
    let higher = id(&mut client, "a", 30);
    assert_eq!(settle(&mut client, &higher, 45), settled(45, 45));
    assert_eq!(settle(&mut client, &higher, 45), settled(45, 45));
    assert_eq!(used(&mut client, "a"), 56);
    // All of it was used, whether or not it fits.
    let most = id(&mut client, "a", 30);
    for _ in 0..2 {
        assert_eq!(
            settle(&mut client, &most, 1_000_000_000),
            settled(1_000_000_000, 1_000_000_000)
        );
    }
    let denied = check(&mut client, &described("a", 1));
    assert_eq!((denied["decision"].as_str(), denied.get("id")), (Some("deny"), None));
    // A request that asked for no id has none.
    let mut plain = described("b", 5);
    plain.as_object_mut().expect("an object").remove("settle");
    assert_eq!(check(&mut client, &plain).get("id"), None);
    // Of several requests each has its own.
    let batch = json!({"requests": [described("c", 20), plain, described("c", 20)]});
    let answers = check(&mut client, &batch);
    assert_eq!(answers["answers"][1].get("id"), None);
    for (i, cost) in [(0, 1), (2, 2)] {
        let id = answers["answers"][i]["id"].as_str().expect("an id");
        assert_eq!(settle(&mut client, id, cost), settled(cost, cost));
    }
    assert_eq!(used(&mut client, "c"), 3);
}

// Guards: a request that matches no rule with a cost, for which the caller cannot settle anything.
#[test]
fn rules_that_name_no_cost_count_requests() {
    let mut counts = rule("requests", "x-key", "strict");
    counts.as_object_mut().expect("an object").remove("cost");
    let worker = setup(&policy(json!([counts]))).start();
    let mut client = worker.client();
    let nothing = id(&mut client, "a", 30);
    let said = json!({"result": "settled", "cost": 7, "charged": null});
    assert_eq!(settle(&mut client, &nothing, 7), said);
    assert_eq!(used(&mut client, "a"), 1);
    let no_rule = json!({"method": "GET", "path": "/", "settle": true});
    let answer = check(&mut client, &no_rule);
    assert_eq!(settle(&mut client, answer["id"].as_str().expect("an id"), 7), said);
}

// Guards: a forged id, one of another deployment with the same secret, an invalid cost; and a
// deployment without the secret, or without its token.
#[test]
fn what_an_attacker_sends_is_refused() {
    let worker =
        setup(&one_rule()).also(one_rule()).binding("CHECK_TOKEN", "a-token-of-callers").start();
    let authorized =
        |request: Request| request.header("authorization", "Bearer a-token-of-callers");
    let mut clients: Vec<Client> = worker.ports.iter().map(|port| Client::connect(*port)).collect();
    let ids: Vec<String> = clients
        .iter_mut()
        .map(|client| {
            let asked = Request::post("/check", described("a", 30).to_string());
            answer(&client.send(&authorized(asked)))["id"].as_str().expect("an id").to_owned()
        })
        .collect();
    let client = &mut clients[0];
    let refused = client.send(&settle_request(&ids[0], 1));
    assert_eq!(refused.status, 401);
    let mut said =
        |id: &str, cost: Value| problem(&client.send(&authorized(settle_request(id, cost))), 400);
    let none = "is not an id that this deployment gave out";
    let mut forged = ids[0].clone();
    let last = forged.pop().expect("a digit");
    forged.push(if last == 'A' { 'B' } else { 'A' });
    for id in [ids[1].as_str(), &forged, "", "A", "%", &"A".repeat(60_000)] {
        assert_eq!(said(id, json!(1)), none);
    }
    for cost in
        [json!(-1), json!(0.5), json!(u64::MAX), json!(1_000_000_001), json!("1"), json!(null)]
    {
        let said = said(&ids[0], cost.clone());
        assert!(said.ends_with("is not a whole number from 0 to 1000000000"), "{cost}: {said}");
    }
    let long = authorized(settle_request(&"A".repeat(70_000), 1));
    assert_eq!(client.send(&long).status, 413);
    assert_eq!(client.send(&authorized(Request::get("/check/settle"))).status, 405);
    assert_eq!(client.send(&authorized(Request::post("/check/settle/", "{}"))).status, 404);
    // None of these was treated as a settlement.
    let good = answer(&client.send(&authorized(settle_request(&ids[0], 30))));
    assert_eq!(good, settled(30, 30));

    let worker = Setup::new(one_rule()).start();
    let mut client = worker.client();
    let off = "this is off: it needs the secret HASH_KEY";
    assert_eq!(problem(&client.send(&settle_request(&ids[0], 1)), 404), off);
    let asked = Request::post("/check", described("a", 30).to_string());
    assert_eq!(problem(&client.send(&asked), 400), off);
    let batch = json!({"requests": [described("a", 30), {"method": "GET", "path": "/"}]});
    let answers = check(&mut client, &batch);
    assert_eq!(answers["answers"][0]["errors"][0]["detail"], off);
    assert_eq!(answers["answers"][1]["decision"], "allow");
}

// Guards: an id that is settled by two isolates at the same moment, and refunded twice; under load,
// a settlement that is lost.
#[test]
fn isolates_that_settle_at_once_settle_once() {
    let policy = one_rule();
    let worker = setup(&policy).beside(&policy).beside(&policy).start();
    for round in 0..10 {
        let key = format!("k{round}");
        let ids: Vec<String> = (0..3).map(|_| id(&mut worker.client(), &key, 30)).collect();
        thread::scope(|scope| {
            for (i, id) in ids.iter().enumerate() {
                for port in &worker.ports {
                    for cost in [5, 5, 6] {
                        scope.spawn(move || {
                            let said = settle(&mut Client::connect(*port), id, cost);
                            let other = if said["cost"] == 5 { 5 } else { 6 };
                            let conflict = json!({"result": "conflict", "cost": other});
                            assert!(said == settled(cost, cost) || said == conflict, "{i}: {said}");
                        });
                    }
                }
            }
        });
        let mut client = worker.client();
        let said = |client: &mut Client, id: &String| settle(client, id, 5)["cost"].as_u64();
        let stands: u64 = ids.iter().filter_map(|id| said(&mut client, id)).sum();
        assert!((15..=18).contains(&stands), "{stands}");
        assert_eq!(used(&mut client, &key), stands);
    }
}

// Guards: a settlement that is lost when an object is evicted or the machine fails, so that it is
// refunded again: under `strict` at once, under `relaxed` once it was written.
#[test]
fn a_crash_forgets_no_settlement() {
    for durability in ["strict", "relaxed"] {
        let mut worker = setup(&policy(json!([rule("tokens", "x-key", durability)]))).start();
        let mut client = worker.client();
        let (one, two) = (id(&mut client, "a", 30), id(&mut client, "a", 30));
        assert_eq!(settle(&mut client, &one, 10), settled(10, 10));
        if durability == "relaxed" {
            thread::sleep(Duration::from_millis(1_000)); // saved within 50 ms
        }
        worker.kill();
        worker.restart();
        let mut client = worker.client();
        assert_eq!(settle(&mut client, &one, 10), settled(10, 10));
        assert_eq!(settle(&mut client, &one, 9), json!({"result": "conflict", "cost": 10}));
        assert_eq!(settle(&mut client, &two, 5), settled(5, 5));
        assert_eq!(used(&mut client, "a"), 15, "{durability}");
    }
}

/// Requested with `x-junk`, an object finds foreign bytes in its row.
const JUNK: &str = r#"
import Tollgate, { Limiter as Real } from "./entry.mjs";
let junk = false;
export default class extends Tollgate {
  fetch(request) {
    junk = request.headers.has("x-junk");
    return super.fetch(request);
  }
}
export class Limiter extends Real {
  check(request) {
    if (junk) this.ctx.storage.sql.exec("UPDATE state_v2 SET row = ?", new Uint8Array(300).fill(255));
    return super.check(request);
  }
}
"#;

// Guards: a caller that repeats a higher cost, as instructed, and is charged for it each time
// because the row that recorded the first settlement is lost.
#[test]
fn a_settlement_that_is_repeated_after_a_loss_is_charged_once() {
    let mut worker = setup(&one_rule()).front(JUNK).start();
    let mut client = worker.client();
    let higher = id(&mut client, "a", 10);
    assert_eq!(settle(&mut client, &higher, 30), settled(30, 30));
    worker.kill();
    worker.restart();
    let mut client = worker.client();
    // It is unknown what is settled, so the caller must send it again.
    let lost = client.send(&settle_request(&higher, 30).header("x-junk", "1"));
    assert_eq!(problem(&lost, 503), "a count does not answer; settle the same cost again");
    for _ in 0..2 {
        for _ in 0..3 {
            assert_eq!(settle(&mut client, &higher, 30), settled(30, 30));
        }
        // The difference, which is the only charge since the count started empty.
        worker.kill();
        worker.restart();
        client = worker.client();
    }
    assert_eq!(used(&mut client, "a"), 20);
}

// Guards: an id from before a deployment that restores the old quotas.
#[test]
fn a_deployment_keeps_its_quotas() {
    let mut worker = setup(&one_rule()).start();
    let mut client = worker.client();
    let (lower, higher, same) =
        (id(&mut client, "a", 20), id(&mut client, "a", 20), id(&mut client, "b", 20));
    let mut changed = one_rule();
    changed["rules"][0]["quotas"][0]["limit"] = json!(50);
    worker.kill();
    worker.deploy(&changed);
    worker.restart();
    let mut client = worker.client();
    // The first request carries the states over; before that the charge is unchanged.
    assert_eq!(settle(&mut client, &same, 5), settled(5, 5));
    assert_eq!(check(&mut client, &described("a", 1))["decision"], "allow");
    assert_eq!(settle(&mut client, &lower, 0), settled(0, 20));
    assert_eq!(settle(&mut client, &higher, 50), settled(50, 50));
    assert_eq!(check(&mut client, &described("a", 1))["decision"], "deny");
}

/// `x-at` is the time; an object fails when a request for its key has `x-break`.
const CLOCK: &str = r#"
import Tollgate, { Limiter as Real } from "./entry.mjs";

const realNow = Date.now;
let now;
let breaks = 0;
Date.now = () => now ?? realNow();

export class Limiter extends Real {
  check(request) {
    if (breaks > 0 && breaks-- === 1) throw new Error("the object is broken");
    return super.check(request);
  }
}

export default class extends Tollgate {
  async fetch(request) {
    const at = request.headers.get("x-at");
    now = at === null ? undefined : Number(at);
    breaks = Number(request.headers.get("x-break") ?? 0);
    return super.fetch(request);
  }
}
"#;

// Guards: an id that is valid for ever, or less than ten minutes; and a clock that goes back.
#[test]
fn an_id_is_valid_for_ten_minutes() {
    let worker = setup(&one_rule()).front(CLOCK).start();
    let mut client = worker.client();
    let at = |request: Request, ms: u64| request.header("x-at", (START + ms).to_string());
    let expired = json!({"result": "expired"});
    for (key, after_ms, expected) in [
        ("a", 599_000, settled(1, 1)),
        ("b", 600_000, settled(1, 1)),
        ("c", 600_001, expired.clone()),
        ("d", 601_000, expired.clone()),
        ("e", 86_400_000, expired),
    ] {
        let asked = Request::post("/check", described(key, 30).to_string());
        let id = answer(&client.send(&at(asked, 0)))["id"].as_str().expect("an id").to_owned();
        let said = answer(&client.send(&at(settle_request(&id, 1), after_ms)));
        assert_eq!(said, expected, "{after_ms}");
        // Again by a clock that went back: it is not refunded twice.
        for _ in 0..2 {
            let again = answer(&client.send(&at(settle_request(&id, 1), 60_000)));
            assert_eq!(again, settled(1, 1));
        }
        let asked = Request::post("/check", described(key, 50).to_string());
        for expected in ["allow", "deny"] {
            let said = answer(&client.send(&at(asked.clone(), 60_001)));
            assert_eq!(said["decision"], expected, "{key}");
        }
    }
}

// Guards: a cost of several keys, one of which does not respond: it is not considered settled, and
// once it responds nothing was settled twice.
#[test]
fn who_does_not_answer_is_asked_again() {
    let rules = json!([rule("user", "x-key", "strict"), rule("team", "x-team", "strict")]);
    let worker = setup(&policy(rules)).front(CLOCK).start();
    let mut client = worker.client();
    let mut asked = described("u", 40);
    asked["headers"]["x-team"] = json!("t");
    let id = check(&mut client, &asked)["id"].as_str().expect("an id").to_owned();
    for nth in [1, 2] {
        let broken = settle_request(&id, 10).header("x-break", nth.to_string());
        assert_eq!(
            problem(&client.send(&broken), 503),
            "a count does not answer; settle the same cost again"
        );
    }
    for _ in 0..2 {
        assert_eq!(settle(&mut client, &id, 10), settled(10, 10));
    }
    assert_eq!(used(&mut client, "u"), 10);
    asked["headers"]["x-key"] = json!("v");
    asked["headers"]["x-cost"] = json!("50");
    assert_eq!(check(&mut client, &asked)["decision"], "allow");
    // The team has 60 and the user 50: each is charged all of it.
    let id = check(&mut client, &{
        asked["headers"]["x-cost"] = json!("20");
        asked.clone()
    });
    let id = id["id"].as_str().expect("an id");
    assert_eq!(settle(&mut client, id, 70), settled(70, 70));
    asked["headers"]["x-key"] = json!("w");
    asked["headers"]["x-cost"] = json!("1");
    assert_eq!(check(&mut client, &asked)["violated"], json!(["year"]));
    // 50 were charged to the user, then 20, then 50 more.
    let mut alone = described("v", 1);
    alone.as_object_mut().expect("an object").remove("settle");
    assert_eq!(check(&mut client, &alone)["decision"], "deny");
}

/// A Worker that calls `settle` with the JSON of its request's body: id and cost.
const CALLER: &str = r#"
import Tollgate, { Limiter } from "./entry.mjs";
export { Limiter, Tollgate };

const STRANGE = { nan: NaN, big: 1n, nothing: undefined, infinite: Infinity };

export default {
  async fetch(request, env) {
    if (new URL(request.url).pathname !== "/call") return env.TOLLGATE.fetch(request);
    const { id, cost, strange } = await request.json();
    try {
      return Response.json(await env.TOLLGATE.settle(id, strange === undefined ? cost : STRANGE[strange]));
    } catch (error) {
      return Response.json({ name: error.name, message: error.message });
    }
  },
};
"#;

// Guards: two different contracts: a call settles as POST /check/settle does.
#[test]
fn a_call_settles_like_post_check_settle() {
    let worker = setup(&one_rule()).front(CALLER).service_binding("TOLLGATE").start();
    let mut client = worker.client();
    let given = id(&mut client, "a", 30);
    let call = |client: &mut Client, body: Value| {
        answer(&client.send(&Request::post("/call", body.to_string())))
    };
    assert_eq!(call(&mut client, json!({"id": given, "cost": 12})), settled(12, 12));
    assert_eq!(settle(&mut client, &given, 12), settled(12, 12));
    let other = call(&mut client, json!({"id": given, "cost": 13}));
    assert_eq!(other, json!({"result": "conflict", "cost": 12}));
    for (body, said) in [
        (json!({"id": given, "cost": -1}), "cost: -1 is not a whole number from 0 to 1000000000"),
        (json!({"id": "x", "cost": 1}), "id: is not an id that this deployment gave out"),
        (json!({"cost": 1}), "id: is missing"),
        (
            json!({"id": given, "strange": "nan"}),
            "cost: null is not a whole number from 0 to 1000000000",
        ),
        (
            json!({"id": given, "strange": "infinite"}),
            "cost: null is not a whole number from 0 to 1000000000",
        ),
        (json!({"id": given, "strange": "nothing"}), "cost: is missing"),
    ] {
        let message = format!("400 Bad Request; the settlement is wrong; see errors; {said}");
        assert_eq!(call(&mut client, body), json!({"name": "TypeError", "message": message}));
    }
    assert_eq!(call(&mut client, json!({"id": given, "strange": "big"}))["name"], "TypeError");
    assert_eq!(used(&mut client, "a"), 12);
}
