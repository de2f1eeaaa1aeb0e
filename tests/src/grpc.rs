//! What a refused gRPC client must be told, the same on every surface.
//!
//! Invariant: each way to write gRPC's content type gets the answer of its kind, and only one line
//! of each field. Deliberately absent: how the request gets there; that is HTTP/2 where the server
//! speaks it.

use serde_json::{Value, json};

use crate::http::{Request, Response};

/// A request's content type, and its answer's.
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

/// One call for each `x-key`. The quota's name has to be percent-encoded in a `grpc-message`.
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

/// Under [`policy`] with an action that denies: the second call of each kind is refused with
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

/// Statuses of an answer in silence, and the code and message that a gRPC client gets.
pub const SILENT: [(u16, &str, Option<&str>); 4] = [
    (200, "0", None),
    (204, "0", None),
    (404, "12", Some("nothing here")),
    (503, "14", Some("nothing here")),
];

/// Under [`policy`] with `{"respond": {"status": status, "body": "nothing here"}}`: no field tells
/// of a limit.
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
