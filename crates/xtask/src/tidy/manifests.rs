//! Cargo.toml files: a reason for every dependency, and the permitted imports.
//!
//! Invariant: imports only go downwards in the map of ARCHITECTURE.md; a new crate must be entered
//! in `EDGES` before it passes.

use super::finding::Finding;
use crate::metadata::Package;

/// Crate, and the crates of this workspace that it imports when shipped, no more and no less:
/// their names without `tollgate-`.
const EDGES: &[(&str, &str)] = &[
    ("tollgate-core", ""),
    ("tollgate-http-syntax", ""),
    ("tollgate-storage", "core"),
    ("tollgate-policy", "core http-syntax storage"),
    ("tollgate-language", "core http-syntax policy storage"),
    ("tollgate", "language policy"),
    ("tollgate-filter", "core language policy storage"),
    ("tollgate-wasm-host", "core filter"),
    ("tollgate-envoy", "filter wasm-host"),
    ("tollgate-proxy-wasm", "core filter wasm-host"),
    ("tollgate-envoy-module", "core filter policy"),
    ("tollgate-service", "core http-syntax language policy storage"),
    ("tollgate-yaml", "http-syntax language policy"),
    ("tollgate-redis", "core http-syntax policy storage"),
    ("tollgate-worker", "core language policy service storage"),
    ("tollgate-server", "core http-syntax language policy redis service storage yaml"),
    ("tollgate-access-log", ""),
    ("tollgate-report", ""),
    ("tollgate-lab", "access-log core http-syntax policy report storage"),
    ("tollgate-cli", "access-log core lab language policy report yaml"),
    ("tollgate-playground", "access-log core lab language policy"),
    ("example-axum", "tollgate"),
    ("example-proxy-wasm-filter", "proxy-wasm"),
    ("tollgate-clock", ""),
    ("tollgate-twin", ""),
    ("tollgate-pictures", "core lab language policy report"),
    ("tollgate-accuracy", "access-log core lab language policy report"),
    ("tollgate-test-support", ""),
    ("tollgate-cases", "core language policy test-support"),
    ("tollgate-e2e", "cases core language policy redis report storage test-support"),
    ("xtask", "language policy report"),
];

/// The crates of a row of the map.
fn imports(row: &str) -> Vec<String> {
    let name = |name: &str| match name {
        "tollgate" => name.to_owned(),
        name => format!("tollgate-{name}"),
    };
    row.split_whitespace().map(name).collect()
}

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
            let message = format!("`{name}` has no reason: add a comment with the reason for it");
            findings.push(Finding::new(path, index + 1, message));
        }
        above = line;
    }
    findings
}

/// The lints that forbid panics hold only where a crate inherits them.
pub fn inherits_lints(path: &str, text: &str) -> Option<Finding> {
    let inherits = text.contains("[lints]\nworkspace = true");
    let message = "inherits no lints of the workspace: add `[lints]` and `workspace = true`";
    let is_shipped = path.starts_with("crates/tollgate-");
    (is_shipped && !inherits).then(|| Finding::new(path, 1, message))
}

/// Where the map is.
const HERE: &str = "crates/xtask/src/tidy/manifests.rs";

pub fn edges(packages: &[Package]) -> Vec<Finding> {
    edges_of(packages, EDGES)
}

fn edges_of(packages: &[Package], map: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let ours = |name: &str| packages.iter().any(|package| package.name == name);
    for package in packages {
        let path = format!("{}/Cargo.toml", package.folder);
        let Some((_, allowed)) = map.iter().find(|(name, _)| *name == package.name) else {
            let message = format!(
                "this crate is not in the map: add it to EDGES in {HERE} and to ARCHITECTURE.md"
            );
            findings.push(Finding::new(&path, 1, message));
            continue;
        };
        if package.name == "tollgate-core" && !package.dependencies.is_empty() {
            let message = format!("the core imports nothing: remove {:?}", package.dependencies);
            findings.push(Finding::new(&path, 1, message));
        }
        let wrong = package.dependencies.iter().filter(|name| ours(name));
        for name in wrong.filter(|name| !imports(allowed).contains(name)) {
            let message = format!(
                "{} must not import {name}: move what both need down into a crate they may import",
                package.name
            );
            findings.push(Finding::new(&path, 1, message));
        }
    }
    findings.extend(stale(packages, map));
    findings
}

/// Permissions of the map that no manifest uses: their use would go unnoticed.
fn stale(packages: &[Package], map: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, allowed) in map {
        let Some(package) = packages.iter().find(|package| package.name == *name) else {
            let message =
                format!("EDGES has a row for {name}, which is not a crate: remove the row");
            findings.push(Finding::new(HERE, 1, message));
            continue;
        };
        for other in imports(allowed).iter().filter(|name| !package.dependencies.contains(name)) {
            let message = format!("EDGES lets {name} import {other}, which it does not: remove it");
            findings.push(Finding::new(HERE, 1, message));
        }
    }
    findings
}

