//! The table of claims (`tests/claims.txt`): the text by which a token's claim is counted, the same
//! on every surface.
//!
//! A policy has a rule for every row that has a text; the rule has a tier for that text. So one
//! request with a claim shows, for all texts at once, which one the claim has.

use serde_json::{Value, json};

/// The limit of a rule whose tier matches, and of one whose tier does not.
const MET: u32 = 20;
const NOT_MET: u32 = 10;

/// One row.
pub struct Row {
    /// The claim as JSON.
    pub json: &'static str,
    /// The text by which it is counted; `None` when it counts as absent.
    pub text: Option<String>,
}

/// Every row.
pub fn rows() -> Vec<Row> {
    let lines = include_str!("../claims.txt").lines().filter(|line| !line.starts_with('#'));
    let row = |line: &'static str| {
        let (json, text) = line.rsplit_once(" => ").expect("claim => text");
        let text = (text != "absent").then(|| serde_json::from_str(text).expect("a text"));
        Row { json, text }
    };
    lines.map(row).collect()
}

/// The rules that distinguish the texts of `rows`, by the claim `c`.
pub fn rules(rows: &[Row]) -> Value {
    let rule = |(index, row): (usize, &Row)| {
        let text = row.text.as_ref()?;
        let quotas = |limit| json!([{"name": name(index), "limit": limit, "window": "1h", "algorithm": "fixed-window"}]);
        Some(json!({"name": name(index), "key": [{"jwt_claim": "c"}], "on_missing": "skip",
            "quotas": quotas(NOT_MET), "tiers": [{"name": "met", "key_values": [text], "quotas": quotas(MET)}]}))
    };
    rows.iter().enumerate().filter_map(rule).collect()
}

/// The field `RateLimit-Policy` in the response to a request whose claim counts by `text`; `None`
/// when the field is absent.
pub fn expected_field(rows: &[Row], text: Option<&str>) -> Option<String> {
    let text = text?;
    let item = |(index, row): (usize, &Row)| {
        let limit = if row.text.as_ref()? == text { MET } else { NOT_MET };
        Some(format!("\"{}\";q={limit};w=3600", name(index)))
    };
    Some(rows.iter().enumerate().filter_map(item).collect::<Vec<_>>().join(", "))
}

fn name(index: usize) -> String {
    format!("r{index:02}")
}
