//! A policy in YAML in a configuration of Envoy: printed as it is written, or as a replacement of
//! another.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{root, scratch, tollgate, tollgate_reading};
use serde_json::Value;
use tollgate_policy::{Plugin, Surface};

const POLICY: &str = "# Ten per minute.\nversion: 1\nrules:\n- name: new # the only one\n  key: [client_ip]\n  quotas:\n\n  \
                      - { limit: 10, window: 1m }\n";
const STRUCT: &str = "\"@type\": type.googleapis.com/google.protobuf.Struct\n";
const STRING: &str = "\"@type\": type.googleapis.com/google.protobuf.StringValue\n";

fn policies() -> PathBuf {
    root().join("crates/tollgate-cli/tests/policies")
}

fn folder(name: &str) -> PathBuf {
    let folder = scratch(&format!("embed/{name}"));
    fs::write(folder.join("policy.yaml"), POLICY).unwrap();
    folder
}

/// A configuration with one filter, whose `config` has these lines.
fn envoy(config: &str) -> String {
    let mut text =
        "static_resources: {}\nx: # one\n- name: tollgate\n  typed_config:\n    \"@type\": \
                    type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm\n    config:\n"
            .to_owned();
    config.lines().for_each(|line| text += &format!("      {line}\n"));
    text + "\n# the end\ny: 1\n"
}

fn problems(folder: &Path) -> Value {
    let report = tollgate(folder, &["check", "envoy.yaml", "--json"]);
    serde_json::from_str(&report.stdout).unwrap()
}

// Guards: nine lines of YAML that become 47 lines of JSON in a text, without their comments.
#[test]
fn yaml_stays_as_it_is_written() {
    let embedded =
        tollgate_reading(&policies(), &["embed", "-", "--indent", "2"], POLICY.as_bytes());
    let (_, configuration) = embedded.stdout.split_once("configuration:\n").unwrap();
    let expected = format!(
        "          {STRUCT}          value:\n            # Ten per minute.\n            version: 1\n            \
         rules:\n            - name: new # the only one\n              key: [client_ip]\n              quotas:\n\n              \
         - {{ limit: 10, window: 1m }}\n"
    );
    assert_eq!(configuration, expected);
}

// Guards: a policy that Envoy reads differently from the command line.
#[test]
fn yaml_of_which_envoy_makes_something_else_becomes_json() {
    let embedded = |text: &str| {
        let all = tollgate_reading(&policies(), &["embed", "-"], text.as_bytes());
        assert_eq!((all.code, all.stderr.as_str()), (0, ""), "{text}");
        (all.stdout.contains(STRUCT), all.stdout.contains(STRING))
    };
    assert_eq!(embedded(POLICY), (true, false));
    assert_eq!(embedded(&format!("---\n{POLICY}")), (true, false));
    assert_eq!(embedded(&POLICY.replace('\n', "\r\n")), (true, false));
    for other in [
        POLICY.replace("limit: 10", "limit: 3000000000"),
        POLICY.replace("# Ten", "# \u{202e}Ten"),
        format!("{POLICY}...\n"),
        format!("%YAML 1.2\n---\n{POLICY}"),
    ] {
        let (is_struct, is_string) = embedded(&other);
        assert!(is_string && !is_struct, "{other}");
    }
}

