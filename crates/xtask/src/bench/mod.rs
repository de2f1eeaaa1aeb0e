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
pub mod envoy;
mod envoy_counted;
mod envoy_module;
pub mod figures;
mod fleet;
mod fleet_leases;
mod load;
mod noop;
mod peers;
mod policy;
mod reload;
mod replay;
mod request_files;
mod server;
mod start;
mod worker;
mod worker_start;
mod wrk;

use crate::{
    build::{self, Product},
    files, linked,
    problem::{Problem, Result},
    run,
    tools::{self, Tool, npm},
    versions,
    workspace::Workspace,
};
pub use effort::Effort;
use figures::{Table, grouped};
use std::{path::PathBuf, process::Command};

/// A part of the measurements, by the name that the command line has for it.
pub struct Part {
    pub name: &'static str,
    needs: &'static [&'static Tool],
    /// The products that are measured.
    products: &'static [Product],
    measure: fn(&Workspace, &Options) -> Result<String>,
    /// Fails where a counted figure exceeds its ceiling, or where a document differs.
    check: Option<fn(&Workspace, &Options) -> Result<()>>,
}

const COUNTED: Part = Part {
    name: "core",
    needs: &[&tools::VALGRIND],
    products: &[],
    measure: |workspace, _| decisions::measure(workspace),
    check: Some(|workspace, _| decisions::check(workspace)),
};

pub const ALL: [Part; 13] = [
    COUNTED,
    Part {
        name: "policy",
        measure: |workspace, options| policy::measure(workspace, options.effort),
        check: Some(|workspace, _| policy::check(workspace)),
        ..COUNTED
    },
    Part {
        name: "server",
        measure: |workspace, _| server::measure(workspace),
        check: Some(|workspace, _| server::check(workspace)),
        ..COUNTED
    },
    Part {
        name: "sizes",
        needs: &[],
        products: &[Product::Envoy, Product::Worker],
        measure: |workspace, _| sizes(workspace),
        check: None,
    },
    Part {
        name: "envoy",
        needs: &[&tools::ENVOY, &tools::WRK, &tools::VALGRIND],
        products: &[Product::Envoy],
        measure: |workspace, options| envoy::measure(workspace, options.effort),
        check: Some(|workspace, _| envoy_counted::check(workspace)),
    },
    Part {
        name: "module",
        needs: &[&tools::ENVOY, &tools::VALGRIND],
        products: &[Product::Module],
        measure: |workspace, _| envoy_module::measure(workspace),
        check: Some(|workspace, _| envoy_module::check(workspace)),
    },
    Part {
        name: "worker",
        needs: &[&tools::ENVOY, &tools::NODE, &tools::WRK],
        products: &[Product::Worker],
        measure: |workspace, options| worker::measure(workspace, options.effort),
        check: None,
    },
    Part {
        name: "accuracy",
        needs: &[],
        products: &[],
        measure: |workspace, options| accuracy::measure(workspace, options.log.as_deref()),
        check: Some(|workspace, options| accuracy::check(workspace, options.log.as_deref())),
    },
    Part {
        name: "replay",
        needs: &[],
        products: &[],
        measure: |workspace, options| replay::measure(workspace, options.effort),
        check: None,
    },
    Part {
        name: "fleet",
        needs: &[&tools::REDIS, &tools::ENVOY, &tools::WRK],
        products: &[Product::Envoy],
        measure: |workspace, options| {
            let servers = fleet::measure(workspace, options.effort)?;
            Ok(format!("{servers}\n{}", fleet_leases::measure(workspace, options.effort)?))
        },
        check: None,
    },
    Part {
        name: "start",
        needs: &[&tools::ENVOY],
        products: &[Product::Envoy, Product::Module],
        measure: |workspace, options| {
            let starts = start::measure(workspace, options.effort)?;
            Ok(format!("{starts}\n{}", reload::measure(workspace)?))
        },
        check: None,
    },
    Part {
        name: "peers",
        needs: &[&tools::VALGRIND, &tools::NODE_LIMITERS, &tools::PYTHON_LIMITERS],
        products: &[],
        measure: |workspace, options| peers::measure(workspace, options.log.as_deref()),
        check: None,
    },
    Part {
        name: "files",
        measure: |workspace, _| request_files::measure(workspace),
        check: None,
        ..COUNTED
    },
];

