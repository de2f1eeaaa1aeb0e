//! Costs in the bodies and trailers of responses, in a real Envoy with the module that reads them.

use std::path::PathBuf;

use serde_json::{Value, json};
use tollgate_e2e::body_costs::{
    self, BodyCost, BrokenBody, JSON, get, leave_after, policy, read_all, usage, used_before,
};
use tollgate_e2e::http::Request;
use tollgate_e2e::model_server;
use tollgate_e2e::process::{READY_WITHIN, wait_until};
use tollgate_e2e::scripted::{Part, Scripted, answer};

use crate::envoy_server::{As, Envoy, Listener, Setup, filter_wasm, is_dynamic_module, tollgate};

/// The module that reads bodies, next to the one under test.
pub fn full_wasm() -> PathBuf {
    filter_wasm().with_file_name("tollgate-envoy-full.wasm")
}

/// Puts that module in the place of the one under test; the dynamic module is always a full one.
pub fn use_full_module(filter: &mut Value) {
    if !is_dynamic_module() {
        let vm = &mut filter["typed_config"]["config"]["vm_config"];
        vm["code"]["local"]["filename"] = json!(full_wasm());
    }
}

/// The filter with a policy, in that module.
fn full(policy: &Value) -> Value {
    let mut filter = tollgate(policy, "full", As::Text);
    use_full_module(&mut filter);
    filter
}

fn start(policy: &Value, origin: &Scripted) -> Envoy {
    let mut setup = Setup::new(2, vec![Listener::new("main", vec![full(policy)]).behind_origin()]);
    setup.origin = origin.port;
    setup.start()
}

/// The units that a user has used, by a request that costs nothing.
fn used(envoy: &Envoy, user: &str) -> u64 {
    used_before(&envoy.client().send(&get("/free", user)))
}

