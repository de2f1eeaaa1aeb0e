//! Envoy's rate limit service and external authorization, and gRPC's health, with the tests' own
//! client, whose messages an independent codec writes.

use std::net::Ipv4Addr;
use std::time::Duration;

use prost::Message;
use rustix::process::Signal;
use serde_json::{Value, json};
use tollgate_e2e::envoy_messages::{
    Address, AddressOf, AttributeContext, HttpRequest, Peer, Request as OfHttp, SocketAddress,
};
use tollgate_e2e::envoy_messages::{
    CheckRequest, CheckResponse, HealthCheckRequest, HealthCheckResponse, Pair, RateLimitRequest,
    RateLimitResponse, Wrapped, descriptor,
};
use tollgate_e2e::grpc::{Ended, ended, framed, unary};
use tollgate_e2e::http::Request;
use tollgate_e2e::http2::{self, Sent};
use tollgate_e2e::process::{allow_open_files, wait_until};
use tollgate_e2e::server::{Setup, TollgateServer, server_bin};

const LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const AUTHORIZE: &str = "/envoy.service.auth.v3.Authorization/Check";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const BOTH: &str = "ratelimit,ext_authz";

/// Three per year for each user in the domain `web`; all users together have nine of `/api`.
fn policy() -> Value {
    let year = |name: &str, limit: u64| json!({"name": name, "algorithm": "fixed-window", "limit": limit, "window": "366d"});
    json!({"version": 1, "rules": [
        {"name": "user", "when": {"domain": "web"}, "key": [{"descriptor": "user"}], "quotas": [year("user", 3)]},
        {"name": "api", "when": {"paths": ["/api"]}, "key": ["client_ip"], "quotas": [year("api", 2)]},
    ]})
}

fn server() -> TollgateServer {
    Setup::new(policy()).set("protocols", BOTH).start()
}

fn hits(users: &[(&str, Option<u64>)], hits_addend: u32) -> Vec<u8> {
    let each = users.iter().map(|(user, own)| {
        let mut one = descriptor(&[("user", user)]);
        one.hits_addend = own.map(|value| Wrapped { value });
        one
    });
    let (domain, descriptors) = (b"web".to_vec(), each.collect());
    RateLimitRequest { domain, descriptors, hits_addend }.encode_to_vec()
}

fn limited(server: &TollgateServer, message: &[u8]) -> RateLimitResponse {
    let Ended { code, message, answer } = unary(server.port, LIMIT, message, &[]);
    assert_eq!(code, 0, "{message}");
    RateLimitResponse::decode(&*answer).expect("an answer")
}

fn codes(response: &RateLimitResponse) -> (i32, Vec<i32>) {
    (response.overall_code, response.statuses.iter().map(|status| status.code).collect())
}

fn asked(path: &str, address: &str) -> Vec<u8> {
    let socket = SocketAddress { address: address.into() };
    let address = Address { of: Some(AddressOf::Socket(socket)) };
    let headers = vec![Pair { key: b":authority".into(), value: b"a.example".into() }];
    let (method, path) = (b"GET".to_vec(), path.into());
    let http = HttpRequest { method, path, headers, ..HttpRequest::default() };
    let attributes = AttributeContext {
        source: Some(Peer { address: Some(address) }),
        request: Some(OfHttp { http: Some(http) }),
    };
    CheckRequest { attributes: Some(attributes) }.encode_to_vec()
}

fn authorized(server: &TollgateServer, message: &[u8]) -> CheckResponse {
    let Ended { code, message, answer } = unary(server.port, AUTHORIZE, message, &[]);
    assert_eq!(code, 0, "{message}");
    CheckResponse::decode(&*answer).expect("an answer")
}

