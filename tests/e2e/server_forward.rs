//! Forward auth with real proxies: nginx, Caddy and Envoy send the checks, with the configurations
//! in `docs/forward-auth.md`. Traefik is not available as a package; its requests are sent by hand.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::http::{Request, Response};
use tollgate_e2e::http2;
use tollgate_e2e::process::wait_until;
use tollgate_e2e::proxies::{Proxy, Running};
use tollgate_e2e::server::{Setup, TollgateServer};
use tollgate_e2e::workerd::answer;

const TOKEN: &str = "only-for-tests-check";
const PATIENCE: Duration = Duration::from_secs(60);
const ALL: &str = "ext_authz_http,nginx,forward_auth";

fn year(limit: u64) -> Value {
    json!({"name": "year", "algorithm": "fixed-window", "limit": limit, "window": "366d"})
}

fn rule(name: &str, path: &str, key: Value, limit: u64) -> Value {
    json!({"name": name, "when": {"paths": [path]}, "key": key, "quotas": [year(limit)]})
}

fn server(rules: Value) -> TollgateServer {
    setup(&json!({"version": 1, "rules": rules})).start()
}

fn setup(policy: &Value) -> Setup {
    let setup = Setup::new(policy).set("protocols", ALL).operated();
    setup.variable("TOLLGATE_CHECK_TOKEN", TOKEN)
}

fn reached(response: &Response) -> bool {
    response.header("x-origin").as_deref() == Some("reached")
}

/// The response of `/check` for a request.
fn ask(server: &TollgateServer, request: &Value) -> Value {
    let request = Request::post("/check", request.to_string());
    let authorization = format!("Bearer {TOKEN}");
    answer(&server.client().send(&request.header("authorization", authorization)))
}

fn each(test: impl Fn(Proxy, &Running)) -> impl Fn(Proxy, &TollgateServer) {
    move |proxy, server| test(proxy, &proxy.start(server.port, TOKEN))
}

// Guards: the client's view: the origin's response with Tollgate's fields, then the policy's
// denial.
#[test]
fn the_client_gets_what_the_policy_says() {
    let server = server(json!([
        rule("search", "/search", json!(["client_ip", {"header": "x-key"}]), 2),
        {"name": "post", "when": {"methods": ["DELETE"], "hosts": ["api.example"]}, "key": [],
            "quotas": [year(1)], "action": {"deny": {"status": 503, "body": "no more today"}}},
        {"name": "closed", "when": {"paths": ["/closed"]}, "deny": true},
    ]));
    let test = each(|proxy, running| {
        let mut client = running.client();
        let request = Request::get("/search?q=%20a").header("x-key", format!("{proxy:?}"));
        for left in [1, 0] {
            let passed = client.send(&request);
            assert!(passed.status == 200 && reached(&passed), "{proxy:?}: {passed:?}");
            assert!(passed.text().starts_with("GET /search?q=%20a "), "{}", passed.text());
            // Caddy's forward_auth does not pass on the fields of an allowing response.
            let fields = passed.header("ratelimit");
            if proxy != Proxy::Caddy {
                let fields = fields.expect("our fields");
                assert!(fields.starts_with(&format!("\"year\";r={left};t=")), "{fields}");
            }
        }
        let refused = client.send(&request);
        assert_eq!((refused.status, reached(&refused)), (429, false), "{proxy:?}: {refused:?}");
        assert!(refused.header("retry-after").is_some_and(|it| it.parse::<u64>().is_ok()));
        assert!(refused.header("ratelimit").is_some_and(|it| it.contains("r=0")));
        assert_eq!(refused.header("content-type").as_deref(), Some("application/problem+json"));
        let problem: Value = serde_json::from_slice(&refused.body).expect("the policy's body");
        assert_eq!(problem["violated-policies"], json!(["year"]), "{proxy:?}");
        // Another key, and the same without the path of the rule.
        let other = client.send(&Request::get("/search").header("x-key", format!("o{proxy:?}")));
        assert!(reached(&other) && reached(&client.send(&Request::get("/"))), "{proxy:?}");
        // A rule that denies without a count.
        let closed = client.send(&Request::get("/closed"));
        assert_eq!((closed.status, reached(&closed)), (403, false), "{proxy:?}: {closed:?}");
        assert!(closed.text().contains("denied-by-rule"), "{proxy:?}: {closed:?}");
        assert_eq!((closed.header("retry-after"), closed.header("ratelimit")), (None, None));
    });
    for proxy in Proxy::ALL {
        test(proxy, &server);
    }
    // A rule of one count for all, by method and host: the second request is denied, with the
    // policy's response.
    for (i, proxy) in Proxy::ALL.into_iter().enumerate() {
        let running = proxy.start(server.port, TOKEN);
        let delete = Request::new("DELETE", "/x").header("host", "api.example");
        let said = running.client().send(&delete);
        if i == 0 {
            assert!(reached(&said), "{said:?}");
            continue;
        }
        let seen = (said.status, said.text(), said.header("content-type"));
        // Envoy treats 503 as a failure of the server.
        let status = if proxy == Proxy::Caddy { 503 } else { 429 };
        let expected = (status, "no more today".to_owned(), Some("text/plain".to_owned()));
        assert_eq!(seen, expected, "{proxy:?}");
    }
}