#[test]
fn the_lines_of_one_configuration_are_replaced_and_no_others() {
    let folder = folder("lines");
    let file = folder.join("envoy.yaml");
    let before = fs::read_to_string(policies().join("envoy.yaml")).unwrap();
    for (name, first, after) in [
        ("tollgate", "                configuration:\n", "          - name: of somebody else\n"),
        ("by its rules", "                configuration:\n", "  - name: inside\n"),
        ("tollgate-inside", "                      configuration:\n", ""),
    ] {
        for end in ["\n", "\r\n"] {
            fs::write(&file, before.replace('\n', end)).unwrap();
            let arguments = ["embed", "policy.yaml", "--into", "envoy.yaml", "--filter", name];
            let done = tollgate(&folder, &arguments);
            assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{name}");
            assert!(done.stdout.contains(&format!("filter \"{name}\" has the policy now\n")));
            let edited = fs::read_to_string(&file).unwrap();
            assert_eq!(
                edited.matches("\r\n").count(),
                edited.matches('\n').count() * (end.len() - 1)
            );
            let edited = edited.replace("\r\n", "\n");
            let (head, _) = before.split_once(&format!("name: {name}\n")).unwrap();
            assert!(edited.starts_with(head), "{name}");
            if !after.is_empty() {
                let (_, tail) = before.split_once(after).unwrap();
                assert!(edited.ends_with(&format!("{after}{tail}")), "{edited}");
            }
            let (_, new) = edited.split_once("# Ten per minute.").unwrap();
            assert!(edited.contains(first) && new.contains("# the only one"));
            let report = problems(&folder);
            let filters = report["filters"].as_array().unwrap();
            let filter = filters.iter().find(|filter| filter["filter"] == name).unwrap();
            assert!(filter.to_string().contains("new"), "{filter}");
            // A second run changes nothing.
            let once = fs::read(&file).unwrap();
            assert_eq!(tollgate(&folder, &arguments).code, 0);
            assert_eq!(fs::read(&file).unwrap(), once);
        }
    }
}

#[test]
fn what_stands_around_the_configuration_stays() {
    let folder = folder("around");
    let file = folder.join("envoy.yaml");
    let any = "configuration:\n  \"@type\": type.googleapis.com/google.protobuf.Struct\n  value:\n    version: 1\n\n    \
               # old\n    rules: []\n";
    for (config, expected) in [
        (format!("{any}\nname: t # behind\n"), "\n      \n      name: t # behind\n"),
        (format!("name: t\n{any}"), "\n\n# the end\ny: 1\n"),
        (
            any.replace("  value", "# old\n# old\n  value") + "# behind\nname: t\n",
            "\n      # behind\n      name: t\n",
        ),
    ] {
        fs::write(&file, envoy(&config)).unwrap();
        let done = tollgate(&folder, &["embed", "policy.yaml", "--into", "envoy.yaml"]);
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{config}");
        let edited = fs::read_to_string(&file).unwrap();
        assert!(edited.contains(expected) && !edited.contains("# old"), "{edited}");
        assert!(edited.contains("x: # one\n") && edited.ends_with("\n# the end\ny: 1\n"));
    }
}

