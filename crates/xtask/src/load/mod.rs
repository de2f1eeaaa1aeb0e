//! `cargo xtask load`: each product under steady and under sudden load, in one table and one plot
//! for each.
//!
//! Invariant: the requests come from a load generator that is not ours, each response is counted
//! once, and a run in which more is served than the policy allows fails. Latencies are those of
//! this machine at this hour, with the generator on it; `cargo xtask bench` compares the cost with
//! other limiters.

mod h2load;
mod outcome;
mod scenario;

use crate::{
    bench::{
        cpu::{self, ProcessorRole, seated},
        figures::{self, Table, figure, grouped, quantile},
    },
    build::{self, Product},
    files,
    problem::{Problem, Result},
    servers::{Server, free_port, workerd},
    tools::{self, Tool},
    workspace::Workspace,
};
use outcome::Outcome;
use scenario::{BETWEEN_BURSTS, LIMIT, Scenario};
use std::{collections::BTreeMap, thread, time::Instant};
use tollgate_report::{Axis, Plot, Series, Shape, Theme};

pub const NEEDS: &[&Tool] =
    &[&tools::WASM_TARGET, &tools::WASM_BINDGEN, &tools::NODE, &tools::ENVOY, &tools::H2LOAD];
/// Where the table of the document begins and ends.
const MARKS: [&str; 2] = ["<!-- load -->\n", "<!-- /load -->"];

const PRODUCTS: [&str; 2] = ["Envoy", "Worker"];
/// The document that shows the table and the plots.
const DOCUMENT: &str = "docs/performance.md";
/// The plots in it: their names there, and here.
const SHOWN: [(&str, &str); 2] = [
    ("load-envoy-steady", "load-envoy-steady-twice-the-limit"),
    ("load-worker-bursts", "load-worker-bursts"),
];

#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// Of each scenario.
    pub seconds: u32,
    /// Put the table and the plots into the document.
    pub write: bool,
}

/// A server under load, and its results.
struct Loaded {
    product: &'static str,
    scenario: Scenario,
    outcome: Outcome,
    cpu_us: f64,
    /// Of one processor, in percent.
    cpu_share: f64,
    /// The most memory it ever had, in MiB.
    memory_mib: f64,
}

pub fn load(workspace: &Workspace, options: &Options) -> Result<()> {
    tools::ensure(workspace, NEEDS)?;
    build::build(workspace, Product::Envoy)?;
    build::build(workspace, Product::Worker)?;
    let folder = workspace.out.join("load");
    let runs = runs(workspace, options.seconds)?;
    let text = table(&runs)?;
    println!("\n{text}");
    files::write(folder.join("load.md"), &text)?;
    for (name, plot) in plots(&runs) {
        for (theme, suffix) in [(Theme::Light, "light"), (Theme::Dark, "dark")] {
            let file = folder.join(format!("load-{name}-{suffix}.svg"));
            files::write(&file, plot.to_svg(theme))?;
        }
    }
    println!("written to {}", folder.display());
    if options.write { write(workspace, &text) } else { Ok(()) }
}

/// A second of each, on the products as they are built: every request gets a response, and the
/// limits hold.
pub fn briefly(workspace: &Workspace) -> Result<()> {
    let runs = runs(workspace, 1)?;
    println!("{}", table(&runs)?);
    let unanswered = runs.iter().find(|run| run.outcome.failed > 0 || run.outcome.served == 0);
    let Some(Loaded { product, scenario, outcome, .. }) = unanswered else { return Ok(()) };
    let why = format!("{} served, {} failed", outcome.served, outcome.failed);
    let fix = "read the logs in target/tollgate/run";
    Err(Problem::new(format!("{product} under load ({})", scenario.name), why, fix))
}

fn runs(workspace: &Workspace, seconds: u32) -> Result<Vec<Loaded>> {
    let mut runs = Vec::new();
    for product in PRODUCTS {
        for scenario in scenario::all(seconds) {
            eprintln!("  {product}: {}, {}", scenario.name, scenario.words);
            runs.push(run(workspace, product, scenario)?);
        }
    }
    Ok(runs)
}

/// One scenario on a server without any state of clients.
fn run(workspace: &Workspace, product: &'static str, scenario: Scenario) -> Result<Loaded> {
    let (server, headers, origin) = start(workspace, product)?;
    let (paths, pid) = (scenario::paths(), server.running.pid());
    let before_ns = cpu::used_ns(pid)?;
    let began = Instant::now();
    let mut answers = Vec::new();
    for time in 0..scenario.times {
        let turn = BETWEEN_BURSTS * time;
        thread::sleep(turn.saturating_sub(began.elapsed()));
        let Scenario { connections, pace, .. } = scenario;
        answers.extend(h2load::load(workspace, server.port, &paths, headers, connections, pace)?);
    }
    let used_us = cpu::used_ns(pid)?.saturating_sub(before_ns) as f64 / 1e3;
    let memory_mib = cpu::peak_memory_kib(pid)? as f64 / 1024.0;
    drop(origin);
    let outcome = Outcome::of(&answers);
    let most = scenario.most_served(outcome.sent(), outcome.elapsed);
    if outcome.served > most {
        let why = format!("{} requests were served, and its policy admits {most}", outcome.served);
        let fix = format!("read its log: {}", server.log.display());
        return Err(Problem::new(format!("{product} exceeds its limit"), why, fix));
    }
    let cpu_us = used_us / outcome.sent() as f64;
    let cpu_share = used_us / outcome.elapsed.as_micros() as f64 * 100.0;
    Ok(Loaded { product, scenario, outcome, cpu_us, cpu_share, memory_mib })
}

