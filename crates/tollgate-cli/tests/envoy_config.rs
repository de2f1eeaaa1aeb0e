//! Configurations of Envoy: the filters that are found, the policy of each, and the output of
//! `embed`.
//!
//! A test of tests/e2e checks that a real Envoy reads the same.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{root, tollgate, tollgate_reading};

const WASM: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
const MODULE: &str =
    "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter";
const STRUCT: &str = "type.googleapis.com/google.protobuf.Struct";
const STRING: &str = "type.googleapis.com/google.protobuf.StringValue";
const BYTES: &str = "type.googleapis.com/google.protobuf.BytesValue";

fn policies() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/policies")
}

fn check(text: &str) -> Value {
    let ran = tollgate_reading(&policies(), &["check", "-", "--json"], text.as_bytes());
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?} of {text}"))
}

fn policy(name: &str) -> Value {
    json!({"version": 1, "rules": [{"name": name, "key": [], "quotas": [{"limit": 1, "window": "1m"}]}]})
}

fn filter(name: &str, configuration: &Value) -> Value {
    let config = json!({"name": "tollgate", "configuration": configuration});
    json!({"name": name, "typed_config": {"@type": WASM, "config": config}})
}

/// The problems of the only filter, `line: path: message`.
fn problems(configuration: &str) -> Vec<String> {
    let text = format!(
        "- name: f\n  typed_config:\n    \"@type\": {WASM}\n    config:\n      vm_config: {{ vm_id: tollgate }}\n{configuration}"
    );
    let report = check(&text);
    assert_eq!(report["filters"].as_array().unwrap().len(), 1, "{text}");
    let problems = report["filters"][0]["problems"].as_array().unwrap();
    let line = |problem: &Value| {
        let of = |name: &str| problem[name].as_str().unwrap();
        format!("{}: {}: {}", problem["line"], of("path"), of("message"))
    };
    problems.iter().map(line).collect()
}

#[test]
fn a_filter_is_found_wherever_it_stands() {
    let given = json!({"@type": STRUCT, "value": policy("r")});
    let one = || filter("f", &given);
    let listener = |name: &str, filters: &[Value]| {
        let manager = json!({"name": "hcm", "typed_config": {"@type": "x/HttpConnectionManager", "http_filters": filters}});
        json!({"name": name, "filter_chains": [{"filters": [manager]}]})
    };
    let nested = json!({"name": "outer", "typed_config": {"extension_config": one()}});
    let rows = [
        (json!({"static_resources": {"listeners": [listener("l", &[one()])]}}), vec![("l", "f")]),
        (
            json!({"static_resources": {"listeners": [listener("a", &[one(), one()]), listener("b", &[nested])]}}),
            vec![("a", "f"), ("a", "f"), ("b", "f")],
        ),
        (json!({"resources": [listener("xds", &[one()])]}), vec![("xds", "f")]),
        (
            json!({"resources": [{"@type": "x/TypedExtensionConfig", "name": "e", "typed_config": one()["typed_config"]}]}),
            vec![("", "e")],
        ),
        (json!([one()]), vec![("", "f")]),
        (one(), vec![("", "f")]),
        (one()["typed_config"].clone(), vec![("", "")]),
    ];
    for (configuration, expected) in rows {
        // JSON is YAML, but a reader of JSON reads it when it is JSON.
        for text in [configuration.to_string(), format!("# YAML\n{configuration}")] {
            let report = check(&text);
            let found = report["filters"].as_array().unwrap_or_else(|| panic!("{report:#}"));
            let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let found: Vec<_> =
                found.iter().map(|f| (name(&f["listener"]), name(&f["filter"]))).collect();
            let expected: Vec<_> =
                expected.iter().map(|(l, f)| ((*l).to_owned(), (*f).to_owned())).collect();
            assert_eq!((&report["ok"], found), (&json!(true), expected), "{text}");
        }
    }
}

