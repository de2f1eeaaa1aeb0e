//! `cargo xtask up`: both products in front of one demo origin, and the playground and the admin
//! page beside them, on loopback, until Ctrl-C.
//!
//! Invariant: what is printed as an answer was answered a moment ago by the server it is printed
//! for, to a client address that nobody else uses. Nothing is left running afterwards.

use crate::{
    build,
    problem::{Problem, Result},
    progress::{Board, Job, seconds},
    run::{self, Runner},
    servers::{
        Server,
        envoy::{self, Ports},
        files, free_port,
        http::Request,
        must_be_free, workerd,
    },
    tools,
    workspace::Workspace,
};
use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::PathBuf,
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

/// More than any demo policy admits at once.
const MOST_PROBES: usize = 1000;
/// How many denials the shown command should see.
const DENIALS: usize = 3;
/// For the probe alone: a loopback address, and one from the range for documentation.
const PROBE_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);
const PROBE_HEADER: &str = "192.0.2.77";

/// Opens the admin page. Only this machine reaches the port, and no other site's page may send it.
const TOKEN: &str = "only-for-this-machine";
const ADMIN_PAGE: &str = ".well-known/tollgate/admin/";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub envoy_port: u16,
    pub worker_port: u16,
    pub playground_port: u16,
}

pub fn up(workspace: &Workspace, options: Options) -> Result<()> {
    must_be_free(options.envoy_port, "--envoy-port")?;
    must_be_free(options.worker_port, "--worker-port")?;
    must_be_free(options.playground_port, "--playground-port")?;
    let started = Instant::now();
    let board = Board::default();
    let mut servers = board.during(|| {
        make(workspace, &board)?;
        let job = Job::new("servers", log(workspace, "servers"));
        board.job(job, ["starting", "started"], "Envoy, workerd, an origin", |_| {
            start(workspace, options)
        })
    })?;
    files::serve(workspace, options.playground_port, "/")?;
    println!("  {:<28} ready after {}", "everything", seconds(started.elapsed()));
    let probe = Request::new(options.envoy_port, "/").from(PROBE_ADDRESS);
    let envoy = observe(&probe)?;
    let probe = Request::new(options.worker_port, "/").header("cf-connecting-ip", PROBE_HEADER);
    let worker = observe(&probe)?;
    println!("\nEnvoy (proxy-wasm filter)    http://127.0.0.1:{}/", options.envoy_port);
    show(options.envoy_port, "", &envoy);
    println!("\nworkerd (Durable Objects)    http://127.0.0.1:{}/", options.worker_port);
    show(options.worker_port, " -H 'cf-connecting-ip: 192.0.2.1'", &worker);
    println!("\nThe admin page, token {TOKEN}");
    println!("                             http://127.0.0.1:{}/{ADMIN_PAGE}", options.worker_port);
    println!("\nThe playground (static files) http://127.0.0.1:{}/", options.playground_port);
    let pids = servers.each_ref().map(|server| format!("{} {}", server.name, server.running.pid()));
    println!("\nEnvoy and workerd stand in front of the demo origin (pids: {}).", pids.join(", "));
    println!("Ctrl-C stops everything.");
    loop {
        servers.iter_mut().try_for_each(Server::check_alive)?;
        thread::sleep(Duration::from_millis(200));
    }
}

/// Tools and products. What does not need each other runs side by side: cargo compiles the products
/// one after the other, meanwhile the tools come, and the filter is optimised while the Worker is
/// compiled.
fn make(workspace: &Workspace, board: &Board) -> Result<()> {
    tools::ensure_on(board, workspace, &[&tools::WASM_TARGET])?;
    thread::scope(|scope| {
        let tools = scope.spawn(|| tools::ensure_on(board, workspace, tools::FOR_UP));
        compile(workspace, board, "filter", build::envoy::compile)?;
        let others = scope.spawn(|| {
            compile(workspace, board, "Worker", build::worker::compile)?;
            compile(workspace, board, "playground", build::playground::compile)
        });
        joined(tools)?;
        package(workspace, board, "filter", build::envoy::package)?;
        joined(others)?;
        package(workspace, board, "Worker", build::worker::package)?;
        package(workspace, board, "playground", build::playground::package)?;
        package(workspace, board, "admin page", build::admin_page::package)
    })
}

