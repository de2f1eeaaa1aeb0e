//! Compiled policies, which both modules accept: every form, and the messages for invalid ones.

use serde_json::{Value, json};
use tollgate_e2e::http::Request;
use tollgate_policy::explain::Ability;
use tollgate_policy::{Plugin, Surface, compiled_text};

use crate::envoy_host::{Filter, Shared};
use crate::envoy_server::{
    As, Listener, Setup, compiled, configured, declared, reads_documents, set_name,
};

fn policy(limit: u64) -> Value {
    json!({"version": 1, "rules": [
        {"name": "r", "key": [], "quotas": [{"limit": limit, "window": "1d", "algorithm": "sliding-log"}]},
    ]})
}

fn plugin(configuration: &Value) -> Plugin {
    compiled(configuration).unwrap_or_else(|| panic!("no good policy: {configuration}"))
}

fn bytes(plugin: &Plugin) -> Vec<u8> {
    let mut bytes = Vec::new();
    plugin.write_compiled(&mut bytes);
    bytes
}

// Guards: a form that only one of the modules accepts, or that Envoy passes on in an unexpected
// form. The limits differ, so that no listener has the policy of another.
#[test]
fn a_compiled_policy_is_taken_in_every_form() {
    let forms = [("text", 1, As::Text), ("struct", 2, As::Struct), ("bytes", 3, As::Bytes)];
    let listeners = forms.map(|(name, limit, form)| {
        let mut filter = configured(&form.compiled(&plugin(&policy(limit))), "vm");
        set_name(&mut filter, name);
        Listener::new(name, vec![filter])
    });
    let envoy = Setup::new(1, listeners.into()).start();
    for (port, (name, limit, _)) in envoy.ports.iter().zip(forms) {
        let mut client = tollgate_e2e::http::Client::connect(*port);
        let statuses = [(); 5].map(|()| client.send(&Request::get("/")).status);
        let admitted = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(admitted as u64, limit, "{name}: {statuses:?}");
    }
}

// Gateways pass an object on as JSON; a text may be folded.
#[test]
fn an_object_of_json_and_a_folded_text_are_taken() {
    let text = plugin(&policy(1)).to_compiled_text();
    let folded = text.as_bytes().chunks(40).map(|line| [line, b"\n  "].concat());
    let json = format!(" {{\n\"compiled\" : {} }}\n", json!(text));
    for configuration in [json.into_bytes(), folded.collect::<Vec<_>>().concat()] {
        let mut filter = Filter::without_policy(&Shared::default());
        assert!(filter.configure(&configuration), "{:?}", filter.log());
        let passed = [(); 2].map(|()| filter.request(1, &[(":path", b"/")]).passed());
        assert_eq!(passed, [true, false]);
    }
}

fn refusal(configuration: &[u8]) -> String {
    let mut filter = Filter::without_policy(&Shared::default());
    assert!(!filter.configure(configuration), "it was taken");
    filter.log().join("\n")
}

// Guards: a policy that is partly read, and an error message that gives an operator no remedy.
#[test]
fn what_is_no_policy_of_this_module_is_refused_in_words() {
    let good = bytes(&plugin(&policy(1)));
    let mut damaged = good.clone();
    damaged[30] ^= 1;
    let mut other_version = good.clone();
    other_version[9] ^= 0x80;
    let for_worker =
        tollgate_language::compile(&policy(1).to_string(), Surface::Worker).expect("it is good");
    let rows = [
        (damaged, "is damaged: it was cut or changed; compile the policy again"),
        (
            good[..good.len() - 1].to_vec(),
            "is damaged: it was cut or changed; compile the policy again",
        ),
        (
            other_version,
            "was compiled by another version of Tollgate; compile the policy with this one",
        ),
        (
            compiled_text(|out| for_worker.write_compiled(out)).into_bytes(),
            "was compiled for the surface \"worker\"; compile the policy with --surface envoy",
        ),
    ];
    for (configuration, why) in rows {
        assert_eq!(refusal(&configuration), format!("tollgate: the compiled policy {why}"));
    }
    // A fleet rule needs an authority, wherever it was compiled.
    let fleet = json!({"version": 1, "rules": [{"name": "r", "key": [], "scope": "fleet",
        "quotas": [{"limit": 1, "window": "1d"}]}]});
    let said = refusal(&bytes(&plugin(&fleet)));
    assert!(said.contains("rules[0].scope: \"fleet\" needs an authority"), "{said}");
}

// Guards: a policy that is enforced without its regular expressions.
#[test]
fn a_regular_expression_is_refused_by_name() {
    const WHY: &str = "needs regular expressions, which this build does not have; in Envoy use tollgate-envoy-full.wasm";
    let expression = json!({"match": "^a$"});
    let mut searched = policy(1);
    searched["rules"][0]["when"] = json!({"headers": {"x-a": expression}});
    let said = refusal(&bytes(&plugin(&searched)));
    assert_eq!(said, format!("tollgate: the compiled policy {WHY}"));
    if reads_documents() {
        let said = refusal(searched.to_string().as_bytes());
        assert!(said.contains("rules[0].when.headers.x-a.match: \"^a$\""), "{said}");
        assert!(said.contains(WHY), "{said}");
    }
}

// Guards: a request that waits for ever, or a count of the fleet that each proxy has for itself, in
// a module without the code for them.
#[test]
fn what_the_lean_module_cannot_do_is_refused_by_name() {
    let mut delays = policy(1);
    delays["rules"][0]["action"] = json!({"delay": {"max": "1s"}});
    let mut counted = policy(1);
    counted["rules"][0]["scope"] = json!("fleet");
    counted["rules"][0]["quotas"][0]["algorithm"] = json!("gcra");
    let fleet = json!({"policy": counted, "fleet": {"cluster": "a", "secret": "0123456789abcdef"}});
    let has = |ability| declared().is_none_or(|module| module.has(ability));
    let rows = [
        (delays, Ability::Waiting, "rules[0]: delays requests; this module holds no requests"),
        (fleet, Ability::Leases, "fleet: this module sends no requests of its own"),
    ];
    for (configuration, ability, why) in rows {
        let configuration = bytes(&plugin(&configuration));
        if has(ability) {
            let mut filter = Filter::without_policy(&Shared::default());
            assert!(filter.configure(&configuration), "{:?}", filter.log());
        } else {
            let line = format!("tollgate: {why}; load tollgate-envoy-slim.wasm");
            assert_eq!(refusal(&configuration), line);
        }
    }
}

#[test]
fn a_document_is_read_or_refused_with_what_to_do() {
    for configuration in [policy(1).to_string(), json!({"policy": policy(1)}).to_string()] {
        if reads_documents() {
            let mut filter = Filter::without_policy(&Shared::default());
            assert!(filter.configure(configuration.as_bytes()), "{:?}", filter.log());
            continue;
        }
        let said = refusal(configuration.as_bytes());
        assert!(
            said.contains("this module reads no documents; give it what \"tollgate compile"),
            "{said}"
        );
    }
}

// A configuration that is truncated anywhere: an error, never a trap.
#[test]
fn no_compiled_configuration_traps() {
    let plugin = plugin(&policy(1));
    let (bytes, text) = (bytes(&plugin), plugin.to_compiled_text().into_bytes());
    let mut filter = Filter::without_policy(&Shared::default());
    for good in [bytes, text] {
        for len in 0..good.len() {
            assert!(!filter.configure(&good[..len]), "{len}");
        }
        for at in 0..good.len() {
            let mut bent = good.clone();
            bent[at] ^= 1;
            assert!(!filter.configure(&bent), "{at}");
        }
        assert!(filter.configure(&good));
    }
}
