//! Real Envoy without Tollgate's filter: its `ext_authz` and `ratelimit` filters send requests to
//! the server, by the configurations that `fleet/` ships and `docs/server.md` shows.

use std::fs;
use std::process::Command;
use std::time::Duration;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};
use tollgate_e2e::grpc;
use tollgate_e2e::http::{Client, Request, Response};
use tollgate_e2e::http2;
use tollgate_e2e::process::{self, Server, TempDir, wait_until};
use tollgate_e2e::server::{Setup, TollgateServer};

const EXT_AUTHZ: &str = include_str!("../../fleet/envoy-ext-authz.yaml");
pub const RATE_LIMIT: &str = include_str!("../../fleet/envoy-ratelimit.yaml");
const POLICY: &str = include_str!("../../fleet/policy.json");
const POLICY_OF_DESCRIPTORS: &str = include_str!("../../fleet/policy-ratelimit.json");

/// Responds with `hello`, repeats the mark of the request, and reports that it took 300 tokens.
const ORIGIN: &str = r#"  listeners:
    - name: origin
      address: { socket_address: { address: 127.0.0.1, port_value: ORIGIN } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: origin
                route_config:
                  response_headers_to_add:
                    - header: { key: x-seen, value: "%REQ(X-OVER)%" }
                    - header: { key: x-tokens, value: "300" }
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        - match: { prefix: "/" }
                          direct_response: { status: 200, body: { inline_string: "hello\n" } }
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
"#;

/// Envoy in front of an origin.
pub struct Envoy {
    server: Server,
    port: u16,
    _dir: TempDir,
}

impl Envoy {
    /// A shipped configuration with this machine's ports.
    pub fn start(config: &str, tollgate: u16) -> Self {
        Self::in_front_of(config, &[tollgate])
    }

    /// The same with several servers.
    fn in_front_of(config: &str, servers: &[u16]) -> Self {
        let endpoint = |address: &str, port: u16| {
            format!(
                "- endpoint: {{ address: {{ socket_address: {{ address: {address}, \
                 port_value: {port} }} }} }}"
            )
        };
        let endpoints: Vec<_> = servers.iter().map(|port| endpoint("127.0.0.1", *port)).collect();
        let (dir, port, origin) =
            (TempDir::new("envoy"), process::free_port(), process::free_port());
        let mut text = config.to_owned();
        for (shipped, here) in [
            (
                "address: 0.0.0.0, port_value: 10000",
                format!("address: 127.0.0.1, port_value: {port}"),
            ),
            (endpoint("tollgate", 8080).as_str(), endpoints.join(&format!("\n{:14}", ""))),
            (
                "address: origin, port_value: 8000",
                format!("address: 127.0.0.1, port_value: {origin}"),
            ),
            ("  listeners:\n", ORIGIN.replace("ORIGIN", &origin.to_string())),
        ] {
            assert!(text.contains(shipped), "{shipped}");
            text = text.replacen(shipped, &here, 1);
        }
        let path = dir.path().join("envoy.yaml");
        fs::write(&path, text).expect("written");
        let mut command =
            Command::new(process::required_path("TOLLGATE_ENVOY_BIN", "cargo xtask test server"));
        command.arg("-c").arg(path).args(["--concurrency", "2", "--use-dynamic-base-id"]);
        command.args(["--drain-time-s", "1", "--log-level", "warning"]);
        let mut server = Server::start(command, dir.path().join("envoy.log"));
        server.wait_for_port(origin);
        server.wait_for_port(port);
        Self { server, port, _dir: dir }
    }

    /// The port on which it listens.
    pub const fn port(&self) -> u16 {
        self.port
    }

    pub fn send(&self, request: &Request) -> Response {
        Client::connect(self.port).send(request)
    }
}

/// Envoy that sends checks of whole requests to a server with `policy`.
fn authorized(policy: impl ToString) -> (TollgateServer, Envoy) {
    let server = Setup::new(policy).set("protocols", "ext_authz").start();
    let envoy = Envoy::start(EXT_AUTHZ, server.port);
    (server, envoy)
}

fn quota(limit: u32) -> Value {
    json!([{"name": "q", "algorithm": "fixed-window", "limit": limit, "window": "366d"}])
}

// Guards: the document shows the shipped files, and they start.
#[test]
fn what_the_document_shows_is_shipped() {
    let document = include_str!("../../docs/server.md");
    for (name, file) in [("envoy-ext-authz", EXT_AUTHZ), ("envoy-ratelimit", RATE_LIMIT)] {
        let start = format!("<!-- file: fleet/{name}.yaml -->\n```yaml\n");
        let block = document.split(&start).nth(1).and_then(|rest| rest.split("```").next());
        let block = block.unwrap_or_else(|| panic!("{name} is not shown"));
        let indented: String = block.lines().map(|line| format!("{:18}{line}\n", "")).collect();
        assert!(file.contains(&indented), "{name} differs from what is shown");
    }
}

#[test]
fn ext_authz_limits_a_login() {
    let (server, mut envoy) = authorized(POLICY);
    let login = Request::post("/login?from=here", "secret");
    for left in (0..5).rev() {
        let passed = envoy.send(&login);
        assert_eq!((passed.status, passed.text()), (200, "hello\n".to_owned()));
        let field = passed.header("ratelimit").expect("a field");
        assert!(field.starts_with(&format!("\"login\";r={left};")), "{field}");
    }
    let refused = envoy.send(&login);
    assert_eq!(refused.status, 429);
    let body: Value = serde_json::from_slice(&refused.body).expect("a problem");
    assert_eq!((&body["status"], &body["violated-policies"]), (&json!(429), &json!(["login"])));
    for (name, value) in
        [("content-type", "application/problem+json"), ("cache-control", "no-store")]
    {
        assert_eq!(refused.all(name), [value], "{name}");
    }
    assert_eq!(refused.all("retry-after").len(), 1);
    let other = envoy.send(&Request::get("/login"));
    assert_eq!((other.status, other.header("ratelimit")), (200, None));
    drop(server);
    let status = || envoy.send(&Request::get("/login")).status;
    wait_until("nobody answers", Duration::from_secs(30), || (status() == 503).then_some(()));
    envoy.server.kill();
}

// Guards: a response that differs from the filter's: other statuses, marks, `respond`, gRPC, header
// lines.
#[test]
fn ext_authz_answers_as_the_filter_does() {
    let on = |name: &str, action: Value| {
        json!({"name": name, "when": {"paths": [format!("/{name}")]}, "key": [{"header": "x-key"}],
            "quotas": quota(1), "action": action})
    };
    let (_server, envoy) = authorized(json!({"version": 1, "rules": [
        on("teapot", json!({"deny": {"status": 418, "body": "short and stout"}})),
        on("fine", json!({"respond": {"status": 200, "body": "all is well"}})),
        on("empty", json!({"respond": {"status": 204}})),
        on("silent", json!({"respond": {"status": 404, "body": "nothing here"}})),
        on("marked", json!({"mark": {"header": "x-over", "value": "yes"}})),
        on("plain", json!("deny")),
        on("pkg.Service/Call", json!("deny")),
    ]}));
    let get = |path: &str, key: &[u8]| envoy.send(&Request::get(path).header("x-key", key));
    let twice = |path: &str| [get(path, b"a"), get(path, b"a")];
    let [_, teapot] = twice("/teapot");
    assert_eq!((teapot.status, teapot.text()), (418, "short and stout".to_owned()));
    assert!(teapot.header("retry-after").is_some());
    let [_, fine] = twice("/fine");
    assert_eq!((fine.status, fine.text()), (200, "all is well".to_owned()), "not the origin's");
    let [_, empty] = twice("/empty");
    assert_eq!((empty.status, empty.text()), (204, String::new()));
    let [_, silent] = twice("/silent");
    assert_eq!((silent.status, silent.text()), (404, "nothing here".to_owned()));
    assert_eq!((silent.header("ratelimit"), silent.header("retry-after")), (None, None));
    let [unmarked, marked] = twice("/marked");
    let seen = [unmarked, marked].map(|it| (it.status, it.header("x-seen").unwrap_or_default()));
    assert_eq!(seen, [(200, String::new()), (200, "yes".to_owned())]);
    let forged = Request::get("/marked").header("x-key", "a").header("x-over", "no");
    assert_eq!(envoy.send(&forged).header("x-seen").as_deref(), Some("yes"));
    // Bytes that are not text are keys of their own; two different lines count as neither value.
    for key in [&b"\xff"[..], b"\xfe", b"b"] {
        assert_eq!([200, 429], [0, 1].map(|_| get("/plain", key).status), "{key:?}");
    }
    let lines = Request::get("/plain").header("x-key", "c").header("x-key", "d");
    assert_eq!(envoy.send(&lines).status, 400);
    assert_eq!(get("/plain", b"c").status, 200);
    let call = grpc::call("application/grpc", "a");
    http2::send(envoy.port, &call);
    let refused = http2::send(envoy.port, &call);
    let field = |name: &str| refused.response.header(name);
    assert_eq!((refused.response.status, refused.is_trailers_only), (200, true), "{refused:?}");
    assert_eq!(field("grpc-status").as_deref(), Some("8"), "{refused:?}");
    let message = field("grpc-message").expect("a word");
    assert!(message.starts_with("quota exceeded: q; retry in "), "{message}");
    assert_eq!(refused.response.all("content-type"), ["application/grpc"]);
}

// Guards: a delayed request is held here, within Envoy's time, and then continues.
#[test]
fn ext_authz_holds_who_waits() {
    let (_server, envoy) = authorized(json!({"version": 1, "rules": [
        {"name": "line", "when": {"paths": ["/line"]}, "key": [], "action": {"delay": {"max": "2s"}},
         "quotas": [{"limit": 10, "window": "1s", "burst": 1}]},
        {"name": "queue", "when": {"paths": ["/queue"]}, "key": [],
         "quotas": [{"algorithm": "leaky-queue", "limit": 10, "window": "1s", "burst": 4}]},
        {"name": "long", "when": {"paths": ["/long"]}, "key": [], "action": {"delay": {"max": "5m"}},
         "quotas": [{"limit": 1, "window": "1m", "burst": 1}]},
    ]}));
    for path in ["/line", "/queue", "/line", "/queue", "/line", "/queue"] {
        assert_eq!(envoy.send(&Request::get(path)).status, 200, "{path}");
    }
    assert_eq!([200, 429, 429], [0; 3].map(|_| envoy.send(&Request::get("/long")).status));
}

#[test]
fn the_rate_limit_filter_limits_by_descriptors() {
    let server = Setup::new(POLICY_OF_DESCRIPTORS).set("protocols", "ratelimit").start();
    let envoy = Envoy::start(RATE_LIMIT, server.port);
    let mut client = Client::connect(envoy.port);
    let first = client.send(&Request::get("/"));
    assert_eq!((first.status, first.text()), (200, "hello\n".to_owned()));
    for (name, value) in [
        ("x-ratelimit-limit", "100, 100;w=60;name=\"each-client\""),
        ("x-ratelimit-remaining", "99"),
        ("ratelimit-policy", "\"each-client\";q=100;w=60"),
    ] {
        assert_eq!(first.all(name), [value], "{first:?}");
    }
    // Counts and no times: a token is returned every 600 ms, however fast this machine is.
    let keyed = Request::get("/").header("x-api-key", "k");
    let both = client.send(&keyed);
    let policies = both.all("ratelimit-policy").join(", ");
    assert_eq!(policies, "\"each-client\";q=100;w=60, \"each-key\";q=1000;w=60");
    assert!(both.header("x-ratelimit-limit").expect("a field").contains("\"each-key\""));
    let refused = wait_until("a refusal", Duration::from_secs(60), || {
        Some(client.send(&keyed)).filter(|answer| answer.status != 200)
    });
    assert_eq!(refused.status, 429);
    let body: Value = serde_json::from_slice(&refused.body).expect("a problem");
    assert_eq!(body["violated-policies"], json!(["each-client"]));
    assert_eq!(refused.all("content-type"), ["application/problem+json"]);
    assert_eq!(
        (refused.all("retry-after").len(), refused.all("x-ratelimit-remaining")),
        (1, vec!["0".to_owned()])
    );
}

// Guards: a client that could cause an error, which opens Envoy's filter, and would then be
// unlimited.
#[test]
fn no_header_of_a_client_opens_the_rate_limit_filter() {
    let policy = json!({"version": 1, "rules": [
        {"name": "key", "when": {"entries": [[{"api_key": "*"}]]}, "key": [], "quotas": quota(6)},
        {"name": "down", "when": {"descriptor": {"api_key": "down"}}, "key": [{"descriptor": "api_key"}],
         "quotas": quota(9), "action": {"deny": {"status": 403}}},
    ]});
    let server = Setup::new(policy).set("protocols", "ratelimit").start();
    let open = RATE_LIMIT.replace("failure_mode_deny: true", "failure_mode_deny: false");
    let envoy = Envoy::start(&open, server.port);
    let long = "x".repeat(50_000);
    let values: [&[u8]; 6] = [b"a", b"\xff\xfe", long.as_bytes(), b"", b"\xc3", b"b,c"];
    for value in values {
        let answer = envoy.send(&Request::get("/").header("x-api-key", value));
        assert_eq!(answer.status, 200, "{:?}", &value[..value.len().min(9)]);
    }
    let after: Vec<u16> = values
        .iter()
        .filter(|value| !value.is_empty()) // Envoy sends no descriptor of an empty value
        .map(|value| envoy.send(&Request::get("/").header("x-api-key", value)).status)
        .collect();
    let refused = after.iter().filter(|status| **status == 429).count();
    assert!(after.len() - refused <= 1, "{after:?}");
}

// Guards: clients that leave while their requests wait in the server.
#[test]
fn clients_that_leave_hold_nothing() {
    let (server, envoy) = authorized(json!({"version": 1, "rules": [
        {"name": "line", "when": {"paths": ["/line"]}, "key": [], "action": {"delay": {"max": "5m"}},
         "quotas": [{"limit": 4, "window": "1s", "burst": 1}]},
    ]}));
    let wait = Request::get("/line");
    for _ in 0..200 {
        let mut client = Client::connect(envoy.port);
        client.start(&wait).expect("sent");
    }
    wait_until("a turn", Duration::from_secs(60), || {
        (envoy.send(&wait).status == 200).then_some(())
    });
    let asked = json!({"method": "GET", "path": "/other"}).to_string();
    assert_eq!(server.client().send(&Request::post("/check", asked)).status, 200);
}

// Guards: every second request failed for up to a minute after one of two servers was killed.
#[test]
fn one_of_two_servers_may_die() {
    let all = json!({"version": 1, "rules": [{"name": "all", "key": [], "quotas": quota(9_999)}]});
    let descriptors = json!({"version": 1, "rules": [{"name": "all", "key": [],
        "when": {"descriptor": {"remote_address": "*"}}, "quotas": quota(9_999)}]});
    for (protocol, config, policy) in
        [("ext_authz", EXT_AUTHZ, all), ("ratelimit", RATE_LIMIT, descriptors)]
    {
        let start = || Setup::new(&policy).set("protocols", protocol).start();
        let (server, mut other) = (start(), start());
        let envoy = Envoy::in_front_of(config, &[server.port, other.port]);
        let failures = |count| {
            let statuses = (0..count).map(|_| envoy.send(&Request::get("/")).status);
            statuses.filter(|status| *status != 200).count()
        };
        assert_eq!(failures(40), 0, "{protocol}: both servers answer");
        other.server.kill();
        // A request that is in flight to a server when it dies may be charged, so it is not
        // repeated: at most one for each of Envoy's two connections to it.
        let failed = failures(200);
        assert!(failed <= 2, "{protocol}: one server answers, and {failed} of 200 failed");
    }
}

// Guards: a deployment as recommended: the server uses TLS and requires a token.
#[test]
fn envoy_asks_over_tls_with_a_token() {
    let files = TempDir::new("tls");
    let path = |name: &str| files.path().join(name).display().to_string();
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    fs::write(path("cert.pem"), cert.pem()).expect("written");
    fs::write(path("key.pem"), signing_key.serialize_pem()).expect("written");
    let server = Setup::new(POLICY)
        .set("protocols", "ext_authz")
        .set("tls_certificate", path("cert.pem"))
        .set("tls_key", path("key.pem"))
        .variable("TOLLGATE_CHECK_TOKEN", "a-token-for-tests-0123")
        .start();
    let tls = format!(
        r#"      type: STRICT_DNS
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          sni: localhost
          common_tls_context:
            validation_context: {{ trusted_ca: {{ filename: {} }} }}
"#,
        path("cert.pem")
    );
    let config = EXT_AUTHZ.replacen("      type: STRICT_DNS\n", &tls, 1);
    let told = |token: &str| {
        let target = "envoy_grpc: { cluster_name: tollgate }\n";
        let with = format!(
            "{target}{:24}initial_metadata: [{{ key: authorization, value: Bearer {token} }}]\n",
            ""
        );
        Envoy::start(&config.replacen(target, &with, 1), server.port)
    };
    let login = Request::post("/login", "");
    let mine = told("a-token-for-tests-0123");
    let passed = mine.send(&login);
    assert_eq!(passed.status, 200);
    assert!(passed.header("ratelimit").expect("a field").starts_with("\"login\";r=4;"));
    assert_eq!(told("another-token-of-tests").send(&login).status, 503, "and nothing is counted");
    assert!(mine.send(&login).header("ratelimit").expect("a field").starts_with("\"login\";r=3;"));
}
