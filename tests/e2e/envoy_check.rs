//! The result of `tollgate check` for a configuration of Envoy agrees with Envoy's own.
//!
//! Each configuration is given to both. Where the filter reports problems, both name the same
//! places with the same words (the program may add a hint). Configurations that Envoy rejects
//! before the filter sees them, and those that both accept, are compared by the exit codes.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tollgate_e2e::process::TempDir;
use tollgate_language::BOOLEAN_HINT;

use crate::envoy_server::{As, envoy_bin, filter_wasm, tollgate};

const STRUCT: &str = "\"@type\": type.googleapis.com/google.protobuf.Struct\n";
const STRING: &str = "\"@type\": type.googleapis.com/google.protobuf.StringValue\n";
const BYTES: &str = "\"@type\": type.googleapis.com/google.protobuf.BytesValue\n";
const MANAGER: &str = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const GOOD: &str = "version: 1\nrules:\n- {name: a, key: [], quotas: [{limit: 1, window: 1m}]}\n";

/// The whole configuration around the filter's `configuration`.
fn bootstrap(configuration: &str) -> String {
    let wasm = filter_wasm();
    format!(
        "\
static_resources:
  listeners:
  - name: ingress
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": {MANAGER}
          stat_prefix: ingress
          use_remote_address: true
          route_config: {{ virtual_hosts: [{{ name: all, domains: [\"*\"], routes: [{{ match: {{ prefix: / }}, direct_response: {{ status: 200 }} }}] }}] }}
          http_filters:
          - name: tollgate
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
              config:
                name: tollgate
                vm_config: {{ vm_id: t, runtime: envoy.wasm.runtime.v8, code: {{ local: {{ filename: {} }} }} }}
                configuration:
{}          - name: envoy.filters.http.router
            typed_config: {{ \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
",
        wasm.display(),
        indented(configuration, 18)
    )
}

fn indented(text: &str, spaces: usize) -> String {
    let margin = " ".repeat(spaces);
    text.split_inclusive('\n').map(|line| format!("{margin}{line}")).collect()
}

fn under_value(kind: &str, value: &str) -> String {
    format!("{kind}value:\n{}", indented(value, 2))
}

/// The program, built by cargo, which reports its path.
fn command_line() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "-p", "tollgate-cli", "--message-format", "json"]);
        let built = command.output().expect("cargo does not start");
        let text = String::from_utf8(built.stdout).expect("cargo says JSON");
        let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut programs =
            messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
        programs.next().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&built.stderr)))
    })
}

/// Envoy's result: whether it accepts the configuration, and the problems that the filter reports.
fn by_envoy(dir: &TempDir, file: &str) -> (bool, Vec<String>) {
    let mut command = Command::new(envoy_bin());
    command.args(["--mode", "validate", "--log-level", "warning", "-c"]).arg(dir.path().join(file));
    let Output { status, stdout, stderr } = command.output().expect("Envoy does not start");
    let log = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    let said = log.lines().filter(|line| line.contains("[error]"));
    let said = said.filter_map(|line| line.split_once(": tollgate: "));
    // The program reports more than the filter can know of YAML.
    let plain = |problem: &str| problem.trim_end_matches(BOOLEAN_HINT).to_owned();
    (status.success(), said.map(|(_, problem)| plain(problem)).collect())
}

/// The same from `tollgate check`.
fn by_check(dir: &TempDir, file: &str) -> (bool, Vec<String>) {
    let mut command = Command::new(command_line());
    command.args(["check", "--json"]).arg(dir.path().join(file));
    let Output { status, stdout, stderr } = command.output().expect("tollgate does not start");
    let text = String::from_utf8_lossy(&stderr);
    let report: Value = serde_json::from_slice(&stdout).unwrap_or_else(|_| panic!("{text}"));
    assert_eq!(report["ok"], json!(status.success()), "{report:#}");
    let filters = report["filters"].as_array().expect("filters").iter();
    let problems = filters.flat_map(|filter| filter["problems"].as_array().expect("problems"));
    let line = |problem: &Value| {
        let of = |name: &str| problem[name].as_str().expect("a text");
        let separator = if of("path").is_empty() { "" } else { ": " };
        format!("{}{separator}{}", of("path"), of("message"))
    };
    (status.success(), problems.map(line).collect())
}

