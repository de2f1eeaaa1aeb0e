//! The findings of `check` about the connection manager around a filter.
//!
//! A test of tests/e2e checks that a real Envoy behaves as reported.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{root, tollgate, tollgate_reading};

const MANAGER: &str = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const WASM: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
const STRUCT: &str = "type.googleapis.com/google.protobuf.Struct";
const DETECTION: &str = "type.googleapis.com/envoy.extensions.http.original_ip_detection";

fn check(manager: &Value, value: &Value) -> (i32, Value) {
    let filter = json!({"name": "tollgate", "typed_config": {"@type": WASM, "config": {
        "configuration": {"@type": STRUCT, "value": value}}}});
    let mut config = json!({"@type": MANAGER, "http_filters": [filter]});
    config.as_object_mut().unwrap().extend(manager.as_object().unwrap().clone());
    let listener = json!({"name": "l", "filter_chains": [{"filters": [{"name": "m", "typed_config": config}]}]});
    let text = json!({"static_resources": {"listeners": [listener]}}).to_string();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/policies");
    let ran = tollgate_reading(&folder, &["check", "-", "--json"], text.as_bytes());
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    (ran.code, report["filters"][0].clone())
}

/// The reported settings, with `!` before those that are problems.
fn named(manager: &Value, value: &Value) -> Vec<String> {
    let (code, filter) = check(manager, value);
    let paths = |list: &str, mark: &str| -> Vec<String> {
        let items = filter[list].as_array().unwrap().iter();
        // Other tests cover the findings about the rules themselves.
        let paths = items.map(|item| item["path"].as_str().unwrap());
        let paths = paths.filter(|path| !path.starts_with("rules["));
        paths.map(|path| format!("{mark}{path}")).collect()
    };
    let problems = paths("problems", "!");
    assert_eq!(code, i32::from(!problems.is_empty()), "{filter:#}");
    [problems, paths("warnings", "")].concat()
}

fn policy(rule: &Value) -> Value {
    let mut whole = json!({"name": "r", "key": [], "quotas": [{"limit": 1, "window": "1m"}]});
    whole.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
    json!({"version": 1, "rules": [whole]})
}

// Guards: a limit by a certificate that any client can write.
#[test]
fn a_listener_that_verifies_no_certificate_is_refused() {
    const TLS: &str =
        "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
    let by_certificate = policy(&json!({"key": [{"client_certificate": "uri_san"}]}));
    let other = policy(&json!({"key": []}));
    let ca = json!({"trusted_ca": {"filename": "ca.pem"}});
    let mut any = ca.clone();
    any["trust_chain_verification"] = json!("ACCEPT_UNTRUSTED");
    let of_number = json!({"trustChainVerification": 1});
    let tls = |common: Value| json!({"name": "tls", "typed_config": {"@type": TLS, "common_tls_context": common}});
    let combined = |of: &Value| {
        tls(json!({"combined_validation_context": {"default_validation_context": of}}))
    };
    let own = |of: &Value| tls(json!({"validation_context": of}));
    let sds = tls(json!({"validation_context_sds_secret_config": {"name": "ca"}}));
    let other_socket = json!({"name": "other", "typed_config": {"@type": "x/other.Other"}});
    let wrong = "!trust_chain_verification";
    let rows: [(Value, &Value, &[&str]); 11] = [
        (own(&ca), &by_certificate, &[]),
        (sds, &by_certificate, &[]),
        (combined(&ca), &by_certificate, &[]),
        (other_socket, &by_certificate, &[]),
        (own(&any), &by_certificate, &[wrong]),
        (own(&of_number), &by_certificate, &[wrong]),
        (combined(&any), &by_certificate, &[wrong]),
        (own(&any), &other, &[]),
        (tls(json!({})), &by_certificate, &["transport_socket"]),
        (Value::Null, &by_certificate, &["transport_socket"]),
        (Value::Null, &other, &[]),
    ];
    for (socket, value, expected) in rows {
        let filter = json!({"name": "tollgate", "typed_config": {"@type": WASM, "config": {
            "configuration": {"@type": STRUCT, "value": value}}}});
        let config = json!({"@type": MANAGER, "http_filters": [filter]});
        let chain = json!({
            "transport_socket": socket,
            "filters": [{"name": "m", "typed_config": config}],
        });
        assert_eq!(paths(&json!([chain])), expected, "{socket}");
    }
}