// Guards: a request that is allowed because another descriptor of it is not over its limit.
#[test]
fn every_descriptor_is_a_request_of_its_own() {
    let server = server();
    let two = || limited(&server, &hits(&[("a", None), ("b", None)], 0));
    assert_eq!(codes(&two()), (1, vec![1, 1]));
    let status = |of: &RateLimitResponse, i: usize| {
        let status = &of.statuses[i];
        let limit = status.current_limit.clone().expect("a limit");
        (limit.requests_per_unit, limit.name, status.limit_remaining)
    };
    let second = limited(&server, &hits(&[("a", None)], 0));
    assert_eq!(status(&second, 0), (3, "user".to_owned(), 1));
    assert_eq!(codes(&two()), (1, vec![1, 1]));
    let third = two();
    assert_eq!(codes(&third), (2, vec![2, 1]), "one is over, and b was charged");
    assert_eq!((status(&third, 0).2, status(&third, 1).2), (0, 0));
    assert!(third.statuses[0].duration_until_reset.as_ref().is_some_and(|it| it.seconds > 0));
    assert_eq!(codes(&two()), (2, vec![2, 2]));
    let field = |name: &str| {
        let named = third.response_headers_to_add.iter().filter(|line| line.key == name.as_bytes());
        named.map(|line| String::from_utf8_lossy(&line.value).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(field("ratelimit-policy"), vec!["\"user\";q=3;w=31622400"; 2]);
    assert_eq!((field("retry-after").len(), field("content-type").len()), (1, 1));
    let body: Value = serde_json::from_slice(&third.raw_body).expect("a problem");
    assert_eq!((&body["status"], &body["violated-policies"]), (&json!(429), &json!(["user"])));
}

// Guards: a rule that denies without a count, forgotten by one protocol; and hits of a denied
// descriptor that are charged to other rules.
#[test]
fn a_rule_that_denies_is_for_descriptors_and_whole_requests() {
    let mut policy = policy();
    let rules = policy["rules"].as_array_mut().expect("rules");
    rules.push(json!({"name": "out", "deny": true, "when": {"descriptor": {"user": "out"}}}));
    rules.push(json!({"name": "net", "deny": {"status": 451}, "when": {"client_cidrs": ["203.0.113.0/24"]}}));
    let server = Setup::new(policy).set("protocols", BOTH).start();
    let both = limited(&server, &hits(&[("out", None), ("a", None)], 0));
    assert_eq!(codes(&both), (2, vec![2, 1]), "each descriptor is decided alone");
    assert_eq!((&both.statuses[0].current_limit, both.statuses[1].limit_remaining), (&None, 2));
    let denied = authorized(&server, &asked("/api", "203.0.113.9"));
    let response = denied.denied_response.expect("a denial");
    assert_eq!(response.status.map(|status| status.value), Some(451));
    let allowed = authorized(&server, &asked("/api", "192.0.2.1"));
    assert_eq!(allowed.status.map(|it| it.code), Some(0));
}

#[test]
fn hits_are_the_cost_and_other_domains_are_others() {
    let server = server();
    assert_eq!(codes(&limited(&server, &hits(&[("a", None)], 3))), (1, vec![1]));
    assert_eq!(codes(&limited(&server, &hits(&[("a", None)], 1))), (2, vec![2]));
    assert_eq!(codes(&limited(&server, &hits(&[("b", Some(2)), ("c", None)], 3))), (1, vec![1, 1]));
    assert_eq!(codes(&limited(&server, &hits(&[("b", Some(2))], 1))), (2, vec![2]), "one is left");
    let look = limited(&server, &hits(&[("b", Some(0))], 1));
    assert_eq!((codes(&look), look.statuses[0].limit_remaining), ((1, vec![1]), 1), "a look");
    assert_eq!(codes(&limited(&server, &hits(&[("b", Some(u64::MAX))], 1))), (2, vec![2]));
    assert_eq!(codes(&limited(&server, &hits(&[("b", None)], 1))), (1, vec![1]));
    let other = RateLimitRequest {
        domain: b"other".to_vec(),
        descriptors: vec![descriptor(&[("user", "a")])],
        hits_addend: 0,
    };
    let other = limited(&server, &other.encode_to_vec());
    assert_eq!((codes(&other), &other.statuses[0].current_limit), ((1, vec![1]), &None));
}

#[test]
fn a_whole_request_is_authorized_by_the_whole_policy() {
    let server = server();
    for left in [1, 0] {
        let read = authorized(&server, &asked("/api?a", "192.0.2.1"));
        assert_eq!(read.status.map(|it| it.code), Some(0));
        let fields = read.ok_response.expect("a permission").response_headers_to_add;
        let lines = fields.iter().filter_map(|line| line.header.clone());
        let lines = lines.map(|it| String::from_utf8_lossy(&it.value).into_owned());
        assert!(lines.into_iter().any(|line| line.contains(&format!(";r={left};"))));
    }
    let read = authorized(&server, &asked("/api", "192.0.2.1"));
    assert_eq!(read.status.map(|it| it.code), Some(8));
    let denied = read.denied_response.expect("a refusal");
    assert_eq!(denied.status.map(|it| it.value), Some(429));
    let body: Value = serde_json::from_str(&denied.body).expect("a problem");
    assert_eq!(body["violated-policies"], json!(["api"]));
    for (path, address) in [("/other", "192.0.2.1"), ("/api", "192.0.2.2")] {
        assert!(authorized(&server, &asked(path, address)).ok_response.is_some(), "{path}");
    }
}

// Guards: an address without permission, or a caller without a token, that spends the quota of
// others.
#[test]
fn who_may_not_ask_is_told_so_and_nothing_is_counted() {
    let token = "a-token-for-tests-0123";
    let server =
        Setup::new(policy()).set("protocols", BOTH).variable("TOLLGATE_CHECK_TOKEN", token);
    let server = server.start();
    let message = hits(&[("a", None)], 0);
    for path in [LIMIT, AUTHORIZE] {
        assert_eq!(unary(server.port, path, &message, &[]).code, 16, "{path}");
        let wrong = [("authorization", "Bearer another-token-of-tests")];
        assert_eq!(unary(server.port, path, &message, &wrong).code, 16, "{path}");
    }
    let mine = format!("Bearer {token}");
    let answer = unary(server.port, LIMIT, &message, &[("authorization", &mine)]);
    let read = RateLimitResponse::decode(&*answer.answer).expect("an answer");
    assert_eq!(read.statuses[0].limit_remaining, 2);
    assert_eq!(unary(server.port, HEALTH, b"", &[]).code, 0, "a probe has no token");
    let server = Setup::new(policy()).set("protocols", BOTH).set("trusted_callers", "192.0.2.0/24");
    let server = server.start();
    let refused = unary(server.port, LIMIT, &message, &[]);
    assert_eq!(refused.code, 7);
    assert!(refused.message.contains("trusted_callers"), "{}", refused.message);
}

#[test]
fn what_is_not_switched_on_is_not_there() {
    let server = Setup::new(policy()).start();
    for (path, name) in [(LIMIT, "ratelimit"), (AUTHORIZE, "ext_authz")] {
        let refused = unary(server.port, path, b"", &[]);
        let message = format!("{name} is off here; the setting protocols turns it on");
        assert_eq!((refused.code, refused.message), (12, message));
    }
    assert_eq!(unary(server.port, "/grpc.B/C", b"", &[]).code, 12);
    // A call on an unknown path, with the client's own content, never gets a response that allows.
    for path in ["/a.B/C", "/auth", "//forward-auth/envoy/"] {
        let call = Request::post(path, framed(b"")).header("content-type", "application/grpc");
        assert_eq!(http2::send(server.port, &call).response.status, 404, "{path}");
    }
    assert_eq!(unary(server.port, HEALTH, b"", &[]).code, 0);
    let named = |service: &str| HealthCheckRequest { service: service.to_owned() }.encode_to_vec();
    let of = |service: &str| unary(server.port, HEALTH, &named(service), &[]).code;
    assert_eq!(of("envoy.service.ratelimit.v3.RateLimitService"), 5, "not spoken, not served");
}

// Guards: rules that would never charge, because the status of a response is never reported.
#[test]
fn rules_by_the_response_do_not_start() {
    let rule = json!({"name": "r", "key": [], "charge": {"response_status": ["401"]},
        "quotas": [{"limit": 1, "window": "1h"}]});
    let dir = tollgate_e2e::process::TempDir::new("grpc");
    let path = dir.path().join("policy.json");
    std::fs::write(&path, json!({"version": 1, "rules": [rule]}).to_string()).expect("written");
    let run = |protocols: &[&str]| {
        let mut command = std::process::Command::new(server_bin());
        command.env_clear().arg("--check-config").arg("--policy").arg(&path).args(protocols);
        let output = command.output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert!(run(&[]).0, "reported over POST /check");
    for (list, name) in [("ratelimit", "ratelimit"), ("ext_authz", "ext_authz")] {
        let (is_right, said) = run(&["--protocols", list]);
        assert!(!is_right && said.contains("rules[0].charge: ") && said.contains(name), "{said}");
    }
    let (is_right, said) = run(&["--protocols", "grpc"]);
    assert!(
        !is_right && said.contains("--protocols: \"grpc\" is not a list of protocols"),
        "{said}"
    );
}

#[test]
fn what_is_malformed_ends_with_a_status() {
    let server = server();
    let code = |body: Vec<u8>, metadata: &[(&str, &str)]| {
        let request = Request::post(LIMIT, body).header("content-type", "application/grpc+proto");
        let request = metadata.iter().fold(request, |it, (name, value)| it.header(name, value));
        ended(http2::send(server.port, &request)).code
    };
    let good = framed(&hits(&[("a", None)], 0));
    assert_eq!(code(good.clone(), &[]), 0);
    assert_eq!(code([&good[..], &good].concat(), &[]), 3, "two messages");
    assert_eq!(code(vec![], &[]), 3, "none");
    assert_eq!(code(good[..good.len() - 1].to_vec(), &[]), 3, "one that is cut");
    assert_eq!(code([&[1], &good[1..]].concat(), &[]), 12, "compressed");
    assert_eq!(code([&[7], &good[1..]].concat(), &[]), 3, "flags that nobody knows");
    assert_eq!(code(framed(b"\xff\xff"), &[]), 3, "no message");
    assert_eq!(code(framed(b""), &[]), 3, "no descriptor");
    let many = vec![("a", None); 10_000];
    let refused = unary(server.port, LIMIT, &hits(&many, 0), &[]);
    assert_eq!((refused.code, &*refused.message), (3, "descriptors: use at most 100"));
    let huge = "x".repeat(2 << 20);
    let refused = unary(server.port, LIMIT, &hits(&[(&huge, None)], 0), &[]);
    assert_eq!((refused.code, &*refused.message), (8, "a message has at most 1048576 bytes"));
    // A client's header may be as long as Envoy permits: it is a value like any other.
    let long = "x".repeat(60 << 10);
    for expected in [1, 1, 1, 2] {
        let message = hits(&[(&long, None)], 0);
        assert_eq!(limited(&server, &message).overall_code, expected);
    }
    let mut unknown = hits(&[("b", None)], 0);
    unknown.extend([0xa2, 6, 3, b'a', b'b', b'c']); // field 100
    assert_eq!(limited(&server, &unknown).overall_code, 1);
    let get = Request::get(LIMIT).header("content-type", "application/grpc");
    assert_eq!(ended(http2::send(server.port, &get)).code, 12);
    let over_1 = Request::post(LIMIT, good).header("content-type", "application/grpc");
    assert_eq!(server.client().send(&over_1).status, 404, "no trailers, no gRPC");
}

// Guards: a request that waits longer than its caller does: its response would have no receiver,
// and it would hold a place.
#[test]
fn a_wait_ends_before_the_time_of_the_call() {
    let quota = |algorithm: &str, burst: u32| json!({"algorithm": algorithm, "limit": 1, "window": "4m", "burst": burst});
    let server = Setup::new(json!({"version": 1, "rules": [
        {"name": "line", "when": {"paths": ["/line"]}, "key": ["client_ip"],
         "action": {"delay": {"max": "5m"}}, "quotas": [quota("gcra", 1)]},
        {"name": "queue", "when": {"paths": ["/queue"]}, "key": ["client_ip"], "quotas": [quota("leaky-queue", 5)]},
    ]}));
    let server = server.set("protocols", BOTH).start();
    for path in ["/line", "/queue"] {
        let message = asked(path, "192.0.2.1");
        let ask = || unary(server.port, AUTHORIZE, &message, &[("grpc-timeout", "20S")]);
        let read = |it: Ended| CheckResponse::decode(&*it.answer).expect("an answer");
        assert!(read(ask()).ok_response.is_some(), "{path}");
        for _ in 0..2 {
            let denied = read(ask()).denied_response.expect("refused at once");
            assert_eq!(denied.status.map(|it| it.value), Some(429), "{path}");
        }
    }
}

#[test]
fn health_is_told_and_watched_until_the_end() {
    let server = Setup::new(policy()).set("protocols", BOTH).set("drain_delay", 10).start();
    let status = || {
        let answer = unary(server.port, HEALTH, b"", &[]);
        HealthCheckResponse::decode(&*answer.answer).map(|it| it.status)
    };
    assert_eq!(status(), Ok(1));
    let request = Request::post("/grpc.health.v1.Health/Watch", framed(b""));
    let request = request.header("content-type", "application/grpc");
    // It watches from the time that the head of its response came.
    let watching = http2::hold(server.port, &request, Sent::Whole);
    assert!(watching.has_body, "nothing has changed");
    server.signal(Signal::TERM);
    wait_until("not serving", Duration::from_secs(9), || (status() == Ok(2)).then_some(()));
    let watched = watching.finish();
    let serving = |status: i32| framed(&HealthCheckResponse { status }.encode_to_vec());
    assert_eq!(watched.response.body, [serving(1), serving(2)].concat());
    assert!(watched.trailers.iter().any(|it| it.0 == "grpc-status" && it.1 == b"14"));
}

fn operated() -> Setup {
    Setup::new(policy()).set("protocols", BOTH).operated()
}

/// Lines of the metric of calls, without its name.
fn calls_told(server: &TollgateServer) -> Vec<String> {
    let text = server.operate("GET", "metrics", "", &[]).text();
    let lines = text.lines().filter_map(|line| line.strip_prefix("tollgate_grpc_calls_total"));
    lines.filter(|line| !line.ends_with(" 0")).map(str::to_owned).collect()
}

// Guards: messages that never end, as many as a client begins.
#[test]
fn slow_calls_end_and_are_counted() {
    let server = operated().set("body_timeout", 1).start();
    let head = |timeout: Option<&str>| {
        let request = Request::post(LIMIT, "").header("content-type", "application/grpc");
        timeout.map_or(request.clone(), |timeout| request.header("grpc-timeout", timeout))
    };
    let code = |timeout| ended(http2::send_part(server.port, &head(timeout), Sent::Head)).code;
    assert_eq!((code(None), code(Some("20m"))), (4, 4));
    let good = unary(server.port, LIMIT, &hits(&[("a", None)], 0), &[]);
    assert_eq!((good.code, unary(server.port, "/grpc.B/C", b"", &[]).code), (0, 12));
    assert_eq!(unary(server.port, HEALTH, b"", &[]).code, 0);
    let expected = [
        "{call=\"ratelimit\",code=\"OK\"} 1",
        "{call=\"ratelimit\",code=\"DEADLINE_EXCEEDED\"} 2",
        "{call=\"health\",code=\"OK\"} 1",
        "{call=\"unknown\",code=\"UNIMPLEMENTED\"} 1",
    ];
    assert_eq!(calls_told(&server), expected);
}

/// An address of this machine.
const fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, last)
}

// Guards: unauthorized clients that watch for ever, one that takes all places, and those that leave
// and keep theirs.
#[test]
fn watchers_are_bounded_in_all_and_of_each_address_and_leave() {
    allow_open_files(4_000);
    let server = operated().start();
    let watch = Request::post("/grpc.health.v1.Health/Watch", framed(b""))
        .header("content-type", "application/grpc");
    let hold = |from| http2::hold_from(from, server.port, &watch, Sent::Whole);
    let code = |from| ended(http2::send_from(from, server.port, &watch)).code;
    let of_one: Vec<_> = (0..32).map(|_| hold(address(1))).collect();
    assert!(of_one.iter().all(|held| held.has_body));
    assert_eq!(code(address(1)), 8);
    assert_eq!(unary(server.port, HEALTH, b"", &[]).code, 0, "asking is not watching");
    let others: Vec<_> = (0..7 * 32).map(|i| hold(address(2 + i / 32))).collect();
    assert!(others.iter().all(|held| held.has_body), "the places of the others");
    assert_eq!(code(address(9)), 8, "there are 256 in all");
    drop(of_one);
    let patience = Duration::from_secs(60);
    wait_until("a place", patience, || hold(address(1)).has_body.then_some(()));
}

// Guards: one unauthorized client that begins health requests again and again, so that no other
// client can send one.
#[test]
fn slow_strangers_of_one_address_leave_room_for_others() {
    let server = operated().start();
    let head = Request::post(HEALTH, "").header("content-type", "application/grpc");
    let whole = Request::post(HEALTH, framed(b"")).header("content-type", "application/grpc");
    let code = |from| ended(http2::send_from(from, server.port, &whole)).code;
    // Each has a second: on a busy machine the first ones are gone before the last ones come.
    wait_until("all places of one", Duration::from_secs(60), || {
        let hold = || http2::hold_from(address(1), server.port, &head, Sent::Head);
        let held: Vec<_> = (0..40).map(|_| hold()).collect();
        let codes = (code(address(1)), code(address(2)));
        drop(held);
        assert_eq!(codes.1, 0, "another address");
        (codes.0 == 14).then_some(())
    });
}

// Guards: calls beyond the limit of requests in flight, which are rejected with a gRPC status, and
// unauthorized clients that begin health requests and never end them: they take no place of
// authorized callers.
#[test]
fn an_overload_is_unavailable() {
    let server = operated().set("max_requests", 1).start();
    let head = |path: &str| Request::post(path, "").header("content-type", "application/grpc");
    let limit = || unary(server.port, LIMIT, &hits(&[("a", None)], 0), &[]).code;
    let strangers: Vec<_> =
        (0..4).map(|_| http2::hold(server.port, &head(HEALTH), Sent::Head)).collect();
    assert_eq!(limit(), 0);
    let stuck = http2::hold(server.port, &head(LIMIT), Sent::Head);
    wait_until("an overload", Duration::from_secs(60), || (limit() == 14).then_some(()));
    drop(strangers);
    wait_until("health", Duration::from_secs(60), || {
        (unary(server.port, HEALTH, b"", &[]).code == 0).then_some(())
    });
    drop(stuck);
    wait_until("room", Duration::from_secs(60), || (limit() == 0).then_some(()));
}
