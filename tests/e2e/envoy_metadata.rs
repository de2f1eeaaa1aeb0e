//! Counting by metadata that filters of a real Envoy have set: ext_authz, set_metadata,
//! header_to_metadata.

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

const FILTERS: &str = "type.googleapis.com/envoy.extensions.filters.http";

/// Three requests per hour for each value at `path`.
fn policy(path: &Value) -> Value {
    json!({"version": 1, "rules": [{
        "name": "tenant",
        "key": [{"metadata": path}],
        "on_missing": "deny",
        "quotas": [{"limit": 3, "window": "1h"}],
    }]})
}

fn start(filters: Vec<Value>) -> Envoy {
    Setup::new(2, vec![Listener::new("main", filters)]).start()
}

/// How many of the next nine such requests pass before the first denial.
fn admitted(client: &mut Client, request: &Request) -> usize {
    (0..9).take_while(|_| client.send(request).status == 200).count()
}

fn set_metadata(value: &Value) -> Value {
    json!({"name": "envoy.filters.http.set_metadata", "typed_config": {
        "@type": format!("{FILTERS}.set_metadata.v3.Config"),
        "metadata": [{"metadata_namespace": "f", "value": value}],
    }})
}

/// A service that names the bearer of each token as its tenant, and the filter that calls it.
fn authorization(port: u16) -> Value {
    json!({"name": "envoy.filters.http.ext_authz", "typed_config": {
        "@type": format!("{FILTERS}.ext_authz.v3.ExtAuthz"),
        "http_service": {
            "server_uri": {"uri": format!("http://127.0.0.1:{port}"), "cluster": "origin", "timeout": "30s"},
            "authorization_response": {
                "dynamic_metadata_from_headers": {"patterns": [{"exact": "x-tenant"}]},
            },
        },
    }})
}

// The recipe of docs/recipes.md: a client names neither its tenant nor that of another.
#[test]
fn a_tenant_is_counted_as_ext_authz_names_it() {
    let mut service = Listener::new("service", vec![]);
    service.routes[0]["response_headers_to_add"] = json!([{
        "header": {"key": "x-tenant", "value": "%REQ(authorization)%"},
    }]);
    let path = json!(["envoy.filters.http.ext_authz", "x-tenant"]);
    let filters = vec![authorization(service.port), tollgate(&policy(&path), "vm", As::Text)];
    let origin = service.port;
    let setup = Setup::new(2, vec![Listener::new("main", filters), service]);
    let envoy = Setup { origin, ..setup }.start();
    let of = |token: &str| Request::get("/").header("authorization", token);
    assert_eq!(admitted(&mut envoy.client(), &of("acme")), 3);
    assert_eq!(admitted(&mut envoy.client(), &of("other").header("x-tenant", "acme")), 3);
    for mut client in envoy.clients(4) {
        assert_eq!(admitted(&mut client, &of("acme").header("x-tenant", "new")), 0);
    }
    assert_eq!(admitted(&mut envoy.client(), &Request::get("/")), 0, "the service names none");
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}

// Guards: a number read as text, a number that two clients share, and a value that is no value.
fn values_count_by_their_types(path: impl Fn(&str) -> Value, set: impl Fn(Value) -> Value) {
    let rows: [(Value, Option<&str>); 18] = [
        (json!("acme"), Some("acme")),
        (json!(" acme "), Some(" acme ")),
        (json!(""), Some("")),
        (json!("0.5"), Some("0.5")),
        (json!("abcdefgh"), Some("abcdefgh")), // eight bytes, as a double has
        (json!(7), Some("7")),
        (json!(-7), Some("-7")),
        (json!(-0.0), Some("0")),
        (json!(9_007_199_254_740_991_u64), Some("9007199254740991")),
        (json!(9_007_199_254_740_992_u64), None),
        (json!(1e21), None),
        (json!(0.5), None),
        (json!(true), Some("true")),
        (json!(false), Some("false")),
        (json!(null), None),
        (json!(["acme"]), None),
        (json!({"id": "acme"}), None),
        (json!([]), None),
    ];
    let name = |i: usize| format!("r{i:02}");
    let quotas = |i, limit| json!([{"name": name(i), "limit": limit, "window": "1h", "algorithm": "fixed-window"}]);
    let rule = |(i, (_, text)): (usize, &(Value, Option<&str>))| {
        json!({"name": name(i), "key": [{"metadata": path(&name(i))}],
        "quotas": quotas(i, 10), "tiers": [
            {"name": "met", "key_values": [text.unwrap_or("x")], "quotas": quotas(i, 20)},
        ]})
    };
    let rules: Vec<Value> = rows.iter().enumerate().map(rule).collect();
    let values: serde_json::Map<String, Value> =
        rows.iter().enumerate().map(|(i, (value, _))| (name(i), value.clone())).collect();
    let policy = json!({"version": 1, "rules": rules});
    let filters = vec![set_metadata(&set(values.into())), tollgate(&policy, "vm", As::Struct)];
    let envoy = start(filters);
    let field = envoy.client().send(&Request::get("/")).header("ratelimit-policy");
    let expected = rows.iter().enumerate().filter(|(_, (_, text))| text.is_some());
    let expected: Vec<String> =
        expected.map(|(i, _)| format!("\"{}\";q=20;w=3600", name(i))).collect();
    assert_eq!(field, Some(expected.join(", ")));
}

