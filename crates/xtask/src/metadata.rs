//! Cargo's data about the workspace: its packages, their direct dependencies and test targets.
//!
//! Invariant: read with `--no-deps`, so it needs no network and no downloaded crate.

use crate::{
    problem::{OrProblem, Result},
    run,
    workspace::Workspace,
};
use serde_json::Value;

const FIX: &str = "make `cargo metadata` work";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    /// The folder of its manifest, relative to the root: `crates/xtask`.
    pub folder: String,
    /// The first file of its library and of each program, relative to the root.
    pub roots: Vec<String>,
    /// Normal and build dependencies, not those of tests.
    pub dependencies: Vec<String>,
    /// Names of the integration test targets.
    pub tests: Vec<String>,
    pub features: Vec<String>,
}

pub fn packages(workspace: &Workspace) -> Result<Vec<Package>> {
    let mut cargo = workspace.cargo();
    cargo.args(["metadata", "--format-version", "1", "--no-deps"]);
    let text = run::output(&mut cargo, FIX)?;
    let document: Value = serde_json::from_str(&text).or_problem("cannot read metadata", FIX)?;
    let root = format!("{}/", workspace.root.display());
    Ok(list(&document["packages"]).map(|value| package(value, &root)).collect())
}

fn package(value: &Value, root: &str) -> Package {
    const SHIPPED: [&str; 5] = ["lib", "rlib", "cdylib", "proc-macro", "bin"];
    let is_product = |target: &&Value| {
        list(&target["kind"]).any(|kind| kind.as_str().is_some_and(|kind| SHIPPED.contains(&kind)))
    };
    let relative = |path: &Value| {
        let path = path.as_str().unwrap_or_default();
        path.strip_prefix(root).unwrap_or(path).to_owned()
    };
    let manifest = relative(&value["manifest_path"]);
    let is_shipped = |dependency: &&Value| dependency["kind"].as_str() != Some("dev");
    let is_test = |target: &&Value| list(&target["kind"]).any(|kind| kind == "test");
    Package {
        name: name(value),
        folder: manifest.trim_end_matches("/Cargo.toml").to_owned(),
        roots: list(&value["targets"])
            .filter(is_product)
            .map(|t| relative(&t["src_path"]))
            .collect(),
        dependencies: list(&value["dependencies"]).filter(is_shipped).map(name).collect(),
        tests: list(&value["targets"]).filter(is_test).map(name).collect(),
        features: value["features"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|f| f.0.clone())
            .collect(),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn name(value: &Value) -> String {
    value["name"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_dependencies_do_not_ship() {
        let value = serde_json::json!({
            "name": "a",
            "manifest_path": "/x/crates/a/Cargo.toml",
            "dependencies": [{"name": "b", "kind": null}, {"name": "c", "kind": "dev"}],
            "features": {"words": []},
            "targets": [
                {"name": "a", "kind": ["lib"], "src_path": "/x/crates/a/src/lib.rs"},
                {"name": "laws", "kind": ["test"], "src_path": "/x/crates/a/tests/laws.rs"},
            ],
        });
        let expected = Package {
            name: "a".into(),
            folder: "crates/a".into(),
            roots: vec!["crates/a/src/lib.rs".into()],
            dependencies: vec!["b".into()],
            tests: vec!["laws".into()],
            features: vec!["words".into()],
        };
        assert_eq!(package(&value, "/x/"), expected);
    }
}
