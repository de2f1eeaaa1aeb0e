//! `cargo xtask bench`: the cost of a decision and of a request, compared with the alternatives.
//!
//! Invariant: compared figures were measured in the same run, in turns, on the same machine; a
//! ratio is taken within a round, so that a slow minute of the machine cancels. CPU time and
//! instructions are measured. Latencies are not, except of a start and of a reload, which consist
//! of nothing else: on a shared machine they measure the neighbours.

mod accuracy;
mod callgrind;
pub mod cpu;
mod decisions;
mod effort;
mod entries;
pub mod envoy;
mod envoy_counted;
pub mod figures;
mod request_files;
mod fleet;
mod fleet_leases;
mod load;
mod lookup;
mod noop;
mod peers;
mod reload;
mod replay;
mod start;
mod worker;
mod worker_start;
mod wrk;

use crate::{
    build::{self, Product, worker::locked_version},
    files,
    problem::{Problem, Result},
    run,
    tools::{self, Tool, npm},
    versions,
    workspace::Workspace,
};
pub use effort::Effort;
use figures::{Table, grouped};
use std::{path::PathBuf, process::Command};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Core,
    Policy,
    Sizes,
    Envoy,
    Worker,
    Accuracy,
    Replay,
    Fleet,
    Start,
    Peers,
    Files,
}

/// By the names that the command line has for them.
pub const ALL: [(&str, Part); 11] = [
    ("core", Part::Core),
    ("policy", Part::Policy),
    ("sizes", Part::Sizes),
    ("envoy", Part::Envoy),
    ("worker", Part::Worker),
    ("accuracy", Part::Accuracy),
    ("replay", Part::Replay),
    ("fleet", Part::Fleet),
    ("start", Part::Start),
    ("peers", Part::Peers),
    ("files", Part::Files),
];

#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    pub parts: Vec<Part>,
    pub effort: Effort,
    /// Check the counted figures against their ceilings, and compare the written ones; measure
    /// nothing else.
    pub check: bool,
    /// The day of real traffic that `accuracy` measures.
    pub log: Option<PathBuf>,
}

pub fn bench(workspace: &Workspace, options: Options) -> Result<()> {
    if options.check {
        return check_asked(workspace, &options);
    }
    let wanted = tools_for(&options.parts);
    tools::ensure(workspace, &wanted)?;
    let wants = |parts: &[Part]| options.parts.iter().any(|part| parts.contains(part));
    if wants(&[Part::Sizes, Part::Envoy, Part::Fleet, Part::Start]) {
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
            Part::Policy => {
                let rules = lookup::measure(workspace, options.effort)?;
                format!("{rules}\n{}", entries::measure(workspace, options.effort)?)
            }
            Part::Sizes => sizes(workspace)?,
            Part::Envoy => envoy::measure(workspace, options.effort)?,
            Part::Worker => worker::measure(workspace, options.effort)?,
            Part::Accuracy => accuracy::measure(workspace, options.log.as_deref())?,
            Part::Replay => replay::measure(workspace, options.effort)?,
            Part::Files => request_files::measure(workspace)?,
            Part::Peers => peers::measure(workspace, options.log.as_deref())?,
            Part::Fleet => {
                let servers = fleet::measure(workspace, options.effort)?;
                format!("{servers}\n{}", fleet_leases::measure(workspace, options.effort)?)
            }
            Part::Start => {
                let starts = start::measure(workspace, options.effort)?;
                format!("{starts}\n{}", reload::measure(workspace)?)
            }
        };
        println!("\n{text}");
        document = format!("{document}\n{text}");
    }
    let file = workspace.out.join("bench.md");
    files::write(&file, document)?;
    println!("\nwritten to {}", file.display());
    Ok(())
}

pub const NEEDED_TO_CHECK: &[&Tool] = &[&tools::VALGRIND];

