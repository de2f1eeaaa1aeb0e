//! A list of parts: the packages linked into the files of a release, as CycloneDX 1.6 in JSON.
//!
//! Invariant: the same commit, Cargo.lock and files give the same bytes. Licences are what packages
//! say themselves, sums of packages those of Cargo.lock.

use super::parts::{File, Linked};
use crate::{
    build::sha256,
    linked::{self, Build, Name, Package},
    problem::Result,
    run,
    versions::TOLLGATE as VERSION,
    workspace::Workspace,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, process::Command};

pub fn document(workspace: &Workspace, of: &Linked, files: &[File]) -> Result<String> {
    let Build { package, target, .. } = of.build;
    let tree = linked::tree(workspace, &of.build)?;
    let known = linked::packages(workspace, target)?;
    let sums = linked::locked(workspace)?;
    let main = (package.to_owned(), VERSION.to_owned());
    let std = standard_library()?;
    let others = tree.iter().filter(|(name, _)| **name != main);
    let mut components: Vec<Value> =
        others.map(|(name, _)| component(name, &known, &sums)).collect();
    components.push(std.clone());
    let mut edges: Vec<Value> = tree
        .iter()
        .map(|(name, node)| {
            let mut imports: Vec<Value> = node.imports.iter().map(|one| purl(one).into()).collect();
            imports.push(std["bom-ref"].clone());
            json!({"ref": purl(name), "dependsOn": imports})
        })
        .collect();
    edges.push(json!({"ref": std["bom-ref"]}));
    let files: Vec<Value> = files
        .iter()
        .map(|file| json!({"type": "file", "name": file.name, "hashes": hash(&sha256::hex(&file.bytes))}))
        .collect();
    let mut metadata = json!({
        "tools": {"components": [{"type": "application", "name": "cargo xtask release", "version": VERSION}]},
        "component": {
            "type": of.kind,
            "bom-ref": purl(&main),
            "name": package,
            "version": VERSION,
            "purl": purl(&main),
            "licenses": [{"expression": "Apache-2.0"}],
            "components": files,
        },
        "properties": [{"name": "tollgate:target", "value": target}],
    });
    if let Some(time) = committed_at(workspace) {
        metadata["timestamp"] = time.into();
    }
    let document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": metadata,
        "components": components,
        "dependencies": edges,
    });
    Ok(format!("{document:#}\n"))
}

fn component(
    name: &Name,
    known: &BTreeMap<Name, Package>,
    sums: &BTreeMap<Name, Option<String>>,
) -> Value {
    let mut value = json!({
        "type": "library",
        "bom-ref": purl(name),
        "name": name.0,
        "version": name.1,
        "purl": purl(name),
    });
    if let Some(package) = known.get(name).filter(|package| !package.licence.is_empty()) {
        // As it was once written.
        let expression = package.licence.replace('/', " OR ");
        value["licenses"] = json!([{"expression": expression}]);
    }
    if let Some(Some(sum)) = sums.get(name) {
        value["hashes"] = hash(sum);
    }
    value
}

fn hash(hex: &str) -> Value {
    json!([{"alg": "SHA-256", "content": hex}])
}

/// The name by which tools know a package.
fn purl((name, version): &Name) -> String {
    format!("pkg:cargo/{name}@{version}")
}

/// The libraries that rustc links.
fn standard_library() -> Result<Value> {
    let said = run::output(Command::new("rustc").arg("-vV"), "install Rust through rustup")?;
    let version = said.lines().find_map(|line| line.strip_prefix("release: ")).unwrap_or_default();
    let purl = format!("pkg:generic/rust-std@{version}");
    Ok(json!({
        "type": "library",
        "bom-ref": purl,
        "name": "rust-std",
        "version": version,
        "purl": purl,
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
    }))
}

/// The time of the commit that is built; none outside a repository.
fn committed_at(workspace: &Workspace) -> Option<String> {
    let mut git = Command::new("git");
    git.current_dir(&workspace.root).env("TZ", "UTC");
    git.args(["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd"]);
    let said = run::output(&mut git, "see git").ok()?;
    Some(said.trim().to_owned()).filter(|time| !time.is_empty())
}
