//! What cargo says about the workspace: its packages, their direct dependencies and test targets.
//!
//! Invariant: read with `--no-deps`, so it needs no network and no downloaded crate.

use crate::{
    problem::{OrProblem, Result},
    run,
    workspace::Workspace,
};
use serde_json::Value;
use std::process::Command;

const FIX: &str = "make `cargo metadata` work";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    /// Normal and build dependencies, not those of tests.
    pub dependencies: Vec<String>,
    /// Names of the integration test targets.
    pub tests: Vec<String>,
}

pub fn packages(workspace: &Workspace) -> Result<Vec<Package>> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&workspace.root).args(["metadata", "--format-version", "1", "--no-deps"]);
    let text = run::output(&mut cargo, FIX)?;
    let document: Value = serde_json::from_str(&text).or_problem("cannot read metadata", FIX)?;
    Ok(list(&document["packages"]).map(package).collect())
}

fn package(value: &Value) -> Package {
    let is_shipped = |dependency: &&Value| dependency["kind"].as_str() != Some("dev");
    let is_test = |target: &&Value| list(&target["kind"]).any(|kind| kind == "test");
    Package {
        name: name(value),
        dependencies: list(&value["dependencies"]).filter(is_shipped).map(name).collect(),
        tests: list(&value["targets"]).filter(is_test).map(name).collect(),
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
            "dependencies": [{"name": "b", "kind": null}, {"name": "c", "kind": "dev"}],
            "targets": [{"name": "a", "kind": ["lib"]}, {"name": "laws", "kind": ["test"]}],
        });
        let expected = Package {
            name: "a".into(),
            dependencies: vec!["b".into()],
            tests: vec!["laws".into()],
        };
        assert_eq!(package(&value), expected);
    }
}
