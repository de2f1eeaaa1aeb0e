//! Cargo.toml files: a reason for every dependency, and who may import whom.
//!
//! Invariant: imports only go downwards in the map of ARCHITECTURE.md; a new crate must be entered
//! in `EDGES` before it passes.

use super::Finding;
use crate::metadata::Package;

/// Crate, and which crates of this workspace it may import when shipped.
const EDGES: &[(&str, &[&str])] = &[
    ("tollgate-core", &[]),
    ("tollgate-policy", &["tollgate-core"]),
    ("tollgate-sim", &["tollgate-core", "tollgate-policy"]),
    ("tollgate-envoy", &["tollgate-core", "tollgate-policy"]),
    ("tollgate-worker", &["tollgate-core", "tollgate-policy"]),
    ("tollgate-cli", &["tollgate-core", "tollgate-policy", "tollgate-sim"]),
    ("tollgate-playground", &["tollgate-core", "tollgate-policy", "tollgate-sim"]),
    ("tollgate-clock", &[]),
    ("tollgate-cases", &["tollgate-core", "tollgate-policy"]),
    ("tollgate-e2e", &["tollgate-cases", "tollgate-core", "tollgate-policy", "tollgate-sim"]),
    ("xtask", &["tollgate-core", "tollgate-policy"]),
];

/// Every dependency says why it is there: behind it, or on the line above.
pub fn reasons(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut inside, mut above) = (false, "");
    for (index, line) in text.lines().enumerate() {
        if let Some(heading) = line.strip_prefix('[') {
            let name = heading.split(']').next().unwrap_or_default();
            inside = name.ends_with("dependencies");
        }
        let is_entry = line.starts_with(|first: char| first.is_ascii_alphanumeric());
        let is_ours = line.contains("workspace = true") || line.contains("path = ");
        let has_reason = line.contains('#') || above.starts_with('#');
        if inside && is_entry && !is_ours && !has_reason {
            let name = line.split(['=', ' ', '.']).next().unwrap_or_default();
            let message = format!("`{name}` has no reason: add a comment that says why we need it");
            findings.push(Finding::new(path, index + 1, message));
        }
        above = line;
    }
    findings
}

pub fn edges(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let ours = |name: &str| packages.iter().any(|package| package.name == name);
    for package in packages {
        let path = format!("crates/{}/Cargo.toml", package.name);
        let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == package.name) else {
            let message = "this crate is not in the map: add it to EDGES in crates/xtask/src/tidy/manifests.rs and to ARCHITECTURE.md";
            findings.push(Finding::new(&path, 1, message));
            continue;
        };
        if package.name == "tollgate-core" && !package.dependencies.is_empty() {
            let message = format!("the core imports nothing: remove {:?}", package.dependencies);
            findings.push(Finding::new(&path, 1, message));
        }
        let wrong = package.dependencies.iter().filter(|name| ours(name));
        for name in wrong.filter(|name| !allowed.contains(&name.as_str())) {
            let message = format!(
                "{} must not import {name}: move what both need down into a crate they may import",
                package.name
            );
            findings.push(Finding::new(&path, 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        let dependencies = dependencies.iter().map(|name| (*name).to_owned()).collect();
        Package { name: name.to_owned(), dependencies, tests: Vec::new() }
    }

    #[test]
    fn a_dependency_needs_a_reason() {
        let text = "[dependencies]\na = \"1\" # because\n# because\nb = \"1\"\nc = \"1\"\n\
                    d.workspace = true\ne = { path = \"x\" }\n[lints]\nf = \"1\"\n";
        let text = text.replace("d.workspace", "\nd.workspace");
        let found = reasons("Cargo.toml", &text);
        assert_eq!(found.len(), 1);
        assert!(found[0].line == 5 && found[0].message.starts_with("`c` has no reason"));
    }

    #[test]
    fn surfaces_never_import_each_other() {
        let packages = [
            package("tollgate-core", &[]),
            package("tollgate-policy", &["tollgate-core", "serde"]),
            package("tollgate-envoy", &["tollgate-core", "tollgate-policy"]),
            package("tollgate-worker", &["tollgate-envoy"]),
        ];
        let found = edges(&packages);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.starts_with("tollgate-worker must not import tollgate-envoy"));
    }

    #[test]
    fn the_core_imports_nothing_and_new_crates_must_be_entered() {
        let found = edges(&[package("tollgate-core", &["libm"]), package("tollgate-new", &[])]);
        assert!(found[0].message.contains("remove [\"libm\"]"));
        assert!(found[1].message.contains("add it to EDGES"));
    }
}
