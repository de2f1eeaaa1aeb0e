//! The command line and the configuration: all mistakes at once, and the help.

use std::process::Command;

use serde_json::json;
use tollgate_e2e::process::TempDir;
use tollgate_e2e::server::{Setup, server_bin};
use tollgate_test_support::golden::assert_file;

const POLICY: &str = r#"{"version": 1, "rules": [{"name": "a", "key": [], "quotas": [{"limit": 1, "window": "1m"}]}]}"#;

fn run(
    dir: &TempDir,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> (Option<i32>, String, String) {
    let mut command = Command::new(server_bin());
    command.env_clear().current_dir(dir.path()).args(arguments);
    let output = command.envs(variables.iter().copied()).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn write(dir: &TempDir, name: &str, text: &str) {
    std::fs::write(dir.path().join(name), text).expect("written");
}

#[test]
fn the_help_is_what_the_file_says() {
    let dir = TempDir::new("config");
    let (status, out, err) = run(&dir, &["--help"], &[]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/tollgate-server/help.txt");
    assert_file(golden, &out);
}

#[test]
fn every_mistake_is_said_at_once_with_its_place() {
    let dir = TempDir::new("config");
    write(
        &dir,
        "t.toml",
        "listen = \"here\"\nmax_keys = 0\nlistn = 1\nadmin_token = \"x\"\nthreads = 1.5\n",
    );
    write(&dir, "empty", " \n");
    write(&dir, "policy.json", "{\"version\": 1, \"rules\": 3}");
    let arguments =
        ["--config", "t.toml", "--tls-key", "key.pem", "--drain-timeout=-1", "--store=sqlite"];
    let variables = [
        ("TOLLGATE_TRUSTED_CALLERS", "10.0.0.0/8, everybody"),
        ("TOLLGATE_READ_TOKEN", "read-token-0123456789"),
        ("TOLLGATE_CHECK_TOKEN_FILE", "empty"),
        ("TOLLGATE_HASH_KEY_FILE", "absent"),
        ("TOLLGATE_MAX_CONNECTIONS", "many"),
        // Kubernetes sets this for a service of this name; it is not a setting.
        ("TOLLGATE_PORT", "tcp://10.0.0.1:80"),
    ];
    let (status, out, err) = run(&dir, &[&arguments[..], &["--check-config"]].concat(), &variables);
    assert_eq!((status, out.as_str()), (Some(1), ""));
    let expected = "error: admin_token: is a secret; write it into a file and name that in admin_token_file\n\
        error: listn: is not a setting; see --help\n\
        error: threads: is not a text, a number or a list of texts\n\
        error: TOLLGATE_HASH_KEY_FILE: cannot be read: No such file or directory (os error 2)\n\
        error: policy: is missing; name the file with the policy\n\
        error: --store: is neither \"memory\" nor an address: it does not begin with redis://, rediss://, redis+sentinel://, redis+cluster://\n\
        error: --tls-key: also needs tls_certificate\n\
        error: TOLLGATE_TRUSTED_CALLERS: \"10.0.0.0/8, everybody\" is not a list of networks; use one such as \"10.0.0.0/8,::1/128\"\n\
        error: max_keys: \"0\" is not a whole number from 1 to 1000000000\n\
        error: TOLLGATE_MAX_CONNECTIONS: \"many\" is not a whole number from 1 to 1000000\n\
        error: TOLLGATE_CHECK_TOKEN_FILE: is empty; give it a value or leave it out\n\
        error: TOLLGATE_READ_TOKEN: reads what admin_token turns on; set that, or leave this out\n\
        error: listen: \"here\" is not an address; use one such as \"127.0.0.1:8080\" or \"[::]:8080\"\n\
        error: --drain-timeout: \"-1\" is not a whole number from 0 to 3600\n";
    assert_eq!(err, expected);
    assert!(!err.contains("0123456789"), "a secret is shown");
}

#[test]
fn what_is_wrong_with_tls_to_the_store_is_said_at_once() {
    let dir = TempDir::new("config");
    write(&dir, "policy.json", POLICY);
    let said = |more: &[&str]| {
        let (status, _, err) =
            run(&dir, &[&["--policy", "policy.json", "--check-config"], more].concat(), &[]);
        assert_eq!(status, Some(1));
        err
    };
    let plain = ["--store=redis://h", "--store-ca=a", "--store-key=k", "--store-server-name=h"];
    assert_eq!(
        said(&plain),
        "error: --store-ca: is for a store over TLS; write rediss for redis in its address\n\
         error: --store-key: is for a store over TLS; write rediss for redis in its address\n\
         error: --store-server-name: is for a store over TLS; write rediss for redis in its address\n"
    );
    assert_eq!(
        said(&["--store=rediss+cluster://h", "--store-certificate=c"]),
        "error: --store: uses TLS; name the file with its trusted authorities in store_ca\n\
         error: --store-certificate: also needs store_key\n"
    );
    let files = ["--store-ca=ca.pem", "--store-certificate=c.pem", "--store-key=k.pem"];
    let err = said(&[&["--store=rediss://h", "--store-server-name=a b"], &files[..]].concat());
    let places: Vec<&str> = err.lines().filter_map(|line| line.split(": ").nth(1)).collect();
    assert_eq!(
        places,
        ["store_server_name", "store_ca", "store_certificate", "store_key"],
        "{err}"
    );
}

// Guards: a wait for replicas that is longer than a call, and one that has no effect.
#[test]
fn what_is_wrong_with_replicas_of_the_store_is_said_at_once() {
    let dir = TempDir::new("config");
    write(&dir, "policy.json", POLICY);
    let said = |more: &[&str]| {
        let (status, out, err) =
            run(&dir, &[&["--policy", "policy.json", "--check-config"], more].concat(), &[]);
        assert_eq!(status == Some(0), err.is_empty(), "{out}{err}");
        err
    };
    let store = "--store=redis://h";
    assert_eq!(
        said(&["--store-replicas=1"]),
        "error: --store-replicas: is for a store that servers share; name it in store\n"
    );
    assert_eq!(
        said(&[store, "--store-replicas=6", "--store-tolerance=0"]),
        "error: --store-replicas: \"6\" is not a whole number from 0 to 5\n\
         error: --store-tolerance: \"0\" is not a whole number from 1 to 10000\n"
    );
    assert_eq!(
        said(&[store, "--store-replicas=1", "--store-replicas-timeout=250", "--listen=x"]),
        "error: --store-replicas-timeout: must be shorter than store_timeout, which is 250\n\
         error: --listen: \"x\" is not an address; use one such as \"127.0.0.1:8080\" or \
         \"[::]:8080\"\n"
    );
    for right in [&["--store-replicas=0"][..], &[store, "--store-replicas=5"]] {
        assert_eq!(said(right), "", "{right:?}");
    }
}

#[test]
fn files_that_are_named_are_checked_together() {
    let dir = TempDir::new("config");
    write(&dir, "policy.json", "{\"version\": 1, \"rules\": [{\"name\": \"a\"}, 3]}");
    write(&dir, "c.pem", "no certificate");
    let arguments = ["--policy", "policy.json", "--tls-certificate", "c.pem", "--tls-key", "k.pem"];
    let (status, _, err) = run(&dir, &[&arguments[..], &["--check-config"]].concat(), &[]);
    assert_eq!(status, Some(1));
    for part in ["error: rules[0].key", "error: rules[1]", "error: tls_certificate: c.pem: "] {
        assert!(err.contains(part), "{part}: {err}");
    }
    write(&dir, "policy.json", POLICY);
    let right = ["--policy", "policy.json", "--check-config"];
    let (status, out, err) = run(&dir, &right, &[("TOLLGATE_ADMIN_TOKEN", "short")]);
    assert_eq!((status, out.as_str()), (Some(0), "the configuration is right: 1 rules\n"));
    assert_eq!(
        err,
        "warning: admin_token is short enough to be guessed; use 16 characters or more\n"
    );
}

#[test]
fn a_token_that_cannot_be_sent_is_refused_and_callers_from_everywhere_are_named() {
    let dir = TempDir::new("config");
    write(&dir, "policy.json", POLICY);
    let right = ["--policy", "policy.json", "--check-config"];
    let cannot = "cannot be sent in a header; use visible ASCII characters without spaces";
    for token in ["check token 0123456789", "check-token-0123456789-\u{e9}", "a\tb"] {
        let (status, _, err) = run(&dir, &right, &[("TOLLGATE_CHECK_TOKEN", token)]);
        let expected = format!("error: TOLLGATE_CHECK_TOKEN: {cannot}\n");
        assert_eq!((status, err.contains(&expected)), (Some(1), true), "{err}");
    }
    let warned = |networks: &str, variables: &[(&str, &str)]| {
        let everywhere = [("TOLLGATE_TRUSTED_CALLERS", networks)];
        let (status, _, err) = run(&dir, &right, &[&everywhere[..], variables].concat());
        assert_eq!(status, Some(0), "{err}");
        err.contains("warning: trusted_callers has every address")
    };
    assert!(warned("10.0.0.0/8,0.0.0.0/0", &[]) && warned("::/0", &[]));
    assert!(!warned("10.0.0.0/8", &[]));
    assert!(!warned("0.0.0.0/0", &[("TOLLGATE_CHECK_TOKEN", "check-token-0123456789")]));
}

// Guards: a token that is never checked, because the name of its variable is misspelt.
#[test]
fn a_variable_that_is_nearly_a_setting_is_a_mistake_and_others_are_named() {
    let dir = TempDir::new("config");
    write(&dir, "policy.json", POLICY);
    let right = ["--policy", "policy.json", "--check-config"];
    let (status, _, err) = run(&dir, &right, &[("TOLLGATE_CHEK_TOKEN", "0123456789abcdef")]);
    let expected =
        "error: TOLLGATE_CHEK_TOKEN: is not a setting; did you mean TOLLGATE_CHECK_TOKEN?\n";
    assert_eq!((status, err.as_str()), (Some(1), expected));
    let (status, _, err) = run(&dir, &right, &[("TOLLGATE_LISTEN_PORT", "80")]);
    let expected = "warning: the variable TOLLGATE_LISTEN_PORT is not a setting; see --help\n";
    assert_eq!((status, err.as_str()), (Some(0), expected));
}

// Guards: a policy in YAML that the command line accepts and a server rejects; and a mistake in it
// that is reported without its line.
#[test]
fn a_policy_file_in_yaml_is_read_as_the_command_line_reads_it() {
    let dir = TempDir::new("config");
    let text = "version: 1\nrules:\n- name: a\n  key: []\n  quotas: [{limit: 1, window: 1m}]\n";
    let checked = |name: &str, text: &str| {
        write(&dir, name, text);
        run(&dir, &["--policy", name, "--check-config"], &[])
    };
    for name in ["policy.yaml", "policy.yml", "policy", "policy.conf"] {
        let (status, out, err) = checked(name, text);
        let right = "the configuration is right: 1 rules\n";
        assert_eq!((status, out.as_str(), err.as_str()), (Some(0), right, ""), "{name}");
    }
    let (status, _, err) = checked("policy.json", text);
    assert!(status == Some(1) && err.contains("not JSON"), "{err}");
    let (status, _, err) = checked("policy.yaml", &text.replace("1m", "0s"));
    let expected =
        "error: rules[0].quotas[0].window: \"0s\" is too short; use 1ms to 366d (line 5)\n";
    assert_eq!((status, err.as_str()), (Some(1), expected));
    let (status, _, err) = checked("policy.yaml", &text.replace("name: a", "name: off"));
    assert!(status == Some(1) && err.contains("quote it, \"off\" (line 3)"), "{err}");
    let (status, _, err) = checked("policy.yaml", "version: [\n");
    assert!(status == Some(1) && err.contains("error: line 2: not YAML"), "{err}");
}

// Guards: the placeholder of an example as the token of a server in service.
#[test]
fn a_placeholder_is_refused_by_the_check_and_named_in_the_log() {
    let dir = TempDir::new("config");
    write(&dir, "policy.json", POLICY);
    let right = ["--policy", "policy.json", "--check-config"];
    let placeholder = ("TOLLGATE_CHECK_TOKEN", "replace-me-with-32-random-bytes");
    let (status, _, err) = run(&dir, &right, &[placeholder]);
    let message = "TOLLGATE_CHECK_TOKEN: is the placeholder of an example; use a value of your own, such as that of \
                   `openssl rand -hex 32`";
    assert_eq!((status, err), (Some(1), format!("error: {message}\n")));
    let server = Setup::new(POLICY).variable(placeholder.0, placeholder.1).start();
    let warned = server.wait_for_events("setting_warning", 1);
    assert_eq!(warned[0]["message"], message);
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_file() {
    let dir = TempDir::new("config");
    write(&dir, "t.toml", "policy = \"none.json\"\nmax_requests = \"x\"\nlisten = \"y\"\n");
    write(&dir, "policy.json", POLICY);
    let arguments = ["--config", "t.toml", "--policy", "policy.json", "--check-config"];
    let variables = [
        ("TOLLGATE_MAX_REQUESTS", "5"),
        ("TOLLGATE_POLICY", "other.json"),
        ("TOLLGATE_LISTEN", "[::1]:0"),
    ];
    let (status, out, err) = run(&dir, &arguments, &variables);
    assert_eq!(
        (status, out.as_str(), err.as_str()),
        (Some(0), "the configuration is right: 1 rules\n", "")
    );
    let (status, _, err) = run(&dir, &["--no-such-flag"], &[]);
    assert!(status == Some(2) && err.contains("--no-such-flag"), "{err}");
}

// Guards: rules that count by the length of a body which no proxy sends, without a warning; and the
// same warning about every other policy.
#[test]
fn rules_by_a_length_that_no_proxy_tells_are_named_at_the_start() {
    let quotas = json!([{"limit": 1, "window": "1m"}]);
    let policy = json!({"version": 1, "rules": [
        {"name": "plain", "key": [{"header": "x-key"}], "quotas": quotas},
        {"name": "by_key", "key": [{"header": "content-length"}], "quotas": quotas},
        {"name": "when", "when": {"headers": {"Content-Length": "0"}}, "key": [], "quotas": quotas},
        {"name": "twice", "when": {"headers": {"content-length": "1"}},
            "key": [{"header": "content-length"}], "quotas": quotas},
    ]})
    .to_string();
    let dir = TempDir::new("config");
    write(&dir, "policy.json", &policy);
    for (protocols, named_by) in [
        ("nginx", Some("nginx")),
        ("forward_auth", Some("forward_auth")),
        ("ratelimit,ext_authz_http", Some("ext_authz_http")),
        ("ratelimit,ext_authz", None),
    ] {
        let line = |(rule, name): (usize, &str), by: &str| {
            format!(
                "rules[{rule}]: \"{name}\" reads content-length: with {by} among the protocols that is what the \
                 proxy sets as x-tollgate-content-length (forward_auth has none), and a request without it has \
                 no length"
            )
        };
        let expected: Vec<String> = [(1, "by_key"), (2, "when"), (3, "twice")]
            .into_iter()
            .filter_map(|rule| Some(line(rule, named_by?)))
            .collect();
        let arguments = ["--policy", "policy.json", "--check-config", "--protocols", protocols];
        let (status, _, err) = run(&dir, &arguments, &[]);
        let said: Vec<&str> = err.lines().filter(|line| line.contains("content-length")).collect();
        let warned: Vec<String> = expected.iter().map(|line| format!("warning: {line}")).collect();
        assert_eq!((status, said), (Some(0), warned.iter().map(String::as_str).collect()));
        let server = Setup::new(&policy).set("protocols", protocols).start();
        // The log is written in parallel, and this line comes after the warnings.
        server.wait_for_events("listening", 1);
        let logged: Vec<String> = server
            .events("policy_warning")
            .iter()
            .map(|event| event["message"].as_str().expect("a text").to_owned())
            .filter(|message| message.contains("content-length"))
            .collect();
        let warned: Vec<String> = expected.iter().map(|line| format!("policy 0: {line}")).collect();
        assert_eq!(logged, warned, "{protocols}");
    }
}
