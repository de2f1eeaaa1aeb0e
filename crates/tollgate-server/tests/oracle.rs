//! Compares reading and writing with an independent protobuf codec, and runs the bodies of the fuzz
//! target with its corpus.

#![allow(clippy::panic, clippy::expect_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::arithmetic_side_effects, clippy::as_conversions, reason = "numbers of a test")]

#[path = "../../../tests/fuzz/src/grpc.rs"]
mod grpc;
#[allow(dead_code)] // the end-to-end tests use the others
#[path = "../../../tests/src/envoy_messages.rs"]
mod messages;

use messages::{Pair, RateLimitRequest as Request, Wrapped, descriptor};
use prost::Message;
use tollgate_server::messages::authorization::{CheckRequest, CheckResponse};
use tollgate_server::messages::health::{self, Serving};
use tollgate_server::messages::rate_limit::{
    DescriptorStatus, MAX_DESCRIPTORS, MAX_ENTRIES, Nearest, RateLimitRequest, RateLimitResponse,
};
use tollgate_server::messages::status::Code;
use tollgate_test_support::Random;

/// True when a byte of it could begin a group, which this reader rejects and the other one skips.
fn has_groups(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| matches!(byte & 7, 3 | 4))
}

fn same_rate_limit(bytes: &[u8]) {
    let theirs = Request::decode(bytes);
    match (RateLimitRequest::read(bytes), theirs) {
        (Ok(ours), Ok(theirs)) => {
            assert_eq!(ours.domain, theirs.domain);
            assert_eq!(ours.descriptors.len(), theirs.descriptors.len());
            for (ours, theirs) in ours.descriptors.iter().zip(&theirs.descriptors) {
                let pairs = theirs.entries.iter().map(|it| (&it.key[..], &it.value[..]));
                assert!(ours.entries.iter().copied().eq(pairs));
            }
        }
        (Ok(ours), Err(why)) => panic!("{why}: {ours:?} of {bytes:?}"),
        (Err(why), Ok(theirs)) => {
            let is_bounded = why.message.contains("descriptors");
            assert!(is_bounded || has_groups(bytes), "{why:?}: {theirs:?} of {bytes:?}");
        }
        (Err(_), Err(_)) => {}
    }
}

#[test]
fn hits_are_the_descriptors_own_or_the_calls_or_one() {
    let one = |own: Option<u64>, addend: u32| {
        let mut only = descriptor(&[("a", "")]);
        only.hits_addend = own.map(|value| Wrapped { value });
        let request =
            Request { domain: b"web".into(), descriptors: vec![only], hits_addend: addend };
        let bytes = request.encode_to_vec();
        let read = RateLimitRequest::read(&bytes).expect("a request");
        assert_eq!(read.descriptors[0].entries, [(&b"a"[..], &b""[..])]);
        read.descriptors[0].hits
    };
    assert_eq!(
        [one(None, 0), one(None, 7), one(Some(0), 7), one(Some(1 << 40), 7)],
        [1, 7, 0, 1 << 40]
    );
}

#[test]
fn what_is_without_end_is_refused_by_its_name() {
    let read = |request: &Request| {
        let bytes = request.encode_to_vec();
        RateLimitRequest::read(&bytes).map(drop).map_err(|why| (why.code, why.message))
    };
    let invalid = |text: &str| Err((Code::InvalidArgument, text.to_owned()));
    let with = |descriptors: Vec<_>| Request { domain: vec![], descriptors, hits_addend: 0 };
    let one = || descriptor(&[("a", "b")]);
    assert_eq!(read(&with(vec![one(); MAX_DESCRIPTORS])), Ok(()));
    let all = with(vec![one(); MAX_DESCRIPTORS + 1]);
    assert_eq!(read(&all), invalid("descriptors: use at most 100"));
    assert_eq!(read(&with(vec![one(); 10_000])), invalid("descriptors: use at most 100"));
    assert_eq!(read(&with(vec![])), invalid("descriptors: is empty; send at least one"));
    let of = |entries: usize| {
        let mut many = one();
        many.entries = vec![Pair::default(); entries];
        with(vec![one(), many])
    };
    assert_eq!(read(&of(MAX_ENTRIES)), Ok(()));
    let message = "descriptors[1].entries: use at most 32";
    assert_eq!(read(&of(MAX_ENTRIES + 1)), invalid(message));
    let message = "descriptors[1].entries: is empty; send at least one";
    assert_eq!(read(&of(0)), invalid(message));
    let mut negative = one();
    negative.is_negative_hits = true;
    let message = "descriptors[0].is_negative_hits: nothing is given back here";
    assert_eq!(read(&with(vec![negative])), invalid(message));
}

