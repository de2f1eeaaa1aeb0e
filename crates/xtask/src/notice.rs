//! `cargo xtask notice`: NOTICE, the licences of the packages bundled in the shipped modules.
//!
//! Invariant: the same Cargo.lock gives the same file on every machine, and a licence that no one
//! has reviewed is an error. Cargo lists the bundled packages; the texts are the licence files in
//! the packages. Of a choice of licences Apache-2.0 is taken, which is ours, so its text is in
//! LICENSE. Deliberately absent: whether some code of a package is really called; every linked
//! package is named.

use crate::{
    build::envoy,
    files,
    linked::{self, Build, NATIVE_TARGET, Name, Package, shown},
    problem::{OrProblem, Problem, Result},
    tools::{self, npm},
    versions::WASM_TARGET,
    workspace::Workspace,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

const FILE: &str = "NOTICE";

/// A product: how it is built, and its common name. The module of the filter with all features
/// stands for all.
const PRODUCTS: [(Build, &str); 5] = [
    (product("tollgate-envoy", WASM_TARGET, envoy::FULL.features), "The Envoy filter"),
    (product("tollgate-worker", WASM_TARGET, &[]), "The Cloudflare Worker"),
    (product("tollgate-playground", WASM_TARGET, &[]), "The playground's modules"),
    (product("tollgate-cli", NATIVE_TARGET, &[]), "The command line"),
    (product("tollgate-server", NATIVE_TARGET, &[]), "The server"),
];

const fn product(
    package: &'static str,
    target: &'static str,
    features: &'static [&'static str],
) -> Build {
    Build { package, target, features }
}

/// The packages bundled with the playground's scripts: all that do not only test.
const PAGE_LOCK: &str = "crates/xtask/page/package-lock.json";

/// Licences that may be bundled with code under Apache-2.0. Of a choice the first in this list is
/// taken.
const ALLOWED: [&str; 7] =
    ["Apache-2.0", "MIT", "ISC", "BSD-3-Clause", "Zlib", "Unicode-3.0", "BSL-1.0"];

const HEAD: &str = "\
Tollgate
Copyright 2026 The Tollgate authors

Licensed under the Apache License, Version 2.0; its text is in LICENSE.

What is built from this repository bundles the works below. `cargo xtask notice` makes this list.

All of them bundle parts of the Rust standard library, under Apache-2.0 or MIT; what it bundles itself is named in
COPYRIGHT-library.html of every Rust distribution. The Worker's and the playground's JavaScript holds glue code that wasm-bindgen
writes, under Apache-2.0 or MIT.
";

/// Writes the file again.
pub fn write(workspace: &Workspace) -> Result<()> {
    let text = text(workspace)?;
    files::write(workspace.root.join(FILE), text)
}

/// Fails when the file differs from the one that would be written.
pub fn check(workspace: &Workspace) -> Result<()> {
    let written = fs::read_to_string(workspace.root.join(FILE)).unwrap_or_default();
    if written == text(workspace)? {
        return Ok(());
    }
    let why = "it does not list the crates that Cargo.lock bundles";
    Err(Problem::new(
        "NOTICE is outdated",
        why,
        "run `cargo xtask notice`, and read the difference",
    ))
}

fn text(workspace: &Workspace) -> Result<String> {
    let mut text = HEAD.to_owned();
    let mut all = BTreeMap::new();
    for (build, title) in PRODUCTS {
        let Build { package, target, .. } = build;
        let tree = linked::tree(workspace, &build)?;
        let names = tree.into_iter().filter(|(_, node)| !node.is_ours).map(|(name, _)| name);
        let names: BTreeSet<Name> = names.collect();
        let known = linked::packages(workspace, target)?;
        let list: Vec<String> = names.iter().map(shown).collect();
        text.push_str(&format!("\n{title} ({package})\n\n{}", listed(&list)));
        for name in names {
            let Some(bundled) = known.get(&name) else {
                let why = format!("cargo does not report the folder of {}", shown(&name));
                return Err(Problem::new("cannot list licences", why, "run `cargo fetch`"));
            };
            let words = words(&name, bundled)?;
            all.entry(words).or_insert_with(Vec::new).push(shown(&name));
        }
    }
    let scripts = scripts(workspace)?;
    let list: Vec<String> = scripts.keys().map(shown).collect();
    text.push_str(&format!("\nThe playground's scripts (npm)\n\n{}", listed(&list)));
    for (name, bundled) in &scripts {
        all.entry(words(name, bundled)?).or_insert_with(Vec::new).push(shown(name));
    }
    for ((licence, words), mut names) in all {
        names.sort();
        names.dedup();
        let names = listed(&names);
        text.push_str(&format!("\n{}\n{licence}\n\n{names}", "-".repeat(80)));
        if !words.is_empty() {
            text.push_str(&format!("\n{words}\n"));
        }
    }
    Ok(text)
}

