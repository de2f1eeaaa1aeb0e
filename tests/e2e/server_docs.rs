//! The examples of `docs/server.md` and the files of `fleet/`, run.

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

// Guards: a renamed setting that stays in the document, the unit or the manifests.
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
        include_str!("../../fleet/kubernetes-fleet.yaml"),
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

/// The files with objects of Kubernetes.
const MANIFESTS: [&str; 2] = [
    include_str!("../../fleet/kubernetes.yaml"),
    include_str!("../../fleet/kubernetes-fleet.yaml"),
];

// Guards: the policies in the manifests are valid, also for the protocols that are enabled there.
#[test]
fn the_policies_in_the_manifests_start_a_server() {
    for manifests in MANIFESTS {
        let policy =
            manifests.split("policy.json: |\n").nth(1).and_then(|rest| rest.split("---").next());
        let setup = Setup::new(policy.expect("a policy"));
        let protocols = manifests.lines().find_map(|line| line.split_once("TOLLGATE_PROTOCOLS: "));
        match protocols {
            Some((_, names)) => setup.set("protocols", names).start(),
            None => setup.start(),
        };
    }
}

// Guards: a deployment with the secrets that are published in this repository.
#[test]
fn check_config_refuses_every_secret_of_the_files_that_are_shipped() {
    let compose = include_str!("../../fleet/docker-compose.yaml");
    let mut found = 0;
    for line in MANIFESTS.into_iter().chain([compose]).flat_map(str::lines) {
        let Some((name, value)) = line.split_once(": ") else { continue };
        let name = name.trim().trim_start_matches("TOLLGATE_").to_ascii_uppercase();
        let secrets = ["CHECK_TOKEN", "HASH_KEY", "FLEET_SECRET", "STORE_PASSWORD"];
        if !secrets.contains(&name.as_str()) {
            continue;
        }
        found += 1;
        let dir = TempDir::new("docs");
        std::fs::write(dir.path().join("policy.json"), POLICY).expect("written");
        let variable = format!("TOLLGATE_{name}");
        let mut command = Command::new(server_bin());
        command.env_clear().current_dir(dir.path()).env(&variable, value);
        let output = command.args(["--policy", "policy.json", "--check-config"]).output();
        let output = output.expect("it runs");
        let err = String::from_utf8_lossy(&output.stderr);
        let expected = format!("error: {variable}: is the placeholder of an example; ");
        assert!(!output.status.success() && err.contains(&expected), "{line}: {err}");
        assert!(!err.contains(value), "a secret is shown: {err}");
    }
    assert_eq!(found, 6);
}