// Guards: a client that writes fields that only the proxy may set. Each attempt is one more request
// of the same client without any units left, so one that passes was counted as another client.
#[test]
fn what_a_client_writes_decides_nothing() {
    let server = server(json!([rule("login", "/login", json!(["client_ip"]), 1)]));
    let spoofs: &[&[(&str, &str)]] = &[
        &[("x-forwarded-for", "6.6.6.6")],
        &[("x-forwarded-for", "6.6.6.6, 7.7.7.7"), ("x-forwarded-for", "8.8.8.8")],
        &[("x-forwarded-for", "")],
        &[("x-forwarded-for", "\"")],
        &[("X-FORWARDED-FOR", " 6.6.6.6 ,")],
        &[("x_forwarded_for", "6.6.6.6")],
        &[("forwarded", "for=6.6.6.6")],
        &[("x-real-ip", "6.6.6.6")],
        &[("x-tollgate-client", "6.6.6.6")],
        &[("X-Tollgate-Client", "6.6.6.6"), ("x-tollgate-client", "")],
        &[("x_tollgate_client", "6.6.6.6")],
        &[("x-forwarded-uri", "/")],
        &[("x-forwarded-uri", "/"), ("x-forwarded-uri", "/other")],
        &[("x-forwarded-uri", "")],
        &[("x-original-uri", "/")],
        &[("x-original-url", "/"), ("x-rewrite-url", "/")],
        &[("x_original_uri", "/")],
        &[("x-forwarded-method", "OPTIONS"), ("x-original-method", "OPTIONS")],
        &[("x-http-method-override", "OPTIONS")],
        &[("x-forwarded-host", "other.example"), ("x-original-host", "other.example")],
        &[("x-forwarded-prefix", "/a"), ("x-envoy-original-path", "/")],
        &[("x-tollgate-token", "guess")],
        &[("x-tollgate-token", TOKEN), ("x-tollgate-client", "6.6.6.6")],
        &[("x-tollgate-status", "200"), ("x-tollgate-content-length", "9")],
        &[("authorization", "Bearer guess")],
        &[("content-type", "application/grpc")],
        &[("te", "trailers"), ("expect", "100-continue")],
        &[("connection", "x-tollgate-client, x-original-uri, x-forwarded-for, x-tollgate-token")],
        &[("connection", "upgrade"), ("upgrade", "h2c"), ("http2-settings", "AAMAAABkAAQAAP__")],
        &[("x-envoy-internal", "true"), ("x-envoy-external-address", "6.6.6.6")],
    ];
    for proxy in Proxy::ALL {
        let running = proxy.start(server.port, TOKEN);
        let first = running.client().send(&Request::get("/login"));
        // All of them come from this machine: the first one gets the only unit.
        assert_eq!(reached(&first), proxy == Proxy::ALL[0], "{proxy:?}: {first:?}");
        for (i, spoof) in spoofs.iter().enumerate() {
            for method in ["GET", "POST", "HEAD", "get"] {
                let fields = spoof.iter();
                let request = fields
                    .fold(Request::new(method, "/login"), |request, (name, value)| {
                        request.header(name, value)
                    });
                let said = running.client().try_send(&request);
                let Ok(said) = said else { continue };
                assert!(!reached(&said), "{proxy:?} let {method} with spoof {i} through: {said:?}");
                assert!(
                    said.status >= 400 || said.header("grpc-status").is_some_and(|it| it != "0"),
                    "{proxy:?}: {said:?}"
                );
            }
        }
    }
    assert_eq!(server.metric("tollgate_unauthorized_total{api=\"check\",reason=\"wrong\"}"), 0);
}

