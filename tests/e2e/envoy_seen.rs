//! The operator's view of the filter in a real Envoy: the access log, `%RESPONSE_CODE_DETAILS%`,
//! metrics as a real Prometheus reads them, and the shipped dashboard and alerts on these.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, thread};

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::{self, READY_WITHIN, Server, TempDir, wait_until};

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

const RUN: &str = "cargo xtask test envoy";

/// One rule of each kind, each for a path of its own, so that no other path sends a request to the
/// fleet's authority.
fn policy() -> Value {
    let rule = |name: &str, path: &str, limit: u32, more: &Value| {
        let mut rule = json!({
            "name": name, "when": {"paths": [path]}, "key": [{"header": "x-key"}],
            "quotas": [{"name": "minute", "limit": limit, "window": "1m", "algorithm": "fixed-window"}],
        });
        rule.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
        rule
    };
    json!({"version": 1, "rules": [
        rule("log in", "/login", 2, &json!({"on_missing": "deny", "tiers": [{
            "name": "gold", "when": {"headers": {"x-tier": ["gold"]}},
            "quotas": [{"name": "minute", "limit": 5, "window": "1m", "algorithm": "fixed-window"}],
        }]})),
        rule("trial", "/trial", 1, &json!({"mode": "shadow"})),
        rule("noted", "/noted", 1, &json!({"action": {"mark": {"header": "x-over", "value": "1"}}})),
        rule("slow", "/slow", 1, &json!({
            "action": {"delay": {"max": "5s"}},
            "quotas": [{"name": "line", "limit": 20, "window": "1s", "burst": 1}],
        })),
        rule("fleet", "/fleet", 5, &json!({"scope": "fleet"})),
    ]})
}

/// The labels of a shipped file, which operators copy.
fn shipped_tags(file: &str) -> Value {
    let shipped = fs::read_to_string(shipped(file)).expect("the shipped file");
    let tag = |line: &str| {
        let line = line.trim().strip_prefix("- { tag_name: ")?;
        let (name, regex) = line.strip_suffix("' }")?.split_once(", regex: '")?;
        Some(json!({"tag_name": name, "regex": regex}))
    };
    let tags: Vec<Value> = shipped.lines().filter_map(tag).collect();
    assert_eq!(tags.len(), 7, "{tags:?}");
    json!(tags)
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy").join(name)
}

/// Envoy with the policy, whose access log is `log`: one line for each request that Tollgate acted
/// on, by the expression of the shipped file.
fn start(log: &Path) -> Envoy {
    let expression = "'wasm.tollgate' in filter_state";
    let file = fs::read_to_string(shipped("envoy.yaml")).expect("the shipped file");
    assert!(file.contains(&format!("expression: \"{expression}\"")));
    let fleet = json!({"cluster": "origin", "secret": "a-secret-of-sixteen-or-more"});
    let plugin = json!({"policy": policy(), "fleet": fleet, "policy_from": {"cluster": "origin"}});
    let mut listener = Listener::new("main", vec![tollgate(&plugin, "vm", As::Struct)]);
    listener.manager = json!({"access_log": [{
        "name": "what tollgate did",
        "filter": {"extension_filter": {"name": "something happened", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
            "expression": expression,
        }}},
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
            "path": log,
            "log_format": {"text_format_source": {"inline_string":
                "%RESPONSE_CODE% %RESPONSE_CODE_DETAILS% [%FILTER_STATE(wasm.tollgate:PLAIN)%]\n"}},
        },
    }]});
    let bootstrap = json!({
        "stats_config": {"stats_tags": shipped_tags("envoy.yaml")},
        "stats_flush_interval": "1s",
    });
    Setup { bootstrap, ..Setup::new(1, vec![listener]) }.start()
}

// Guards: a label that one of the shipped files lacks, so that the dashboard and the alerts find
// nothing where that file was copied.
#[test]
fn all_shipped_files_make_the_same_labels() {
    assert_eq!(shipped_tags("xds/bootstrap.yaml"), shipped_tags("envoy.yaml"));
}

fn ask(client: &mut Client, path: &str, headers: &[(&str, &str)]) -> u16 {
    let request = headers
        .iter()
        .fold(Request::get(path), |request, (name, value)| request.header(name, value));
    client.send(&request).status
}