#[test]
fn what_envoy_hands_over_is_what_is_judged() {
    let text = policy("r").to_string();
    let whole = |kind: &str, value: Value| json!({"@type": kind, "value": value}).to_string();
    let base64 = "eyJ2ZXJzaW9uIjoyfQ";
    let none = "the plugin has no configuration; put the policy there";
    let deep = "[".repeat(31) + &"]".repeat(31);
    let deeper = "[".repeat(32) + &"]".repeat(32);
    let rows: [(String, &str); 20] = [
        (whole(STRUCT, policy("r")), ""),
        (whole(STRING, json!(text)), ""),
        (whole("example.org/google.protobuf.Struct", policy("r")), ""),
        (whole(BYTES, json!(base64)), "version: 2 is not a known version"),
        (whole(BYTES, json!(format!("{base64}=="))), "version: 2 is not a known version"),
        (whole(BYTES, json!("!")), "not base64"),
        (whole(STRUCT, json!({})), none),
        (whole(STRUCT, json!(null)), none),
        (whole(STRING, json!("")), none),
        (format!("{{\"@type\": {STRING}}}"), none),
        ("~".to_owned(), none),
        (whole(STRUCT, json!(text)), "that is not an object"),
        (whole(STRING, policy("r")), "that is not text"),
        (whole(STRING, json!(true)), "that is not text: quote it"),
        (whole(STRING, json!("version: 1")), "not JSON: YAML is given as a google.protobuf.Struct"),
        (whole(STRING, json!("{\"version\": 1,}")), "not JSON: trailing comma"),
        (whole("x/google.protobuf.ListValue", json!([])), "reads a google.protobuf.Struct or"),
        (format!("{{\"@type\": {STRUCT}, version: 1}}"), "fields other than"),
        (
            format!("{{\"@type\": {STRUCT}, value: {{version: 1, rules: {deep}}}}}"),
            "is not an object",
        ),
        (
            format!("{{\"@type\": {STRUCT}, value: {{version: 1, rules: {deeper}}}}}"),
            "more than 32 levels",
        ),
    ];
    for (configuration, expected) in rows {
        let found = problems(&format!("      configuration: {configuration}\n"));
        match expected {
            "" => assert!(found.is_empty(), "{configuration}: {found:?}"),
            _ => assert!(
                found.iter().any(|one| one.contains(expected)),
                "{configuration}: {found:?}"
            ),
        }
    }
    assert_eq!(problems(""), [format!("5: : {none}")]);
    assert!(problems("      configuration: { value: {} }\n")[0].contains("without \"@type\""));
}

// The lines of a block of text are those of the file, whatever precedes its first line.
#[test]
fn a_problem_in_a_block_of_text_has_the_line_of_the_file() {
    let head = format!("      configuration:\n        \"@type\": {STRING}\n        value: ");
    let body = "          {\n            \"version\": 2,\n            \"rules\": []\n          }\n";
    for (indicator, line) in [("|\n", 10), ("|2-\n", 10), ("|\n\n\n", 12), ("|+ # a comment\n", 10)]
    {
        let found = problems(&format!("{head}{indicator}{body}"));
        assert_eq!(
            found,
            [format!("{line}: version: 2 is not a known version; use 1")],
            "{indicator:?}"
        );
    }
    // In a folded text the lines are lost.
    assert!(problems(&format!("{head}>\n{body}"))[0].starts_with("9: "));
}

#[test]
fn a_filter_of_somebody_else_is_none() {
    let other = json!({"static_resources": {}, "x": {"@type": WASM, "config": {"name": "waf"}}});
    let report = check(&other.to_string());
    let message = report["problems"][0]["message"].as_str().unwrap();
    assert!(
        message.starts_with(
            "no Tollgate filter found; a filter of wasm or of a dynamic module is one when"
        ),
        "{message}"
    );
    assert_eq!((&report["ok"], &report["filters"]), (&json!(false), &json!([])));
    // The name, the module or the rules identify it.
    for config in [
        json!({"root_id": "Tollgate"}),
        json!({"vm_config": {"code": {"local": {"filename": "/a/tollgate-envoy.wasm"}}}}),
        json!({"configuration": {"@type": STRING, "value": "{\"rules\": []}"}}),
    ] {
        let report =
            check(&json!({"admin": {}, "x": {"@type": WASM, "config": config}}).to_string());
        assert_eq!(report["filters"].as_array().unwrap().len(), 1, "{config}");
    }
}

