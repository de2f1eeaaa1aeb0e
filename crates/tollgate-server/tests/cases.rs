//! The random events that every surface decides alike, through this server's `/check` in a runtime
//! whose time the test controls: decisions, waits, fields, bodies and the effects of responses.
//!
//! Left out: cases whose clock goes back, which this server's clock cannot, policies that hold
//! places until the response, which this server rejects, and those whose cost the response shows,
//! which a caller settles by `/check/settle`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tollgate_cases::{Case, Event, Expected, Reference, Request, cases, numbers};
use tollgate_core::Timestamp;
use tollgate_language::DescribedRequest;
use tollgate_policy::{Facts, Surface};
use tollgate_server::check::{self, in_flight};
use tollgate_server::clock::Clock;
use tollgate_server::gate::{Gate, Parts};
use tollgate_server::log::Log;
use tollgate_server::policy::active::{ProtocolRestrictions, compile};
use tollgate_server::policy::following::{File, Following};
use tollgate_server::store::Store;
use tollgate_server::store::memory::Memory;
use tollgate_server::store::table::TableLimits;
use tollgate_service::log::Share;
use tollgate_storage::InFlightReport;

/// The first half of SHA-256 of the empty string: without a secret, keys are hashed with it before
/// clients get the hash.
const HASH_KEY: [u8; 16] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
];

/// The server's gate, with the policy of a case; `None` where the server rejects the policy.
fn gate(case: &Case) -> Option<Arc<Gate>> {
    let clock = Clock::showing(Timestamp::from_millis(case.start_ms));
    gate_of(case.policy.to_string(), clock)
}

/// The same for a policy, at the time of this clock.
pub(crate) fn gate_of(text: String, clock: Clock) -> Option<Arc<Gate>> {
    let limits = TableLimits { keys: 10_000, bytes: 1 << 26 };
    let memory = Memory::open(clock, limits, [7; 16], None).expect("a store");
    let policy = compile(&text, b"", ProtocolRestrictions::default()).ok()?;
    if policy.rules().iter().any(|rule| rule.settled_cost().is_some()) {
        return None;
    }
    let file = File::new(text, policy);
    Some(Gate::new(Parts {
        store: Store::Memory(memory),
        clock,
        log: Log::nowhere(clock),
        following: Following::new(file, false, false, ProtocolRestrictions::default()),
        hash_key: Vec::new(),
        fleet_secret: None,
        log_share: Share::DEFAULT,
        is_uncounted: false,
        seed: [9; 16],
    }))
}

/// A request as a caller describes it; `None` where it cannot be described.
fn described(request: &Request) -> Option<Value> {
    let mut headers = Map::new();
    for (name, _) in &request.headers {
        let value = request.header(name).expect("it is there");
        headers.insert((*name).to_owned(), json!(String::from_utf8_lossy(&value)));
    }
    if let Some(len) = request.body_len {
        headers.insert("content-length".to_owned(), json!(len.to_string()));
    }
    let body = json!({"method": request.method, "path": request.target, "host": request.host,
        "headers": headers, "client_ip": request.peer.to_string()});
    DescribedRequest::parse(body.to_string().as_bytes()).ok().map(|_| body)
}

