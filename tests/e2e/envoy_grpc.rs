//! gRPC and gRPC-Web through a real Envoy: denials that their clients can read, over HTTP/2 where
//! gRPC runs.

use serde_json::{Value, json};
use tollgate_e2e::grpc::{SILENT, call, check_refusals, check_silence, policy};
use tollgate_e2e::http::{Request, Response};
use tollgate_e2e::http2;

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

fn start(action: Value) -> Envoy {
    Setup::policy(1, &policy(&action)).start()
}

/// The response over HTTP/2. One with a gRPC status must be trailers only: a frame of header fields
/// that ends the stream.
fn over_http2(envoy: &Envoy) -> impl FnMut(&Request) -> Response {
    let port = envoy.ports[0];
    move |request| {
        let answer = http2::send(port, request);
        let is_grpc = answer.response.header("grpc-status").is_some();
        assert!(!is_grpc || answer.is_trailers_only, "{answer:?}");
        answer.response
    }
}

fn over_http1(envoy: &Envoy) -> impl FnMut(&Request) -> Response {
    let mut client = envoy.client();
    move |request| client.send(request)
}

// A local response without a gRPC status would mean UNAVAILABLE to gRPC clients, which they retry
// at once. Envoy itself recognizes neither a parameter nor capitals as gRPC, and treats gRPC-Web as
// plain HTTP.
#[test]
fn a_refusal_is_trailers_only() {
    check_refusals(over_http2(&start(json!("deny"))));
    check_refusals(over_http1(&start(json!("deny"))));
}

// The gRPC status of a denial is that of a quota, whatever status browsers get.
#[test]
fn a_status_of_ones_own_is_for_http() {
    check_refusals(over_http2(&start(json!({"deny": {"status": 503, "body": "busy"}}))));
}

// A bot must believe that it was served: RESOURCE_EXHAUSTED would show it the reason.
#[test]
fn an_answer_in_silence_has_the_code_of_its_status() {
    for (status, ..) in SILENT {
        let respond = json!({"respond": {"status": status, "body": "nothing here"}});
        check_silence(status, over_http2(&start(respond)));
    }
}

// Envoy's own translation of gRPC-Web is in front of the filter, which then sees gRPC.
#[test]
fn grpc_web_is_refused_through_envoys_filter_too() {
    let translation = json!({
        "name": "envoy.filters.http.grpc_web",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.grpc_web.v3.GrpcWeb"},
    });
    let filters = vec![translation, tollgate(&policy(&json!("deny")), "vm", As::Text)];
    let envoy = Setup::new(1, vec![Listener::new("main", filters)]).start();
    let mut client = envoy.client();
    for asked in ["application/grpc-web+proto", "application/grpc-web-text+proto"] {
        // That filter chooses the response's type by `accept`.
        let call = call(asked, asked).header("accept", asked);
        client.send(&call);
        let refused = client.send(&call);
        assert_eq!((refused.status, refused.text()), (200, String::new()));
        assert_eq!(refused.header("content-type").as_deref(), Some(asked));
        assert_eq!(refused.header("grpc-status").as_deref(), Some("8"));
        assert_eq!(refused.header("retry-after").as_deref(), Some("3600"));
    }
}

// Of two that wait for one place, one is denied when both are decided again, long after their
// headers arrived.
#[test]
fn who_waited_in_vain_is_told_so() {
    let mut policy = policy(&json!({"delay": {"max": "1s"}}));
    policy["rules"][0]["quotas"][0]["window"] = json!("1s");
    let envoy = Setup::policy(1, &policy).start();
    let mut clients = envoy.clients(3);
    clients.iter_mut().for_each(|client| {
        client.start(&call("application/grpc-web+proto", "k")).expect("it is sent");
    });
    let answers = clients.iter_mut().map(|client| client.finish(false).expect("an answer"));
    let mut statuses: Vec<_> = answers.map(|answer| answer.header("grpc-status")).collect();
    statuses.sort();
    assert_eq!(statuses, [None, None, Some("8".to_owned())]);
    assert_eq!((envoy.decisions("r", "delayed"), envoy.decisions("r", "denied")), (1, 1));
}