// Guards: a request that the proxy forwards in one form and checks in another. The checked form is
// charged; the same request, described to /check as it was sent, must then be denied.
#[test]
fn targets_and_methods_arrive_as_they_were_sent() {
    let key = json!(["client_ip", "method", "path", "host"]);
    let server = server(json!([{"name": "each", "key": key, "quotas": [year(1)]}]));
    let targets = [
        "/",
        "//",
        "//a",
        "/a//b",
        "/a/./b",
        "/a/../b",
        "/%2e%2e/a",
        "/a/%2e%2e/b",
        "/%61",
        "/a%2Fb",
        "/a%2fb",
        "/a%5cb",
        "/a\\b",
        "/a;b=c",
        "/a?q=1&q=2",
        "/a?q=%00",
        "/a?",
        "/?q=",
        "/a?q=a+b",
        "/a%00",
        "/a%zz",
        "/A",
        "/a/",
        "/caf%c3%a9",
        "/a|b",
        "/a\"b",
        "/a{b}",
        "/a^b",
        "/a`b",
        "/forward-auth/nginx",
        "/forward-auth/envoy/",
        "/check",
        "/.tollgate",
        "/../../check",
        "/.well-known/tollgate/health",
        "/?forward-auth",
        "/forward-auth/forwarded?q=x",
        "/a#b",
        "http://absolute.example/a",
        "http://absolute.example//b?q=1",
        "*",
    ];
    let mut compared = 0;
    for (i, proxy) in Proxy::ALL.into_iter().enumerate() {
        let running = proxy.start(server.port, TOKEN);
        for method in ["GET", "POST", "OPTIONS", "PROPFIND", "X-odd"] {
            for target in targets {
                let host = format!("h{i}.example");
                let request = Request::new(method, target).header("host", &host);
                let Ok(said) = running.client().try_send(&request) else { continue };
                if !reached(&said) {
                    // Rejected by the proxy, by the server's reading of the target, or unknown
                    // here. Caddy responds to `OPTIONS *` itself, without a check.
                    let is_own = proxy == Proxy::Caddy && target == "*";
                    assert!(is_own || said.status >= 400, "{proxy:?} {method} {target}: {said:?}");
                    continue;
                }
                let (path, host) = match target.strip_prefix("http://absolute.example") {
                    Some(path) => (path, "absolute.example"),
                    None => (target, host.as_str()),
                };
                let served = said.text().to_ascii_lowercase();
                let served = served.lines().find_map(|line| line.strip_prefix("host: "));
                assert_eq!(served, Some(host), "{proxy:?} {method} {target}: the origin's host");
                // A fragment is not part of a request; an origin that accepts it drops it or keeps
                // it in the path.
                if target == "*" || target.contains('#') {
                    continue;
                }
                let described =
                    json!({"method": method, "path": path, "host": host, "client_ip": "127.0.0.1"});
                let verdict = ask(&server, &described);
                assert_eq!(verdict["decision"], "deny", "{proxy:?} {method} {target}: {verdict}");
                compared += 1;
            }
        }
    }
    assert!(compared > 200, "{compared} came through");
}

