//! The packages that are linked into the products, according to cargo.
//!
//! Invariant: the same Cargo.lock gives the same result on every machine. Deliberately absent: code
//! that runs only during compilation, and whether some code of a package is really called.

use crate::{
    files,
    problem::{OrProblem, Result},
    run,
    workspace::Workspace,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

/// The target of programs that are built here; explicit, so that lists do not depend on the machine
/// that makes them.
pub const NATIVE_TARGET: &str = "x86_64-unknown-linux-gnu";

/// A product as cargo builds it.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    pub package: &'static str,
    pub target: &'static str,
    /// Arguments of cargo that choose features; none for the default ones.
    pub features: &'static [&'static str],
}

/// A package: name and version.
pub type Name = (String, String);

/// Cargo's data about a package.
#[derive(Debug)]
pub struct Package {
    pub licence: String,
    pub folder: PathBuf,
}

/// A package that is linked.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub is_ours: bool,
    /// Its own imports.
    pub imports: BTreeSet<Name>,
}

pub fn shown((name, version): &Name) -> String {
    format!("{name} {version}")
}

/// The packages that are linked into a product, its own among them.
pub fn tree(workspace: &Workspace, build: &Build) -> Result<BTreeMap<Name, Node>> {
    let mut cargo = workspace.cargo();
    cargo.args(["tree", "--locked", "--prefix", "depth"]);
    cargo.args(["--edges", "normal,no-proc-macro", "--format", " {p}"]);
    cargo.args(["--package", build.package, "--target", build.target]).args(build.features);
    Ok(read(&run::output(&mut cargo, "make `cargo tree` work")?))
}

/// Lines such as `2 serde v1.0.0 (*)`, each below the last one of a smaller depth.
fn read(text: &str) -> BTreeMap<Name, Node> {
    let mut nodes: BTreeMap<Name, Node> = BTreeMap::new();
    let mut above: Vec<Name> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let depth = words.next().and_then(|depth| depth.parse().ok());
        let (Some(depth), Some(name), Some(version)) = (depth, words.next(), words.next()) else {
            continue;
        };
        let name = (name.to_owned(), version.trim_start_matches('v').to_owned());
        above.truncate(depth);
        if let Some(importer) = above.last().and_then(|importer| nodes.get_mut(importer)) {
            importer.imports.insert(name.clone());
        }
        nodes.entry(name.clone()).or_default().is_ours = line.contains("(/");
        above.push(name);
    }
    nodes
}

/// All packages that may be linked for `target`.
pub fn packages(workspace: &Workspace, target: &str) -> Result<BTreeMap<Name, Package>> {
    const FIX: &str = "make `cargo metadata` work";
    let mut cargo = workspace.cargo();
    cargo.args(["metadata", "--format-version", "1", "--locked"]);
    cargo.args(["--filter-platform", target]);
    let text = run::output(&mut cargo, FIX)?;
    let document: Value = serde_json::from_str(&text).or_problem("cannot read metadata", FIX)?;
    let packages = document["packages"].as_array().into_iter().flatten();
    Ok(packages
        .map(|package| {
            let field = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
            let mut folder = PathBuf::from(field("manifest_path"));
            folder.pop();
            ((field("name"), field("version")), Package { licence: field("license"), folder })
        })
        .collect())
}

/// The packages of Cargo.lock, each with its sum; ours have none.
pub fn locked(workspace: &Workspace) -> Result<BTreeMap<Name, Option<String>>> {
    let text = files::text(workspace.root.join("Cargo.lock"))?;
    let fix = "restore Cargo.lock with git";
    let lock: toml::Table = text.parse().or_problem("cannot read Cargo.lock", fix)?;
    let packages = lock.get("package").and_then(|list| list.as_array()).into_iter().flatten();
    Ok(packages
        .filter_map(|package| {
            let field = |name: &str| Some(package.get(name)?.as_str()?.to_owned());
            Some(((field("name")?, field("version")?), field("checksum")))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_of_others_have_sums() {
        let locked = locked(&Workspace::find()).unwrap();
        let sum_of = |package: &str| locked.iter().find(|((name, _), _)| name == package);
        assert!(sum_of("xtask").is_some_and(|(_, sum)| sum.is_none()));
        let sum = sum_of("serde").and_then(|(_, sum)| sum.as_ref());
        assert!(sum.is_some_and(|sum| sum.len() == 64));
        assert_eq!(sum_of("no-such-package"), None);
    }

    #[test]
    fn who_imports_whom_comes_out_of_the_tree() {
        let nodes = read("0 a v0.1.0 (/w/a)\n1 b v1.0.0\n2 c v2.0.0\n1 d v3.0.0\n2 b v1.0.0 (*)\n");
        let name = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        let imports = |of: &Name| nodes[of].imports.iter().map(shown).collect::<Vec<_>>();
        let (a, b) = (name("a", "0.1.0"), name("b", "1.0.0"));
        let (c, d) = (name("c", "2.0.0"), name("d", "3.0.0"));
        assert_eq!(imports(&a), ["b 1.0.0", "d 3.0.0"]);
        assert_eq!(imports(&b), ["c 2.0.0"]);
        assert_eq!(imports(&d), ["b 1.0.0"]);
        assert!(nodes[&a].is_ours && !nodes[&b].is_ours && nodes[&c].imports.is_empty());
    }
}