/// The settings that `check` reports of a listener with these filter chains, with `!` before those
/// that are problems.
fn paths(chains: &Value) -> Vec<String> {
    let listener = json!({"name": "l", "filter_chains": chains});
    let text = json!({"static_resources": {"listeners": [listener]}}).to_string();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/policies");
    let ran = tollgate_reading(&folder, &["check", "-", "--json"], text.as_bytes());
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    let paths = |list: &str, mark: &str| -> Vec<String> {
        let items = report["filters"][0][list].as_array().unwrap().iter();
        let paths = items.map(|item| item["path"].as_str().unwrap());
        let paths = paths.filter(|path| !path.starts_with("rules["));
        paths.map(|path| format!("{mark}{path}")).collect()
    };
    [paths("problems", "!"), paths("warnings", "")].concat()
}

// Guards: a limit by a value that no request has yet.
#[test]
fn a_filter_that_sets_metadata_too_late_is_named() {
    let by_metadata = policy(&json!({"key": [{"metadata": ["auth", "tenant"]}]}));
    let other = policy(&json!({"key": [{"header": "tenant"}]}));
    let own = json!({"name": "tollgate", "typed_config": {"@type": WASM, "config": {
        "configuration": {"@type": STRUCT, "value": by_metadata}}}});
    let of_other = json!({"name": "tollgate", "typed_config": {"@type": WASM, "config": {
        "configuration": {"@type": STRUCT, "value": other}}}});
    let (auth, router) = (json!({"name": "auth"}), json!({"name": "router"}));
    let rows: [(&str, Value, &[&str]); 6] = [
        ("http_filters", json!([auth, own, router]), &[]),
        ("http_filters", json!([own, router]), &[]),
        ("http_filters", json!([own, auth, router]), &["http_filters"]),
        ("httpFilters", json!([own, auth, router]), &["http_filters"]),
        ("http_filters", json!([auth, own, auth]), &[]),
        ("http_filters", json!([of_other, auth, router]), &[]),
    ];
    for (field, filters, expected) in rows {
        let config = json!({"@type": MANAGER, field: filters});
        let chain = json!({"filters": [{"name": "m", "typed_config": config}]});
        assert_eq!(paths(&json!([chain])), expected, "{filters}");
    }
}

// Guards: an ineffective limit by address that the command accepts although it should find it.
#[test]
fn who_lets_clients_choose_their_address_is_refused() {
    let by_address = policy(&json!({"key": ["client_ip"]}));
    let exempt = json!({"version": 1, "exempt": [{"client_cidrs": ["10.0.0.0/8"]}], "rules": [
        {"name": "r", "key": [], "quotas": [{"limit": 1, "window": "1m"}]}]});
    let with = |client: Value| {
        let mut policy = by_address.clone();
        policy["client_ip"] = client;
        policy
    };
    let networks = with(json!({"source": "x-forwarded-for", "trusted_proxies": ["10.0.0.0/8"]}));
    let hops = with(json!({"source": "x-forwarded-for", "trusted_hops": 1}));
    let of_routes = json!({"policy": policy(&json!({})), "policies": {"p": by_address}});
    let xff = |more: Value| {
        let mut config = json!({"@type": format!("{DETECTION}.xff.v3.XffConfig")});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"original_ip_detection_extensions": [{"name": "x", "typed_config": config}]})
    };
    let cidrs = xff(
        json!({"xff_trusted_cidrs": {"cidrs": [{"address_prefix": "10.0.0.0", "prefix_len": 8}]}}),
    );
    let wide = xff(json!({"xff_trusted_cidrs": {"cidrs": [{"address_prefix": "0.0.0.0"}]}}));
    let header = json!({"original_ip_detection_extensions": [{"name": "x", "typed_config": {
        "@type": format!("{DETECTION}.custom_header.v3.CustomHeaderConfig"), "header_name": "x-real-ip"}}]});
    let mut both = cidrs.clone();
    both["use_remote_address"] = json!(true);
    let wrong = "!use_remote_address";
    let rows: [(Value, &Value, &[&str]); 18] = [
        (json!({}), &by_address, &[wrong]),
        (json!({"use_remote_address": false}), &by_address, &[wrong]),
        (json!({"use_remote_address": null}), &by_address, &[wrong]),
        (json!({"xff_num_trusted_hops": 1}), &by_address, &[wrong]),
        (json!({"original_ip_detection_extensions": []}), &by_address, &[wrong]),
        (json!({}), &exempt, &[wrong]),
        (json!({}), &networks, &[wrong]),
        (json!({}), &of_routes, &[wrong]),
        (json!({}), &hops, &[]),
        (json!({}), &policy(&json!({})), &[]),
        (json!({"use_remote_address": true}), &by_address, &[]),
        (json!({"useRemoteAddress": true}), &of_routes, &[]),
        (json!({"use_remote_address": true, "xff_num_trusted_hops": 2}), &exempt, &[]),
        (xff(json!({})), &by_address, &["!original_ip_detection_extensions"]),
        (cidrs, &by_address, &[]),
        (wide, &by_address, &["!original_ip_detection_extensions"]),
        (header, &by_address, &["original_ip_detection_extensions"]),
        (both, &by_address, &["!original_ip_detection_extensions"]),
    ];
    for (manager, value, expected) in rows {
        assert_eq!(named(&manager, value), expected, "{manager} {value}");
    }
    let words = |manager: Value| check(&manager, &by_address).1["manager"].clone();
    assert_eq!(
        words(json!({"use_remote_address": true})),
        "takes the other end of the connection (use_remote_address)"
    );
    let hops = words(json!({"use_remote_address": true, "xff_num_trusted_hops": 2}));
    assert!(hops.as_str().unwrap().starts_with("takes entry 2 from the right"), "{hops}");
}

