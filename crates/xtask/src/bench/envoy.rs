//! Envoy: CPU per request without a limiter, with the native one, with a no-op filter, with
//! Tollgate.
//!
//! Invariant: the configurations differ in the HTTP filter and in nothing else: one worker thread,
//! one listener, a direct response of six bytes, no log, the same requests on keep-alive
//! connections.

use super::{
    cpu::{ProcessorRole, seated},
    effort::Effort,
    load::{self, Expect, Subject},
    noop,
    wrk::Requests,
};
use crate::{
    files,
    problem::{OrProblem, Result},
    servers::{Server, envoy, free_port},
    workspace::Workspace,
};
use serde_json::{Value, json};
use std::path::Path;

/// Rows that others are compared with.
const NONE: usize = 0;
const NATIVE_PER_CLIENT: usize = 2;
/// Enough that no client is ever forgotten: the default of 20 would reset their buckets.
const MOST_CLIENTS: u32 = 100_000;
/// Fewer than either limiter remembers.
const MANY: u32 = 10_000;
/// More than any load here sends.
pub const PLENTY: u32 = 1_000_000_000;

/// The sender of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clients {
    /// One key: the state is always in the processor's cache.
    One,
    /// One whose requests carry the fields that browsers and other proxies add.
    Real,
    /// [`MANY`] keys in turn.
    Many,
}

/// The other fields of real requests.
const REAL: [&str; 20] = [
    "accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "accept-encoding: gzip, deflate, br, zstd",
    "accept-language: en-GB,en;q=0.9,de;q=0.8",
    "authorization: Bearer 0123456789abcdef0123456789abcdef",
    "cache-control: no-cache",
    "cookie: session=5f2b1c9e8d7a4f60b3c1; theme=dark; consent=all",
    "dnt: 1",
    "forwarded: for=192.0.2.43;proto=https",
    "priority: u=0, i",
    "referer: https://shop.example/list",
    "sec-ch-ua-mobile: ?0",
    "sec-fetch-dest: document",
    "sec-fetch-mode: navigate",
    "sec-fetch-site: same-origin",
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "upgrade-insecure-requests: 1",
    "user-agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "via: 1.1 edge.example",
    "x-forwarded-port: 443",
    "x-request-start: t=1700000000",
];

/// One row of the table.
struct Variant {
    /// Names its files.
    file: &'static str,
    label: &'static str,
    filter: Option<Value>,
    clients: Clients,
    expect: Expect,
}

pub fn measure(workspace: &Workspace, effort: Effort) -> Result<String> {
    let variants = variants(&noop::write(workspace)?, &workspace.envoy_wasm());
    let names: Vec<&str> = variants.iter().map(|variant| variant.label).collect();
    let subjects = variants.into_iter().map(|variant| start(workspace, variant));
    let subjects = subjects.collect::<Result<Vec<Subject>>>()?;
    let costs = load::measure("envoy", &subjects, effort)?;
    let bases = [("x none", NONE), ("x native per client", NATIVE_PER_CLIENT)];
    let mut table = load::table("Envoy: one request", &names, &costs, &bases);
    table.note(
        "One worker, `direct_response`, wrk with 16 keep-alive connections, one client where none are \
         named, with 20 more fields where named. Every figure is the median of the rounds; what is added and the ratios are taken within \
         a round. Native is `local_ratelimit`, per client with dynamic descriptors and X-RateLimit fields.",
    );
    Ok(table.markdown())
}

/// A server without any filter, as an origin.
pub fn plain(workspace: &Workspace, file: &'static str) -> Result<Server> {
    let (clients, expect) = (Clients::One, Expect::Passed);
    let variant = Variant { file, label: "origin", filter: None, clients, expect };
    start(workspace, variant).map(|subject| subject.server)
}

/// A server that enforces `policy` and responds without an origin.
pub fn limited(workspace: &Workspace, file: &'static str, policy: &str) -> Result<Server> {
    let (clients, expect) = (Clients::One, Expect::Passed);
    let policy = serde_json::from_str(policy).or_problem("cannot read a policy", "correct it")?;
    let filter = Some(wasm(&workspace.envoy_wasm(), file, &policy));
    let variant = Variant { file, label: "limited", filter, clients, expect };
    start(workspace, variant).map(|subject| subject.server)
}

fn start(workspace: &Workspace, variant: Variant) -> Result<Subject> {
    let port = free_port()?;
    let options = envoy::Options {
        name: variant.file,
        config: bootstrap(port, variant.filter).to_string(),
        ready: (port, "/"),
        concurrency: 1,
    };
    let server = seated(ProcessorRole::Server, || envoy::start(workspace, options))?;
    let requests = match variant.clients {
        Clients::One => Requests { path: "/", headers: vec!["x-key: client-1"], script: None },
        Clients::Real => {
            let headers = ["x-key: client-1"].into_iter().chain(REAL).collect();
            Requests { path: "/", headers, script: None }
        }
        Clients::Many => {
            let script = workspace.out.join("run/bench-many.lua");
            files::write(&script, many_clients())?;
            Requests { path: "/", headers: Vec::new(), script: Some(script) }
        }
    };
    Ok(Subject { name: variant.label, server, requests, expect: variant.expect })
}

/// For wrk.
fn many_clients() -> String {
    format!(
        "local turn = 0\nrequest = function()\n  turn = (turn + 1) % {MANY}\n  \
         wrk.headers['x-key'] = 'client-' .. turn\n  return wrk.format('GET', '/')\nend\n"
    )
}