#[test]
fn a_nested_value_counts_by_its_type() {
    values_count_by_their_types(
        |name| json!(["f", "deep", name]),
        |values| json!({"deep": values}),
    );
}

#[test]
fn a_value_at_the_top_counts_by_its_type() {
    values_count_by_their_types(|name| json!(["f", name]), |values| values);
}

// Guards: a value of another filter, or of the client, in place of the one that the policy names.
fn only_what_is_named_is_read(paths: &[(Value, usize)]) {
    let value = json!({"tenant": {"id": "acme"}, "f/tenant": {"id": "x"}, "name": "acme"});
    for (path, passes) in paths {
        let envoy = start(vec![set_metadata(&value), tollgate(&policy(path), "vm", As::Text)]);
        let request = Request::get("/").header("tenant", "b").header("metadata", "b");
        assert_eq!(admitted(&mut envoy.client(), &request), *passes, "{path}");
    }
}

#[test]
fn only_the_named_path_of_the_named_filter_is_read() {
    only_what_is_named_is_read(&[
        (json!(["f", "tenant", "id"]), 3),
        (json!(["f", "tenant", "id", "more"]), 0),
        (json!(["g", "tenant", "id"]), 0),
    ]);
}

#[test]
fn only_the_named_value_of_the_named_filter_is_read() {
    only_what_is_named_is_read(&[
        (json!(["f", "name"]), 3),
        (json!(["f", "tenant"]), 0),
        (json!(["f", "id"]), 0),
        (json!(["g", "name"]), 0),
        (json!(["f/tenant", "id"]), 0),
    ]);
}

// A filter that runs later has set nothing yet, so that the value is absent, as `check` warns.
#[test]
fn a_filter_that_runs_later_has_set_nothing() {
    let path = json!(["f", "tenant"]);
    let later = set_metadata(&json!({"tenant": "acme"}));
    let envoy = start(vec![tollgate(&policy(&path), "vm", As::Text), later]);
    assert_eq!(admitted(&mut envoy.client(), &Request::get("/")), 0);
}

// header_to_metadata stores what the client sends: a new value is a new count, as `check` warns.
#[test]
fn a_copied_header_is_what_the_client_sends() {
    const FILTER: &str = "envoy.filters.http.header_to_metadata";
    let copies = json!({"name": FILTER, "typed_config": {
        "@type": format!("{FILTERS}.header_to_metadata.v3.Config"),
        "request_rules": [{"header": "x-tenant", "on_header_present": {"key": "tenant"}}],
    }});
    let envoy = start(vec![copies, tollgate(&policy(&json!([FILTER, "tenant"])), "vm", As::Text)]);
    let of = |tenant: &str| Request::get("/").header("x-tenant", tenant);
    let mut client = envoy.client();
    assert_eq!((admitted(&mut client, &of("a")), admitted(&mut client, &of("b"))), (3, 3));
    assert_eq!(admitted(&mut client, &Request::get("/")), 0);
    // That filter copies at most 8 KiB.
    assert_eq!(admitted(&mut client, &of(&"x".repeat(8_000))), 3);
    assert_eq!(admitted(&mut client, &of(&"x".repeat(50_000))), 0);
}
