//! Traces: the data sent to a collector; no collector delays a request.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::collector::{Collector, Manner, Span};
use tollgate_e2e::envoy_messages::{RateLimitRequest, descriptor};
use tollgate_e2e::grpc::unary;
use tollgate_e2e::http::Request;
use tollgate_e2e::process::{free_port, wait_until};
use tollgate_e2e::server::{CHECK_TOKEN, Setup};

use prost::Message;
use rustix::process::Signal;
use tollgate_test_support::hex;

const LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const ABOVE: &str = "00f067aa0ba902b7";

fn policy() -> Value {
    let year = |name: &str, key: Value, limit: u64| {
        let quota = json!({"algorithm": "fixed-window", "limit": limit, "window": "366d"});
        json!({"name": name, "key": key, "quotas": [quota]})
    };
    json!({"version": 1, "rules": [
        year("each", json!(["client_ip"]), 1),
        year("key", json!([{"header": "x-key"}]), 100)]})
}

fn setup() -> Setup {
    let setup = Setup::new(policy()).operated().set("protocols", "ratelimit");
    setup.variable("TOLLGATE_CHECK_TOKEN", CHECK_TOKEN)
}

fn traced(port: u16) -> Setup {
    setup().set("traces", format!("http://127.0.0.1:{port}")).set("traces_share", 0)
}

fn check(parent: Option<&str>, token: &str) -> Request {
    let body = json!({"method": "GET", "path": "/a-secret-path", "client_ip": "192.0.2.77",
        "headers": {"x-key": "a-secret-key"}});
    let request = Request::post("/check", body.to_string())
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {token}"));
    parent.map_or(request.clone(), |parent| request.header("traceparent", parent))
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

#[test]
fn a_request_is_a_span_below_its_callers_and_says_what_was_decided_and_nothing_of_the_client() {
    let collector = Collector::start(Manner::Takes);
    let server = traced(collector.port).variable("TOLLGATE_HASH_KEY", "0123456789abcdef").start();
    let parent = format!("00-{TRACE}-{ABOVE}-01");
    let mut client = server.client();
    for status in [200, 200] {
        assert_eq!(client.send(&check(Some(&parent), CHECK_TOKEN)).status, status);
    }
    // An unauthorized caller, a request that its caller does not trace, and one without a trace
    // while the share is 0.
    assert_eq!(client.send(&check(Some(&parent), "a wrong token")).status, 401);
    let unsampled = format!("00-{TRACE}-{ABOVE}-00");
    assert_eq!(client.send(&check(Some(&unsampled), CHECK_TOKEN)).status, 200);
    assert_eq!(client.send(&check(None, CHECK_TOKEN)).status, 200);
    assert_eq!(client.send(&Request::get("/.well-known/tollgate/health")).status, 200);
    let message = RateLimitRequest {
        domain: b"web".into(),
        descriptors: vec![descriptor(&[("user", "a-secret-user")]); 2],
        hits_addend: 1,
    };
    let other = "11111111111111111111111111111111";
    let token = format!("Bearer {CHECK_TOKEN}");
    let metadata =
        [("authorization", &*token), ("traceparent", &*format!("00-{other}-{ABOVE}-01"))];
    assert_eq!(unary(server.port, LIMIT, &message.encode_to_vec(), &metadata).code, 0);

    let spans = collector.wait_for(7);
    let requests = named(&spans, "POST /check");
    assert_eq!(requests.len(), 2);
    let decided = named(&spans, "decide");
    for (request, (decision, results)) in
        requests.iter().zip([("allow", "[allowed, allowed]"), ("deny", "[denied, allowed]")])
    {
        assert_eq!(
            (hex(&request.trace_id), hex(&request.parent_span_id)),
            (TRACE.into(), ABOVE.into())
        );
        assert_eq!(
            (request.kind, request.attribute("http.response.status_code")),
            (2, Some("200".into()))
        );
        assert!(request.end_time_unix_nano >= request.start_time_unix_nano);
        assert!(request.start_time_unix_nano > 1_700_000_000_000_000_000);
        let below: Vec<_> =
            decided.iter().filter(|span| span.parent_span_id == request.span_id).collect();
        assert_eq!(below.len(), 1);
        assert_eq!(hex(&below[0].trace_id), TRACE);
        assert_eq!(below[0].attribute("tollgate.decision").as_deref(), Some(decision));
        assert_eq!(below[0].attribute("tollgate.rules").as_deref(), Some("[each, key]"));
        assert_eq!(below[0].attribute("tollgate.results").as_deref(), Some(results));
        let keys = below[0].attribute("tollgate.pk").expect("with a secret");
        assert_eq!(keys.split(", ").filter(|key| key.len() > 8).count(), 2, "{keys}");
    }
    let call = named(&spans, LIMIT.trim_start_matches('/'));
    assert_eq!((call.len(), hex(&call[0].trace_id)), (1, other.to_owned()));
    let below = decided.iter().filter(|span| span.parent_span_id == call[0].span_id);
    assert_eq!(below.count(), 2, "one for each descriptor");
    let mut ids: Vec<_> = spans.iter().map(|span| span.span_id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), spans.len()), (7, 7));
    for (head, body) in collector.taken() {
        assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
        for secret in [&b"secret"[..], b"192.0.2", CHECK_TOKEN.as_bytes()] {
            assert!(!body.windows(secret.len()).any(|bytes| bytes == secret));
        }
    }
    wait_until("counted", Duration::from_secs(60), || {
        (server.metric("tollgate_spans_sent_total") == 7).then_some(())
    });
    assert_eq!(server.metric("tollgate_spans_dropped_total"), 0);
}

