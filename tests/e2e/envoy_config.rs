//! Policies that are rejected, replaced, or in force next to each other.

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process;

use crate::envoy_server::{As, Listener, Setup, set_name, tollgate};

fn rule(name: &str, header: &str, limit: u64) -> Value {
    json!({
        "name": name,
        "key": [{"header": header}],
        "on_missing": "skip",
        "quotas": [{"name": name, "limit": limit, "window": "1d"}],
    })
}

fn policy(rules: &[Value]) -> Value {
    json!({"version": 1, "rules": rules})
}

/// How many of the next requests with this header are allowed before the first denial.
fn admitted(client: &mut Client, header: &str, key: &str) -> usize {
    let request = Request::get("/").header(header, key);
    (0..100).take_while(|_| client.send(&request).status == 200).count()
}

// A policy that does not compile must not run, and the operator must see every reason at once.
#[test]
fn a_bad_policy_refuses_to_start() {
    let mut bad = policy(&[rule("a", "x-a", 1), rule("b", "x-b", 1)]);
    bad["rules"][0]["quotas"][0]["window"] = json!("0s");
    bad["rules"][1]["quotas"][0]["limt"] = json!(7);
    bad["verzion"] = json!(1);
    for form in [As::Text, As::Struct] {
        let setup = || {
            let filters = vec![tollgate(&bad, "vm", form)];
            Setup::new(1, vec![Listener::new("main", filters)])
        };
        let validated = setup().validate();
        assert!(!validated.status.success());
        let (mut server, _dir) = setup().start_in_vain();
        assert!(!server.wait_for_exit().success());
        for log in [String::from_utf8_lossy(&validated.stderr).into_owned(), server.log()] {
            for path in ["rules[0].quotas[0].window", "rules[1].quotas[0]", "verzion"] {
                let told = log.lines().any(|l| l.contains("[error]") && l.contains(path));
                assert!(told, "{form:?}: nothing about {path} in\n{log}");
            }
        }
    }
    assert!(Setup::policy(1, &policy(&[rule("a", "x-a", 1)])).validate().status.success());
}

// A plugin without a configuration, and one whose text is not JSON.
#[test]
fn nothing_is_not_a_policy() {
    let mut nothing = tollgate(&json!({}), "vm", As::Text);
    nothing["typed_config"]["config"].as_object_mut().expect("an object").remove("configuration");
    let no_json = tollgate(&json!("not a policy"), "vm", As::Text);
    for filter in [nothing, no_json] {
        let setup = Setup::new(1, vec![Listener::new("main", vec![filter])]);
        let output = setup.validate();
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains("tollgate: "));
    }
}

// A control plane pushes a new policy while clients are counted.
#[test]
fn a_reload_keeps_the_counts() {
    let port = process::free_port();
    let listener = |rules: &[Value]| {
        let filters = vec![tollgate(&policy(rules), "vm", As::Text)];
        Listener { port, ..Listener::new("main", filters) }
    };
    let mut setup = Setup::new(2, vec![listener(&[rule("a", "x-a", 4), rule("b", "x-a", 8)])]);
    setup.dynamic = true;
    let mut envoy = setup.start();
    assert_eq!(admitted(&mut envoy.client(), "x-a", "k"), 4);

    // Another rule by the same key changes: the used amount of the first is kept, and so is that of
    // the other.
    assert!(envoy.replace_listeners(&[listener(&[rule("a", "x-a", 4), rule("b", "x-a", 9)])]));
    let refused = process::wait_until("the new policy is in force", process::READY_WITHIN, || {
        let answer = envoy.client().send(&Request::get("/").header("x-a", "k"));
        answer.header("ratelimit-policy")?.contains("q=9").then_some(answer)
    });
    assert_eq!(refused.status, 429, "rule a still remembers");
    let limits = refused.header("ratelimit").expect("fields on a refusal");
    assert!(limits.contains("\"a\";r=0") && limits.contains("\"b\";r=5"), "{limits}");

    // A rule of another key is added; and an invalid policy is rejected as a whole.
    let more = [rule("a", "x-a", 4), rule("b", "x-a", 9), rule("c", "x-c", 2)];
    assert!(envoy.replace_listeners(&[listener(&more)]));
    process::wait_until("the third policy is in force", process::READY_WITHIN, || {
        let answer = envoy.client().send(&Request::get("/").header("x-c", "first"));
        answer.header("ratelimit-policy")
    });
    assert!(!envoy.replace_listeners(&[listener(&[rule("a", "x-a", 2_000_000_000_000_000)])]));
    assert_eq!(admitted(&mut envoy.client(), "x-a", "k"), 0, "rule a still remembers");
    assert_eq!(admitted(&mut envoy.client(), "x-c", "k"), 2);
}

// Plugins with one `vm_id` share one map: under different names their counts must stay separate;
// under one name the same policy on two listeners counts together.
#[test]
fn policies_share_a_vm_without_meeting() {
    let named = |name: &str, limit| {
        let mut filter = tollgate(&policy(&[rule("a", "x-a", limit)]), "vm", As::Text);
        set_name(&mut filter, name);
        filter
    };
    let listeners = vec![
        Listener::new("first", vec![named("small", 2)]),
        Listener::new("second", vec![named("large", 6)]),
        Listener::new("third", vec![named("large", 6)]),
    ];
    let envoy = Setup::new(2, listeners).start();
    let mut clients: Vec<Client> = envoy.ports.iter().map(|port| Client::connect(*port)).collect();
    let request = Request::get("/").header("x-a", "k");
    for client in &mut clients {
        assert_eq!(client.send(&request).status, 200);
    }
    assert_eq!(admitted(&mut clients[0], "x-a", "k"), 1, "two in all");
    assert_eq!(
        admitted(&mut clients[1], "x-a", "k"),
        4,
        "six in all, with the third listener's one"
    );
    assert_eq!(admitted(&mut clients[2], "x-a", "k"), 0);
    // They are also separate in the metrics, though their rules have one name.
    let allowed = |plugin: &str| {
        envoy.stat(&format!("wasmcustom.tollgate.decisions.plugin={plugin}.rule=a.result=allowed"))
    };
    assert_eq!((allowed("small"), allowed("large")), (2, 6));
}
