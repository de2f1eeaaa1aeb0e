//! Documents: the files they name exist, and none is too long to be read.
//!
//! Invariant: checks links and `code` that looks like a path into this repository. It does not know
//! whether a sentence is true. `anchors` checks the headings that links name.

use super::finding::Finding;
use crate::workspace::Workspace;
use std::path::Path;

/// The most lines of documents that are read as a whole.
const MOST_LINES: [(&str, usize); 2] = [("ARCHITECTURE.md", 200), ("README.md", 150)];
/// Made by building, so absent in a fresh checkout.
const MADE: [&str; 5] =
    ["target/", ".cache/", "crates/tollgate-worker/build", "bench.md", "load.md"];

/// Specifications that are called by the names of their files, by the gRPC project.
const PUBLISHED: [&str; 3] =
    ["PROTOCOL-HTTP2.md", "PROTOCOL-WEB.md", "http-grpc-status-mapping.md"];

/// The documents for people: those at the root, in `docs/` and `envoy/README.md`.
pub fn is_document(path: &str) -> bool {
    let is_root = !path.contains('/');
    path.ends_with(".md") && (is_root || path.starts_with("docs/") || path == "envoy/README.md")
}

pub fn check(workspace: &Workspace, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let beside = workspace.root.join(path);
    let beside = beside.parent().unwrap_or(&workspace.root);
    for (index, line) in text.lines().enumerate() {
        let named = links(line).into_iter().chain(paths(&workspace.root, line));
        for name in named.filter(|name| !MADE.iter().any(|made| name.contains(made))) {
            if !beside.join(&name).exists() && !workspace.root.join(&name).exists() {
                let message = format!("names {name}, which does not exist: correct the path");
                findings.push(Finding::new(path, index + 1, message));
            }
        }
    }
    let length = text.lines().count();
    for (_, most) in MOST_LINES.iter().filter(|(name, most)| *name == path && length > *most) {
        let message = format!("{length} lines, {most} are allowed: move details to docs/");
        findings.push(Finding::new(path, 1, message));
    }
    findings
}

/// Documents that a file of code names and that are not in the repository. The project's rules and
/// reasons are its own: a fact from a document outside it that the code needs is written in
/// `docs/`.
pub fn references(workspace: &Workspace, path: &str, text: &str) -> Vec<Finding> {
    // The tests of tidy make names up.
    if path.ends_with(".md") || path.starts_with("crates/xtask/src/tidy/") {
        return Vec::new();
    }
    let folders = Path::new(path).ancestors().skip(1).chain([Path::new("docs")]);
    let folders: Vec<_> = folders.map(|folder| workspace.root.join(folder)).collect();
    let is_known = |name: &str| {
        PUBLISHED.contains(&name)
            || MADE.iter().any(|made| name.contains(made))
            || folders.iter().any(|folder| folder.join(name.trim_start_matches('/')).exists())
    };
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let lines = text.lines().enumerate();
    let words = lines.flat_map(|(index, line)| {
        line.split(move |c| !is_letter(c)).map(move |word| (index, word.trim_end_matches('.')))
    });
    words
        .filter(|(_, word)| word.ends_with(".md") && !is_known(word))
        .map(|(index, word)| {
            let message = format!(
                "names {word}, which is not in the repository: write its content here or in docs/"
            );
            Finding::new(path, index + 1, message)
        })
        .collect()
}

/// Where `[text](target)` leads inside the repository.
fn links(line: &str) -> Vec<String> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    local.map(|target| target.split('#').next().unwrap_or_default().to_owned()).collect()
}

/// `code` that starts with a folder of the repository.
fn paths(root: &Path, line: &str) -> Vec<String> {
    let spans = line.split('`').skip(1).step_by(2);
    let is_path = |span: &&str| {
        let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
        let first = span.split('/').next().unwrap_or_default();
        plain && span.contains('/') && !first.is_empty() && root.join(first).is_dir()
    };
    spans.filter(is_path).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_paths_that_lead_nowhere() {
        let workspace = Workspace::find();
        let text = "see [this](crates/xtask/Cargo.toml) and `crates/xtask/src/main.rs`\n\
                    see [that](no-such-file.md), `crates/nowhere/x.rs` and `a/b`\n\
                    built into `target/tollgate/`, [web](https://example.com)\n";
        let found = check(&workspace, "README.md", text);
        let names: Vec<_> = found.iter().map(|f| (f.line, f.message.as_str())).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names[0].0 == 2 && names[0].1.contains("no-such-file.md"));
        assert!(names[1].1.contains("crates/nowhere/x.rs"));
    }

    #[test]
    fn code_names_no_document_that_is_elsewhere() {
        let text = "//! See docs/fields.md, policy.md and NOTES.md.\n// PROTOCOL-HTTP2.md\n";
        let found = references(&Workspace::find(), "crates/tollgate-core/src/lib.rs", text);
        assert_eq!(found.len(), 1);
        assert!(found[0].line == 1 && found[0].message.starts_with("names NOTES.md,"));
    }

    #[test]
    fn an_architecture_document_stays_short() {
        let text = "x\n".repeat(201);
        let found = check(&Workspace::find(), "ARCHITECTURE.md", &text);
        assert!(found[0].message.starts_with("201 lines"));
    }

    #[test]
    fn documents_for_people_are_known() {
        assert!(is_document("README.md") && is_document("docs/a.md"));
        assert!(is_document("docs/policy/key.md") && is_document("envoy/README.md"));
        assert!(!is_document("crates/x/notes.md") && !is_document("a.rs"));
    }
}
