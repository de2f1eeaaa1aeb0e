//! The hooks, one stream after the other and in any order.

use tollgate_test_support::Random;

use crate::envoy::{self, Configuration, Sent, Stream};

const STOPS: i32 = 4;

#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
fn policy(rules: &str) -> Configuration {
    let document = format!(r#"{{"version": 1, "rules": [{rules}]}}"#);
    Configuration::new(&document).unwrap()
}

fn by_key(name: &str, limit: u32) -> String {
    format!(
        r#"{{"name": "{name}", "key": [{{"header": "x-key"}}], "quotas": [{{"limit": {limit}, "window": "1h"}}]}}"#
    )
}

/// A whole request that the origin answers; true when it got there.
fn ask(configuration: &Configuration, key: &str) -> bool {
    let stream = configuration.open(Stream::get(&[("x-key", key)]));
    let is_allowed = stream.request() == 0;
    if is_allowed {
        stream.response();
    }
    stream.end();
    is_allowed
}

// The test's own Envoy offers its functions to the linker alone, so looking one up finds none.
#[test]
fn an_envoy_without_a_function_of_1_38_is_refused() {
    assert_eq!(envoy::load(), None);
    assert!(envoy::logged(4, "the dynamic module needs Envoy 1.38") > 0);
}

#[test]
fn a_request_is_allowed_with_fields_and_the_next_one_denied() {
    let configuration = policy(&by_key("fields", 1));
    let stream = configuration.open(Stream::get(&[("x-key", "a")]));
    assert_eq!(stream.request(), 0);
    stream.response();
    assert_eq!(stream.response_header("ratelimit").as_deref(), Some(r#""fields";r=0;t=3600"#));
    stream.end();
    let stream = configuration.open(Stream::get(&[("x-key", "a")]));
    assert_eq!(stream.request(), STOPS);
    let Sent { status, headers, body, details } = stream.sent.borrow().clone().unwrap();
    let header = |name: &str| headers.iter().find(|(it, _)| it == name).map(|(_, value)| &**value);
    assert_eq!((status, &*details), (429, "tollgate_denied{fields}"));
    assert_eq!(header("content-type"), Some("application/problem+json"));
    assert!(header("retry-after").is_some() && body.contains("quota-exceeded"));
    assert_eq!(stream.states.borrow()[0].0, "wasm.tollgate");
    stream.end();
    assert_eq!(envoy::counted("rule=fields.result=allowed"), 1);
    assert_eq!(envoy::counted("rule=fields.quota=fields.result=denied"), 1);
}

#[test]
fn a_denied_grpc_call_has_its_status_and_its_content_type() {
    let configuration = policy(&by_key("grpc", 1));
    for (asked, kind, statuses) in [
        ("application/grpc+proto", "application/grpc", 0),
        ("application/grpc-web", "application/grpc-web+proto", 1),
    ] {
        assert!(ask(&configuration, kind));
        let stream = configuration.open(Stream::get(&[("x-key", kind), ("content-type", asked)]));
        assert_eq!(stream.request(), STOPS);
        let sent = stream.sent.borrow().clone().unwrap();
        let has = |name: &str, value: &str| sent.headers.contains(&(name.into(), value.into()));
        assert!(sent.status == 200 && has("grpc-status", "8"), "{sent:?}");
        assert!(has("content-type", kind), "{sent:?}");
        assert_eq!(sent.headers.iter().filter(|(name, _)| name == ":status").count(), statuses);
        stream.end();
    }
}

#[test]
fn a_waiting_request_is_resumed_by_the_timer() {
    let configuration = policy(
        r#"{"name": "wait", "key": [], "quotas": [{"limit": 10, "window": "1s", "burst": 1}],
            "action": {"delay": {"max": "10s"}}}"#,
    );
    // The clock is the real one: on a slow machine the second request may not have to wait.
    let stream = loop {
        let stream = configuration.open(Stream { ends_inside: true, ..Stream::get(&[]) });
        match stream.request() {
            STOPS => break stream,
            _ => stream.end(),
        }
    };
    while *stream.resumed.borrow() == 0 {
        envoy::wait_for_wake();
        stream.scheduled();
    }
    assert_eq!(*stream.resumed.borrow(), 1);
    assert!(stream.response_header("ratelimit").is_some());
}

// The denied keys are to be logged in a minute, so a stream is wanted by which to wake the thread.
#[test]
fn only_a_stream_that_lasts_wakes_its_thread() {
    let configuration = policy(&by_key("carrier", 1));
    assert!(ask(&configuration, "a"));
    let open = |key| configuration.open(Stream::get(&[("x-key", key)]));
    let before = open("b");
    assert_eq!((before.request(), envoy::schedulers_made()), (0, 0), "nothing is to be done");
    assert!(!ask(&configuration, "a"));
    assert_eq!((envoy::schedulers(), envoy::schedulers_made()), (1, 1), "by the one before");
    before.end();
    for _ in 0..10 {
        assert!(!ask(&configuration, "a"));
    }
    assert_eq!((envoy::schedulers(), envoy::schedulers_made()), (0, 1));
    let after = open("c");
    assert_eq!(envoy::schedulers(), 0, "another filter may deny it");
    assert_eq!((after.request(), envoy::schedulers()), (0, 1));
    after.end();
    assert_eq!((envoy::schedulers(), envoy::schedulers_made()), (0, 2));
}

// Guards: a thread that only denies, and never logs the denied keys, because no stream lasts.
#[test]
fn a_request_looks_for_what_no_stream_has_brought() {
    const INFO: i32 = 2;
    let configuration = policy(&by_key("overdue", 1));
    assert!(ask(&configuration, "a"));
    let logged = || {
        assert!(!ask(&configuration, "a"));
        envoy::logged(INFO, "denied in 60 s; most of them: rule=overdue")
    };
    assert_eq!(logged(), 0);
    envoy::let_pass(59);
    assert_eq!(logged(), 0);
    envoy::let_pass(2);
    assert_eq!([logged(), logged()], [1, 1]);
    assert_eq!(envoy::schedulers_made(), 0);
}

#[test]
fn a_stream_may_end_while_it_is_answered() {
    let configuration = policy(&by_key("inside", 1));
    assert!(ask(&configuration, "a"));
    for _ in 0..100 {
        let stream =
            configuration.open(Stream { ends_inside: true, ..Stream::get(&[("x-key", "a")]) });
        assert_eq!(stream.request(), STOPS);
        stream.end(); // once more, which no Envoy does
    }
    assert_eq!(other_panics(), 0);
}

/// Panics but those that a test of this file causes.
fn other_panics() -> usize {
    envoy::logged(5, "panic").saturating_sub(envoy::logged(5, "capacity overflow"))
}

// The test's own Envoy claims more headers than there is memory for.
#[test]
fn a_panic_is_answered_and_all_others_go_on() {
    let configuration = policy(&by_key("panic", 2));
    assert!(ask(&configuration, "a"));
    let waiting = configuration.open(Stream::get(&[("x-key", "b")]));
    assert_eq!(waiting.request(), 0);
    for _ in 0..3 {
        let grpc = [("content-type", "application/grpc")];
        let stream = configuration.open(Stream::get(&grpc));
        stream.claimed.set(Some(usize::MAX));
        assert_eq!(stream.request(), STOPS);
        let sent = stream.sent.borrow().clone().unwrap();
        assert_eq!((sent.status, &*sent.details), (503, "tollgate_panic"));
        assert_eq!(sent.headers, [("grpc-status".to_owned(), "14".to_owned())], "not success");
        stream.end();
    }
    assert!(envoy::logged(5, "capacity overflow") >= 3);
    waiting.response();
    assert_eq!(waiting.response_header("ratelimit").as_deref(), Some(r#""panic";r=1;t=1800"#));
    waiting.end();
    assert!(ask(&configuration, "a"), "the second of two");
    assert!(!ask(&configuration, "a"));
}

// Guards: a worker that answers and resumes no request any more. The first panic is the hook's, the
// second one that of the answer which follows.
#[test]
fn a_panic_after_a_panic_is_not_the_end_of_the_worker() {
    let cost = r#""cost": {"estimate": 1, "max": 2, "actual": {"header": "x-cost"}}"#;
    let rule = by_key("twice", 2).replacen('{', &format!("{{{cost}, "), 1);
    let configuration = policy(&rule);
    let stream = configuration.open(Stream::get(&[("x-key", "a")]));
    assert_eq!(stream.request(), 0);
    stream.claimed.set(Some(usize::MAX));
    let before = envoy::logged(5, "capacity overflow");
    assert_eq!(stream.request(), STOPS);
    assert!(envoy::logged(5, "capacity overflow") >= before + 2);
    let sent = stream.sent.borrow().as_ref().map(|sent| (sent.status, sent.details.clone()));
    assert_eq!(sent, Some((503, "tollgate_panic".to_owned())));
    stream.end();
    assert!(ask(&configuration, "b") && ask(&configuration, "b"));
    let denied = configuration.open(Stream::get(&[("x-key", "b")]));
    assert_eq!(denied.request(), STOPS);
    assert_eq!(denied.sent.borrow().as_ref().map(|sent| sent.status), Some(429));
    denied.end();
}

#[test]
fn what_envoy_does_not_show_is_refused_by_name() {
    let refused = |document: &str, line: &str| {
        assert!(Configuration::new(document).is_none(), "{document}");
        assert!(envoy::logged(4, line) > 0, "{line} is not in {:?}", envoy::errors());
    };
    refused("", "the plugin has no configuration");
    refused(
        r#"{"version": 1, "jwt": {"metadata": "payload"}, "rules": [{"name": "r",
            "key": [{"jwt_claim": "sub"}], "quotas": [{"limit": 1, "window": "1s"}]}]}"#,
        "rules[0]: reads the claim \"sub\", which Envoy does not show",
    );
    refused(
        r#"{"version": 1,
            "rules": [{"name": "r", "key": [{"metadata": ["f", "deep", "er"]}], "quotas": [{"limit": 1, "window": "1s"}],
                "cost": {"estimate": 1, "max": 2, "actual": {"metadata": ["f", "a", "b", "c"]}}}]}"#,
        "rules[0]: reads the metadata f/deep/er,",
    );
    // All of it at once.
    for line in
        ["rules[0]: reads the metadata f/deep/er,", "cost.actual: reads the metadata f/a/b/c,"]
    {
        assert_eq!(envoy::logged(4, line), 1, "{line} is not in {:?}", envoy::errors());
    }
}