#[test]
fn an_answer_is_read_by_others() {
    let nearest = Nearest {
        name: "minute",
        limit: u64::from(u32::MAX) + 7,
        window: std::time::Duration::from_secs(60),
        remaining: 3,
        reset_seconds: 42,
    };
    let response = RateLimitResponse {
        statuses: vec![
            DescriptorStatus { is_over: false, nearest: Some(nearest) },
            DescriptorStatus { is_over: true, nearest: None },
        ],
        response_fields: vec![("retry-after", "7")],
        request_fields: vec![("x-mark", "1")],
        body: "no",
    };
    let read = messages::RateLimitResponse::decode(&*response.write()).expect("a message");
    assert_eq!((read.overall_code, &*read.raw_body), (2, &b"no"[..]));
    assert_eq!(read.statuses.iter().map(|it| it.code).collect::<Vec<_>>(), [1, 2]);
    let limit = read.statuses[0].current_limit.clone().expect("a limit");
    assert_eq!((limit.requests_per_unit, limit.unit, &*limit.name), (u32::MAX, 2, "minute"));
    assert_eq!(read.statuses[0].limit_remaining, 3);
    assert_eq!(read.statuses[0].duration_until_reset.as_ref().map(|it| it.seconds), Some(42));
    assert_eq!(read.statuses[1].current_limit, None);
    assert_eq!(read.response_headers_to_add[0].key, b"retry-after");
    assert_eq!(read.request_headers_to_add[0].value, b"1");
}

#[test]
fn the_units_are_those_that_are_exact() {
    for (seconds, unit) in [(1, 1), (60, 2), (3600, 3), (86_400, 4), (2, 0), (2_592_000, 0)] {
        let window = std::time::Duration::from_secs(seconds);
        let nearest = Nearest { name: "", limit: 1, window, remaining: 0, reset_seconds: 1 };
        let status = DescriptorStatus { is_over: false, nearest: Some(nearest) };
        let response = RateLimitResponse { statuses: vec![status], ..RateLimitResponse::default() };
        let read = messages::RateLimitResponse::decode(&*response.write()).expect("a message");
        assert_eq!(read.statuses[0].current_limit.as_ref().map(|it| it.unit), Some(unit));
    }
}

#[test]
fn refusals_and_permissions_are_read_by_others() {
    let denied = CheckResponse::Deny {
        status: 418,
        grpc: (8, "quota"),
        fields: vec![("retry-after", "7")],
        body: "no",
    };
    let read = messages::CheckResponse::decode(&*denied.write()).expect("a message");
    assert_eq!(read.status.map(|it| it.code), Some(8));
    let denied = read.denied_response.expect("a refusal");
    assert_eq!((denied.status.map(|it| it.value), &*denied.body), (Some(418), "no"));
    assert_eq!(denied.headers[0].append_action, 2, "it overwrites");
    let silent = CheckResponse::Deny { status: 200, grpc: (0, ""), fields: vec![], body: "" };
    let read = messages::CheckResponse::decode(&*silent.write()).expect("a message");
    assert_eq!(read.status.map(|it| it.code), Some(7), "a success would be a permission");
    let allowed = CheckResponse::Allow {
        request_fields: vec![("x-mark", "1")],
        response_fields: vec![("ratelimit", "a"), ("ratelimit", "b")],
    };
    let read = messages::CheckResponse::decode(&*allowed.write()).expect("a message");
    assert_eq!((read.status.map(|it| it.code), read.denied_response), (Some(0), None));
    let ok = read.ok_response.expect("a permission");
    assert_eq!((ok.headers[0].append_action, ok.response_headers_to_add.len()), (2, 2));
    assert_eq!(ok.response_headers_to_add[0].append_action, 0, "it is added");
}

