//! gRPC and gRPC-Web in front of an origin: denials that their clients can read.
//!
//! workerd listens for HTTP/1.1 alone, which gRPC-Web uses and gRPC does not: of a gRPC response
//! the test sees the fields, not the frames.

use serde_json::{Value, json};
use tollgate_e2e::grpc::{SILENT, check_refusals, check_silence, policy};
use tollgate_e2e::http::{Request, Response};
use tollgate_e2e::workerd::{Setup, Workerd};

use crate::worker_origin::serve;

fn start(action: Value) -> Workerd {
    let origin = serve(|request| request.answer("200 OK", "", ""));
    Setup::new(policy(&action)).binding("ORIGIN", origin).start()
}

fn through(worker: &Workerd) -> impl FnMut(&Request) -> Response {
    let mut client = worker.client();
    move |request| client.send(request)
}

// Guards: gRPC clients, which read the HTTP status as "unavailable" and try again at once.
#[test]
fn a_refusal_is_trailers_only() {
    check_refusals(through(&start(json!("deny"))));
    check_refusals(through(&start(json!({"deny": {"status": 503, "body": "busy"}}))));
}

// Guards: a bot that must believe that it was served: RESOURCE_EXHAUSTED would show it the reason.
#[test]
fn an_answer_in_silence_has_the_code_of_its_status() {
    for (status, ..) in SILENT {
        let respond = json!({"respond": {"status": status, "body": "nothing here"}});
        check_silence(status, through(&start(respond)));
    }
}
