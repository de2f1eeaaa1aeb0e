//! `cargo xtask bench`: what a decision and a request cost, beside what one would use otherwise.
//!
//! Invariant: whatever is compared was measured in the same run, in turns, on the same machine; a
//! ratio is taken within a round, so that a slow minute of the machine falls out. What is measured is CPU time and
//! instructions. Latencies are not: on a shared machine they measure the neighbours.

mod callgrind;
mod cpu;
mod decisions;
mod envoy;
mod figures;
mod load;
mod lookup;
mod noop;
mod worker;
mod wrk;

use crate::{
    build::{self, Product, worker::locked_version},
    problem::{OrProblem, Problem, Result},
    run,
    tools::{self, Tool, node},
    versions,
    workspace::Workspace,
};
use figures::{Table, grouped};
use std::{fs, path::PathBuf, process::Command, time::Duration};

/// A run can be stopped with Ctrl-C, but nobody should start one that lasts a night by mistake.
const MOST_SECONDS: u32 = 30;
const MOST_ROUNDS: u32 = 50;
const USAGE: &str =
    "cargo xtask bench [core] [policy] [sizes] [envoy] [worker] [--seconds 1-30] [--rounds 1-50]";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Core,
    Policy,
    Sizes,
    Envoy,
    Worker,
}

const ALL: [(&str, Part); 5] = [
    ("core", Part::Core),
    ("policy", Part::Policy),
    ("sizes", Part::Sizes),
    ("envoy", Part::Envoy),
    ("worker", Part::Worker),
];

/// How long to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Effort {
    /// Of load on one server in one round.
    seconds: u32,
    rounds: u32,
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    parts: Vec<Part>,
    effort: Effort,
}

pub fn bench(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    let wanted = tools_for(&options.parts);
    tools::ensure(workspace, &wanted)?;
    let wants = |parts: &[Part]| options.parts.iter().any(|part| parts.contains(part));
    if wants(&[Part::Sizes, Part::Envoy]) {
        build::build(workspace, Product::Envoy)?;
    }
    if wants(&[Part::Sizes, Part::Worker]) {
        build::build(workspace, Product::Worker)?;
    }
    let mut document = heading(workspace, options.effort)?;
    println!("\n{document}");
    for part in options.parts {
        let text = match part {
            Part::Core => decisions::measure(workspace, options.effort)?,
            Part::Policy => lookup::measure(workspace, options.effort)?,
            Part::Sizes => sizes(workspace)?,
            Part::Envoy => envoy::measure(workspace, options.effort)?,
            Part::Worker => worker::measure(workspace, options.effort)?,
        };
        println!("\n{text}");
        document = format!("{document}\n{text}");
    }
    let file = workspace.out.join("bench.md");
    fs::create_dir_all(&workspace.out).or_problem("cannot create target/tollgate", "free space")?;
    fs::write(&file, document).or_problem("cannot write the tables", "free disk space")?;
    println!("\nwritten to {}", file.display());
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options { parts: Vec::new(), effort: Effort { seconds: 2, rounds: 7 } };
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let part = ALL.iter().find(|(name, _)| name == word);
        let (place, most) = match (word.as_str(), part) {
            (_, Some((_, part))) => {
                options.parts.push(*part);
                continue;
            }
            ("--seconds", None) => (&mut options.effort.seconds, MOST_SECONDS),
            ("--rounds", None) => (&mut options.effort.rounds, MOST_ROUNDS),
            _ => return Err(Problem::new("cannot measure", format!("no part {word:?}"), USAGE)),
        };
        let number = rest.next().and_then(|text| text.parse().ok());
        let refuse = || Problem::new("cannot measure", format!("{word} wants 1 to {most}"), USAGE);
        *place = number.filter(|number| (1..=most).contains(number)).ok_or_else(refuse)?;
    }
    if options.parts.is_empty() {
        options.parts = ALL.map(|(_, part)| part).to_vec();
    }
    Ok(options)
}

fn tools_for(parts: &[Part]) -> Vec<&'static Tool> {
    let needs = |part: &Part| match part {
        Part::Core | Part::Policy => vec![&tools::VALGRIND],
        Part::Sizes => vec![],
        Part::Envoy => vec![&tools::ENVOY, &tools::WRK],
        Part::Worker => vec![&tools::ENVOY, &tools::NODE, &tools::WRK],
    };
    parts.iter().flat_map(needs).collect()
}

/// What was measured, where, and how to read it.
fn heading(workspace: &Workspace, effort: Effort) -> Result<String> {
    let fix = "run this in a clone made by git";
    let mut git = Command::new("git");
    let commit = run::output(
        git.current_dir(&workspace.root).args(["describe", "--always", "--dirty"]),
        fix,
    )?;
    let mut rustc = Command::new("rustc");
    let rustc = run::output(rustc.current_dir(&workspace.root).arg("--version"), "install Rust")?;
    let lock = fs::read_to_string(workspace.root.join("Cargo.lock"))
        .or_problem("cannot read Cargo.lock", "commit it")?;
    let workerd =
        run::output(Command::new(node::workerd(workspace)).arg("--version"), "install it");
    let Effort { seconds, rounds } = effort;
    Ok(format!(
        "Commit {}; {} x {}, load {}; {}, governor {}, Envoy {}, {}. {rounds} rounds in rotating order, \
         {seconds} s of load each. Another machine, and this one an hour later, gives other \
         microseconds: the ratios are what counts.\n",
        commit.trim(),
        std::thread::available_parallelism().map_or(1, usize::from),
        cpu::model(),
        cpu::load_average(),
        rustc.split(" (").next().unwrap_or_default().trim(),
        locked_version(&lock, "governor").unwrap_or("unknown"),
        versions::ENVOY,
        workerd.map_or("workerd not installed".to_owned(), |text| text.trim().to_owned()),
    ))
}

/// Builds the example `name` of `package` as it is measured, and says where it is.
fn example(workspace: &Workspace, package: &str, name: &str) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&workspace.root);
    cargo.args(["build", "--release", "-p", package, "--example", name]);
    run::shown(&mut cargo, "fix what the compiler says")?;
    Ok(workspace.target.join("release/examples").join(name))
}

fn sizes(workspace: &Workspace) -> Result<String> {
    let mut table = Table::new("Sizes", &["module", "bytes", "gzipped"]);
    let products = [
        ("Envoy filter", workspace.envoy_wasm()),
        ("Worker, wasm", workspace.worker_dir().join("build/index_bg.wasm")),
    ];
    for (name, file) in products {
        let (raw, zipped) = build::product::sizes(&file)?;
        table.row([name.to_owned(), grouped(raw), grouped(zipped)]);
    }
    Ok(table.markdown())
}

impl Effort {
    fn duration(self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<Options> {
        parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn no_word_means_everything() {
        let everything = words("").unwrap();
        assert_eq!(everything.parts, ALL.map(|(_, part)| part));
        assert_eq!(everything.effort, Effort { seconds: 2, rounds: 7 });
    }

    #[test]
    fn parts_and_effort_are_chosen_and_bounded() {
        let chosen = words("worker --seconds 1 core --rounds 3").unwrap();
        assert_eq!(chosen.parts, [Part::Worker, Part::Core]);
        assert_eq!(chosen.effort, Effort { seconds: 1, rounds: 3 });
        for wrong in ["gpu", "--rounds", "--rounds 0", "--rounds 51", "--seconds x"] {
            assert!(words(wrong).is_err(), "{wrong}");
        }
    }
}
