//! The response that a denied gRPC client must get, the same on every surface; and a client that
//! calls a service.
//!
//! Invariant: each spelling of gRPC's content type gets the response of its kind, with only one
//! line of each field.

use serde_json::{Value, json};

use crate::http::{Request, Response};
use crate::http2;

/// The content type of a request, and of its response.
const TYPES: [(&str, &str); 9] = [
    ("application/grpc", "application/grpc"),
    ("application/grpc+proto", "application/grpc"),
    ("application/grpc;charset=utf-8", "application/grpc"),
    ("application/grpc+proto; charset=utf-8", "application/grpc"),
    ("Application/gRPC", "application/grpc"),
    ("application/grpc-web", "application/grpc-web+proto"),
    ("application/grpc-web+proto; charset=utf-8", "application/grpc-web+proto"),
    ("APPLICATION/GRPC-WEB+PROTO", "application/grpc-web+proto"),
    ("application/grpc-web-text", "application/grpc-web-text+proto"),
];

/// One call for each `x-key`. The quota's name must be percent-encoded in a `grpc-message`.
pub fn policy(action: &Value) -> Value {
    let quota = json!({"name": "50% \"b\"", "limit": 1, "window": "1h"});
    let rule =
        json!({"name": "r", "key": [{"header": "x-key"}], "quotas": [quota], "action": action});
    json!({"version": 1, "rules": [rule]})
}

/// A call with an empty message.
pub fn call(content_type: &str, key: &str) -> Request {
    Request::post("/pkg.Service/Call", [0; 5])
        .header("content-type", content_type)
        .header("x-key", key)
}

/// Under [`policy`] with an action that denies: the second call of each kind is denied with
/// RESOURCE_EXHAUSTED.
pub fn check_refusals(mut send: impl FnMut(&Request) -> Response) {
    for (asked, answered) in TYPES {
        send(&call(asked, asked));
        let refused = send(&call(asked, asked));
        assert_eq!((refused.status, refused.text()), (200, String::new()), "{asked}");
        for (name, value) in [
            ("content-type", answered),
            ("grpc-status", "8"),
            ("grpc-message", "quota exceeded: 50%25 \"b\"; retry in 3600 s"),
            ("retry-after", "3600"),
            ("ratelimit-policy", "\"50% \\\"b\\\"\";q=1;w=3600"),
            ("ratelimit", "\"50% \\\"b\\\"\";r=0;t=3600"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(refused.header(name).as_deref(), Some(value), "{asked}: {refused:?}");
        }
    }
}

/// Statuses of the action `respond`, and the gRPC code and message that a client gets.
pub const SILENT: [(u16, &str, Option<&str>); 4] = [
    (200, "0", None),
    (204, "0", None),
    (404, "12", Some("nothing here")),
    (503, "14", Some("nothing here")),
];

/// Under [`policy`] with `{"respond": {"status": status, "body": "nothing here"}}`: no field shows
/// a limit.
pub fn check_silence(status: u16, mut send: impl FnMut(&Request) -> Response) {
    let row = SILENT.iter().find(|row| row.0 == status);
    let (_, code, message) = row.unwrap_or_else(|| panic!("{status} is in no row"));
    for (asked, answered) in TYPES {
        send(&call(asked, asked));
        let silent = send(&call(asked, asked));
        assert_eq!((silent.status, silent.text()), (200, String::new()), "{asked}");
        assert_eq!(silent.header("content-type").as_deref(), Some(answered), "{asked}");
        assert_eq!(silent.header("grpc-status").as_deref(), Some(*code), "{asked}");
        assert_eq!(silent.header("grpc-message").as_deref(), *message, "{asked}");
        for name in ["retry-after", "ratelimit-policy", "ratelimit"] {
            assert_eq!(silent.header(name), None, "{asked}");
        }
    }
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The gRPC status code.
    pub code: u8,
    /// The gRPC status message.
    pub message: String,
    /// The response message; empty when the call was denied.
    pub answer: Vec<u8>,
}

/// Calls `path` on `port` with one message and this metadata.
pub fn unary(port: u16, path: &str, message: &[u8], metadata: &[(&str, &str)]) -> Ended {
    let request = Request::post(path, framed(message)).header("content-type", "application/grpc");
    let request = metadata.iter().fold(request, |it, (name, value)| it.header(name, value));
    ended(http2::send(port, &request))
}

/// A message with its length prefix.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a message");
    [&[0][..], &length.to_be_bytes(), message].concat()
}

/// Reads a response as one of gRPC.
pub fn ended(answer: http2::Answer) -> Ended {
    let http2::Answer { response, is_trailers_only, trailers } = answer;
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.header("content-type").as_deref(), Some("application/grpc"));
    let fields = if is_trailers_only { &response.headers } else { &trailers };
    let field = |name: &str| {
        let found = fields.iter().find(|(it, _)| it == name);
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    };
    let code = field("grpc-status").expect("a status").parse().expect("a number");
    let answer = response.body.get(5..).map(<[u8]>::to_vec).unwrap_or_default();
    assert_eq!(framed(&answer).len(), response.body.len().max(5), "one message");
    Ended { code, message: field("grpc-message").unwrap_or_default(), answer }
}
