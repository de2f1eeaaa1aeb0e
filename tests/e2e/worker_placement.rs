//! The placement of objects: the settings that are passed on to the platform, and those that are
//! rejected.

use std::fs;

use serde_json::Value;
use tollgate_e2e::http::Request;
use tollgate_e2e::process::required_path;
use tollgate_e2e::workerd::{Setup, answer, check_request};

const POLICY: &str = r#"{"version":1,"rules":[{"name":"a","key":["client_ip"],"quotas":[{"limit":9,"window":"1h"}]}]}"#;

/// Objects that log how they were requested, and have jurisdictions: plain workerd has none.
const TOLD: &str = r#"
import Real from "./entry.mjs";
export { Limiter, Policies, Tenants, Metrics } from "./entry.mjs";
const told = (objects, within) => ({
  getByName(name, options) {
    console.log("asked", JSON.stringify([within, options ?? null]));
    return objects.getByName(name, options);
  },
  jurisdiction: (jurisdiction) => told(objects, jurisdiction),
});
export default class extends Real {
  constructor(ctx, env) {
    super(ctx, { ...env, LIMITER: told(env.LIMITER, null) });
  }
}
"#;

// Guards: a setting that does nothing. workerd knows no places, so this checks the request to the
// platform; whether the platform follows it cannot be tested here.
#[test]
fn every_object_is_asked_for_where_it_is_to_be() {
    for (hint, jurisdiction, expected) in [
        (None, None, "[null,null]"),
        (Some("weur"), None, r#"[null,{"locationHint":"weur"}]"#),
        (None, Some("eu"), r#"["eu",null]"#),
        (Some("apac-ne"), Some("fedramp"), r#"["fedramp",{"locationHint":"apac-ne"}]"#),
    ] {
        let mut setup = Setup::new(POLICY).front(TOLD).files_in_memory();
        for (name, value) in [("LOCATION_HINT", hint), ("JURISDICTION", jurisdiction)] {
            if let Some(value) = value {
                setup = setup.binding(name, value);
            }
        }
        let worker = setup.start();
        let checked = answer(&worker.client().send(&check_request("GET", "/", "192.0.2.1")));
        assert_eq!(checked["decision"], "allow");
        let log = worker.log();
        let asked: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("asked ")).collect();
        assert!(!asked.is_empty() && asked.iter().all(|asked| *asked == expected), "{log}");
    }
}

// Guards: a list of places that differs from the platform's. The runtime has its own in its types.
#[test]
fn the_places_are_those_of_the_runtime() {
    let runtime = required_path("TOLLGATE_WORKERD_BIN", "cargo xtask test workerd");
    let runtime = fs::read(runtime).expect("workerd is read");
    let worker = Setup::new(POLICY)
        .binding("LOCATION_HINT", "europe")
        .binding("JURISDICTION", "weur")
        .binding("CHECK_TOKEN", "t")
        .start();
    let report = Request::get("/.well-known/tollgate/health").header("authorization", "Bearer t");
    let report = worker.client().send(&report);
    assert_eq!(report.status, 500);
    let report: Value = serde_json::from_slice(&report.body).expect("JSON");
    for (name, kind) in [
        ("LOCATION_HINT", "DurableObjectLocationHint"),
        ("JURISDICTION", "DurableObjectJurisdiction"),
    ] {
        let errors = report["errors"].as_array().expect("a list");
        let error = errors.iter().find(|error| error["path"] == name).expect(name);
        let wanted =
            format!("is none that the platform has; use one of {}", places(&runtime, kind));
        assert_eq!(error["detail"], Value::String(wanted));
    }
}

/// `"a" | "b"` of the type `kind`, as `a, b`.
fn places(runtime: &[u8], kind: &str) -> String {
    let declared = format!("type {kind} = ");
    let find = |needle: &[u8]| runtime.windows(needle.len()).position(|bytes| bytes == needle);
    let at = find(declared.as_bytes()).expect(kind) + declared.len();
    let text: Vec<u8> = runtime[at..]
        .iter()
        .copied()
        .take_while(|byte| !matches!(byte, b';' | b'\n' | 0))
        .collect();
    let text = String::from_utf8(text).expect("a type");
    text.split('|').map(|place| place.trim().trim_matches('"')).collect::<Vec<_>>().join(", ")
}

// Guards: a promise that the runtime cannot keep, accepted without an error.
#[test]
fn a_jurisdiction_is_refused_where_there_are_none() {
    let worker = Setup::new(POLICY).binding("JURISDICTION", "eu").start();
    assert_eq!(worker.client().send(&check_request("GET", "/", "192.0.2.1")).status, 500);
    let problem = "JURISDICTION: cannot be used here, leave it out: Jurisdiction restrictions are not \
                   implemented in workerd.";
    assert!(worker.log().contains(problem), "{}", worker.log());
}