/// The lines of the log, with each hash of a key replaced by its length: the hashes differ in every
/// process.
fn lines(log: &Path, count: usize) -> Vec<String> {
    let masked = |line: &str| {
        let words = line.split(' ').map(|word| match word.strip_prefix("pk=") {
            Some(pk) => format!("pk={}", pk.len()),
            None if word.starts_with("wait_ms=") => "wait_ms=some".to_owned(),
            None => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    };
    wait_until("the log is written", READY_WITHIN, || {
        let text = fs::read_to_string(log).unwrap_or_default();
        (text.lines().count() >= count).then(|| text.lines().map(masked).collect())
    })
}

// Guards: a denial whose client cannot be identified, a shadow that is invisible, and a log that
// has a line for every request.
#[test]
fn the_access_log_says_which_rule_did_what() {
    let dir = TempDir::new("access-log");
    let log = dir.path().join("access.log");
    let envoy = start(&log);
    let mut client = envoy.client();
    let (a, gold) = (("x-key", "a"), ("x-tier", "gold"));
    let mut statuses = Vec::new();
    for path in ["/login", "/trial", "/noted", "/slow"] {
        statuses.extend((0..3).map(|_| ask(&mut client, path, &[a])));
    }
    statuses.extend((0..6).map(|_| ask(&mut client, "/login", &[a, gold])));
    statuses.push(ask(&mut client, "/login", &[]));
    statuses.push(ask(&mut client, "/other", &[a]));
    let expected = [
        [200, 200, 429, 200, 200, 200, 200, 200, 200, 200],
        [200, 200, 200, 200, 200, 200, 200, 429, 429, 200],
    ];
    assert_eq!(statuses, expected.concat());
    let shadow = "200 direct_response \
        [rule=trial quota=minute result=shadowed remaining=0 pk=12 version=0]";
    let marked = "200 direct_response \
        [rule=noted quota=minute result=marked remaining=0 pk=12 version=0]";
    let slow = "200 direct_response \
        [rule=slow result=delayed remaining=0 wait_ms=some pk=12 version=0]";
    assert_eq!(
        lines(&log, 9),
        [
            "429 tollgate_denied{log_in} \
                [rule=log_in quota=minute result=denied remaining=0 pk=12 version=0]",
            shadow,
            shadow,
            marked,
            marked,
            slow,
            slow,
            "429 tollgate_denied{log_in} \
                [rule=log_in tier=gold quota=minute result=denied remaining=0 pk=12 version=0]",
            "429 tollgate_denied{log_in} [rule=log_in result=denied version=0]",
        ]
    );
    let counted = envoy.counted();
    let stat = |name: &str| {
        let name = format!("wasmcustom.tollgate.{name}: ");
        counted.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok())
    };
    assert_eq!(stat("requests.answer=passed"), Some(14));
    assert_eq!(stat("requests.answer=delayed"), Some(2));
    assert_eq!(stat("requests.answer=refused"), Some(3));
    assert_eq!(stat("requests.answer=unlimited"), Some(1));
    let plugin = "plugin=tollgate";
    let of = |name: &str| stat(&format!("{name}.{plugin}.rule=log_in.quota=minute"));
    let gold = |name: &str| stat(&format!("{name}.{plugin}.rule=log_in.quota=minute.tier=gold"));
    assert_eq!(
        stat(&format!("decisions.{plugin}.rule=log_in.quota=minute.result=denied")),
        Some(1)
    );
    assert_eq!(
        stat(&format!("decisions.{plugin}.rule=log_in.quota=minute.tier=gold.result=denied")),
        Some(1)
    );
    assert_eq!(stat(&format!("decisions.{plugin}.rule=log_in.result=denied")), Some(1));
    // At most a fifth left: none of two, one and none of five.
    assert_eq!((of("near_limit"), gold("near_limit")), (Some(1), Some(2)));
    assert_eq!(stat(&format!("table_keys.{plugin}")), Some(1), "five rules count one client");
    assert!(stat(&format!("table_room.{plugin}")) > Some(65_536));
}

/// A Prometheus that reads `envoy` twice per second.
fn prometheus(envoy: &Envoy, dir: &TempDir) -> (Server, u16) {
    let port = process::free_port();
    let config = format!(
        "global: {{ scrape_interval: 500ms, scrape_timeout: 400ms }}\n\
         scrape_configs:\n\
         - job_name: envoy\n\
        \x20 metrics_path: /stats/prometheus\n\
        \x20 static_configs: [{{ targets: [\"127.0.0.1:{}\"] }}]\n",
        envoy.admin
    );
    let file = dir.path().join("prometheus.yaml");
    fs::write(&file, config).expect("a configuration");
    let mut command = Command::new(process::required_path("TOLLGATE_PROMETHEUS_BIN", RUN));
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()));
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let mut server = Server::start(command, dir.path().join("prometheus.log"));
    server.wait_for_port(port);
    (server, port)
}

