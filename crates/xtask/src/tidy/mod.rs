//! `cargo xtask tidy`: the checks of the style guide that a machine can do.
//!
//! Invariant: every finding names a place and contains advice. It reads files that git tracks or
//! would track, never ignored ones. It reads Rust with a parser, so comments and strings do not
//! confuse it; it does not see the expansion of a macro.

mod anchors;
mod columns;
mod docs;
mod finding;
mod imports;
mod manifests;
mod modules;
mod pins;
mod source;
mod text;
mod words;

use crate::{
    files,
    metadata::{self, Package},
    problem::{Problem, Result},
    run,
    workspace::Workspace,
};
use finding::Finding;
use std::process::Command;

/// A text file of the repository.
#[derive(Debug, Clone)]
struct Document {
    path: String,
    text: String,
}

pub fn tidy(workspace: &Workspace) -> Result<()> {
    let documents = documents(workspace)?;
    let mut findings = Vec::new();
    for document in &documents {
        let (path, text) = (document.path.as_str(), document.text.as_str());
        findings.extend(text::check(path, text, &text::places(workspace)));
        if path.ends_with(".rs") {
            findings.extend(source::check(path, text));
        }
        if path.ends_with(".md") {
            findings.extend(columns::check(path, text));
        }
        if path.ends_with("Cargo.toml") {
            findings.extend(manifests::reasons(path, text));
            findings.extend(manifests::inherits_lints(path, text));
        }
        findings.extend(docs::references(workspace, path, text));
        if docs::is_document(path) {
            findings.extend(docs::check(workspace, path, text));
            findings.extend(pins::in_document(path, text));
        }
        findings.extend(words::check(path, text));
    }
    let files: Vec<_> = documents.iter().map(|d| (d.path.as_str(), d.text.as_str())).collect();
    let packages = metadata::packages(workspace)?;
    findings.extend(manifests::edges(&packages));
    findings.extend(manifests::unused(&packages, &files));
    findings.extend(manifests::forgotten_tests(&files));
    findings.extend(anchors::check(&files));
    findings.extend(pins::in_files(&files));
    findings.extend(imports(&packages, &files));
    for finding in &findings {
        println!("{}:{}: {}", finding.file, finding.line, finding.message);
    }
    match findings.len() {
        0 => Ok(()),
        count => {
            let why = format!("{count} place(s) break the style guide");
            Err(Problem::new("not tidy", why, "see the list above; each line names the fix"))
        }
    }
}

/// Circles of files, and wings in no order.
fn imports(packages: &[Package], files: &[(&str, &str)]) -> Vec<Finding> {
    let parsed = parsed(files);
    let mut findings = Vec::new();
    for package in packages {
        let roots = package.roots.iter();
        findings.extend(roots.flat_map(|root| imports::check(&package.name, root, &parsed)));
    }
    findings
}

/// Every file of Rust; one that does not parse is a finding of its own.
fn parsed(files: &[(&str, &str)]) -> modules::Files {
    let rust = files.iter().filter(|(path, _)| path.ends_with(".rs"));
    rust.filter_map(|(path, text)| Some(((*path).to_owned(), syn::parse_file(text).ok()?)))
        .collect()
}

/// Everything git tracks or would track, if it is text.
fn documents(workspace: &Workspace) -> Result<Vec<Document>> {
    let mut git = Command::new("git");
    git.current_dir(&workspace.root);
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let names = run::output(&mut git, "run tidy inside the git checkout")?;
    let mut documents = Vec::new();
    for path in names.split('\0').filter(|path| !path.is_empty()) {
        let file = workspace.root.join(path);
        if !file.is_file() {
            continue; // deleted, but not yet committed
        }
        let bytes = files::bytes(&file)?;
        if let Ok(text) = String::from_utf8(bytes) {
            documents.push(Document { path: path.to_owned(), text });
        }
    }
    Ok(documents)
}