#[test]
fn the_variables_of_opentelemetry_are_read_where_no_setting_says_otherwise() {
    let collector = Collector::start(Manner::Takes);
    let endpoint = format!("http://127.0.0.1:{}/otlp", collector.port);
    let with = || {
        setup()
            .variable("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)
            .variable("OTEL_SERVICE_NAME", "limiter")
            .variable("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=te%20st")
            .variable("OTEL_EXPORTER_OTLP_HEADERS", "x-collector=its-token")
            .variable("OTEL_TRACES_SAMPLER", "parentbased_always_on")
    };
    let server = with().start();
    assert_eq!(server.client().send(&check(None, CHECK_TOKEN)).status, 200);
    let spans = collector.wait_for(2);
    assert!(named(&spans, "POST /check")[0].parent_span_id.is_empty(), "it begins here");
    let (said, _) = collector.exports().remove(0);
    assert_eq!(said, ["service.name=limiter", "deployment.environment.name=te st"]);
    let (head, _) = collector.taken().remove(0);
    assert!(head.starts_with("post /otlp/v1/traces ") && head.contains("x-collector: its-token"));
    drop(server);
    let off = with().variable("OTEL_SDK_DISABLED", "true").start();
    assert_eq!(off.client().send(&check(None, CHECK_TOKEN)).status, 200);
    // It sends nothing: its spans would arrive before those of the next request.
    let on = with().start();
    assert_eq!(on.client().send(&check(None, CHECK_TOKEN)).status, 200);
    assert_eq!(collector.wait_for(4).len(), 4);
    assert_eq!(off.metric("tollgate_spans_sent_total"), 0);
}

// Guards: a collector that is absent, fails, is silent or never ends. Requests get responses, the
// queue is bounded, spans that are not accepted are counted and then dropped.
#[test]
fn no_collector_keeps_anybody_waiting() {
    let parent = format!("00-{TRACE}-{ABOVE}-01");
    for manner in [None, Some(Manner::Fails), Some(Manner::Silent), Some(Manner::Endless)] {
        let collector = manner.map(Collector::start);
        let port = collector.as_ref().map_or_else(free_port, |collector| collector.port);
        let server = traced(port).start();
        let mut client = server.client();
        let before = server.server.resident_bytes();
        // Two spans each: far more than the queue for the collector holds.
        for _ in 0..4_000 {
            assert_eq!(client.send(&check(Some(&parent), CHECK_TOKEN)).status, 200);
        }
        wait_until("dropped", Duration::from_secs(60), || {
            (server.metric("tollgate_spans_dropped_total") >= 5_000).then_some(())
        });
        assert_eq!(server.metric("tollgate_spans_sent_total"), 0, "{manner:?}");
        let grown = server.server.resident_bytes().saturating_sub(before);
        assert!(grown < 32 << 20, "{grown} {manner:?}");
        server.wait_for_events("traces_failed", 1);
    }
}

#[test]
fn spans_that_a_collector_rejects_are_counted_as_dropped() {
    let collector = Collector::start(Manner::Rejects(1));
    let server = traced(collector.port).start();
    let parent = format!("00-{TRACE}-{ABOVE}-01");
    assert_eq!(server.client().send(&check(Some(&parent), CHECK_TOKEN)).status, 200);
    collector.wait_for(2);
    wait_until("counted", Duration::from_secs(60), || {
        let of = |name| server.metric(name);
        let told = (of("tollgate_spans_sent_total"), of("tollgate_spans_dropped_total"));
        // One of each batch; the two may come in one batch or in two.
        [(1, 1), (0, 2)].contains(&told).then_some(())
    });
}

// Guards: the last spans of a server that is replaced, and a collector that delays its end.
#[test]
fn what_waits_at_the_end_is_sent_within_the_deadline() {
    const REQUESTS: usize = 700;
    let parent = format!("00-{TRACE}-{ABOVE}-01");
    let ended = |collector: &Collector, timeout: u64| {
        let setup = traced(collector.port).set("drain_delay", 0);
        let mut server = setup.set("drain_timeout", timeout).start();
        let mut client = server.client();
        for _ in 0..REQUESTS {
            assert_eq!(client.send(&check(Some(&parent), CHECK_TOKEN)).status, 200);
        }
        drop(client);
        server.signal(Signal::TERM);
        assert!(server.server.wait_for_exit().success(), "{}", server.server.log());
    };
    let collector = Collector::start(Manner::Takes);
    ended(&collector, 60);
    let spans: Vec<Span> = collector.exports().into_iter().flat_map(|(_, spans)| spans).collect();
    assert_eq!(spans.len(), 2 * REQUESTS, "two of each request, and the server is gone");
    for manner in [Manner::Silent, Manner::Endless, Manner::Fails] {
        ended(&Collector::start(manner), 1);
    }
}