/// Both accept it, or the filter rejects it and both report the same.
fn both_say(text: &str, file: &str) -> usize {
    let dir = TempDir::new("check");
    fs::write(dir.path().join(file), text).expect("the file is written");
    let (envoy_takes, from_envoy) = by_envoy(&dir, file);
    let (check_takes, from_check) = by_check(&dir, file);
    assert_eq!(check_takes, envoy_takes, "{text}\nEnvoy: {from_envoy:#?}\ncheck: {from_check:#?}");
    // Only the program gives hints, so its message begins with the words of the filter.
    let is_same = |own: &String, said: &String| own.starts_with(said.as_str());
    let only_envoy: Vec<&String> =
        from_envoy.iter().filter(|said| !from_check.iter().any(|own| is_same(own, said))).collect();
    let only_check: Vec<&String> =
        from_check.iter().filter(|own| !from_envoy.iter().any(|said| is_same(own, said))).collect();
    let none: [&String; 0] = [];
    assert_eq!((&only_envoy[..], &only_check[..]), (&none[..], &none[..]), "{text}");
    from_envoy.len()
}

// The places of methods show the value of each scalar: none of these is a valid method.
#[test]
fn every_scalar_means_to_check_what_it_means_to_the_filter() {
    let scalars = "[off, NO, y, Y, yEs, ON, n, oN, TRUE, tRUE, False, 'off', \"no\", 010, 0x1f, 0X1F, 08, 1_000, +5, -3, +-5, 1.5, 1e3, \
                   .5, .inf, ~, null, Null, NULL, nULL, 2147483647, 2147483648, -2147483648, -2147483649, 9999999999999999999999, \
                   9223372036854775807, !!str 12, ! 13, !!int \"14\", !!bool off, !!null x, ! ~, !!str ~, 0o17, 0b11, 2001-01-01, \"\", -0, 00, 0x, \
                   -0x10, -010, +0x1, 0x7fffffff, 0x80000000, 'it''s', \"\\x41\\u00e9\\n\", a b, a#b, &x 7, *x, {a: b}, [c]]";
    let blocks = "version: 1\nrules:\n- name: |\n    a\n  key: >-\n    b\n     c\n  quotas: {}\n- name: a\n\n    b\n  key: 'c\n\n    d'\n";
    let policy = format!(
        "version: 1\nrules:\n- name: a\n  key: []\n  quotas: [{{limit: 3000000000, window: 10}}]\n  when:\n    methods: {scalars}\n"
    );
    assert!(both_say(&bootstrap(&under_value(STRUCT, &policy)), "envoy.yaml") > 40);
    assert!(both_say(&bootstrap(&under_value(STRUCT, blocks)), "envoy.yaml") > 4);
}

// Guards: a text that Envoy changes silently, so that another value is enforced than the one that
// was checked. The filter's own messages show the value that it received.
#[test]
fn what_envoy_reads_as_another_text_is_refused() {
    let policy = "version: 1\nrules:\n- name: a\n  key: []\n  quotas: [{limit: 1, window: 1m}]\n  when:\n    methods:\n";
    let rows = [
        ("    - \"a\\_b\"\n", "\"a b\"", "as a blank"),
        ("    - \"a\\Nb\"\n", "\"a b\"", "as a blank"),
        ("    - >+\n      a@\n\n", "\"a@\\n\"", ">+"),
    ];
    for (written, got, refused) in rows {
        let dir = TempDir::new("check");
        let text = bootstrap(&under_value(STRUCT, &format!("{policy}{written}")));
        fs::write(dir.path().join("envoy.yaml"), &text).expect("written");
        let (_, from_filter) = by_envoy(&dir, "envoy.yaml");
        assert_eq!(from_filter.len(), 1, "{written}: {from_filter:#?}");
        assert!(from_filter[0].contains(got), "{written}: {from_filter:#?}");
        let mut command = Command::new(command_line());
        command.arg("check").arg(dir.path().join("envoy.yaml"));
        let ran = command.output().expect("tollgate does not start");
        let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
        assert_eq!((ran.status.code(), said.contains(refused)), (Some(1), true), "{said}");
    }
}

