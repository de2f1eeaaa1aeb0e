//! docs/traffic.md: every document in it is valid and sends requests, and every table of it lists
//! exactly the existing fields.

use std::sync::Arc;

use tollgate_lab::simulator::{Requests, Run, Traffic};
use tollgate_policy::Surface;

const DOCS: &str = include_str!("../../../docs/traffic.md");

/// Every block of JSON.
fn documents() -> Vec<&'static str> {
    let blocks = DOCS.split("```json\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap()).collect()
}

/// The code in the first column of the first table after this, below its heading.
fn named(heading: &str) -> Vec<&'static str> {
    let (_, after) = DOCS.split_once(heading).expect(heading);
    let lines = after.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows = lines.take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.split(" | ").next().unwrap());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_document_sends_requests() {
    let rule = r#"{"version": 1, "rules": [{"name": "each", "key": ["client_ip"], "quotas": [{"limit": 10, "window": "1m"}]}]}"#;
    let policy = Arc::new(tollgate_language::compile(rule, Surface::Library).unwrap());
    assert_eq!(documents().len(), 4);
    for document in documents() {
        let traffic =
            Traffic::parse(document).unwrap_or_else(|error| panic!("{error}\n{document}"));
        let mut run = Run::new(Arc::clone(&policy), &traffic, 1);
        run.step(20_000, &mut |_| {});
        let table = run.table();
        assert!(
            table.offered > 100 && table.sources.iter().all(|source| source.offered > 0),
            "{document}"
        );
    }
}

#[test]
fn every_model_and_fault_of_the_tables_is_read() {
    let read = |source: &str, servers: &str| {
        let document =
            format!(r#"{{"length": "10m", "sources": [{source}], "servers": {servers}}}"#);
        Traffic::parse(&document).unwrap_or_else(|error| panic!("{error}\n{document}"))
    };
    let models = named("| `arrivals` | when |");
    assert_eq!(models.len(), 9);
    for model in models {
        let traffic = read(&format!(r#"{{"arrivals": {model}}}"#), "{}");
        assert!(Requests::new(&traffic, 1).next_request().is_some(), "{model}");
    }
    let faults = named("| fault | what the clock does |");
    assert_eq!(faults.len(), 6);
    for fault in faults {
        read(
            r#"{"arrivals": {"steady": {"rate": "1/s"}}}"#,
            &format!(r#"{{"clocks": [[{fault}]]}}"#),
        );
    }
}

/// Every field of a document with all its defaults, and every field of a table, is described, and
/// no other.
#[test]
fn every_field_is_described() {
    let full = r#"{"length": "1s", "sources": [{"arrivals": {"steady": {"rate": "1/s"}}, "actual": {"always": 1}, "duration": {"always": 1}, "retry": {"wait": "retry_after"}}], "servers": {"latency": "1ms"}}"#;
    let traffic = Traffic::parse(full).unwrap();
    let json: serde_json::Value = serde_json::from_str(&traffic.to_json()).unwrap();
    let fields = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    let check = |heading: &str, of: &serde_json::Value| {
        let mut told: Vec<&str> =
            named(heading).into_iter().map(|name| name.split('.').next().unwrap()).collect();
        told.sort_unstable();
        told.dedup();
        assert_eq!(told, fields(of), "{heading}");
    };
    check("# Traffic", &json);
    check("## A source", &json["sources"][0]);
    check("| `retry` | what it is |", &json["sources"][0]["retry"]);
    check("## Servers", &json["servers"]);
    let policy =
        tollgate_language::compile(r#"{"version": 1, "rules": []}"#, Surface::Library).unwrap();
    let table = serde_json::to_value(Run::new(Arc::new(policy), &traffic, 1).finish()).unwrap();
    let told = named("| figure | what it is |");
    let untold = ["limit", "seconds", "is_cut_short"];
    for field in fields(&table) {
        assert!(told.contains(&field.as_str()) || untold.contains(&field.as_str()), "{field}");
    }
    assert!(told.iter().all(|name| table.get(name).is_some() || name.contains(" + ")), "{told:?}");
}
