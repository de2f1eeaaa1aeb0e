//! gRPC and gRPC-Web in front of an origin: refusals that their clients can read.
//!
//! workerd listens for HTTP/1.1 alone, which gRPC-Web runs over and gRPC does not: what can be seen
//! here of a gRPC answer is its fields, not its frames.

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

// Guards: gRPC clients, who make "unavailable" of the HTTP status and try again at once.
#[test]
fn a_refusal_is_trailers_only() {
    check_refusals(through(&start(json!("deny"))));
    check_refusals(through(&start(json!({"deny": {"status": 503, "body": "busy"}}))));
}

// Guards: a bot that is to believe that it was served, and RESOURCE_EXHAUSTED would tell it why it
// was not.
#[test]
fn an_answer_in_silence_has_the_code_of_its_status() {
    for (status, ..) in SILENT {
        let respond = json!({"respond": {"status": status, "body": "nothing here"}});
        check_silence(status, through(&start(respond)));
    }
}
