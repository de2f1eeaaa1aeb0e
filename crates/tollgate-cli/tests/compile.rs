//! `tollgate compile`: its output is the policy, and a file it cannot write is unchanged.

use std::fs;
use std::path::PathBuf;

use tollgate_policy::{Plugin, Policy, Surface, compiled_text};

use crate::support::{scratch, tollgate, tollgate_reading};

const GOOD: &str = r#"{"version": 1, "rules": [{"name": "a", "key": ["client_ip"],
  "quotas": [{"limit": 3, "window": "1s", "algorithm": "sliding-log"}]}]}"#;

fn folder(name: &str) -> PathBuf {
    let folder = scratch(&format!("compile/{name}"));
    fs::write(folder.join("policy.json"), GOOD).unwrap();
    folder
}

#[test]
fn what_is_written_is_the_policy_of_each_surface() {
    let folder = folder("written");
    for surface in Surface::ALL {
        let arguments =
            ["compile", "policy.json", "--surface", surface.name(), "-o", "policy.tollgate"];
        let ran = tollgate(&folder, &arguments);
        let bytes = fs::read(folder.join("policy.tollgate")).unwrap();
        let said = format!("policy.tollgate: {} bytes, for {}\n", bytes.len(), surface.name());
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, &*said, ""));
        let read = Policy::read_compiled(&bytes, surface).unwrap();
        assert_eq!(
            read.fingerprint(),
            tollgate_language::compile(GOOD, surface).unwrap().fingerprint()
        );
        assert!(!folder.join("policy.tollgate.partial").exists());
        // No command accepts it as a document.
        for command in ["check", "explain"] {
            let ran = tollgate(&folder, &[command, "policy.tollgate"]);
            assert_eq!(ran.code, 2);
            assert!(
                ran.stderr.contains("is a compiled policy, which cannot be checked"),
                "{}",
                ran.stderr
            );
        }
    }
}

#[test]
fn a_module_has_the_same_bytes_as_text() {
    let folder = folder("module");
    let ran = tollgate(&folder, &["compile", "policy.json", "--surface", "worker", "-o", "p.mjs"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let policy = tollgate_language::compile(GOOD, Surface::Worker).unwrap();
    let text = compiled_text(|out| policy.write_compiled(out));
    let module = fs::read_to_string(folder.join("p.mjs")).unwrap();
    assert_eq!(module, format!("export default \"{text}\";\n"));
}

// Guards: a filter that cannot get the counts of its fleet, because the settings next to the policy
// were lost in the compilation.
#[test]
fn a_proxy_is_told_whom_it_asks_as_text_too() {
    let folder = folder("fleet");
    let fleet = r#"{"cluster": "authority", "secret": "0123456789abcdef"}"#;
    let document = format!(r#"{{"policy": {GOOD}, "fleet": {fleet}}}"#);
    fs::write(folder.join("plugin.json"), &document).unwrap();
    let ran = tollgate(&folder, &["compile", "plugin.json", "--surface", "envoy", "--base64"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let text =
        tollgate_language::compile_plugin(&document, Surface::Envoy).unwrap().to_compiled_text();
    assert_eq!(ran.stdout, format!("{text}\n"));
    let read = Plugin::read_compiled(ran.stdout.as_bytes(), Surface::Envoy).unwrap();
    assert_eq!(read.fleet.unwrap().cluster, "authority");
    // For no other surface, nor with a server to follow.
    let ran = tollgate(&folder, &["compile", "plugin.json", "--surface", "worker", "--base64"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    let follows =
        document.replace("\"fleet\"", "\"policy_from\"").replace(fleet, r#"{"cluster": "a"}"#);
    fs::write(folder.join("plugin.json"), follows).unwrap();
    let ran = tollgate(&folder, &["compile", "plugin.json", "--surface", "envoy", "--base64"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains("policy_from: the server sends a document"), "{}", ran.stderr);
}

// Guards: "not JSON" about a valid policy.
#[test]
fn a_compiled_policy_in_a_configuration_of_envoy_is_called_what_it_is() {
    let folder = folder("configured");
    let policy = tollgate_language::compile(GOOD, Surface::Envoy).unwrap();
    let text = compiled_text(|out| policy.write_compiled(out));
    let object = format!("{{compiled: {text}}}");
    let forms = [("StringValue", &text), ("BytesValue", &text), ("Struct", &object)];
    for (form, value) in forms {
        let config = format!(
            "http_filters:\n- name: tollgate\n  typed_config:\n    \"@type\": \
             type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm\n    config:\n      \
             configuration:\n        \"@type\": type.googleapis.com/google.protobuf.{form}\n        \
             value: {value}\n"
        );
        fs::write(folder.join("envoy.yaml"), config).unwrap();
        let ran = tollgate(&folder, &["check", "envoy.yaml"]);
        assert_eq!(ran.code, 1);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(said.contains("this is a compiled policy"), "{form}: {said}");
    }
}

#[test]
fn a_policy_with_problems_leaves_the_file_as_it_was() {
    let folder = folder("bad");
    fs::write(folder.join("policy.tollgate"), "before").unwrap();
    fs::write(folder.join("policy.json"), GOOD.replace("1s", "0s")).unwrap();
    let arguments = ["compile", "policy.json", "--surface", "worker", "-o", "policy.tollgate"];
    let ran = tollgate(&folder, &arguments);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.contains("rules[0].quotas[0].window: \"0s\" is too short"),
        "{}",
        ran.stderr
    );
    assert_eq!(fs::read(folder.join("policy.tollgate")).unwrap(), b"before");
}

#[test]
fn warnings_are_told_and_a_file_that_cannot_be_written_is_an_error() {
    let folder = folder("warned");
    let warned = GOOD.replace("[\"client_ip\"]", "[]");
    let arguments = ["compile", "-", "--surface", "worker", "-o", "no-such-folder/policy.tollgate"];
    let ran = tollgate_reading(&folder, &arguments, warned.as_bytes());
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""));
    assert!(ran.stderr.contains("warning: rules[0].key: sends every request"), "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot write no-such-folder/policy.tollgate"), "{}", ran.stderr);
}