/// The number of samples in Prometheus' response to a query.
fn samples(port: u16, query: &str) -> usize {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let target = format!("/api/v1/query?query={encoded}");
    let answer = Client::connect(port).send(&Request::get(&target));
    let answer: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(answer["status"], "success", "{query}: {answer}");
    answer["data"]["result"].as_array().expect("samples").len()
}

fn promtool(arguments: &[&str], folder: &Path, input: &str) -> (bool, String) {
    let mut command = Command::new(process::required_path("TOLLGATE_PROMTOOL_BIN", RUN));
    command.args(arguments).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool starts");
    child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// Every query of the dashboard, as Grafana would send it.
fn queries() -> Vec<String> {
    let text = fs::read_to_string(shipped("grafana.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let query = |target: &Value| {
        let query = target["expr"].as_str().expect("a query");
        let query = query.replace("$__rate_interval", "5s");
        query.replace("$instance", ".*").replace("$plugin", ".*")
    };
    targets.map(query).collect()
}

/// Tollgate's metric names in the alerts.
fn alerted() -> BTreeSet<String> {
    let text = fs::read_to_string(shipped("alerts.yaml")).expect("the alerts");
    let expressions = text.split("expr:").skip(1).filter_map(|rest| rest.split("labels:").next());
    let words = |text: &str| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.split(move |c| !is_name(c)).map(str::to_owned).collect::<Vec<_>>()
    };
    let is_ours = |word: &String| word.contains("tollgate_");
    expressions.flat_map(words).filter(is_ours).collect()
}

// Guards: a dashboard and alerts that use names which no filter counts, and so never fire.
#[test]
fn the_dashboard_and_the_alerts_see_what_is_counted() {
    let dir = TempDir::new("dashboard");
    let envoy = start(&dir.path().join("access.log"));
    let (_server, port) = prometheus(&envoy, &dir);
    let queries = queries();
    assert!(queries.len() > 30, "{} queries", queries.len());
    let mut client = envoy.client();
    let mut send = || {
        for path in ["/login", "/trial", "/noted", "/slow", "/fleet", "/other"] {
            ask(&mut client, path, &[("x-key", "a")]);
        }
        thread::sleep(std::time::Duration::from_millis(200));
    };
    for query in &queries {
        wait_until(&format!("there is something to be seen: {query}"), READY_WITHIN, || {
            send();
            (samples(port, query) > 0).then_some(())
        });
    }
    let alerted = alerted();
    assert!(alerted.len() >= 8, "{alerted:?}");
    // A scrape that took too long leaves no sample until the next one.
    let is_seen = |query: &str| {
        wait_until(query, READY_WITHIN, || (samples(port, query) > 0).then_some(()));
    };
    alerted.iter().for_each(|name| is_seen(name));
    let crashes = "{__name__=~\"envoy_wasm_.+_vm_reload_success\"}";
    assert!(fs::read_to_string(shipped("alerts.yaml")).expect("the alerts").contains(crashes));
    is_seen(crashes); // for any name of the plugin
    assert_eq!(samples(port, "tollgate_decisions_of_nobody"), 0, "what is not there is not seen");
    let (is_good, said) = promtool(&["check", "rules", "alerts.yaml"], &shipped(""), "");
    assert!(is_good, "{said}");
    let (is_good, said) = promtool(&["test", "rules", "alerts.test.yaml"], &shipped(""), "");
    assert!(is_good, "{said}");
    check_text(&envoy);
}

/// The warnings of Prometheus' naming rules for Tollgate's metrics: only that Envoy's metrics have
/// no help and no `_total`.
fn check_text(envoy: &Envoy) {
    let answer = Client::connect(envoy.admin).send(&Request::get("/stats/prometheus"));
    let text = answer.text();
    let is_ours = |line: &&str| line.trim_start_matches("# TYPE ").starts_with("tollgate_");
    let ours: String = text.lines().filter(is_ours).map(|line| format!("{line}\n")).collect();
    assert!(ours.lines().count() > 60, "{ours}");
    let (_, said) = promtool(&["check", "metrics"], &shipped(""), &ours);
    let is_known = |line: &&str| {
        line.ends_with("no help text")
            || line.ends_with("counter metrics should have \"_total\" suffix")
            || line.ends_with("use base unit \"seconds\" instead of \"milliseconds\"")
            || line.contains("metric names should not contain abbreviated units")
    };
    let unknown: Vec<&str> = said.lines().filter(|line| !is_known(line)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