// Guards: the address that counts behind a load balancer: the one of the policy's rule, and not one
// entry more.
#[test]
fn an_address_in_front_counts_only_where_the_policy_says_so() {
    let rules = json!([rule("each", "/**", json!(["client_ip"]), 1)]);
    let trusting = json!({"version": 1, "rules": rules, "client_ip":
        {"source": "x-forwarded-for", "trusted_proxies": ["127.0.0.0/8"]}});
    // Envoy appends its connection: one proxy in front is two hops there.
    let mut hops = trusting.clone();
    hops["client_ip"] = json!({"source": "x-forwarded-for", "trusted_hops": 2});
    // This test is the load balancer: the last entry that it did not write is the client.
    let seen = [
        ("198.51.100.1", 200),
        ("198.51.100.1", 429),
        ("6.6.6.6, 198.51.100.1", 429),
        ("198.51.100.2", 200),
        ("198.51.100.1, 198.51.100.3", 200),
        ("198.51.100.1, 198.51.100.3,", 429),
        ("198.51.100.4, 198.51.100.3, , ", 429),
        ("198.51.100.4, spoof", 200),
        ("198.51.100.5, spoof", 429),
    ];
    for (proxy, policy) in [(Proxy::Nginx, &trusting), (Proxy::Envoy, &hops)] {
        let server = setup(policy).start();
        let running = proxy.start(server.port, TOKEN);
        for (list, expected) in seen {
            let request = Request::get("/").header("x-forwarded-for", list);
            let status = running.client().send(&request).status;
            assert_eq!(status, expected, "{proxy:?} {list:?}");
        }
    }
    // Caddy trusts no proxy unless configured: it replaces the list.
    let server = setup(&trusting).start();
    let caddy = Proxy::Caddy.start(server.port, TOKEN);
    let send =
        |list: &str| caddy.client().send(&Request::get("/").header("x-forwarded-for", list)).status;
    assert_eq!(["198.51.100.1", "198.51.100.2"].map(send), [200, 429]);
}

// Guards: every second request failed for up to a minute after one of two servers was killed.
#[test]
fn one_of_two_servers_may_die() {
    let start = || server(json!([rule("all", "/**", json!([]), 9_999)]));
    let (server, mut other) = (start(), start());
    let envoy = Proxy::start_envoy_before_two([server.port, other.port], TOKEN);
    let failures = |count| {
        let responses = (0..count).map(|_| envoy.client().send(&Request::get("/")));
        responses.filter(|response| !reached(response)).count()
    };
    assert_eq!(failures(40), 0, "both servers answer");
    other.server.kill();
    // A request that is in flight to a server when it dies may be charged, so it is not repeated.
    let failed = failures(200);
    assert!(failed <= 1, "one server answers, and {failed} of 200 failed");
}

/// The request of Traefik with `trustForwardHeader` off: the client's fields, and its own.
fn traefik(uri: &str, client: &str) -> Request {
    Request::get("/forward-auth/forwarded")
        .header("host", "127.0.0.1:8080")
        .header("x-forwarded-method", "POST")
        .header("x-forwarded-proto", "https")
        .header("x-forwarded-host", "app.example")
        .header("x-forwarded-port", "443")
        .header("x-forwarded-uri", uri)
        .header("x-forwarded-for", client)
        .header("x-forwarded-server", "traefik-1")
        .header("x-real-ip", client)
        .header("authorization", "Basic Y2xpZW50OnB3")
        .header("user-agent", "client/1")
}

// Guards: Traefik has no token for the server, so its address decides; and only where no token is
// set.
#[test]
fn traefik_asks_from_an_address_that_is_listed() {
    let policy = json!({"version": 1, "rules": [
        {"name": "login", "when": {"methods": ["POST"], "hosts": ["app.example"], "paths": ["/login"]},
            "key": ["client_ip"], "quotas": [year(1)]}]});
    let start = |callers: &str| {
        let setup = Setup::new(&policy).set("protocols", "forward_auth").operated();
        setup.set("trusted_callers", callers).start()
    };
    let listed = start("127.0.0.0/8");
    let send = |uri, client| listed.client().send(&traefik(uri, client)).status;
    let said = [
        send("/login", "192.0.2.1"),
        send("/login", "192.0.2.1"),
        send("/log%69n?a=b", "192.0.2.1"),
        send("/login", "192.0.2.2"),
        send("/", "192.0.2.1"),
    ];
    assert_eq!(said, [200, 429, 429, 200, 200]);
    let stranger = start("192.0.2.0/24");
    assert_eq!(stranger.client().send(&traefik("/", "192.0.2.1")).status, 403);
    assert_eq!(stranger.metric("tollgate_unauthorized_total{api=\"check\",reason=\"wrong\"}"), 1);
    // Other protocols are off, and their paths are not found.
    for path in ["/forward-auth/nginx", "/forward-auth/envoy/", "/forward-auth/", "/forward-auth"] {
        assert_eq!(listed.client().send(&Request::get(path)).status, 404, "{path}");
    }
}

