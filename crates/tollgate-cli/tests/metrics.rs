//! The tables of metrics in the documents are made from the table of the policy crate, and a
//! metric that a document, the dashboard, an alert or the admin page names is in it.
//!
//! A table after `<!-- metrics: NAME -->` is the one of that name. After an intended change:
//! `TOLLGATE_BLESS=1 cargo test -p tollgate-cli --test all metrics::`, and review the difference.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tollgate_policy::metrics::{Description, FAMILIES, Kind};
use tollgate_policy::{RuleResult, Surface};

use crate::support::{assert_same, is_blessing, pages, root};

/// Words like metrics: `%RESPONSE_CODE_DETAILS%` of the filter, and a package.
const OTHERS: [&str; 5] = [
    "tollgate_cli",
    "tollgate_denied",
    "tollgate_failure",
    "tollgate_overloaded",
    "tollgate_unknown_policy",
];

fn has(row: &Description, surface: Surface) -> bool {
    row.surfaces.contains(&surface)
}

/// The name as Prometheus reads it from Envoy.
fn envoy_name(row: &Description) -> String {
    row.envoy_name.replace('.', "_")
}

/// The table of this name, without its head.
fn table(name: &str) -> String {
    let is_in = |row: &&Description| match name {
        "worker" => has(row, Surface::Worker),
        "server" => has(row, Surface::Server) && !has(row, Surface::Worker),
        "envoy" => has(row, Surface::Envoy),
        other => panic!("no table {other}"),
    };
    let line = |row: &Description| {
        let shown = if name == "envoy" { envoy_name(row) } else { row.name.to_owned() };
        let labels: Vec<_> = row.labels.iter().map(|label| format!("`{label}`")).collect();
        let space = if labels.is_empty() { "" } else { " " };
        let (kind, labels) = (row.kind.word(), labels.join(", "));
        format!("| `{shown}` | {kind} |{space}{labels} | {} |\n", row.help)
    };
    FAMILIES.iter().filter(is_in).map(line).collect()
}

/// Compares the tables of a document with the rows, and returns their names.
fn check(document: &str) -> Vec<String> {
    let path = root().join(document);
    let text = fs::read_to_string(&path).unwrap();
    let mut parts = text.split("<!-- metrics: ");
    let (mut rewritten, mut names) = (parts.next().unwrap().to_owned(), Vec::new());
    for part in parts {
        let (name, rest) = part.split_once(" -->\n\n").unwrap();
        // Two lines of head, and rows until an empty line.
        let head: usize = rest.split_inclusive('\n').take(2).map(str::len).sum();
        let end = rest.find("\n\n").unwrap() + 1;
        let rows = table(name);
        if !is_blessing() {
            assert_same(&format!("{document}, metrics: {name}"), &rest[head..end], &rows);
        }
        let (head, after) = (&rest[..head], &rest[end..]);
        rewritten += &format!("<!-- metrics: {name} -->\n\n{head}{rows}{after}");
        names.push(name.to_owned());
    }
    if rewritten != text {
        fs::write(path, rewritten).unwrap();
    }
    names
}

#[test]
fn the_documents_have_every_row() {
    assert_eq!(check("docs/metrics.md"), ["worker", "server"]);
    assert_eq!(check("envoy/README.md"), ["envoy"]);
}

/// The words of `text` that begin with `tollgate_` and are not part of a variable or a path.
fn named(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_$@/.-".contains(c);
    let words = text.match_indices("tollgate_").filter(|(at, _)| !text[..*at].ends_with(is_part));
    let end = |c: char| !c.is_ascii_lowercase() && c != '_';
    words.filter_map(|(at, _)| text[at..].split(end).next()).collect()
}

/// Whether `word` is a metric of one of `surfaces`, or begins several: `tollgate_store_`.
fn is_metric(word: &str, surfaces: &[Surface]) -> bool {
    FAMILIES.iter().any(|row| {
        let names = surfaces.iter().filter(|surface| has(row, **surface)).map(|surface| {
            if *surface == Surface::Envoy { envoy_name(row) } else { row.name.to_owned() }
        });
        let ends: &[&str] =
            if row.kind == Kind::Histogram { &["", "_bucket", "_sum", "_count"] } else { &[""] };
        names.into_iter().any(|name| {
            (word.ends_with('_') && name.starts_with(word))
                || ends.iter().any(|end| word.strip_suffix(end) == Some(&name))
        })
    })
}

#[test]
fn every_metric_that_is_named_exists() {
    let envoy = ["envoy/grafana.json", "envoy/alerts.yaml", "envoy/alerts.test.yaml"];
    let service = ["crates/tollgate-service/page/rate-model.js"];
    let documents = ["README.md", "envoy/README.md"].map(str::to_owned);
    let all = ["", "guides", "policy"].into_iter().flat_map(pages).chain(documents);
    let mut files: Vec<(String, &[Surface])> = Vec::new();
    files.extend(envoy.map(|name| (name.to_owned(), &[Surface::Envoy][..])));
    files.extend(service.map(|name| (name.to_owned(), &[Surface::Worker, Surface::Server][..])));
    let pages = all.filter(|name| Path::new(name).extension().is_some_and(|it| it == "md"));
    files.extend(pages.map(|name| (name, &Surface::ALL[..])));
    let mut count = 0;
    for (name, surfaces) in &files {
        let text = fs::read_to_string(root().join(name)).unwrap();
        for word in named(&text) {
            let is_known = OTHERS.contains(&word) || is_metric(word, surfaces);
            assert!(is_known, "{name}: no metric {word}");
            count += 1;
        }
    }
    assert!(count > 150, "{count} names");
}

/// Guards: a result that denies, and that the panels of denials leave out.
#[test]
fn the_panels_of_denials_have_every_result_that_denies() {
    let denies = RuleResult::ALL.into_iter().filter(|result| result.denies());
    let denies: BTreeSet<&str> = denies.map(RuleResult::label).collect();
    let mut count = 0;
    for (name, begin, end) in [
        ("envoy/grafana.json", "result=~\\\"denied", '\\'),
        ("docs/metrics.md", "result=~\"denied", '"'),
    ] {
        let text = fs::read_to_string(root().join(name)).unwrap();
        assert!(!text.contains(&begin.replace("=~", "=")), "{name}: only a part of the denials");
        for (at, _) in text.match_indices(begin) {
            let rest = &text[at + begin.len() - "denied".len()..];
            let shown: BTreeSet<&str> = rest.split(end).next().unwrap().split('|').collect();
            assert_eq!(shown, denies, "{name}");
            count += 1;
        }
    }
    assert_eq!(count, 3);
}