#[test]
fn hooks_in_any_order_about_any_stream_do_no_harm() {
    let (mut random, mut open) = (Random::new(1), Vec::new());
    let mut configurations = vec![policy(&by_key("order", 3))];
    let rule = r#"{"name": "order-wait", "key": [{"header": "x-key"}], "quotas": [{"limit": 1000, "window": "1s",
        "burst": 1}], "action": {"delay": {"max": "1s"}}, "concurrency": {"limit": 2, "max_age": "5s"}}"#;
    configurations.push(policy(rule));
    for step in 0..20_000 {
        if open.len() < 8 || random.one_in(8) {
            let mut value: Vec<u8> =
                (0..random.index(40)).map(|_| random.number().to_le_bytes()[0]).collect();
            value.truncate(random.index(4) * 10);
            let mut stream = Stream::get(&[]);
            stream.request.push((b"x-key".to_vec(), value));
            stream.body = vec![b'x'; random.index(20)];
            stream.ends_inside = random.one_in(4);
            let configuration = random.index(configurations.len());
            open.push(configurations[configuration].open(stream));
        }
        let i = random.index(open.len());
        match random.index(9) {
            0..2 => drop(open[i].request()),
            2 => open[i].response(),
            3 => open[i].response_body(random.one_in(2)),
            4 => open[i].trailers(),
            5 => open[i].scheduled(),
            6 => open[i].complete(),
            _ => open.swap_remove(i).end(),
        }
        if step % 4_000 == 3_999 {
            open.drain(..).for_each(Stream::end);
            configurations[0] = policy(&by_key("order", 4));
        }
    }
    open.drain(..).for_each(Stream::end);
    assert_eq!((other_panics(), envoy::schedulers()), (0, 0));
    let last = configurations[0].open(Stream::get(&[("x-key", "last")]));
    assert_eq!(last.request(), 0);
    last.end();
}