// Guards: any program that can reach the port, and sends checks in a proxy's name.
#[test]
fn who_may_not_ask_is_refused_and_nothing_is_charged() {
    let server = server(json!([rule("each", "/**", json!([]), 1)]));
    let asked = || {
        Request::get("/forward-auth/nginx")
            .header("x-original-method", "GET")
            .header("x-original-uri", "/")
            .header("x-tollgate-client", "192.0.2.1")
    };
    let tokens: &[&[&str]] = &[
        &[],
        &["guess"],
        &[""],
        &[TOKEN, TOKEN],
        &[TOKEN, "guess"],
        &["Bearer only-for-tests-check"],
    ];
    for tokens in tokens {
        let request = tokens.iter().fold(asked(), |it, token| it.header("x-tollgate-token", token));
        let refused = server.client().send(&request);
        assert_eq!(
            (refused.status, refused.header("x-tollgate-status")),
            (403, None),
            "{tokens:?}"
        );
    }
    // The token of /check is not accepted in the field of the client's own token.
    let bearer = asked().header("authorization", format!("Bearer {TOKEN}"));
    assert_eq!(server.client().send(&bearer).status, 403);
    let count = |reason: &str| {
        server.metric(&format!("tollgate_unauthorized_total{{api=\"check\",reason=\"{reason}\"}}"))
    };
    assert_eq!((count("missing"), count("wrong")), (2, 5));
    let right = asked().header("x-tollgate-token", TOKEN);
    let statuses = [(); 2].map(|()| server.client().send(&right).status);
    assert_eq!(statuses, [200, 403], "the only one was still there");
    assert!(!server.server.log().contains(TOKEN));
}

// Guards: a proxy that does not replace a field, so that its clients choose the value.
#[test]
fn a_proxy_that_says_too_little_or_twice_is_refused_and_named() {
    let server = server(json!([rule("each", "/**", json!(["client_ip"]), 9)]));
    let fields =
        [("x-original-method", "GET"), ("x-original-uri", "/"), ("x-tollgate-client", "192.0.2.1")];
    let send = |fields: &[(&str, &str)]| {
        let request = Request::get("/forward-auth/nginx").header("x-tollgate-token", TOKEN);
        let with =
            fields.iter().fold(request, |request, (name, value)| request.header(name, value));
        server.client().send(&with)
    };
    assert_eq!(send(&fields).status, 200);
    for i in 0..fields.len() {
        let without: Vec<_> = fields.iter().copied().filter(|field| *field != fields[i]).collect();
        let twice: Vec<_> = fields.iter().copied().chain([fields[i]]).collect();
        let empty: Vec<_> = without.iter().copied().chain([(fields[i].0, "")]).collect();
        for wrong in [without, twice, empty] {
            let said = send(&wrong);
            assert_eq!((said.status, said.header("x-tollgate-status")), (400, None), "{wrong:?}");
            assert!(said.text().contains(fields[i].0), "{}", said.text());
        }
    }
    assert_eq!(server.metric("tollgate_forward_auth_malformed_total"), 9);
    let lines = server.wait_for_events("proxy_misconfigured", 1);
    assert_eq!((lines.len(), &lines[0]["protocol"]), (1, &json!("nginx")));
}