#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// Names of parts in their order; none means all.
    pub parts: Vec<String>,
    pub effort: Effort,
    /// Check the counted figures against their ceilings, and compare the written ones; measure
    /// nothing else.
    pub check: bool,
    /// The day of real traffic that `accuracy` measures.
    pub log: Option<PathBuf>,
}

pub fn bench(workspace: &Workspace, options: &Options) -> Result<()> {
    let named = |name: &String| ALL.into_iter().find(|part| part.name == name);
    let parts: Vec<Part> = match options.parts[..] {
        [] => ALL.into(),
        _ => options.parts.iter().filter_map(named).collect(),
    };
    if options.check && parts.iter().any(|part| part.check.is_none()) {
        let why =
            "only core, policy, server, envoy and module have ceilings, and accuracy a document";
        return Err(Problem::new("cannot check", why, "cargo xtask bench core policy --check"));
    }
    let needs: Vec<&Tool> = parts.iter().flat_map(|part| part.needs).copied().collect();
    tools::ensure(workspace, &needs)?;
    for product in [Product::Envoy, Product::Module, Product::Worker] {
        if parts.iter().any(|part| part.products.contains(&product)) {
            build::build(workspace, product)?;
        }
    }
    if options.check {
        let mut checks = parts.iter().filter_map(|part| part.check);
        return checks.try_for_each(|check| check(workspace, options));
    }
    let mut document = heading(workspace, options.effort)?;
    println!("\n{document}");
    for part in parts {
        let text = (part.measure)(workspace, options)?;
        println!("\n{text}");
        document = format!("{document}\n{text}");
    }
    let file = workspace.out.join("bench.md");
    files::write(&file, document)?;
    println!("\nwritten to {}", file.display());
    Ok(())
}

pub const NEEDED_TO_CHECK: &[&Tool] = &[&tools::VALGRIND];

/// Checks the instruction counts of decisions against their ceilings.
pub fn check(workspace: &Workspace) -> Result<()> {
    decisions::check(workspace)?;
    policy::check(workspace)
}

/// The committed tables of accuracy are the code's results.
pub fn check_accuracy(workspace: &Workspace) -> Result<()> {
    accuracy::check(workspace, None)
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
    let mut locked = linked::locked(workspace)?.into_keys();
    let governor = locked.find(|(name, _)| name == "governor");
    let workerd = run::output(Command::new(npm::workerd(workspace)).arg("--version"), "install it");
    let Effort { seconds, rounds } = effort;
    Ok(format!(
        "Commit {}; {} x {}, load {}; {}, {}, Envoy {}, {}. {rounds} rounds in rotating order, \
         {seconds} s of load each. Another machine, and this one an hour later, gives other \
         microseconds: the ratios are what counts.\n",
        commit.trim(),
        std::thread::available_parallelism().map_or(1, usize::from),
        cpu::model(),
        cpu::load_average(),
        rustc.split(" (").next().unwrap_or_default().trim(),
        governor.as_ref().map(linked::shown).unwrap_or_default(),
        versions::ENVOY,
        workerd.map_or("workerd not installed".to_owned(), |text| text.trim().to_owned()),
    ))
}

fn sizes(workspace: &Workspace) -> Result<String> {
    let mut table = Table::new("Sizes", &["module", "bytes", "gzipped"]);
    let modules = build::envoy::MODULES.map(|module| (module, workspace.out.join(module)));
    let worker = ("the Worker", workspace.worker_dir().join(build::worker::WASM));
    for (name, file) in modules.into_iter().chain([worker]) {
        let (raw, zipped) = build::product::sizes(&file)?;
        table.row([name.to_owned(), grouped(raw), grouped(zipped)]);
    }
    Ok(table.markdown())
}