// Guards: a dynamic module whose limits are never judged, because only filters of wasm are found.
#[test]
fn a_dynamic_module_is_judged_as_the_module_judges_itself() {
    let filter = |given: Value| {
        json!({"name": "f", "typed_config": {"@type": MODULE,
            "dynamic_module_config": {"module": {"local": {"filename": "/a/libtollgate_envoy_module.so"}}},
            "filter_name": "f", "filter_config": {"@type": STRUCT, "value": given}}})
    };
    let found = |given: Value| {
        let report = check(&filter(given).to_string());
        let problems = report["filters"][0]["problems"].as_array().expect("one filter").iter();
        let of = |problem: &Value, name: &str| problem[name].as_str().unwrap().to_owned();
        problems.map(|it| (of(it, "path"), of(it, "message"))).collect::<Vec<_>>()
    };
    assert!(found(policy("r")).is_empty());
    let (path, message) = &found(json!({"version": 2, "rules": []}))[0];
    assert_eq!((path.as_str(), message.contains("is not a known version")), ("version", true));
    // Envoy shows it no claims.
    let mut by_user = policy("r");
    by_user["rules"][0]["key"] = json!([{"jwt_claim": "sub"}]);
    by_user["jwt"] = json!({"metadata": "payload"});
    let reason = "which Envoy does not show a dynamic module; use a header that another filter sets, or \
                  the wasm module tollgate-envoy.wasm";
    let expected =
        |path: &str| vec![(path.to_owned(), format!("reads the claim \"sub\", {reason}"))];
    assert_eq!(found(by_user.clone()), expected("rules[0]"));
    let routes = json!({"policy": policy("r"), "policies": {"users": by_user}});
    assert_eq!(found(routes), expected("policies.users.rules[0]"));
    let follows = json!({"policy": policy("r"), "policy_from": {"cluster": "c"},
        "fleet": {"cluster": "c", "secret": "0123456789abcdef"}});
    assert_eq!(found(follows), []);
    // Metadata has two names there, and no more.
    let mut by_metadata = policy("r");
    by_metadata["rules"][0]["key"] = json!([{"metadata": ["f", "tenant"]}]);
    by_metadata["rules"][0]["cost"] =
        json!({"estimate": 1, "max": 1, "actual": {"metadata": ["f", "tokens"]}});
    assert!(found(by_metadata.clone()).is_empty());
    by_metadata["rules"][0]["key"] = json!([{"metadata": ["f", "tenant", "id"]}]);
    by_metadata["rules"][0]["cost"]["actual"] = json!({"metadata": ["f", "usage", "tokens"]});
    let problems = found(by_metadata);
    let places: Vec<_> = problems.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(places, ["rules[0]", "rules[0].cost.actual"]);
    let beyond = "f/usage/tokens, which Envoy does not show a dynamic module beyond two names";
    assert!(problems[1].1.contains(beyond), "{problems:?}");
    // Its connection manager is judged, too.
    let by_address = json!({"version": 1, "rules": [{"name": "r", "key": ["client_ip"],
        "quotas": [{"limit": 1, "window": "1m"}]}]});
    let manager = json!({"name": "m", "typed_config": {
        "@type": "x/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "http_filters": [filter(by_address)]}});
    let report = check(&json!({"filter_chains": [{"filters": [manager]}]}).to_string());
    assert!(report.to_string().contains("use_remote_address"), "{report:#}");
    // Another module is none.
    let mut other = filter(json!({"a": 1}));
    other["typed_config"]["dynamic_module_config"] = json!({"name": "waf"});
    assert_eq!(check(&other.to_string())["filters"], json!([]));
    // What `embed` prints for it is the policy.
    let text = policy("r").to_string();
    let arguments = ["embed", "-", "--module", "/a/module.so"];
    let embedded = tollgate_reading(&policies(), &arguments, text.as_bytes());
    assert_eq!((embedded.code, embedded.stderr.as_str()), (0, ""));
    let report = check(&embedded.stdout);
    assert_eq!(report["filters"][0]["rules"][0]["name"], "r", "{report:#}");
    let yaml: Value = serde_yaml_ng::from_str(&embedded.stdout).unwrap();
    assert_eq!(yaml[0]["typed_config"]["filter_name"], "tollgate");
    let refused = tollgate_reading(&policies(), &arguments, by_user.to_string().as_bytes());
    assert!(refused.code == 1 && refused.stderr.contains(reason), "{refused:?}");
}

#[test]
fn a_name_given_twice_is_told() {
    let report = check(&format!("admin: {{}}\nx: 1\n{}\nx: 2\n", "y: {z: 1, z: 2}"));
    let problems = report["problems"].as_array().unwrap();
    assert_eq!(problems[0]["line"], 4);
    assert_eq!(problems[0]["message"], "\"x\" is given twice, and Envoy takes the last");
    assert_eq!(problems[1]["message"], "\"z\" is given twice, and Envoy takes the last");
    // In the filter, too; but the policy's own reader reports those in a policy, once.
    let policy = "{version: 1, version: 1, rules: []}";
    let any = format!("{{\"@type\": {STRUCT}, value: {policy}, value: {policy}}}");
    let report = check(&format!(
        "\"@type\": {WASM}\nconfig:\n  name: tollgate\n  name: tollgate\n  configuration: {any}\n"
    ));
    let all = |of: &Value| {
        of["problems"]
            .as_array()
            .unwrap()
            .iter()
            .map(|problem| problem["message"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let twice = |name: &str| format!("\"{name}\" is given twice, and Envoy takes the last");
    assert_eq!(all(&report), [twice("name"), twice("value")]);
    assert_eq!(all(&report["filters"][0]), ["is given twice; give it once"]);
}

/// The embedded form of any policy is the same policy.
#[test]
fn what_is_embedded_is_the_policy() {
    let odd = json!({"version": 1, "rules": [{"name": "a", "key": ["client_ip"],
        "when": {"headers": {"x": ["off", "\u{85}\u{7f}\u{202e}\u{2028}\u{feff}\u{1f600} \t # ' \" : - |"]}, "paths": ["/é"]},
        "quotas": [{"limit": 999_999_999_999_999_u64, "window": "366d"}]}]});
    let mut documents = vec![odd.to_string(), format!("\u{feff}\r\n  {odd:#}\r\n\r\n")];
    documents.extend(["\r", "\r\n"].map(|end| format!("{odd:#}").replace('\n', end)));
    for name in ["good.json", "warned.json", "policy.yaml"] {
        documents.push(std::fs::read_to_string(policies().join(name)).unwrap());
    }
    for document in documents {
        let asked = ["check", "-", "--surface", "envoy", "--json"];
        let expected = tollgate_reading(&policies(), &asked, document.as_bytes());
        let mut expected: Value = serde_json::from_str(&expected.stdout).unwrap();
        assert_eq!(expected["ok"], true, "{document}");
        for indent in ["0", "10"] {
            let arguments = ["embed", "-", "--indent", indent];
            let embedded = tollgate_reading(&policies(), &arguments, document.as_bytes());
            assert_eq!((embedded.code, embedded.stderr.as_str()), (0, ""));
            let hidden =
                |c: char| c.is_control() && c != '\n' || ('\u{202a}'..='\u{202e}').contains(&c);
            assert!(!embedded.stdout.contains(hidden), "{}", embedded.stdout);
            let report = check(&embedded.stdout);
            let mut filter = report["filters"][0].clone();
            // Its position may differ.
            for of in [&mut filter, &mut expected] {
                let warnings = of["warnings"].as_array_mut().unwrap();
                warnings.iter_mut().for_each(|warning| warning["line"] = Value::Null);
            }
            let said = filter.as_object_mut().unwrap();
            assert_eq!(said.remove("filter"), Some(json!("tollgate")));
            said.retain(|name, _| !matches!(name.as_str(), "line" | "listener" | "manager"));
            assert_eq!(filter, expected, "{}", embedded.stdout);
            // Another YAML parser finds the same text.
            let yaml: Value = serde_yaml_ng::from_str(&embedded.stdout).unwrap();
            let text = &yaml[0]["typed_config"]["config"]["configuration"]["value"];
            let plain = document.trim_start_matches('\u{feff}');
            if let Ok(given) = serde_json::from_str::<Value>(plain) {
                let read: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
                assert_eq!(read, given);
            }
        }
    }
}

/// The block is that of envoy/envoy.yaml, except for the policy, which is in YAML there.
#[test]
fn the_block_is_that_of_the_shipped_configuration() {
    let shipped = std::fs::read_to_string(root().join("envoy/envoy.yaml")).unwrap();
    let shipped: Value = serde_yaml_ng::from_str(&shipped).unwrap();
    let manager = &shipped["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0];
    let mut filter = manager["typed_config"]["http_filters"][0].clone();
    let embedded = tollgate(&policies(), &["embed", "good.json"]).stdout;
    let mut ours: Value = serde_yaml_ng::from_str(&embedded).unwrap();
    for block in [&mut filter, &mut ours[0]] {
        block["typed_config"]["config"]["configuration"] = Value::Null;
    }
    assert_eq!(ours[0], filter);
}

// Guards: a filter that Envoy accepts and `check` rejects, because its server is configured next to
// its policy.
#[test]
fn whom_a_filter_asks_may_stand_beside_its_policy() {
    let good =
        json!({"policy": policy("r"), "policy_from": {"cluster": "c", "token": "hidden-token"}});
    let text = |value: &Value| json!({"@type": STRING, "value": value.to_string()});
    for given in [json!({"@type": STRUCT, "value": good}), text(&good)] {
        let report = check(&filter("f", &given).to_string());
        assert_eq!(report["filters"][0]["problems"], json!([]), "{report}");
        assert_eq!(report["filters"][0]["rules"].as_array().map(Vec::len), Some(1), "{report}");
    }
    let mut bad = good;
    bad["policy_from"] = json!({"cluster": "", "every": "1ms", "token": 7});
    let report = check(&filter("f", &text(&bad)).to_string()).to_string();
    for part in
        ["policy_from.cluster: must be", "policy_from.every: ", "policy_from.token: must be"]
    {
        assert!(report.contains(part), "{report}");
    }
    let yaml = "      configuration:\n        \"@type\": type.googleapis.com/google.protobuf.Struct\n        \
        value:\n          policy_from: { cluster: c }\n          policy:\n            version: 1\n            \
        rules:\n            - { name: '', key: [], quotas: [{ limit: 1, window: 1m }] }\n";
    assert_eq!(
        problems(yaml),
        ["13: rules[0].name: \"\" must have 1 to 64 characters"],
        "the line is the file's"
    );
}