fn variants(noop: &Path, tollgate: &Path) -> Vec<Variant> {
    let plenty = json!({"max_tokens": PLENTY, "tokens_per_fill": PLENTY, "fill_interval": "1s"});
    let one = json!({"max_tokens": 1, "tokens_per_fill": 1, "fill_interval": "86400s"});
    let ours = |id: &str, policy: Value| wasm(tollgate, id, &policy);
    let quota = json!({"limit": 1_000_000, "window": "1s"});
    let day = json!({"limit": 1, "window": "1d"});
    let (header, address) = (json!([{"header": "x-key"}]), json!(["client_ip"]));
    let row = |file, label, filter| Variant {
        file,
        label,
        filter: Some(filter),
        clients: Clients::One,
        expect: Expect::Passed,
    };
    let many = |row| Variant { clients: Clients::Many, ..row };
    let real = |row| Variant { clients: Clients::Real, ..row };
    let denied = |row| Variant { expect: Expect::Refused, ..row };
    let by_header = || policy("/**", &header, &quota);
    let native_label = "native, per client";
    vec![
        Variant { filter: None, ..row("bench-none", "no filter", Value::Null) },
        row("bench-native", "native, one bucket for all", native(&plenty)),
        row("bench-native-client", native_label, native_per_client(&plenty)),
        row("bench-noop", "no-op wasm filter, the least possible", wasm(noop, "noop", &json!({}))),
        row(
            "bench-no-match",
            "Tollgate, no rule matches",
            ours("no-match", policy("/never", &header, &quota)),
        ),
        row("bench-header", "Tollgate, key: header", ours("header", by_header())),
        row(
            "bench-address",
            "Tollgate, key: client_ip",
            ours("address", policy("/**", &address, &quota)),
        ),
        many(row("bench-native-many", "native, 10,000 clients", native_per_client(&plenty))),
        many(row("bench-many", "Tollgate, 10,000 clients", ours("many", by_header()))),
        real(row("bench-native-real", "native, 20 more fields", native_per_client(&plenty))),
        real(row("bench-real", "Tollgate, 20 more fields", ours("real", by_header()))),
        denied(row("bench-native-denied", "native, denied", native_per_client(&one))),
        denied(row(
            "bench-denied",
            "Tollgate, denied, key: header",
            ours("denied", policy("/**", &header, &day)),
        )),
    ]
}

pub fn policy(path: &str, key: &Value, quota: &Value) -> Value {
    json!({"version": 1, "rules": [
        {"name": "bench", "when": {"paths": [path]}, "key": key, "quotas": [quota]},
    ]})
}

/// The filter with its plugin's configuration.
pub fn wasm(module: &Path, id: &str, policy: &Value) -> Value {
    json!({
        "name": "tollgate",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": id,
                "vm_config": {
                    "vm_id": id,
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"local": {"filename": module}},
                },
                "configuration": {
                    "@type": "type.googleapis.com/google.protobuf.StringValue",
                    "value": policy.to_string(),
                },
            },
        },
    })
}

fn native(bucket: &Value) -> Value {
    let all = json!({"default_value": {"numerator": 100, "denominator": "HUNDRED"}});
    json!({
        "name": "envoy.filters.http.local_ratelimit",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
            "stat_prefix": "native",
            "token_bucket": bucket,
            "filter_enabled": all,
            "filter_enforced": all,
        },
    })
}

pub fn native_per_client(bucket: &Value) -> Value {
    let mut filter = native(bucket);
    let config = &mut filter["typed_config"];
    config["rate_limits"] = json!([
        {"actions": [{"request_headers": {"header_name": "x-key", "descriptor_key": "client"}}]},
    ]);
    config["descriptors"] = json!([{"entries": [{"key": "client"}], "token_bucket": bucket}]);
    config["max_dynamic_descriptors"] = json!(MOST_CLIENTS);
    config["enable_x_ratelimit_headers"] = json!("DRAFT_VERSION_03");
    filter
}

/// One listener, and the filter before its direct response.
pub fn bootstrap(port: u16, filter: Option<Value>) -> Value {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
    });
    let filters: Vec<Value> = filter.into_iter().chain([router]).collect();
    let hello = json!({"status": 200, "body": {"inline_string": "hello\n"}});
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "use_remote_address": true,
        "route_config": {"virtual_hosts": [{
            "name": "all",
            "domains": ["*"],
            "routes": [{"match": {"prefix": "/"}, "direct_response": hello}],
        }]},
        "http_filters": filters,
    });
    json!({"static_resources": {"listeners": [{
        "name": "bench",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [
            {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager},
        ]}],
    }]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_that_others_are_compared_with_are_where_they_should_be() {
        let rows = variants(Path::new("noop"), Path::new("ours"));
        assert!(rows[NONE].filter.is_none());
        assert_eq!(rows.iter().filter(|row| row.filter.is_none()).count(), 1);
        assert!(many_clients().contains(&format!("% {MANY}\n")));
        assert_eq!(rows[NATIVE_PER_CLIENT].label, "native, per client");
        let files: std::collections::BTreeSet<_> = rows.iter().map(|row| row.file).collect();
        assert_eq!(files.len(), rows.len());
    }

    #[test]
    fn only_the_filter_differs() {
        let (plain, with) = (bootstrap(1, None), bootstrap(1, Some(json!("filter"))));
        let filters =
            "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";
        assert_eq!(plain.pointer(filters).unwrap().as_array().unwrap().len(), 1);
        let mut without = with.clone();
        without.pointer_mut(filters).unwrap().as_array_mut().unwrap().remove(0);
        assert_eq!(without, plain);
        assert!(plain.to_string().contains("\"address\":\"127.0.0.1\""));
    }
}