fn compile(
    workspace: &Workspace,
    board: &Board,
    name: &str,
    work: fn(&Workspace, Runner) -> Result<()>,
) -> Result<()> {
    let job = Job::new(name, log(workspace, &format!("compile-{name}")));
    board.job(job, ["compiling", "compiled"], "optimised, for wasm", |job| {
        work(workspace, &|command, fix| run::logged(command, job, fix))
    })
}

fn package(
    workspace: &Workspace,
    board: &Board,
    name: &str,
    work: fn(&Workspace) -> Result<()>,
) -> Result<()> {
    let job = Job::new(name, log(workspace, &format!("package-{name}")));
    board.job(job, ["packaging", "packaged"], "as it is deployed", |_| work(workspace))
}

/// Of this checkout, not of the tools that checkouts share.
fn log(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.out.join("up").join(format!("{name}.log"))
}

fn joined(thread: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|_| {
        let why = "a part of xtask crashed";
        Err(Problem::new("cannot start", why, "report it with what was printed above"))
    })
}

fn start(workspace: &Workspace, options: Options) -> Result<[Server; 3]> {
    let (origin_port, admin) = (free_port()?, free_port()?);
    let ports = Ports { ingress: options.envoy_port, admin, origin: origin_port };
    let origin = envoy::Options {
        name: "origin",
        config: envoy::origin_config(workspace, origin_port)?,
        ready: (origin_port, "/"),
        concurrency: 1,
    };
    let origin = envoy::start(workspace, origin)?;
    let filter = envoy::Options {
        name: "envoy",
        config: envoy::shipped_config(workspace, ports)?,
        ready: (admin, "/ready"),
        concurrency: 2,
    };
    let mut filter = envoy::start(workspace, filter)?;
    filter.port = options.envoy_port;
    let address = format!("http://127.0.0.1:{origin_port}");
    let worker = workerd::Options {
        name: "workerd",
        port: options.worker_port,
        vars: BTreeMap::from([
            ("ORIGIN".to_owned(), address),
            ("ADMIN_TOKEN".to_owned(), TOKEN.to_owned()),
        ]),
        code: workerd::Code::Shipped,
        storage: workerd::Storage::Disk,
        has_assets: true,
        ready: "/",
    };
    Ok([origin, filter, workerd::start(workspace, worker)?])
}

/// What a fresh client sees: the status of each answer up to a few denials.
fn observe(probe: &Request) -> Result<Vec<u16>> {
    let mut seen = Vec::new();
    while seen.iter().filter(|status| **status == 429).count() < DENIALS {
        if seen.len() == MOST_PROBES {
            let why = format!("{MOST_PROBES} requests in a row were not limited");
            let fix = "see whether the policy still has a quota for every client";
            return Err(Problem::new("no 429 was seen", why, fix));
        }
        seen.push(probe.send()?);
    }
    Ok(seen)
}

fn show(port: u16, extra: &str, seen: &[u16]) {
    let range = format!("'http://127.0.0.1:{port}/?[1-{}]'", seen.len());
    println!("  $ curl -s -o /dev/null -w '%{{http_code}}\\n'{extra} {range} | uniq -c");
    for (count, status) in runs(seen) {
        println!("  {count:>7} {status}");
    }
}

/// What `uniq -c` makes of it.
fn runs(seen: &[u16]) -> Vec<(usize, u16)> {
    let equal = seen.chunk_by(|one, other| one == other);
    equal.map(|run| (run.len(), run.first().copied().unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_answers_are_counted_like_uniq() {
        assert_eq!(runs(&[200, 200, 429, 200]), [(2, 200), (1, 429), (1, 200)]);
    }
}
