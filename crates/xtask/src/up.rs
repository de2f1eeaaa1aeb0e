//! `cargo xtask up`: the filter in Envoy and the Worker, in front of one demo origin on loopback,
//! until Ctrl-C. With `--all` also the server, the playground and the admin page.
//!
//! Invariant: a printed response was sent a moment ago by the server it is printed for, to a client
//! address that nothing else uses. Nothing is left running afterwards.

use crate::{
    build, files,
    problem::{OrProblem, Problem, Result},
    progress::{Board, Job, seconds},
    run::{self, Runner},
    servers::{
        Server,
        envoy::{self, Ports},
        free_port,
        http::Request,
        must_be_free, static_files, tollgate, workerd,
    },
    tools,
    workspace::Workspace,
};
use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

/// More than any demo policy allows at once.
const MOST_PROBES: usize = 1000;
/// How many denials the shown command should see.
const DENIALS: usize = 3;
/// For the probe alone: a loopback address, and one from the range for documentation.
const PROBE_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);
const PROBE_CLIENT: &str = "192.0.2.77";
/// The client of the commands that are shown.
const SHOWN_CLIENT: &str = "192.0.2.1";

/// Opens the admin page. Only this machine reaches the port, and no other site's page may send it.
const TOKEN: &str = "only-for-this-machine";
const ADMIN_PAGE: &str = ".well-known/tollgate/admin/";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub envoy_port: u16,
    pub worker_port: u16,
    pub server_port: u16,
    pub playground_port: u16,
    /// The server, the playground and the admin page, too.
    pub all: bool,
    /// The enforced policy of every surface; each surface's own when there is none.
    pub policy: Option<PathBuf>,
}

pub fn up(workspace: &Workspace, options: &Options) -> Result<()> {
    must_be_free(options.envoy_port, "--envoy-port")?;
    must_be_free(options.worker_port, "--worker-port")?;
    if options.all {
        must_be_free(options.server_port, "--server-port")?;
        must_be_free(options.playground_port, "--playground-port")?;
    }
    let started = Instant::now();
    let board = Board::default();
    let mut servers = board.during(|| {
        // A mistake in the policy is reported before the rest is built.
        let tried = options.policy.as_deref().map(|file| tried(workspace, &board, file));
        let tried = tried.transpose()?;
        make(workspace, &board, options.all)?;
        let job = Job::new("servers", log(workspace, "servers"));
        let names = if options.all { "Envoy, workerd, tollgate-server" } else { "Envoy, workerd" };
        board
            .job(job, ["starting", "started"], names, |_| start(workspace, options, tried.as_ref()))
    })?;
    println!("  {:<28} ready after {}", "everything", seconds(started.elapsed()));
    match &options.policy {
        None => show(options)?,
        Some(policy) => show_addresses(options, policy),
    }
    let pid = |server: &Server| format!("{} {}", server.name, server.running.pid());
    let pids: Vec<String> = servers.iter().map(pid).collect();
    println!("\nEnvoy and workerd are in front of the demo origin (pids: {}).", pids.join(", "));
    println!("Ctrl-C stops everything.");
    loop {
        servers.iter_mut().try_for_each(Server::check_alive)?;
        thread::sleep(Duration::from_millis(200));
    }
}

/// The policy in `file`, as the command line of this checkout reads it.
fn tried(workspace: &Workspace, board: &Board, file: &Path) -> Result<TrialPolicy> {
    compile(workspace, board, "command line", |workspace, run| {
        build::server::compile(workspace, "tollgate-cli", run)
    })?;
    TrialPolicy::read(workspace, file)
}

/// Tools and products. Independent work runs in parallel: cargo compiles the products one after the
/// other, meanwhile the tools are installed, and the filter is optimised while the Worker is
/// compiled.
fn make(workspace: &Workspace, board: &Board, all: bool) -> Result<()> {
    tools::ensure_on(board, workspace, &[&tools::WASM_TARGET])?;
    let wanted = if all { tools::FOR_UP_ALL } else { tools::FOR_UP };
    thread::scope(|scope| {
        let tools = scope.spawn(|| tools::ensure_on(board, workspace, wanted));
        compile(workspace, board, "filter", build::envoy::compile_filter)?;
        let others = scope.spawn(|| {
            compile(workspace, board, "Worker", build::worker::compile)?;
            if all {
                compile(workspace, board, "playground", build::playground::compile)?;
                compile(workspace, board, "server", |workspace, run| {
                    build::server::compile(workspace, "tollgate-server", run)
                })?;
            }
            Ok(())
        });
        joined(tools)?;
        package(workspace, board, "filter", build::envoy::package_filter)?;
        joined(others)?;
        package(workspace, board, "Worker", build::worker::package)?;
        if all {
            package(workspace, board, "playground", build::playground::package)?;
            package(workspace, board, "admin page", build::admin_page::package)?;
        }
        Ok(())
    })
}

