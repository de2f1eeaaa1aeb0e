//! The table of claims for the tests of Envoy and the Worker, as `explain` reads it.

#[path = "../../../tests/src/claims.rs"]
mod claim_rows;

use crate::support;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

#[test]
fn a_claim_counts_by_the_text_that_the_table_says() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let rows = claim_rows::rows();
    let policy =
        json!({"version": 1, "jwt": {"metadata": "payload"}, "rules": claim_rows::rules(&rows)});
    fs::write(folder.join("claims.json"), policy.to_string()).unwrap();
    for row in &rows {
        let claim = format!("c:={}", row.json);
        let ran =
            support::tollgate(folder, &["explain", "claims.json", "--claim", &claim, "--json"]);
        if row.json == r#""\ud83d""# {
            assert_eq!(ran.code, 2, "half a character: no verified token has it");
            continue;
        }
        let report: Value = serde_json::from_str(&ran.stdout).expect(&ran.stderr);
        let headers = report["headers"].as_array().expect("headers");
        let field = headers.iter().find(|header| header[0] == "ratelimit-policy");
        let field = field.map(|header| header[1].as_str().unwrap().to_owned());
        assert_eq!(field, claim_rows::expected_field(&rows, row.text.as_deref()), "{}", row.json);
        // A text may be given as it is, unless it contains a byte that no argument can.
        let Some(text) = row.text.as_ref().filter(|text| !text.contains('\0')) else { continue };
        let claim = format!("c={text}");
        let plain =
            support::tollgate(folder, &["explain", "claims.json", "--claim", &claim, "--json"]);
        assert_eq!(plain.stdout, ran.stdout, "{}", row.json);
    }
    assert!(rows.len() >= 40);
}