/// Crates of ours that a manifest names and none of its files does.
pub fn unused(packages: &[Package], files: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let folder = format!("{}/", package.folder);
        let ours = packages.iter().filter(|other| package.dependencies.contains(&other.name));
        for other in ours {
            let name = other.name.replace('-', "_");
            let names = |(path, text): &(&str, &str)| {
                path.starts_with(&folder) && path.ends_with(".rs") && text.contains(&name)
            };
            if !files.iter().any(names) {
                let message =
                    format!("no file of {} names {name}: remove the dependency", package.name);
                findings.push(Finding::new(&format!("{folder}Cargo.toml"), 1, message));
            }
        }
    }
    findings
}

/// Files of tests that no program names, and that would never run: where cargo does not look for
/// tests, each is a target of the manifest or a module of a file next to it.
pub fn forgotten_tests(files: &[(&str, &str)]) -> Vec<Finding> {
    let manifests = files.iter().filter(|(path, _)| path.ends_with("Cargo.toml"));
    let mut findings = Vec::new();
    for (manifest, text) in manifests.filter(|(_, text)| text.contains("[[test]]")) {
        let package = manifest.trim_end_matches("Cargo.toml");
        let folders = ["tests/", "e2e/"].map(|folder| format!("{package}{folder}"));
        let beside = |path: &str| {
            let (folder, file) = path.rsplit_once('/')?;
            let is_of = folders.iter().any(|of| of.trim_end_matches('/') == folder);
            is_of.then(|| file.strip_suffix(".rs")).flatten().map(str::to_owned)
        };
        let programs: Vec<_> =
            files.iter().filter_map(|(path, text)| Some((*path, beside(path)?, *text))).collect();
        for (path, name, _) in &programs {
            let line = format!("mod {name};");
            let is_module = programs.iter().any(|(_, _, text)| text.lines().any(|it| it == line));
            if !is_module && !text.contains(&format!("name = \"{name}\"")) {
                let message =
                    format!("no program has these tests: add `{line}` to the one next to it");
                findings.push(Finding::new(path, 1, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        let dependencies = dependencies.iter().map(|name| (*name).to_owned()).collect();
        let folder = format!("crates/{name}");
        let (roots, tests, features) = (Vec::new(), Vec::new(), Vec::new());
        Package { name: name.to_owned(), folder, roots, dependencies, tests, features }
    }

    #[test]
    fn a_crate_without_the_lints_is_found() {
        let path = "crates/tollgate-core/Cargo.toml";
        assert!(inherits_lints(path, "[lints]\nworkspace = true\n").is_none());
        assert_eq!(inherits_lints(path, "[package]\n").unwrap().file, path);
    }

    const MAP: &[(&str, &str)] =
        &[("tollgate-core", ""), ("tollgate-a", "core"), ("tollgate-b", "core")];

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
            package("tollgate-a", &["tollgate-core", "serde"]),
            package("tollgate-b", &["tollgate-core", "tollgate-a"]),
        ];
        let found = edges_of(&packages, MAP);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.starts_with("tollgate-b must not import tollgate-a"));
        assert_eq!(found[0].file, "crates/tollgate-b/Cargo.toml");
    }

    #[test]
    fn the_core_imports_nothing_and_new_crates_must_be_entered() {
        let packages = [package("tollgate-core", &["libm"]), package("new", &[])];
        let found = edges_of(&packages, &[("tollgate-core", "")]);
        assert!(found[0].message.contains("remove [\"libm\"]"));
        assert!(found[1].message.contains("add it to EDGES"));
    }

    #[test]
    fn an_allowed_import_that_nobody_uses_is_stale() {
        let mut packages = vec![
            package("tollgate-core", &[]),
            package("tollgate-a", &["tollgate-core"]),
            package("tollgate-b", &["tollgate-core"]),
        ];
        assert!(edges_of(&packages, MAP).is_empty());
        packages[1].dependencies.clear();
        let found = edges_of(&packages, MAP);
        assert!(found.len() == 1 && found[0].message.contains("tollgate-a import tollgate-core"));
        packages.pop();
        let found = edges_of(&packages, MAP);
        assert!(
            found.len() == 2
                && found[1].message.contains("a row for tollgate-b, which is not a crate")
        );
    }

    #[test]
    fn a_dependency_of_ours_that_no_file_names_is_found() {
        let packages = [package("tollgate-core", &[]), package("a", &["tollgate-core"])];
        let using = [("crates/a/src/lib.rs", "use tollgate_core::Quota;")];
        assert!(unused(&packages, &using).is_empty());
        let elsewhere = [("crates/ab/src/lib.rs", using[0].1), ("crates/a/README.md", using[0].1)];
        let found = unused(&packages, &elsewhere);
        assert!(found.len() == 1 && found[0].message.contains("no file of a names tollgate_core"));
    }

    #[test]
    fn tests_that_no_program_names_are_found() {
        let files = [
            ("crates/a/Cargo.toml", "[[test]]\nname = \"all\"\n"),
            ("crates/a/tests/all.rs", "//! All.\n\nmod named;\n"),
            ("crates/a/tests/named.rs", ""),
            ("crates/a/tests/forgotten.rs", ""),
            ("crates/a/tests/named/part.rs", ""),
            ("crates/b/tests/found_by_cargo.rs", ""),
        ];
        let found = forgotten_tests(&files);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].file, "crates/a/tests/forgotten.rs");
    }
}