// Guards: a status of success allows a request, also when a denial was meant.
#[test]
fn nothing_that_is_refused_is_answered_with_success() {
    let grpc = Request::post("/a", "").header("content-type", "application/grpc");
    let server = server(json!([rule("each", "/**", json!([]), 1)]));
    let asked = |request: Request| {
        request.header("x-tollgate-token", TOKEN).header("x-tollgate-client", "192.0.2.1")
    };
    let target = |shape: &str| format!("/forward-auth/{shape}");
    let envoy =
        asked(Request::post(&target("envoy/a"), "").header("content-type", "application/grpc"));
    assert_eq!(http2::send(server.port, &envoy).response.status, 200);
    let refused = http2::send(server.port, &envoy).response;
    assert_eq!((refused.status, refused.header("grpc-status")), (429, None), "{refused:?}");
    for proxy in Proxy::ALL {
        let said = proxy.start(server.port, TOKEN).client().send(&grpc);
        assert!(!reached(&said), "{proxy:?}: {said:?}");
    }
    // Nothing decides: rules that fail, and too many requests.
    let nothing = Request::post("/forward-auth/forwarded", "{\"method\":\"GET\",\"path\":\"/\"}");
    assert_eq!(server.client().send(&asked(nothing)).status, 400);
}

// Guards: unsupported rules are reported when the server starts, and when a policy is put.
#[test]
fn policies_that_the_protocols_cannot_serve_are_refused_by_name() {
    let by_response = json!({"name": "failed", "key": ["client_ip"], "quotas": [year(2)],
        "charge": {"response_status": ["401"]}});
    let success = json!({"name": "silent", "key": ["client_ip"], "quotas": [year(2)],
        "action": {"respond": {"status": 204}}});
    let both = json!({"version": 1, "rules": [by_response, success]});
    let server = server(json!([rule("each", "/**", json!([]), 1)]));
    let put = server.operate("PUT", "admin/policy", &both.to_string(), &[("if-none-match", "*")]);
    let put = match put.status {
        422 => put,
        _ => server.operate("PUT", "admin/policy", &both.to_string(), &[("if-match", "*")]),
    };
    let said = put.text();
    assert_eq!(put.status, 422, "{said}");
    assert!(
        said.contains("rules[0].charge")
            && said.contains("these callers do not report the response")
    );
    assert!(said.contains("rules[1].action") && said.contains("204"), "{said}");
    // Without the protocols both are accepted.
    Setup::new(both).start();
}

// Guards: requests wait for their places in a queue, one after the other.
#[test]
fn a_place_in_a_queue_is_waited_for() {
    let quota = json!({"algorithm": "leaky-queue", "limit": 5, "window": "1s", "burst": 3});
    let server =
        server(json!([{"name": "queue", "key": [{"header": "x-key"}], "quotas": [quota]}]));
    for proxy in [Proxy::Nginx, Proxy::Envoy] {
        let running = proxy.start(server.port, TOKEN);
        let mut clients: Vec<_> = (0..3).map(|_| running.client()).collect();
        for client in &mut clients {
            let request = Request::get("/").header("x-key", format!("{proxy:?}"));
            client.start(&request).expect("sent");
        }
        for client in &mut clients {
            let said = client.finish(false).expect("an answer");
            assert!(reached(&said), "{proxy:?}: {said:?}");
        }
    }
}

// Guards: a client that leaves and holds an unused place.
#[test]
fn who_leaves_gives_his_place_back() {
    let quota = json!({"algorithm": "leaky-queue", "limit": 3, "window": "75s", "burst": 2});
    let server =
        server(json!([{"name": "queue", "key": [{"header": "x-key"}], "quotas": [quota]}]));
    let described = |key: &str| json!({"method": "GET", "path": "/", "headers": {"x-key": key}});
    let calls =
        |kind: &str| server.metric(&format!("tollgate_object_calls_total{{call=\"{kind}\"}}"));
    for proxy in [Proxy::Nginx, Proxy::Caddy, Proxy::Envoy, Proxy::EnvoyHttp2] {
        let running = proxy.start(server.port, TOKEN);
        let key = format!("{proxy:?}");
        assert_eq!(ask(&server, &described(&key))["decision"], "allow");
        let (charged, refunded) = (calls("check"), calls("refund"));
        let mut client = running.client();
        client.start(&Request::get("/").header("x-key", &key)).expect("sent");
        wait_until("the place is taken", PATIENCE, || (calls("check") > charged).then_some(()));
        drop(client);
        wait_until("it is given back", PATIENCE, || (calls("refund") > refunded).then_some(()));
        // The place of the client that left: there is no place behind it.
        let next = ask(&server, &described(&key));
        assert_eq!(next["decision"], "delay", "{proxy:?}: {next}");
    }
}
