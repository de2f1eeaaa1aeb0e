//! The policy file changes while the server runs: the server applies it without a signal, like any
//! other deployment.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use tollgate_e2e::http::Request;
use tollgate_e2e::process::TempDir;
use tollgate_e2e::server::{Setup, TollgateServer};
use tollgate_e2e::workerd::answer;

fn policy(limit: u64) -> String {
    let quotas = json!([{"algorithm": "fixed-window", "limit": limit, "window": "366d"}]);
    json!({"version": 1, "rules": [{"name": "each", "key": ["client_ip"], "quotas": quotas}]})
        .to_string()
}

/// How many of `requests` from one client are allowed.
fn allowed(server: &TollgateServer, requests: usize) -> usize {
    let asked = json!({"method": "GET", "path": "/", "client_ip": "192.0.2.1"}).to_string();
    let ask = || answer(&server.client().send(&Request::post("/check", asked.as_str())));
    (0..requests).filter(|_| ask()["decision"] == "allow").count()
}

fn write(server: &TollgateServer, text: &str) {
    fs::write(server.file("policy.json"), text).expect("written");
}

/// Writes `text` as the kubelet does: into a new folder, to which the link `..data` is moved.
fn move_link(dir: &Path, folder: &str, text: &str) {
    fs::create_dir(dir.join(folder)).expect("made");
    fs::write(dir.join(folder).join("policy.json"), text).expect("written");
    symlink(folder, dir.join("..next")).expect("linked");
    fs::rename(dir.join("..next"), dir.join("..data")).expect("moved");
}

// Guards: a changed ConfigMap that a server reads only when it starts again.
#[test]
fn a_file_whose_links_move_is_taken_without_a_signal() {
    let server = Setup::new(policy(1)).start();
    assert_eq!(allowed(&server, 2), 1);
    let file = server.file("policy.json");
    let dir = file.parent().expect("a folder");
    // The server's path becomes a link to a link, as in a volume of a ConfigMap.
    move_link(dir, "..2026_1", &policy(1));
    symlink("..data/policy.json", dir.join("link")).expect("linked");
    fs::rename(dir.join("link"), &file).expect("moved");
    move_link(dir, "..2026_2", &policy(3));
    fs::remove_dir_all(dir.join("..2026_1")).expect("removed");
    server.wait_for_events("policy_reloaded", 1);
    assert_eq!(allowed(&server, 3), 2, "of three, one was used before");
    assert_eq!(server.events("policy_reloaded").len(), 1, "the same contents are no change");
}

// Guards: an invalid file that allows or denies everything, and one that fills the log.
#[test]
fn a_wrong_file_is_named_and_counted_once_and_the_policy_before_stays() {
    let server = Setup::new(policy(1)).operated().start();
    assert_eq!(allowed(&server, 2), 1);
    write(&server, "{\"version\": 1, \"rules\": 3}");
    let refused = server.wait_for_events("policy_refused", 1);
    let message = refused[0]["message"].as_str().expect("a text");
    assert!(message.contains("the one before stays: rules: "), "{message}");
    assert_eq!(allowed(&server, 1), 0);
    fs::remove_file(server.file("policy.json")).expect("removed");
    let refused = server.wait_for_events("policy_refused", 2);
    assert!(refused[1]["message"].as_str().expect("a text").contains("cannot be read"));
    assert_eq!((server.probe("/ready"), allowed(&server, 1)), (200, 0));
    write(&server, &policy(2));
    let reloaded = server.wait_for_events("policy_reloaded", 1);
    assert_eq!(reloaded[0]["in_force"], true);
    assert_eq!(allowed(&server, 2), 1);
    assert_eq!(server.events("policy_refused").len(), 2, "each once");
    assert_eq!(server.metric("tollgate_policy_file_refused_total"), 2);
}

// Guards: a file that replaces a policy that an operator put, or that is missing in the history.
#[test]
fn a_changed_file_is_a_deployment_and_what_was_put_goes_before_it() {
    let data = TempDir::new("reload-data");
    let server = Setup::new(policy(1)).operated().set("data", data.path().display()).start();
    let history = || -> Vec<(String, String)> {
        let page = server.operate("GET", "admin/policy/history", "", &[]);
        let page: Value = serde_json::from_slice(&page.body).expect("JSON");
        let rows = page["versions"].as_array().expect("rows").iter();
        let text = |row: &Value, name: &str| row[name].as_str().expect("a text").to_owned();
        rows.map(|row| (text(row, "kind"), text(row, "source"))).collect()
    };
    let row = |kind: &str, source: &str| (kind.to_owned(), source.to_owned());
    write(&server, &policy(2));
    let reloaded = server.wait_for_events("policy_reloaded", 1);
    assert_eq!(reloaded[0]["in_force"], true);
    assert_eq!(history(), [row("deploy", "deployed"), row("deploy", "deployed")]);
    let put = server.operate("PUT", "admin/policy", &policy(3), &[("if-match", "*")]);
    assert!(put.status < 300, "{}", put.text());
    write(&server, &policy(5));
    let reloaded = server.wait_for_events("policy_reloaded", 2);
    assert_eq!(reloaded[1]["in_force"], false, "what was put goes before it");
    assert_eq!(allowed(&server, 4), 3);
    let deleted = server.operate("DELETE", "admin/policy", "", &[("if-match", "*")]);
    assert!(deleted.status < 300, "{}", deleted.text());
    assert_eq!(allowed(&server, 3), 2, "the newest file, under which three are used");
}