// Guards: a lost fleet secret, a filter that gets another's policy, a file that is partly edited.
#[test]
fn what_cannot_be_edited_is_refused_and_left_alone() {
    let folder = folder("refused");
    let file = folder.join("envoy.yaml");
    let any = |value: &str| {
        format!(
            "configuration:\n  \"@type\": type.googleapis.com/google.protobuf.Struct\n  value: {value}\n"
        )
    };
    let several = fs::read_to_string(policies().join("envoy.yaml")).unwrap();
    let two = |text: String| {
        text.replace("y: 1\n", "")
            + &envoy(&any("{version: 1, rules: []}")).replace("static_resources: {}\nx:", "z:")
    };
    let alone = envoy(&any("{version: 1, rules: []}"));
    for (text, filter, why) in [
        (several.clone(), None, "envoy.yaml has several filters; name one with --filter: listener \"public\""),
        (several, Some("none"), "envoy.yaml has no filter \"none\"; there are listener"),
        (two(alone.clone()), Some("tollgate"), "has several filters \"tollgate\"; give them names of their own"),
        (envoy("name: t\n"), None, "has no configuration; paste what `tollgate embed` prints"),
        (envoy(&any("{policy: {version: 1, rules: []}, hash_key: of-this-one-0123456789ab}")), None, "has more in its configuration than a policy"),
        (envoy(&any("{compiled: abcd}")), None, "has a configuration that is not a document"),
        (envoy("{ name: t, configuration: { \"@type\": type.googleapis.com/google.protobuf.Struct, value: {version: 1, rules: []} } }\n").replace("config:\n      {", "config: {"), None, "is written in braces"),
        (envoy(&format!("{}name: *a\n", any("{version: 1, rules: [], jwt: &a t}"))), None, "is not edited in place"),
        ("{\"static_resources\": {}}".to_owned(), None, "envoy.yaml: no Tollgate filter found"),
        ("version: 1\nrules: []\n".to_owned(), None, "envoy.yaml is not a configuration of Envoy"),
        ("a: [\n".to_owned(), None, "not YAML"),
    ] {
        fs::write(&file, &text).unwrap();
        let mut arguments = vec!["embed", "policy.yaml", "--into", "envoy.yaml"];
        arguments.extend(filter.into_iter().flat_map(|name| ["--filter", name]));
        let refused = tollgate(&folder, &arguments);
        assert!(refused.code == 2 && refused.stderr.contains(why), "{why}: {}{}", refused.stdout, refused.stderr);
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
    fs::write(folder.join("envoy.json"), "{}").unwrap();
    let json = tollgate(&folder, &["embed", "policy.yaml", "--into", "envoy.json"]);
    let why = "envoy.json is JSON, and only YAML is edited in place";
    assert!(json.code == 2 && json.stderr.contains(why), "{}", json.stderr);
    let same = tollgate(&folder, &["embed", "policy.yaml", "--into", "policy.yaml"]);
    assert!(
        same.code == 2 && same.stderr.contains("is also read by this command"),
        "{}",
        same.stderr
    );
    fs::write(folder.join("policy.yaml"), POLICY.replace("limit: 10", "limit: ten")).unwrap();
    fs::write(&file, &alone).unwrap();
    let bad = tollgate(&folder, &["embed", "policy.yaml", "--into", "envoy.yaml"]);
    assert!(bad.code == 1 && fs::read_to_string(&file).unwrap() == alone, "{}", bad.stderr);
}

// Guards: a Worker's policy that is written in YAML.
#[test]
fn compile_prints_the_document_as_json() {
    let printed = tollgate_reading(
        &policies(),
        &["compile", "-", "--surface", "worker", "--json"],
        POLICY.as_bytes(),
    );
    assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
    let json: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!(json["rules"][0]["quotas"][0]["limit"], 10);
    let bad = POLICY.replace("limit: 10", "limit: ten");
    let refused = tollgate_reading(
        &policies(),
        &["compile", "-", "--surface", "worker", "--json"],
        bad.as_bytes(),
    );
    assert!(
        refused.code == 1 && refused.stdout.is_empty() && refused.stderr.contains("<stdin>:8:"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_filter_of_the_dynamic_module_gets_the_policy_too() {
    let folder = folder("module");
    let old = "static_resources: {}\nx:\n- name: tollgate # ours\n  typed_config:\n    \"@type\": \
               type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter\n    \
               filter_config:\n      \"@type\": type.googleapis.com/google.protobuf.StringValue\n      \
               value: '{}'\n    filter_name: tollgate\n";
    fs::write(folder.join("envoy.yaml"), old).unwrap();
    let ran = tollgate(&folder, &["embed", "policy.yaml", "--into", "envoy.yaml"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let new = fs::read_to_string(folder.join("envoy.yaml")).unwrap();
    assert!(
        new.contains(
            "    filter_config:\n      \"@type\": type.googleapis.com/google.protobuf.Struct\n"
        ),
        "{new}"
    );
    assert!(new.ends_with("    filter_name: tollgate\n"), "{new}");
    assert_eq!(problems(&folder)["filters"][0]["rules"][0]["name"], "new");
}

/// A policy with one rule, whose other fields are `more`.
fn policy_with(more: &str) -> String {
    format!(
        r#"{{"version": 1, "rules": [{{"name": "r", "key": ["client_ip"]{more},
            "quotas": [{{"limit": 10, "window": "1m"}}]}}]}}"#
    )
}

/// A rule, and the modules for it.
struct Row {
    /// Its fields beyond those of every rule here.
    more: &'static str,
    /// The smallest module for the compiled policy, and for the policy as it is written.
    smallest: [&'static str; 2],
    /// What the lean module lacks for it: an ability and the part that needs it.
    lack: Option<(&'static str, &'static str)>,
}

const ROWS: [Row; 4] = [
    Row { more: "", smallest: ["lean", ""], lack: None },
    Row {
        more: r#", "action": {"delay": {"max": "1s"}}"#,
        smallest: ["slim", ""],
        lack: Some(("waiting", "rules[0]")),
    },
    Row {
        more: r#", "cost": {"estimate": 1, "max": 9, "actual": {"json": ["/usage"]}}"#,
        smallest: ["full", "full"],
        lack: Some(("bodies", "rules[0]")),
    },
    Row {
        more: r#", "when": {"headers": {"x-a": {"match": "^a$"}}}"#,
        smallest: ["full", "full"],
        lack: Some(("regexes", "")),
    },
];

fn file_of(module: &str) -> String {
    let dash = if module.is_empty() { "" } else { "-" };
    format!("tollgate-envoy{dash}{module}.wasm")
}

// Guards: a module that refuses the policy that was embedded for it, and one that starts later than
// it could.
#[test]
fn the_smallest_module_is_named_for_each_form() {
    for Row { more, smallest: [compiled, written], .. } in ROWS {
        let forms = [(&["embed", "-", "--compiled"][..], compiled), (&["embed", "-"], written)];
        for (arguments, module) in forms {
            let done = tollgate_reading(&policies(), arguments, policy_with(more).as_bytes());
            let wanted = format!("local: {{ filename: /etc/envoy/{} }}", file_of(module));
            assert!(done.stdout.contains(&wanted), "{more}: {}", done.stdout);
        }
    }
    let named = ["embed", "-", "--compiled", "--wasm", "/a.wasm"];
    let done = tollgate_reading(&policies(), &named, policy_with("").as_bytes());
    assert!(done.stdout.contains("filename: /a.wasm"), "{}", done.stdout);
    let fleet = policy_with(r#", "scope": "fleet""#);
    let plugin = format!(
        r#"{{"policy": {fleet}, "fleet": {{"cluster": "a", "secret": "0123456789abcdef"}}}}"#
    );
    let done = tollgate_reading(&policies(), &["embed", "-", "--compiled"], plugin.as_bytes());
    assert!(done.stdout.contains(&file_of("slim")), "{}", done.stdout);
}

// Guards: a text that the filter does not read, once it is folded into a configuration.
#[test]
fn the_embedded_text_is_the_compiled_policy() {
    let document = policy_with("");
    let done =
        tollgate_reading(&policies(), &["embed", "-", "--compiled"], document.as_bytes()).stdout;
    let (_, text) = done.split_once("value: |\n").unwrap();
    let read = Plugin::read_compiled(text.as_bytes(), Surface::Envoy).unwrap();
    let compiled = tollgate_language::compile(&document, Surface::Envoy).unwrap();
    assert_eq!(read.policy.fingerprint(), compiled.fingerprint());
    assert!(text.lines().all(|line| line.len() < 128), "{text}");
}

#[test]
fn check_lists_what_each_module_lacks() {
    for Row { more, smallest: [smallest, _], lack } in ROWS {
        let arguments = ["check", "-", "--surface", "envoy", "--json"];
        let done = tollgate_reading(&policies(), &arguments, policy_with(more).as_bytes()).stdout;
        let report: Value = serde_json::from_str(&done).unwrap();
        let modules = report["modules"].as_array().unwrap();
        let runs = modules.iter().find(|it| it["lacks"] == serde_json::json!([])).unwrap();
        assert_eq!(runs["file"], *file_of(smallest), "{more}");
        let lean =
            lack.map(|(ability, path)| serde_json::json!({"ability": ability, "path": path}));
        let lean: Vec<Value> = lean.into_iter().collect();
        assert_eq!(modules[0]["lacks"], serde_json::json!(lean), "{more}");
    }
    // A filter that follows a server needs a module that reads documents.
    let folder = scratch("embed/follows");
    let policy_from = "policy_from: { cluster: a }";
    let policy = "policy: { version: 1, rules: [] }";
    let lines = format!(
        "configuration:\n  \"@type\": type.googleapis.com/google.protobuf.Struct\n  value:\n    {policy}\n    {policy_from}"
    );
    fs::write(folder.join("envoy.yaml"), envoy(&lines)).unwrap();
    let report = problems(&folder);
    let modules = &report["filters"][0]["modules"];
    let following = serde_json::json!([{"ability": "following", "path": ""}]);
    assert_eq!(modules[1]["lacks"], following, "{report}");
    assert_eq!(modules[2]["lacks"], serde_json::json!([]), "{report}");
}
