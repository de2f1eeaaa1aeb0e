//! The dynamic module: what it adds to the instructions of a request, as a multiple of what Envoy's
//! own limiter adds, in one Envoy.
//!
//! Invariant: counted as `envoy_counted` counts, with the same requests and policies. A figure
//! above its ceiling, which is the measured one and 2 % for another processor, fails the check.

use super::{
    callgrind,
    envoy::policy,
    envoy_counted::{NATIVE, NATIVE_DENIED, NATIVE_MORE, Row, by_header, count, denying, natives},
    figures::{Table, figure},
};
use crate::{problem::Result, workspace::Workspace};
use serde_json::{Value, json};
use std::path::Path;

fn rows(module: &Path) -> Vec<Row> {
    natives().into_iter().chain(ours(module)).collect()
}

fn ours(module: &Path) -> [Row; 8] {
    let row = |label, name, policy, ceiling| {
        Row::new(label, Some(filter(module, name, &policy)), Some(ceiling))
    };
    let answering = |mut policy: Value, response: Value| {
        policy["response"] = response;
        policy
    };
    let quota = json!({"limit": 1_000_000, "window": "1s"});
    let never = policy("/never", &json!([{"header": "x-key"}]), &quota);
    let by_address = policy("/**", &json!(["client_ip"]), &quota);
    let one_field = answering(by_header(), json!({"policy": false}));
    let no_field = answering(by_header(), json!({"headers": "off"}));
    let no_body = answering(denying(), json!({"body": "none"}));
    [
        row("no rule concerned", "never", never, (NATIVE, NO_RULE)),
        row("key: header, two fields", "header", by_header(), (NATIVE, TWO_FIELDS)),
        row("key: header, one field", "one", one_field, (NATIVE, ONE_FIELD)),
        row("key: header, no field", "none", no_field, (NATIVE, NO_FIELD)),
        row("key: client_ip, two fields", "address", by_address, (NATIVE, ADDRESS)),
        row("denied", "denied", denying(), (NATIVE_DENIED, DENIED)).denied(),
        row("denied, no body", "bare", no_body, (NATIVE_DENIED, NO_BODY)).denied(),
        row("key: header, 20 more fields in the request", "more", by_header(), (NATIVE_MORE, MORE))
            .with_more_fields(),
    ]
}

const NO_RULE: f64 = 0.53;
const TWO_FIELDS: f64 = 1.19;
const ONE_FIELD: f64 = 1.07;
const NO_FIELD: f64 = 0.95;
const ADDRESS: f64 = 1.11;
const DENIED: f64 = 1.88;
const NO_BODY: f64 = 1.29;
const MORE: f64 = 1.02;

/// The dynamic module with a policy, whose counts are found by `name`.
pub(super) fn filter(module: &Path, name: &str, policy: &Value) -> Value {
    json!({
        "name": "tollgate",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter",
            "dynamic_module_config": {"module": {"local": {"filename": module}}, "do_not_close": true},
            "filter_name": name,
            "filter_config": {
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": policy.to_string(),
            },
        },
    })
}

/// What a row adds, as a multiple of what its native row adds. Requests with more fields are
/// compared with no filter and the usual ones.
fn added(row: &Row, counts: &[f64], count: f64) -> Option<f64> {
    let (native, _) = row.ceiling?;
    Some((count - counts[0]) / (counts[native] - counts[0]))
}

/// Counts all rows.
pub fn measure(workspace: &Workspace) -> Result<String> {
    let rows = rows(&workspace.envoy_module());
    let counts = count(workspace, &rows)?;
    Ok(table(&rows, &counts).markdown())
}

/// The same, and fails where one costs more than its ceiling.
pub fn check(workspace: &Workspace) -> Result<()> {
    let rows = rows(&workspace.envoy_module());
    let counts = count(workspace, &rows)?;
    println!("\n{}", table(&rows, &counts).markdown());
    let exceeded: Vec<String> = (rows.iter().zip(&counts))
        .filter_map(|(row, count)| {
            let (_, most) = row.ceiling?;
            let ratio = added(row, &counts, *count)?;
            (ratio > most).then(|| format!("{}: {ratio:.3} of {most:.2}", row.label))
        })
        .collect();
    callgrind::within("a request costs more than its ceiling", &exceeded)
}

fn table(rows: &[Row], counts: &[f64]) -> Table {
    let heading = ["", "instructions", "added", "x native's added", "at most"];
    let mut table = Table::new("Envoy: what the dynamic module adds to one request", &heading);
    for (row, count) in rows.iter().zip(counts) {
        let ratio = added(row, counts, *count).map_or_else(String::new, |it| figure(it, 3));
        let most = row.ceiling.map_or_else(String::new, |(_, most)| figure(most, 2));
        let added = figure(count - counts[0], 0);
        table.row([row.label.to_owned(), figure(*count, 0), added, ratio, most]);
    }
    table.note("Counted as the rows of the wasm module are, in one Envoy with the native rows.");
    table
}