/// An origin with these responses, and one that costs nothing.
fn origin(more: impl IntoIterator<Item = (String, Vec<Part>)>) -> Scripted {
    let free = answer(&[JSON], br#"{"usage": {"in": 0, "out": 0}}"#, 99);
    Scripted::start([("/free".to_owned(), free)].into_iter().chain(more).collect())
}

// Guards: costs that are not found because of how a body is cut, typed or written, and estimates
// that a response replaces by less than it used.
#[test]
fn a_body_settles_the_cost_that_it_shows() {
    let responses = body_costs::responses();
    let origin = Scripted::start(body_costs::parts(&responses));
    let envoy = start(&policy(&usage()), &origin);
    for BodyCost { path, body, units, .. } in &responses {
        let answer = envoy.client().send(&get(path, path));
        assert!((answer.status, &answer.body) == (200, body), "{path}: it passes unchanged");
        assert_eq!(used(&envoy, path), *units, "{path}");
    }
    let head = envoy.client().send(&Request::new("HEAD", "/whole").header("x-user", "head"));
    assert_eq!(head.status, 200);
    assert_eq!(used(&envoy, "head"), 10);
    let mut reasons = body_costs::reasons(&responses);
    *reasons.entry("absent").or_default() += 1;
    for (reason, count) in reasons {
        let name = format!("wasmcustom.tollgate.cost_unknown.reason={reason}");
        assert_eq!(envoy.stat(&name), count, "{reason}");
    }
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}

// Guards: clients that leave after they have the text and before the response has ended, and
// streams whose events a module holds back.
#[test]
fn a_response_that_breaks_off_costs_what_it_showed() {
    let broken = body_costs::broken();
    let origin = origin(broken.iter().map(|it| (it.path.to_owned(), it.parts.clone())));
    let envoy = start(&policy(&usage()), &origin);
    for BrokenBody { path, end, units, .. } in broken {
        leave_after(envoy.ports[0], &get(path, path), end);
        wait_until("it is settled", READY_WITHIN, || (used(&envoy, path) == units).then_some(()));
    }
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}

#[test]
fn the_origin_is_asked_for_a_plain_body_where_the_policy_says_so() {
    let mut by = usage();
    by["identity"] = json!(true);
    for (actual, expected) in
        [(by, "accept-encoding: identity\r\n"), (usage(), "accept-encoding: gzip\r\n")]
    {
        let origin = origin([]);
        let envoy = start(&policy(&actual), &origin);
        let request = get("/free", "u").header("accept-encoding", "gzip");
        assert_eq!(envoy.client().send(&request).status, 200);
        let heads = origin.heads();
        assert_eq!(heads.len(), 1);
        assert_eq!(heads[0].matches("accept-encoding").count(), 1, "{}", heads[0]);
        assert!(heads[0].contains(expected), "{}", heads[0]);
    }
}

// Guards: a module whose memory, or whose proxy's, grows with the body.
#[test]
fn a_body_of_a_hundred_megabytes_takes_no_memory() {
    let (length, parts) = body_costs::large();
    let origin = origin([("/large".to_owned(), parts)]);
    let envoy = start(&policy(&usage()), &origin);
    assert_eq!(used(&envoy, "large"), 0);
    let memory = || envoy.stat("wasmcustom.tollgate.memory_bytes");
    let before = (memory(), envoy.server.resident_bytes());
    let read = read_all(envoy.ports[0], &get("/large", "large"));
    assert!(read > length, "{read} of {length}");
    assert_eq!(used(&envoy, "large"), 23);
    assert!(memory() <= before.0 + (8 << 20), "{} after {}", memory(), before.0);
    let resident = envoy.server.resident_bytes();
    assert!(resident < before.1 + (48 << 20), "{resident} after {}", before.1);
}

#[test]
fn a_header_may_be_a_trailer() {
    let chunked = |fields: &str, trailers: &str| {
        let head = format!(
            "HTTP/1.1 200 OK\r\n{fields}connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        vec![
            Part::Bytes(head.into_bytes()),
            Part::Bytes(format!("2\r\nok\r\n0\r\n{trailers}\r\n").into()),
        ]
    };
    let rows = [
        ("/free", "x-tokens: 0\r\n", "", 0),
        ("/trailer", "", "x-tokens: 40\r\n", 40),
        ("/both", "x-tokens: 30\r\n", "x-tokens: 40\r\n", 30),
        ("/two", "", "x-tokens: 40\r\nx-tokens: 41\r\n", 10),
        ("/none", "", "", 10),
    ];
    let table = rows
        .iter()
        .map(|(path, fields, trailers, _)| ((*path).to_owned(), chunked(fields, trailers)));
    let origin = Scripted::start(table.collect());
    let policy = policy(&json!({"header": "x-tokens"}));
    let mut setup = Setup::new(2, vec![Listener::new("main", vec![full(&policy)]).behind_origin()]);
    setup.origin = origin.port;
    setup.cluster = json!({"typed_extension_protocol_options": {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http_protocol_options": {"enable_trailers": true}},
        },
    }});
    let envoy = setup.start();
    for (path, _, _, units) in rows {
        assert_eq!(envoy.client().send(&get(path, path)).text(), "ok", "{path}");
        assert_eq!(used(&envoy, path), units, "{path}");
    }
    assert_eq!(envoy.stat("wasmcustom.tollgate.cost_unknown.reason=conflicting"), 1);
    assert_eq!(envoy.stat("wasmcustom.tollgate.cost_unknown.reason=absent"), 1);
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}

// Guards: a cost that stays an estimate for ever, because the module does not read it.
#[test]
fn the_other_modules_refuse_a_cost_in_the_body_by_name() {
    let filters = vec![tollgate(&policy(&usage()), "vm", As::Text)];
    let setup = Setup::new(1, vec![Listener::new("main", filters)]);
    let (mut server, _dir) = setup.start_in_vain();
    server.wait_for_exit();
    let log = server.log();
    let line = "rules[0].cost.actual: needs the module tollgate-envoy-full.wasm";
    assert!(log.contains(line), "{log}");
}

// The recipe in front of a model server that streams: a month's tokens by what the stream shows,
// four streams at once, and ten minutes out after 20 wrong keys.
#[test]
fn a_model_server_that_streams_has_a_budget_and_four_places() {
    let origin = model_server::start();
    let envoy = start(&model_server::policy(), &origin);
    model_server::budget_and_places(&origin, || envoy.client());
}