#[test]
fn a_whole_request_is_read() {
    let header = |key: &str, value: &str| messages::HeaderValue {
        key: key.into(),
        value: vec![],
        raw_value: value.into(),
    };
    let http = messages::HttpRequest {
        method: b"POST".into(),
        path: b"/a?b".into(),
        host: b"example.com".into(),
        headers: vec![Pair { key: b"x-key".into(), value: b"one".into() }],
        header_map: Some(messages::HeaderMap { headers: vec![header("x-key", "\u{fc}")] }),
    };
    let socket = messages::SocketAddress { address: b"2001:db8::1".into() };
    let address = messages::Address { of: Some(messages::AddressOf::Socket(socket)) };
    let attributes = messages::AttributeContext {
        source: Some(messages::Peer { address: Some(address) }),
        request: Some(messages::Request { http: Some(http) }),
    };
    let bytes = messages::CheckRequest { attributes: Some(attributes) }.encode_to_vec();
    let read = CheckRequest::read(&bytes).expect("a request");
    assert_eq!(
        (read.method, read.path, read.host),
        (&b"POST"[..], &b"/a?b"[..], &b"example.com"[..])
    );
    assert_eq!(read.headers, [(&b"x-key"[..], &b"one"[..]), (b"x-key", "\u{fc}".as_bytes())]);
    assert_eq!(read.source, "2001:db8::1".parse().ok());
    let none = CheckRequest::read(b"").map_err(|why| why.code);
    assert_eq!(none.map(drop), Err(Code::InvalidArgument));
}

#[test]
fn health_is_read_by_others() {
    let asked = messages::HealthCheckRequest { service: "a.B".to_owned() }.encode_to_vec();
    assert_eq!(health::service(&asked), Ok(&b"a.B"[..]));
    for (serving, number) in
        [(Serving::Serving, 1), (Serving::NotServing, 2), (Serving::ServiceUnknown, 3)]
    {
        let read = messages::HealthCheckResponse::decode(&*serving.write()).expect("a message");
        assert_eq!(read.status, number);
    }
}

// Guards: a reader that accepts messages that others reject, or reads other values in them.
#[test]
fn changed_messages_are_read_alike() {
    let mut random = Random::new(7);
    let whole = {
        let descriptors = vec![
            descriptor(&[("remote_address", "192.0.2.1")]),
            descriptor(&[("a", ""), ("b", "c")]),
        ];
        Request { domain: b"web".into(), descriptors, hits_addend: 300 }.encode_to_vec()
    };
    let (mut read, mut refused) = (0, 0);
    for _ in 0..200_000 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(3) {
            let at = random.index(bytes.len());
            match random.below(3) {
                0 => bytes[at] = random.number() as u8,
                1 => bytes.insert(at, random.number() as u8),
                _ => drop(bytes.remove(at)),
            }
        }
        same_rate_limit(&bytes);
        grpc::check(&bytes);
        match RateLimitRequest::read(&bytes) {
            Ok(_) => read += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(read > 10_000 && refused > 10_000, "{read} {refused}");
}

#[test]
fn the_corpus_holds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus/grpc");
    let mut count = 0;
    for file in std::fs::read_dir(folder).expect("a corpus") {
        grpc::check(&std::fs::read(file.expect("a file").path()).expect("bytes"));
        count += 1;
    }
    assert!(count >= 8, "{count}");
}