#[test]
fn what_the_filter_gets_is_what_is_checked() {
    let json = "{\"version\": 1, \"rules\": [{\"name\": \"a\", \"key\": [], \"quotas\": [{\"limit\": 3000000000, \"window\": \"1m\"}]}]}";
    let merge = "version: 1\nrules:\n- &a {name: a, key: [], quotas: [{limit: 1, window: 1m}]}\n- {<<: *a, name: b}\n";
    let names = "version: 1\nrules: []\n~: 1\noff: 1\n010: 3\n!ignore x: 1\n!!str y: 1\n\"\": 1\n";
    let deep = |levels: usize| {
        format!("version: 1\nrules: {}{}\n", "[".repeat(levels), "]".repeat(levels))
    };
    let rows = [
        (under_value(STRUCT, GOOD), 0),
        (format!("{STRING}value: |\n  {json}\n"), 0),
        (format!("{STRING}value: >\n  {json}\n"), 0),
        (format!("{STRING}value: '{json}'\n"), 0),
        (format!("{STRING}value: |\n  {{\"version\": 2}}\n"), 2),
        (format!("{BYTES}value: eyJ2ZXJzaW9uIjoyfQ\n"), 2),
        (under_value(STRUCT, merge), 2),
        (under_value(STRUCT, names), 5),
        (under_value(STRUCT, &deep(31)), 1),
        (under_value(STRUCT, &deep(32)), 1),
        (under_value(STRUCT, "{}\n"), 1),
        (format!("{STRUCT}value:\n"), 1),
        (STRING.to_owned(), 1),
        ("~\n".to_owned(), 1),
    ];
    for (configuration, problems) in rows {
        assert_eq!(both_say(&bootstrap(&configuration), "envoy.yaml"), problems, "{configuration}");
    }
}

// In a JSON file numbers are doubles, whatever their size.
#[test]
fn a_file_in_json_is_read_as_json() {
    let policy = json!({"version": 1.0, "rules": [{"name": 0.5, "key": [1e3, 1e300, true, null],
        "quotas": [{"limit": 3_000_000_000_u64, "window": u64::MAX}]}]});
    let text = json!({"static_resources": {"listeners": [{"name": "ingress",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": {
            "@type": MANAGER, "stat_prefix": "ingress", "use_remote_address": true, "route_config": {},
            "http_filters": [tollgate(&policy, "t", As::Struct)]}}]}]}]}});
    assert!(both_say(&format!("{text:#}"), "envoy.json") > 4);
}

/// Configurations that Envoy itself rejects produce no message of the filter.
#[test]
fn what_envoy_refuses_is_refused() {
    let text = "value: |\n  {\"version\": 1, \"rules\": []}\n";
    let rows = [
        format!("{STRING}value: off\n"),
        format!("{STRING}value: 12\n"),
        under_value(STRING, GOOD),
        format!("{STRUCT}{text}"),
        format!("{STRUCT}{GOOD}"),
        GOOD.to_owned(),
        text.to_owned(),
        format!("{BYTES}value: '!'\n"),
        under_value(STRUCT, "? [a]\n: 1\n"),
        under_value(STRUCT, "version: 1\n\trules: []\n"),
        under_value(STRUCT, "version: *nobody\n"),
    ];
    for configuration in rows {
        let dir = TempDir::new("check");
        fs::write(dir.path().join("envoy.yaml"), bootstrap(&configuration)).expect("written");
        let (envoy_takes, from_filter) = by_envoy(&dir, "envoy.yaml");
        assert!(!envoy_takes && from_filter.is_empty(), "{configuration}: {from_filter:#?}");
        let mut command = Command::new(command_line());
        command.arg("check").arg(dir.path().join("envoy.yaml"));
        let ran = command.output().expect("tollgate does not start");
        assert_eq!(ran.status.code(), Some(1), "{configuration}: {ran:?}");
    }
}

/// Pasted in its place, the block of `tollgate embed` is a filter that Envoy starts.
#[test]
fn what_is_embedded_is_taken() {
    let dir = TempDir::new("embed");
    let policy = json!({"version": 1, "rules": [{"name": "off", "key": ["client_ip"], "when": {"headers": {"x": ["NO", "\u{85}\u{2028}"]}},
        "quotas": [{"limit": 999_999_999_999_999_u64, "window": "366d"}]}]});
    fs::write(dir.path().join("policy.json"), policy.to_string()).expect("written");
    let mut command = Command::new(command_line());
    command.arg("embed").arg(dir.path().join("policy.json")).arg("--wasm").arg(filter_wasm());
    let block = command.output().expect("tollgate does not start");
    let block = String::from_utf8(block.stdout).expect("a text");
    let whole = bootstrap("@\n");
    let (before, rest) = whole.split_once("          - name: tollgate\n").expect("the filter");
    let (_, after) = rest.split_once("@\n").expect("its configuration");
    fs::write(dir.path().join("envoy.yaml"), format!("{before}{block}{after}")).expect("written");
    assert_eq!(by_envoy(&dir, "envoy.yaml"), (true, Vec::new()), "{block}");
    assert_eq!(by_check(&dir, "envoy.yaml"), (true, Vec::new()), "{block}");
}
