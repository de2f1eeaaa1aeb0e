//! `cargo xtask test`: a list of steps, all of them run, one table at the end.
//!
//! Invariant: a failed step never hides a later one, and the last line counts both. A step checks
//! one thing and says in its name what.

mod compose;
mod packages;
mod readme;
mod rust;
mod servers;

use crate::{
    fuzz,
    problem::{Problem, Result},
    progress::seconds,
    tools::{self, Tool},
    workspace::Workspace,
};
use std::time::{Duration, Instant};

/// One row of the list.
struct Step {
    group: &'static str,
    name: &'static str,
    needs: &'static [&'static Tool],
    run: fn(&Workspace) -> Result<()>,
}

/// In the order in which a mistake is found cheapest.
const STEPS: &[Step] = &[
    Step { group: "tidy", name: "rustfmt", needs: &[], run: rust::format },
    Step { group: "tidy", name: "tidy", needs: &[], run: crate::tidy::tidy },
    Step { group: "native", name: "clippy, native", needs: &[], run: rust::clippy_native },
    Step { group: "native", name: "clippy, wasm", needs: TARGET, run: rust::clippy_wasm },
    Step { group: "native", name: "each feature alone", needs: &[], run: rust::features },
    Step { group: "native", name: "unit tests, laws and vectors", needs: &[], run: rust::native },
    Step {
        group: "native",
        name: "laws and decisions, optimised",
        needs: &[],
        run: rust::release_laws,
    },
    Step {
        group: "fuzz",
        name: "fuzz targets, 50,000 inputs each",
        needs: &fuzz::TOOLS,
        run: fuzz::briefly,
    },
    Step { group: "docs", name: "rustdoc", needs: &[], run: rust::docs },
    Step { group: "docs", name: "NOTICE", needs: &[], run: crate::notice::check },
    Step { group: "docs", name: "packages to publish", needs: &[], run: packages::build },
    Step { group: "wasm", name: "core is pure", needs: TARGET, run: crate::build::purity::check },
    Step { group: "wasm", name: "core as wasm in Node", needs: IN_NODE, run: rust::wasm_node },
    Step { group: "wasm", name: "100,000 decisions, Node", needs: IN_NODE, run: rust::cases_node },
    Step {
        group: "browser",
        name: "core as wasm in Chromium",
        needs: BROWSER,
        run: rust::wasm_browser,
    },
    Step {
        group: "browser",
        name: "100,000 decisions, Chromium",
        needs: BROWSER,
        run: rust::cases_browser,
    },
    Step { group: "envoy", name: "build the filter", needs: TARGET, run: servers::build_envoy },
    Step { group: "envoy", name: "envoy.yaml is valid", needs: SERVERS, run: servers::validate },
    Step { group: "envoy", name: "end to end, Envoy", needs: END_TO_END, run: servers::e2e_envoy },
    Step { group: "workerd", name: "build the Worker", needs: SERVERS, run: servers::build_worker },
    Step {
        group: "workerd",
        name: "wrangler deploy --dry-run",
        needs: SERVERS,
        run: servers::dry_run,
    },
    Step {
        group: "workerd",
        name: "end to end, workerd",
        needs: END_TO_END,
        run: servers::e2e_workerd,
    },
    Step { group: "up", name: "cargo xtask up", needs: SERVERS, run: servers::up },
    Step {
        group: "compose",
        name: "compose file and README",
        needs: COMPOSE,
        run: compose::compose,
    },
];

const TARGET: &[&Tool] = &[&tools::WASM_TARGET];
const IN_NODE: &[&Tool] = &[&tools::WASM_TARGET, &tools::TEST_RUNNER, &tools::NODE];
const BROWSER: &[&Tool] = &[&tools::WASM_TARGET, &tools::TEST_RUNNER, &tools::CHROMIUM];
const SERVERS: &[&Tool] = &[&tools::WASM_TARGET, &tools::WASM_BINDGEN, &tools::NODE, &tools::ENVOY];
/// With the origins that tests put behind them.
const END_TO_END: &[&Tool] =
    &[&tools::WASM_TARGET, &tools::WASM_BINDGEN, &tools::NODE, &tools::ENVOY, &tools::NGINX];
const COMPOSE: &[&Tool] = &[&tools::DOCKER, &tools::COMPOSE, &tools::ENVOY, &tools::STAND_IN];

pub fn test(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    if arguments == ["--list"] {
        STEPS.iter().for_each(|step| println!("{:<8} {}", step.group, step.name));
        return Ok(());
    }
    let chosen = choose(arguments)?;
    let mut wanted: Vec<&'static Tool> = Vec::new();
    for tool in chosen.iter().flat_map(|step| step.needs) {
        if !wanted.iter().any(|other| other.name == tool.name) {
            wanted.push(tool);
        }
    }
    // What could not be installed fails the steps that need it, not the others.
    tools::ensure(workspace, &wanted).err().iter().for_each(|problem| eprintln!("\n{problem}"));
    let total = chosen.len();
    let mut results = Vec::new();
    for (number, step) in chosen.into_iter().enumerate() {
        println!("\n=== {}/{total} {}: {}", number + 1, step.group, step.name);
        let started = Instant::now();
        let result = tools::ensure(workspace, step.needs).and_then(|()| (step.run)(workspace));
        if let Err(problem) = &result {
            eprintln!("\nFAILED: {problem}");
        }
        println!("--- {} after {}", verdict(&result), seconds(started.elapsed()));
        results.push((step, result, started.elapsed()));
    }
    summary(&results)
}

fn choose(arguments: &[String]) -> Result<Vec<&'static Step>> {
    let known = |name: &String| STEPS.iter().any(|step| step.group == name);
    if let Some(unknown) = arguments.iter().find(|name| !known(name)) {
        let why = format!("there is no group {unknown:?}");
        return Err(Problem::new("cannot test", why, "see `cargo xtask test --list`"));
    }
    let wanted =
        |step: &&Step| arguments.is_empty() || arguments.iter().any(|name| name == step.group);
    Ok(STEPS.iter().filter(wanted).collect())
}

fn summary(results: &[(&Step, Result<()>, Duration)]) -> Result<()> {
    println!("\n{:<8}  {:<32}  {:<6}  time", "group", "step", "result");
    for (step, result, elapsed) in results {
        let time = seconds(*elapsed);
        println!("{:<8}  {:<32}  {:<6}  {time}", step.group, step.name, verdict(result));
    }
    let failed = results.iter().filter(|(_, result, _)| result.is_err()).count();
    println!("\n{} passed, {failed} failed", results.len() - failed);
    if failed == 0 {
        return Ok(());
    }
    std::process::exit(1) // the table is the message; nothing more to say
}

fn verdict(result: &Result<()>) -> &'static str {
    if result.is_ok() { "passed" } else { "FAILED" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_choose_their_steps_and_unknown_ones_are_refused() {
        assert_eq!(choose(&[]).unwrap().len(), STEPS.len());
        let chosen = choose(&["wasm".to_owned()]).unwrap();
        assert!(!chosen.is_empty() && chosen.iter().all(|step| step.group == "wasm"));
        assert!(choose(&["nothing".to_owned()]).is_err());
    }
}