fn compile(
    workspace: &Workspace,
    board: &Board,
    name: &str,
    work: fn(&Workspace, Runner) -> Result<()>,
) -> Result<()> {
    let job = Job::new(name, log(workspace, &format!("compile-{name}")));
    board.job(job, ["compiling", "compiled"], "optimised", |job| {
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

fn start(
    workspace: &Workspace,
    options: &Options,
    tried: Option<&TrialPolicy>,
) -> Result<Vec<Server>> {
    let (origin_port, admin) = (free_port()?, free_port()?);
    let ports = Ports { ingress: options.envoy_port, admin, origin: origin_port };
    let origin = envoy::Options {
        name: "origin",
        config: envoy::origin_config(workspace, origin_port)?,
        ready: (origin_port, "/"),
        concurrency: 1,
    };
    let origin = envoy::start(workspace, origin)?;
    let shipped = envoy::shipped_config(workspace, ports)?;
    let config = match tried {
        None => shipped,
        Some(tried) => tried.in_envoy(workspace, &shipped)?,
    };
    let filter = envoy::Options { name: "envoy", config, ready: (admin, "/ready"), concurrency: 2 };
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
        code: match tried {
            None => workerd::Code::Shipped,
            Some(tried) => workerd::Code::WithPolicy(tried.json.clone()),
        },
        has_assets: options.all,
        ready: "/",
    };
    let mut servers = vec![origin, filter, workerd::start(workspace, worker)?];
    if options.all {
        servers.push(match tried {
            None => tollgate::start(workspace, options.server_port),
            Some(tried) => tollgate::start_with(workspace, options.server_port, &tried.file, &[]),
        }?);
        let page = workspace.playground_dir();
        servers.push(static_files::serve(workspace, options.playground_port, &page)?);
    }
    Ok(servers)
}

const CORRECT: &str = "correct the policy";

/// A custom policy. The command line compiles each surface's form of it, from YAML or JSON, and
/// reports mistakes with their place; a policy that one of the surfaces rejects is tried on none.
#[derive(Debug)]
struct TrialPolicy {
    file: PathBuf,
    /// In the Worker's form.
    json: String,
}

impl TrialPolicy {
    /// The policy in `file`.
    fn read(workspace: &Workspace, file: &Path) -> Result<Self> {
        let file = std::path::absolute(file).or_problem("cannot find the policy", CORRECT)?;
        for surface in ["envoy", "server"] {
            let mut check = tollgate(workspace, "check", &file);
            run::output(check.args(["--surface", surface]), CORRECT)?;
        }
        let mut compile = tollgate(workspace, "compile", &file);
        let json = run::output(compile.args(["--surface", "worker", "--json"]), CORRECT)?;
        Ok(Self { file, json })
    }

    /// The configuration of Envoy with this policy in the place of its own.
    fn in_envoy(&self, workspace: &Workspace, config: &str) -> Result<String> {
        let to = workspace.out.join("up/envoy.yaml");
        files::write(&to, config)?;
        let mut embed = tollgate(workspace, "embed", &self.file);
        run::output(embed.arg("--into").arg(&to), CORRECT)?;
        files::text(&to)
    }
}

fn tollgate(workspace: &Workspace, name: &str, policy: &Path) -> Command {
    let mut command = Command::new(workspace.cli());
    command.arg(name).arg(policy);
    command
}

/// The running servers, each with its responses to a fresh client.
fn show(options: &Options) -> Result<()> {
    let &Options { envoy_port, worker_port, .. } = options;
    let envoy = Request::new(envoy_port, "/").from(PROBE_ADDRESS);
    let envoy = observe(|| status(&envoy))?;
    let worker = Request::new(worker_port, "/").header("cf-connecting-ip", PROBE_CLIENT);
    let worker = observe(|| status(&worker))?;
    println!("\nEnvoy (proxy-wasm filter)    http://127.0.0.1:{envoy_port}/");
    show_statuses(envoy_port, "", &envoy);
    println!("\nworkerd (Durable Objects)    http://127.0.0.1:{worker_port}/");
    show_statuses(worker_port, &format!(" -H 'cf-connecting-ip: {SHOWN_CLIENT}'"), &worker);
    if options.all { show_others(options) } else { Ok(()) }
}

/// The server with its responses to a fresh client, and the addresses of the pages.
fn show_others(options: &Options) -> Result<()> {
    let server_port = options.server_port;
    let server = Request::new(server_port, "/check").post(&login(PROBE_CLIENT));
    let server = observe(|| decision(&server.text()?))?;
    println!("\ntollgate-server (its memory) http://127.0.0.1:{server_port}/check");
    println!(
        "  $ curl -s --json '{}' 'http://127.0.0.1:{server_port}/check?[1-{}]' | grep -oE '{ALLOWED}|\"status\":[0-9]+' | uniq -c",
        login(SHOWN_CLIENT),
        server.len(),
    );
    show_runs(&server);
    show_pages(options);
    Ok(())
}

/// Where a custom policy is enforced. Its author knows its limits: no request here is known to be
/// limited by it.
fn show_addresses(options: &Options, policy: &Path) {
    let Options { envoy_port, worker_port, server_port, all, .. } = options;
    println!("\n{} is enforced by", policy.display());
    println!("Envoy (proxy-wasm filter)     http://127.0.0.1:{envoy_port}/");
    println!("workerd (Durable Objects)     http://127.0.0.1:{worker_port}/");
    if !all {
        return;
    }
    println!("tollgate-server (its memory)  http://127.0.0.1:{server_port}/check");
    show_pages(options);
}

fn show_pages(Options { worker_port, playground_port, .. }: &Options) {
    println!("\nThe admin page, token {TOKEN}");
    println!("                             http://127.0.0.1:{worker_port}/{ADMIN_PAGE}");
    println!("\nThe playground (static files) http://127.0.0.1:{playground_port}/");
}

/// A request as `POST /check` wants it.
fn login(client: &str) -> String {
    format!(r#"{{"method":"POST","path":"/login","client_ip":"{client}"}}"#)
}

fn status(probe: &Request) -> Result<String> {
    probe.send().map(|status| status.to_string())
}

const ALLOWED: &str = r#""decision":"allow""#;

/// The shown command's output for one response of the server.
fn decision(answer: &str) -> Result<String> {
    let parsed: Option<serde_json::Value> = serde_json::from_str(answer).ok();
    let member = |name: &str| parsed.as_ref().and_then(|parsed| parsed.get(name));
    if member("decision").is_some_and(|decision| decision == "allow") {
        return Ok(ALLOWED.to_owned());
    }
    let status = member("status").map(|status| format!("\"status\":{status}"));
    status.ok_or_else(|| Problem::new("the server does not decide", answer, "read its log"))
}

/// The responses to a fresh client, up to a few denials.
fn observe(ask: impl Fn() -> Result<String>) -> Result<Vec<String>> {
    let mut seen: Vec<String> = Vec::new();
    while seen.iter().filter(|answer| answer.ends_with("429")).count() < DENIALS {
        if seen.len() == MOST_PROBES {
            let why = format!("{MOST_PROBES} requests in a row were not limited");
            let fix = "see whether the policy still has a quota for every client";
            return Err(Problem::new("no 429 was seen", why, fix));
        }
        seen.push(ask()?);
    }
    Ok(seen)
}

fn show_statuses(port: u16, extra: &str, seen: &[String]) {
    let range = format!("'http://127.0.0.1:{port}/?[1-{}]'", seen.len());
    println!("  $ curl -s -o /dev/null -w '%{{http_code}}\\n'{extra} {range} | uniq -c");
    show_runs(seen);
}

fn show_runs(seen: &[String]) {
    for (count, answer) in runs(seen) {
        println!("  {count:>7} {answer}");
    }
}

/// The output of `uniq -c` for them.
fn runs(seen: &[String]) -> Vec<(usize, &str)> {
    let equal = seen.chunk_by(|one, other| one == other);
    equal.map(|run| (run.len(), run.first().map_or("", String::as_str))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_answers_are_counted_like_uniq() {
        let seen = ["200", "200", "429", "200"].map(str::to_owned);
        assert_eq!(runs(&seen), [(2, "200"), (1, "429"), (1, "200")]);
    }

    #[test]
    fn answers_of_the_server_are_read_as_the_shown_command_does() {
        let allowed = r#"{"decision":"allow","rules":[],"headers":{}}"#;
        assert_eq!(decision(allowed).unwrap(), ALLOWED);
        let denied = r#"{"decision":"deny","headers":{},"status":429,"body":"{\"status\":429}"}"#;
        assert_eq!(decision(denied).unwrap(), "\"status\":429");
        assert!(decision("not found").is_err());
    }
}