// Guards: YAML that the command line reads and a server does not.
#[test]
fn a_policy_in_yaml_may_be_put() {
    let server = Setup::new(policy(1)).operated().start();
    let yaml = "# three per year\nversion: 1\nrules:\n- name: each\n  key: [client_ip]\n  quotas:\n  - \
                {algorithm: fixed-window, limit: 3, window: 366d}\n";
    let put = |text: &str| server.operate("PUT", "admin/policy", text, &[("if-match", "*")]);
    assert_eq!(put(yaml).status, 200);
    assert_eq!(allowed(&server, 4), 3);
    let shown = server.operate("GET", "admin/policy", "", &[]);
    let shown: Value = serde_json::from_slice(&shown.body).expect("JSON");
    assert_eq!(shown, serde_json::from_str::<Value>(&policy(3)).expect("JSON"));
    for (wrong, path, detail) in [
        ("version: 1\nrules: 3\n", "rules", "is not a list"),
        ("version: 1\nrules: [\n", "", "line 3: not YAML"),
        ("version: 1\n---\nrules: []\n", "", "line 2: a second document begins here"),
    ] {
        let refused = put(wrong);
        let problem: Value = serde_json::from_slice(&refused.body).expect("JSON");
        let error = &problem["errors"][0];
        assert_eq!((refused.status, &error["path"]), (422, &json!(path)), "{problem}");
        assert!(error["detail"].as_str().is_some_and(|text| text.contains(detail)), "{problem}");
    }
    assert_eq!(allowed(&server, 1), 0, "what was put before stays");
    let with_tenants = format!("{yaml}tenant: {{header: x-tenant}}\n");
    assert_eq!(put(&with_tenants).status, 200);
    let entry = "# for a month\nquotas:\n  each: [{limit: 7, window: 1h}]\n";
    let fresh = [("if-none-match", "*")];
    let written = server.operate("PUT", "admin/tenants/acme", entry, &fresh);
    assert_eq!(written.status, 201, "{}", written.text());
    let shown = server.operate("GET", "admin/tenants/acme", "", &[]);
    let shown: Value = serde_json::from_slice(&shown.body).expect("JSON");
    assert_eq!(shown["quotas"]["each"][0]["limit"], 7);
}

// Guards: a list that only a restart reads, and one that is gone or cut short and lifts a block.
#[test]
fn a_changed_list_is_taken_and_a_lost_one_keeps_the_policy_before() {
    let blocked = json!({"name": "blocked", "deny": true,
        "when": {"client_cidrs": ["203.0.113.7", {"file": "blocked.txt"}]}});
    let text = json!({"version": 1, "rules": [blocked]}).to_string();
    let server = Setup::new(policy(1)).start();
    let decision = || {
        let request = json!({"method": "GET", "path": "/", "client_ip": "192.0.2.1"}).to_string();
        answer(&server.client().send(&Request::post("/check", request.as_str())))["decision"]
            .clone()
    };
    fs::write(server.file("blocked.txt"), "198.51.100.1\n").expect("written");
    write(&server, &text);
    server.wait_for_events("policy_reloaded", 1);
    assert_eq!(decision(), "allow");
    fs::write(server.file("blocked.txt"), "198.51.100.1\n192.0.2.0/24 # new\n").expect("written");
    server.wait_for_events("policy_reloaded", 2);
    assert_eq!(decision(), "deny");
    for (number, lost) in ["", "192.0.2.0/33\n"].into_iter().enumerate() {
        fs::write(server.file("blocked.txt"), format!("# cut\n{lost}")).expect("written");
        server.wait_for_events("policy_refused", number + 1);
        assert_eq!(decision(), "deny");
    }
    fs::remove_file(server.file("blocked.txt")).expect("removed");
    let refused = server.wait_for_events("policy_refused", 3);
    let message = |at: usize| refused[at]["message"].as_str().expect("a text").to_owned();
    assert!(message(1).contains("blocked.txt, line 2: \"192.0.2.0/33\" is not"), "{}", message(1));
    assert!(message(2).contains("the file \"blocked.txt\" cannot be read"), "{}", message(2));
    assert_eq!(decision(), "deny");
}
