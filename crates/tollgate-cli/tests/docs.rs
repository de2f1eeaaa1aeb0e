//! The documents for users: every example is a policy, and every output is the real one.
//!
//! A block after `<!-- file: NAME -->` is that file, for the commands after it. Otherwise a `json`
//! block is a complete policy, for both surfaces unless `<!-- surface: envoy -->` (or another)
//! precedes it. A `console` block is run on the policy before it, which is named example.json
//! there, or example.yaml for a `yaml` block. After an intended change: `TOLLGATE_BLESS=1 cargo
//! test -p tollgate-cli --test all docs::`, and review the difference.

use std::fs;
use std::path::PathBuf;

use tollgate_core::{Algorithm, Limiter, Quota, Span};
use tollgate_policy::Surface;
use tollgate_policy::explain::{Ability, FILTER_MODULES};
use tollgate_test_support::golden::assert_file;

use crate::support::{Block, assert_same, blocks, is_blessing, pages, replay, root, scratch};

fn document(name: &str) -> (PathBuf, String) {
    let path = root().join(name);
    let text = fs::read_to_string(&path).unwrap();
    (path, text)
}

fn surfaces(block: &Block) -> Vec<Surface> {
    match block.surface.as_deref() {
        None => vec![Surface::Envoy, Surface::Worker],
        Some(name) => match Surface::parse(name) {
            Some(surface) => vec![surface],
            None => panic!("line {}: no surface {name}", block.line),
        },
    }
}

/// Compiles every policy and runs every session of the document; returns how many of each.
fn check(name: &str) -> (usize, usize) {
    let (path, text) = document(name);
    let folder = scratch(name);
    let (mut policies, mut sessions, mut rewritten) = (0, 0, text.clone());
    for block in blocks(&text) {
        let at = format!("{name}:{}", block.line);
        if let Some(file) = &block.file {
            fs::write(folder.join(file), &block.text).unwrap();
            continue;
        }
        match block.language.as_str() {
            "json" => {
                for surface in surfaces(&block) {
                    if let Err(problems) = tollgate_language::compile(&block.text, surface) {
                        panic!("{at}: {surface:?}: {problems}");
                    }
                }
                fs::write(folder.join("example.json"), &block.text).unwrap();
                policies += 1;
            }
            "yaml" => fs::write(folder.join("example.yaml"), &block.text).unwrap(),
            // `cargo xtask test up` runs and compares these.
            "console" if block.text.starts_with("$ cargo xtask") => {}
            "console" => {
                let ran = replay(&folder, &block.text);
                if is_blessing() {
                    let old = format!("```console\n{}```\n", block.text);
                    let new = format!("```console\n{ran}```\n");
                    rewritten = rewritten.replacen(&old, &new, 1);
                } else {
                    assert_same(&at, &block.text, &ran);
                }
                sessions += 1;
            }
            "jsonc" | "sh" | "text" => {}
            // `crates/tollgate/tests/readme.rs` compiles and runs it.
            "rust" if name == "README.md" => {}
            other => panic!("{at}: what is a {other:?} block?"),
        }
    }
    if rewritten != text {
        fs::write(path, rewritten).unwrap();
    }
    (policies, sessions)
}

/// The start page, and every page of `docs/policy`: each shows a session.
#[test]
fn the_reference_is_true() {
    assert_eq!(check("docs/policy.md"), (1, 1));
    let pages = pages("policy");
    assert!(pages.len() >= 10, "{pages:?}");
    let (mut policies, mut sessions) = (0, 0);
    for page in pages {
        let (more_policies, more_sessions) = check(&page);
        assert!(more_sessions > 0, "{page} runs nothing");
        (policies, sessions) = (policies + more_policies, sessions + more_sessions);
    }
    assert!(policies >= 45 && sessions >= 48, "{policies} policies, {sessions} sessions");
}

#[test]
fn the_readme_is_true() {
    assert_eq!(check("README.md"), (1, 1));
    let (_, readme) = document("README.md");
    let policies: Vec<_> = blocks(&readme).into_iter().filter(|b| b.language == "json").collect();
    let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let shown = parsed(&policies[0].text);
    assert_eq!(shown, parsed(&document("examples/policy.json").1), "the README shows this file");
}