/// The licence of a package, and its words; none for Apache-2.0, unless the package has a notice of
/// its own.
fn words(name: &Name, bundled: &Package) -> Result<(String, String)> {
    let licence = chosen(&bundled.licence).ok_or_else(|| {
        let why = format!("{} is under {:?}", shown(name), bundled.licence);
        let fix = "read that licence; when it may be bundled, add it to ALLOWED in crates/xtask/src/notice.rs";
        Problem::new("a licence has not been reviewed", why, fix)
    })?;
    let mut files = files::sorted(&bundled.folder)?;
    files.retain(|file| is_wanted(&licence, file));
    // A file that names its licence precedes one that does not.
    let own = format!("LICENSE-{licence}");
    if let Some(own) = files.iter().find(|file| file.ends_with(&own)).cloned() {
        files = vec![own];
    }
    if files.is_empty() && licence != "Apache-2.0" {
        let why = format!("{} has no licence file", shown(name));
        return Err(Problem::new("cannot list licences", why, "take another version of it"));
    }
    let texts: Vec<String> = files
        .iter()
        .map(|file| {
            fs::read_to_string(file).or_problem("cannot read a licence", "run `cargo fetch`")
        })
        .collect::<Result<_>>()?;
    let texts: Vec<String> = texts.iter().map(|text| plain(text)).collect();
    Ok((licence, texts.join("\n\n")))
}

/// Of Apache-2.0 only the package's additions; of others every possible text.
fn is_wanted(licence: &str, file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
    let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
    match licence {
        "Apache-2.0" => begins(&["NOTICE"]),
        _ => begins(&["LICENSE", "LICENCE", "NOTICE"]) && !name.contains("APACHE"),
    }
}

/// The licence to take it under: of alternatives the best, of several that hold together all;
/// `None` when one of these is not allowed. An expression of SPDX, and `MIT/Apache-2.0` as it was
/// once written.
fn chosen(expression: &str) -> Option<String> {
    let expression = expression.replace('/', " OR ");
    let parts = expression.split(" AND ").map(|part| {
        let part = part.trim_matches(['(', ')', ' ']);
        let offered: Vec<&str> = part.split(" OR ").map(str::trim).collect();
        ALLOWED.iter().find(|allowed| offered.contains(allowed)).copied()
    });
    let parts: Vec<&str> = parts.collect::<Option<_>>()?;
    Some(parts.join(" AND "))
}

/// The npm packages that are bundled into the page, by its lock file.
fn scripts(workspace: &Workspace) -> Result<BTreeMap<Name, Package>> {
    tools::ensure(workspace, &[&tools::PAGE])?;
    let text = files::text(workspace.root.join(PAGE_LOCK))?;
    let lock: Value = serde_json::from_str(&text).or_problem("cannot read a lock file", "npm")?;
    let modules = npm::PAGE.modules(workspace);
    Ok(bundled(&lock, &modules))
}

/// Every package of a lock file that is not only for development.
fn bundled(lock: &Value, modules: &Path) -> BTreeMap<Name, Package> {
    let packages = lock["packages"].as_object().into_iter().flatten();
    let shipped = packages.filter(|(_, package)| package["dev"] != true);
    shipped
        .filter_map(|(place, package)| {
            let name = place.strip_prefix("node_modules/")?;
            let field = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
            let folder = modules.join(name);
            let bundled = Package { licence: field("license"), folder };
            Some(((name.to_owned(), field("version")), bundled))
        })
        .collect()
}

/// One per line, so that a difference shows which packages were added and removed.
fn listed(names: &[String]) -> String {
    names.iter().map(|name| format!("  {name}\n")).collect()
}

/// Without white space at the ends of lines, and with the same line ends everywhere.
fn plain(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().map(str::trim_end).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_a_choice_is_taken_and_all_of_what_holds_together() {
        for (expression, taken) in [
            ("MIT OR Apache-2.0", Some("Apache-2.0")),
            ("MIT/Apache-2.0", Some("Apache-2.0")),
            ("Unlicense OR MIT", Some("MIT")),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", Some("Apache-2.0 AND Unicode-3.0")),
            ("MIT AND BSD-3-Clause", Some("MIT AND BSD-3-Clause")),
            ("GPL-3.0-only", None),
            ("MIT AND GPL-3.0-only", None),
            ("", None),
        ] {
            assert_eq!(chosen(expression).as_deref(), taken, "{expression}");
        }
    }

    #[test]
    fn what_only_tests_is_not_bundled() {
        let lock = serde_json::json!({"packages": {
            "": {"name": "page"},
            "node_modules/@a/b": {"version": "1.2.3", "license": "MIT"},
            "node_modules/test": {"version": "1.0.0", "license": "MIT", "dev": true}}});
        let found = bundled(&lock, Path::new("/m"));
        let only = ("@a/b".to_owned(), "1.2.3".to_owned());
        assert_eq!(found.keys().collect::<Vec<_>>(), [&only]);
        assert_eq!(found[&only].folder, Path::new("/m/@a/b"));
    }
}