/// The product, what its clients must send, and the origin behind it.
fn start(
    workspace: &Workspace,
    product: &str,
) -> Result<(Server, &'static [&'static str], Option<Server>)> {
    let policy = scenario::policy();
    if product == "Envoy" {
        return Ok((crate::bench::envoy::limited(workspace, "load-envoy", &policy)?, &[], None));
    }
    let origin = crate::bench::envoy::plain(workspace, "load-origin")?;
    let options = workerd::Options {
        name: "load-worker",
        port: free_port()?,
        vars: BTreeMap::from([("ORIGIN".to_owned(), format!("http://127.0.0.1:{}", origin.port))]),
        code: workerd::Code::WithPolicy(policy),
        has_assets: false,
        ready: "/.well-known/tollgate/health",
    };
    let server = seated(ProcessorRole::Server, || workerd::start(workspace, options))?;
    Ok((server, &["cf-connecting-ip: 192.0.2.1"], Some(origin)))
}

fn table(runs: &[Loaded]) -> Result<String> {
    let heading = [
        "",
        "offered",
        "sent",
        "served",
        "refused",
        "errors",
        "p50 ms",
        "p99 ms",
        "CPU us/request",
        "CPU %",
        "memory MiB",
    ];
    let mut table = Table::new("Under load", &heading);
    for Loaded { product, scenario, outcome, cpu_us, cpu_share, memory_mib } in runs {
        let counts =
            [scenario.offered(), outcome.sent(), outcome.served, outcome.refused, outcome.failed];
        let counts = counts.map(|count| grouped(usize::try_from(count).unwrap_or(usize::MAX)));
        let latencies = [0.5, 0.99].map(|part| figure(quantile(&outcome.latencies, part), 2));
        let costs = [figure(*cpu_us, 1), figure(*cpu_share, 0), figure(*memory_mib, 0)];
        let name = format!("{product}, {}", scenario.name);
        table.row([name].into_iter().chain(counts).chain(latencies).chain(costs));
    }
    table.note(&format!(
        "{} clients, each with {LIMIT} requests a second and as many at once (gcra); h2load over HTTP/1.1, on a processor of \
         its own. Errors are requests without a response, and responses other than 2xx and 429. Envoy responds itself; the \
         Worker is in front of an origin, and an admission is on disk before it is answered. {} x {}, load {} before.",
        scenario::CLIENTS,
        thread::available_parallelism().map_or(1, usize::from),
        cpu::model(),
        cpu::load_average(),
    ));
    Ok(table.markdown())
}

/// A plot for each product and scenario, with a name for its file.
fn plots(runs: &[Loaded]) -> impl Iterator<Item = (String, Plot)> {
    runs.iter().map(|loaded| {
        let Loaded { product, scenario, outcome, .. } = loaded;
        let name = format!("{product} {}", scenario.name).to_lowercase();
        let name = name.replace(", ", "-").replace(' ', "-");
        let x = Axis::duration("since the first request");
        let title = format!("{product}: {}", scenario.words);
        let plot = Plot::new(&name, title, x, Axis::number("requests a second")).describe(format!(
            "{} of {} requests were served, {} were refused and {} failed.",
            outcome.served,
            outcome.sent(),
            outcome.refused,
            outcome.failed
        ));
        let series = |kind: usize, name| {
            let points = outcome.course.iter().map(move |(x, counts)| (*x, counts[kind]));
            Series::new(name, Shape::Area).points(points)
        };
        let mut plot = plot.series(series(0, "served")).series(series(1, "refused"));
        if outcome.failed > 0 {
            plot = plot.series(series(2, "failed"));
        }
        (name, plot.stacked())
    })
}

/// Puts the table into the document and the plots next to it.
fn write(workspace: &Workspace, text: &str) -> Result<()> {
    let fix = "restore it with git";
    let document = workspace.root.join(DOCUMENT);
    let old = files::text(&document)?;
    let new = between(&old, text).ok_or_else(|| {
        Problem::new("cannot write into the document", format!("{DOCUMENT} lacks {MARKS:?}"), fix)
    })?;
    files::write(&document, new)?;
    for (there, here) in SHOWN {
        for theme in ["light", "dark"] {
            let from = workspace.out.join("load").join(format!("{here}-{theme}.svg"));
            let to = workspace.root.join("docs").join(format!("{there}-{theme}.svg"));
            files::copy(from, to)?;
        }
    }
    Ok(())
}

/// The document with the table in the place of the earlier one.
fn between(old: &str, text: &str) -> Option<String> {
    figures::between(old, MARKS, figures::without_heading(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() {
        let old = "a\n<!-- load -->\nold\n<!-- /load -->\nb";
        let new = between(old, "### Title\n\n| x |\n").unwrap();
        assert_eq!(new, "a\n<!-- load -->\n| x |\n<!-- /load -->\nb");
        assert_eq!(between("no marks", "x"), None);
    }
}