#[test]
fn the_page_for_services_is_true() {
    assert_eq!(check("docs/embedding.md"), (1, 1));
}

#[test]
fn the_simulations_are_true() {
    let (_, sessions) = check("docs/simulate.md");
    assert!(sessions >= 12, "{sessions} sessions");
}

#[test]
fn the_replays_are_true() {
    assert_eq!(check("docs/replay.md"), (0, 4));
}

#[test]
fn the_migrations_are_true() {
    assert_eq!(check("docs/migrate.md"), (2, 3));
    // The policy in the document equals the output.
    let (_, text) = document("docs/migrate.md");
    let shown = blocks(&text);
    let policy = &shown.iter().find(|block| block.language == "json").unwrap().text;
    let session = &shown.iter().find(|block| block.language == "console").unwrap().text;
    assert!(session.contains(policy.as_str()), "{policy}");
}

#[test]
fn the_recipes_are_true() {
    let (policies, sessions) = check("docs/recipes.md");
    assert!(policies >= 12 && sessions >= policies, "{policies} policies, {sessions} sessions");
}

/// Every page of `docs/guides`, also one that is added later: each page has a session, and each
/// file in it is an argument of one of its commands.
#[test]
fn the_guides_are_true() {
    let pages = pages("guides");
    assert!(pages.len() >= 5, "{pages:?}");
    for name in pages {
        let (_, sessions) = check(&name);
        assert!(sessions > 0, "{name} runs nothing");
        let (_, text) = document(&name);
        let shown = blocks(&text);
        let commands = shown.iter().filter(|block| block.language == "console");
        let lines = commands.flat_map(|block| block.text.lines());
        let lines = lines.filter(|line| line.starts_with("$ "));
        let words: Vec<_> = lines.flat_map(str::split_whitespace).collect();
        for file in shown.iter().filter_map(|block| block.file.as_deref()) {
            assert!(words.contains(&file), "{name}: no command reads {file}");
        }
    }
}

/// `| algorithm | bytes | at most, 100 per minute | with burst 20 | strict, with burst 20 | when |`
#[test]
fn the_table_of_algorithms_says_what_the_core_says() {
    let (_, text) = document("docs/policy/quotas.md");
    let quota = Quota::new(100, Span::from_secs(60)).unwrap();
    let burst = quota.with_burst(20).unwrap();
    for algorithm in Algorithm::ALL {
        let name = algorithm.name();
        let row = text.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/policy/quotas.md has no row for {name}"));
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let limiter = Limiter::new(algorithm, quota).unwrap();
        let bound = |quota| {
            let limiter = Limiter::new(algorithm, quota);
            limiter.map_or("-".to_owned(), |limiter| limiter.max_in_window().to_string())
        };
        // Strict with the burst where there is one, else strict alone.
        let strict = match bound(burst.strict()).as_str() {
            "-" => bound(quota.strict()),
            number => number.to_owned(),
        };
        let expected = [limiter.state_len().to_string(), bound(quota), bound(burst), strict];
        assert_eq!(cells[2..6], expected, "{name}: {row}");
    }
}

// Guards: a table by which operators choose a module that has grown since.
#[test]
fn the_modules_for_envoy_are_those_that_are_declared() {
    const BEGIN: &str = "<!-- modules: written by the tests of tollgate-cli -->\n";
    const END: &str = "<!-- end -->";
    let (path, text) = document("envoy/README.md");
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let mut table = String::from(
        "\n| module | has, in addition | KB, at most | CPU of a start, s |\n|---|---|---:|---:|\n",
    );
    let mut known: &[Ability] = &[];
    for module in &FILTER_MODULES {
        let added = module.abilities.iter().filter(|it| !known.contains(it));
        let added: Vec<&str> = added.map(|it| it.words()).collect();
        known = module.abilities;
        let (kilobytes, ms) = (module.max_bytes.div_ceil(1000), module.start_cpu_ms);
        table += &format!(
            "| `{}` | {} | {kilobytes} | {}.{:02} |\n",
            module.file,
            added.join(", "),
            ms / 1000,
            ms % 1000 / 10
        );
    }
    assert_file(path, &[before, BEGIN, &table, "\n", END, after].concat());
}