pub(crate) async fn ask(gate: &Arc<Gate>, body: &Value) -> Value {
    let answer = check::answer(gate, body.to_string().as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

async fn wait_until(gate: &Arc<Gate>, at_ms: u64) {
    let at = Timestamp::from_millis(at_ms);
    let now = gate.clock.now();
    assert!(now <= at, "the server has waited for too long");
    tokio::time::advance(Duration::from_nanos(at.since(now).as_nanos())).await;
}

/// Name and value of each field, sorted.
fn fields(of: &Value) -> Vec<(String, String)> {
    let members = of.as_object().into_iter().flatten();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut fields: Vec<_> = members.map(|(name, value)| (name.clone(), text(value))).collect();
    fields.sort();
    fields
}

fn compare(
    request: &Request,
    answer: &Value,
    expected: &Expected,
    waited_ms: u64,
) -> Result<(), String> {
    let seen = expected.seen.clone().sorted();
    let delay = answer["delay_ms"].as_u64().unwrap_or(0);
    let is = |what: &str, ours: String, theirs: String| {
        if ours == theirs { Ok(()) } else { Err(format!("{what}: {ours}, expected {theirs}")) }
    };
    is("waits", (waited_ms + delay).to_string(), seen.waits_ms.iter().sum::<u64>().to_string())?;
    is("passed", (answer["decision"] != "deny").to_string(), seen.passed().to_string())?;
    let mut ours = fields(&answer["headers"]);
    if let (Some(kind), None) = (answer["content_type"].as_str(), request.grpc()) {
        ours.push(("content-type".into(), kind.into()));
        ours.sort();
    }
    if let (Some(body), Some(_)) = (&seen.body, request.grpc()) {
        is("body", answer["body"].as_str().unwrap_or("none").to_owned(), body.clone())?;
        let status = seen.field("grpc-status").unwrap_or_default();
        return is("grpc-status", answer["grpc"]["status"].to_string(), status.to_owned());
    }
    is("fields", format!("{ours:?}"), format!("{:?}", seen.fields))?;
    if let Some(body) = &seen.body {
        is("status", answer["status"].to_string(), seen.status.to_string())?;
        // A caller sends no body to HEAD; the response describes the body that there would be.
        let body = if request.method == "HEAD" { answer["body"].as_str().unwrap() } else { body };
        return is("body", answer["body"].as_str().unwrap_or("none").to_owned(), body.to_owned());
    }
    let mut marks = seen.marks.clone();
    marks.sort();
    is("marks", format!("{:?}", fields(&answer["request_headers"])), format!("{marks:?}"))
}

/// The ids by which the requests of a case in flight are ended, by the indices of their events.
type Running = BTreeMap<usize, String>;

/// One request, and the ends that follow; false where it cannot be described.
async fn play(
    gate: &Arc<Gate>,
    (index, event): (usize, &Event),
    expected: &Expected,
    running: &mut Running,
) -> Result<bool, String> {
    let is_described = play_one(gate, (index, event), expected, running).await?;
    for ended in expected.ended.iter().filter(|ended| expected.ends.contains(&ended.index)) {
        wait_until(gate, expected.at_ms + expected.seen.waits_ms.iter().sum::<u64>()).await;
        end(gate, ended.index, running).await?;
    }
    Ok(is_described)
}

async fn end(gate: &Arc<Gate>, index: usize, running: &mut Running) -> Result<(), String> {
    let id = running.remove(&index).ok_or_else(|| format!("{index} has no id"))?;
    let report = json!({"id": id}).to_string();
    let answer = in_flight::answer(gate, InFlightReport::Ended, report.as_bytes()).await;
    assert_eq!((answer.status, &*answer.body), (200, r#"{"result":"done"}"#));
    Ok(())
}

/// The ends of earlier requests while one waits.
async fn end_meanwhile(
    gate: &Arc<Gate>,
    expected: &Expected,
    running: &mut Running,
) -> Result<(), String> {
    let mut at_ms = expected.at_ms;
    for (wait, ends) in expected.seen.waits_ms.iter().zip(&expected.ends_meanwhile) {
        at_ms += wait;
        for ended in expected.ended.iter().filter(|ended| ends.contains(&ended.index)) {
            let wait_ms = at_ms.saturating_sub(gate.clock.now_ms());
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            end(gate, ended.index, running).await?;
        }
    }
    Ok(())
}

async fn play_one(
    gate: &Arc<Gate>,
    (index, event): (usize, &Event),
    expected: &Expected,
    running: &mut Running,
) -> Result<bool, String> {
    let Some(mut body) = described(&event.request) else {
        // Decided all the same, so that the counts stay alike.
        wait_until(gate, expected.at_ms).await;
        let decided = check::decide(gate, &event.request);
        let (ended, decided) =
            tokio::join!(biased; end_meanwhile(gate, expected, running), decided);
        decided.into_decided();
        return ended.map(|()| false);
    };
    wait_until(gate, expected.at_ms).await;
    // The end comes before the look of the same time.
    let (ended, answer) =
        tokio::join!(biased; end_meanwhile(gate, expected, running), ask(gate, &body));
    ended?;
    let waited_ms = gate.clock.now_ms() - expected.at_ms;
    compare(&event.request, &answer, expected, waited_ms)?;
    running.extend(answer["in_flight"]["id"].as_str().map(|id| (index, id.to_owned())));
    let delay = answer["delay_ms"].as_u64().unwrap_or(0);
    // The next request may come before a place in a queue does.
    if expected.charged_later {
        wait_until(gate, expected.at_ms + waited_ms + delay).await;
    }
    let is_reported = answer["report"] == "response_status";
    let mut charged = false;
    if is_reported {
        body["response_status"] = json!(event.status);
        charged = ask(gate, &body).await == json!({"charged": true});
    }
    // A due request may charge nothing: of a key that is not enforced, for example. A missing
    // charge is seen with the next request.
    if charged && !expected.charged_later {
        return Err("charged by the response, and nothing was due".to_owned());
    }
    Ok(true)
}

#[test]
fn every_case_that_a_server_can_have_is_answered_as_everywhere() {
    let (mut events, mut undescribed, mut left_out) = (0_u32, 0_u32, 0_u32);
    for case in numbers(cases()).map(Case::new) {
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
        let gate = runtime.block_on(async { gate(&case).filter(|_| !case.wavers) });
        let Some(gate) = gate else {
            left_out += 1;
            continue;
        };
        let mut running = Running::new();
        for (index, expected) in Reference::new(&case, Surface::Server, HASH_KEY).enumerate() {
            let event = (index, &case.events[index]);
            match runtime.block_on(play(&gate, event, &expected, &mut running)) {
                Ok(true) => events += 1,
                Ok(false) => undescribed += 1,
                Err(why) => panic!("{}", case.difference("the server", index, &expected, &why)),
            }
        }
    }
    println!("{events} events, {undescribed} that cannot be described, {left_out} cases left out");
    assert!(events > cases() * 250 / 3, "{events} of {} cases", cases());
}