/// Checks the instruction counts against their ceilings.
pub fn check(workspace: &Workspace) -> Result<()> {
    check_parts(workspace, &[Part::Core, Part::Policy])
}

fn check_asked(workspace: &Workspace, options: &Options) -> Result<()> {
    let can =
        |part: &Part| matches!(part, Part::Core | Part::Policy | Part::Accuracy | Part::Envoy);
    if !options.parts.iter().all(can) {
        let why = "only core, policy and envoy have ceilings, and accuracy a document";
        return Err(Problem::new("cannot check", why, "cargo xtask bench core policy --check"));
    }
    if options.parts.contains(&Part::Accuracy) {
        accuracy::check(workspace, options.log.as_deref())?;
    }
    if options.parts.iter().any(|part| *part != Part::Accuracy) {
        tools::ensure(workspace, NEEDED_TO_CHECK)?;
        if options.parts.contains(&Part::Envoy) {
            tools::ensure(workspace, &[&tools::ENVOY])?;
            build::build(workspace, Product::Envoy)?;
        }
        check_parts(workspace, &options.parts)?;
    }
    Ok(())
}

/// The committed tables of accuracy are the code's results.
pub fn check_accuracy(workspace: &Workspace) -> Result<()> {
    accuracy::check(workspace, None)
}

fn check_parts(workspace: &Workspace, parts: &[Part]) -> Result<()> {
    if cfg!(not(target_arch = "x86_64")) {
        let why = "the ceilings are instructions of x86-64";
        return Err(Problem::new("cannot compare", why, "run this on an x86-64 machine"));
    }
    if parts.contains(&Part::Core) {
        decisions::check(workspace)?;
    }
    if parts.contains(&Part::Policy) {
        lookup::check(workspace)?;
        entries::check(workspace)?;
    }
    if parts.contains(&Part::Envoy) {
        envoy_counted::check(workspace)?;
    }
    Ok(())
}

fn tools_for(parts: &[Part]) -> Vec<&'static Tool> {
    let needs = |part: &Part| match part {
        Part::Core | Part::Policy | Part::Files => vec![&tools::VALGRIND],
        Part::Sizes | Part::Accuracy | Part::Replay => vec![],
        Part::Envoy => vec![&tools::ENVOY, &tools::WRK],
        Part::Start => vec![&tools::ENVOY],
        Part::Peers => vec![&tools::VALGRIND, &tools::NODE_LIMITERS, &tools::PYTHON_LIMITERS],
        Part::Fleet => vec![&tools::REDIS, &tools::ENVOY, &tools::WRK],
        Part::Worker => vec![&tools::ENVOY, &tools::NODE, &tools::WRK],
    };
    parts.iter().flat_map(needs).collect()
}

/// The measured figures, the machine, and how to read them.
fn heading(workspace: &Workspace, effort: Effort) -> Result<String> {
    let fix = "run this in a clone made by git";
    let mut git = Command::new("git");
    let commit = run::output(
        git.current_dir(&workspace.root).args(["describe", "--always", "--dirty"]),
        fix,
    )?;
    let mut rustc = Command::new("rustc");
    let rustc = run::output(rustc.current_dir(&workspace.root).arg("--version"), "install Rust")?;
    let lock = files::text(workspace.root.join("Cargo.lock"))?;
    let workerd = run::output(Command::new(npm::workerd(workspace)).arg("--version"), "install it");
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

fn sizes(workspace: &Workspace) -> Result<String> {
    let mut table = Table::new("Sizes", &["module", "bytes", "gzipped"]);
    let products = [
        ("Envoy filter", workspace.envoy_wasm()),
        ("Envoy filter, slim", workspace.envoy_slim_wasm()),
        ("Worker", workspace.worker_dir().join(build::worker::WASM)),
    ];
    for (name, file) in products {
        let (raw, zipped) = build::product::sizes(&file)?;
        table.row([name.to_owned(), grouped(raw), grouped(zipped)]);
    }
    Ok(table.markdown())
}
