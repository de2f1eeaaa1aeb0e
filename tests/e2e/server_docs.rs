//! What `docs/server.md` shows and `fleet/` ships, run.

use std::process::Command;

use serde_json::Value;
use tollgate_e2e::http::Request;
use tollgate_e2e::process::TempDir;
use tollgate_e2e::server::{Setup, server_bin};
use tollgate_e2e::workerd::answer;

const DOCUMENT: &str = include_str!("../../docs/server.md");
const POLICY: &str = include_str!("../../fleet/policy.json");

#[test]
fn the_document_shows_what_is_answered_and_the_sixth_is_refused() {
    let server = Setup::new(POLICY).start();
    let shown =
        DOCUMENT.split("$ curl -s http://127.0.0.1:8080/check --json '").nth(1).expect("a request");
    let (body, rest) = shown.split_once("'\n").expect("its end");
    let expected: Value =
        serde_json::from_str(rest.lines().next().expect("an answer")).expect("JSON");
    let ask = || answer(&server.client().send(&Request::post("/check", body)));
    assert_eq!(ask(), expected);
    for _ in 2..=5 {
        assert_eq!(ask()["decision"], "allow");
    }
    assert_eq!(ask()["decision"], "deny");
}

// Guards: a setting that was renamed would be in the document, the unit or the manifests for ever.
#[test]
fn settings_that_are_shown_are_settings() {
    let dir = TempDir::new("docs");
    let toml = DOCUMENT.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    let toml = toml.expect("a file of settings").replace("/run/secrets/", "");
    let toml = toml.replace("/etc/tollgate/", "");
    let write =
        |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
    write("server.toml", &toml);
    write("policy.json", POLICY);
    write("check_token", "check-token-0123456789");
    write("admin_token", "admin-token-0123456789");
    let mut command = Command::new(server_bin());
    command.env_clear().current_dir(dir.path()).args(["--config", "server.toml", "--check-config"]);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let help = include_str!("../../crates/tollgate-server/help.txt");
    let shipped = [
        include_str!("../../fleet/tollgate-server.service"),
        include_str!("../../fleet/kubernetes.yaml"),
        include_str!("../../fleet/Containerfile"),
    ];
    let mut found = 0;
    for text in shipped {
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-') {
            let flag = match (word.strip_prefix("TOLLGATE_"), word.strip_prefix("--")) {
                (Some(name), _) => name.to_lowercase().replace('_', "-"),
                (None, Some(name)) if text.contains("ExecStart") => name.to_owned(),
                _ => continue,
            };
            found += 1;
            assert!(help.contains(&format!("--{flag} ")), "{flag} is no setting");
        }
    }
    assert!(found >= 9, "{found}");
}

// Guards: the policy in the manifests is one.
#[test]
fn the_policy_in_the_manifests_starts_a_server() {
    let manifests = include_str!("../../fleet/kubernetes.yaml");
    let policy =
        manifests.split("policy.json: |\n").nth(1).and_then(|rest| rest.split("---").next());
    Setup::new(policy.expect("a policy")).start();
}