#[test]
fn what_makes_the_origin_see_another_request_is_warned_of() {
    let paths = policy(&json!({"when": {"paths": ["/login"]}}));
    let header = policy(&json!({"key": [{"header": "x-api-key"}]}));
    let plain = policy(&json!({"key": [{"header": "authorization"}]}));
    let second = policy(&json!({"key": [{"header": "authorization"}, {"header": "x-api-key"}]}));
    let mut literal = paths.clone();
    literal["escaped_slashes"] = json!("literal");
    const NORMAL: [&str; 2] = ["normalize_path", "merge_slashes"];
    const ESCAPED: &str = "path_with_escaped_slashes_action";
    const UNDERSCORES: &str = "common_http_protocol_options.headers_with_underscores_action";
    let on = json!({"normalize_path": true, "merge_slashes": true});
    let mut kept = on.clone();
    kept[ESCAPED] = json!("KEEP_UNCHANGED");
    let mut safe = on.clone();
    safe[ESCAPED] = json!("UNESCAPE_AND_FORWARD");
    let underscores = |action: &str| json!({"common_http_protocol_options": {"headers_with_underscores_action": action}});
    let rows: [(Value, &Value, &[&str]); 11] = [
        (json!({}), &paths, &[NORMAL[0], NORMAL[1], ESCAPED]),
        (json!({}), &literal, &NORMAL),
        (on.clone(), &paths, &[ESCAPED]),
        (kept, &paths, &[ESCAPED]),
        (on, &literal, &[]),
        (safe, &paths, &[]),
        (json!({}), &header, &[UNDERSCORES]),
        (underscores("ALLOW"), &header, &[UNDERSCORES]),
        (underscores("DROP_HEADER"), &header, &[]),
        (json!({}), &plain, &[]),
        (json!({}), &second, &[UNDERSCORES]),
    ];
    for (manager, value, expected) in rows {
        assert_eq!(named(&manager, value), expected, "{manager} {value}");
    }
}

#[test]
fn a_time_that_ends_requests_that_wait_is_warned_of() {
    let waits = policy(&json!({"action": {"delay": {"max": "30s"}}}));
    let long = policy(&json!({"action": {"delay": {"max": "5m"}}}));
    const IDLE: &str = "stream_idle_timeout";
    const DURATION: &str = "common_http_protocol_options.max_stream_duration";
    let duration =
        |time: &str| json!({"common_http_protocol_options": {"max_stream_duration": time}});
    let rows: [(Value, &Value, &[&str]); 9] = [
        (json!({}), &waits, &[]),
        (json!({}), &long, &[IDLE]),
        (json!({IDLE: "30s"}), &waits, &[IDLE]),
        (json!({IDLE: "30.5s"}), &waits, &[]),
        (json!({IDLE: "0s"}), &waits, &[IDLE]),
        (json!({IDLE: "1s"}), &policy(&json!({})), &[]),
        (json!({"request_timeout": "3s"}), &waits, &["request_timeout"]),
        (json!({"request_timeout": "0s"}), &waits, &[]),
        (duration("10s"), &waits, &[DURATION]),
    ];
    for (manager, value, expected) in rows {
        assert_eq!(named(&manager, value), expected, "{manager} {value}");
    }
}

#[test]
fn the_shipped_configurations_have_what_their_policies_need() {
    let folder = root().join("envoy");
    let mut checked = 0;
    for name in [
        "envoy.yaml",
        "per-route.yaml",
        "per-route-filters.yaml",
        "xds/ecds.yaml",
        "istio-envoyfilter.yaml",
        "istio-dynamic-module.yaml",
    ] {
        let ran = tollgate(&folder, &["check", name]);
        assert_eq!((ran.code, ran.stdout.contains("warning:")), (0, false), "{name}: {ran:?}");
        assert!(ran.stdout.contains("\nmanager     "), "{name}: {ran:?}");
        checked += 1;
    }
    assert_eq!(checked, 6);
}
