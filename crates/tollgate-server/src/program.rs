//! The program: from the command line to the exit status.
//!
//! Invariant: all mistakes in settings, policy or certificates are reported at once, on standard
//! error, before anything listens. Status 0: the server served and ended on request. Status 1: it
//! could not, or requests were cut off at its end. Status 2: the command line is wrong.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollgate_policy::{Problem, Problems};
use tollgate_redis::{BadFile, Engine, Tls as EngineTls};

use crate::clock::Clock;
use crate::config::{Command, Config, Environment, command};
use crate::gate::{Gate, Parts};
use crate::http::{Http, Page};
use crate::listen::descriptors;
use crate::listen::server::{Server, Signals};
use crate::listen::tls::Tls;
use crate::log::{Level, Log};
use crate::policy::active;
use crate::policy::following::{File, Following};
use crate::policy_file::{Contents, PolicyFile};
use crate::store::Store;
use crate::store::memory::Memory;
use crate::store::redis::Redis;
use crate::traces::{Exporter, Traces};

/// The warning for an operator that runs several servers without a store.
const FLEET_OF_ONE: &str = "rules with \"scope\": \"fleet\" are counted in the memory of this one server: a second one \
                            would count for itself, unless both have a store";

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let environment = Environment::new(std::env::vars_os());
    match command(std::env::args_os(), &environment) {
        Command::Print(text, 0) => write_and_exit(&mut std::io::stdout(), &text, 0),
        Command::Print(text, status) => write_and_exit(&mut std::io::stderr(), &text, status),
        Command::Wrong(problems) => refuse(&problems),
        Command::Check(config) => match open(&config) {
            Ok(Files { policy: file, .. }) => {
                let rules = file.policy.rule_names().count();
                for warning in warnings(&config, &file) {
                    let _ = writeln!(std::io::stderr(), "warning: {warning}");
                }
                write_and_exit(
                    &mut std::io::stdout(),
                    &format!("the configuration is right: {rules} rules\n"),
                    0,
                )
            }
            Err(problems) => refuse(&problems),
        },
        Command::Serve(config) => match open(&config) {
            Ok(files) => serve(config, files),
            Err(problems) => refuse(&problems),
        },
    }
}

fn write_and_exit(to: &mut dyn Write, text: &str, status: u8) -> ExitCode {
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
    ExitCode::from(status)
}

fn refuse(problems: &Problems) -> ExitCode {
    let mut text = String::new();
    for problem in &problems.0 {
        text.push_str(&format!("error: {problem}\n"));
    }
    write_and_exit(&mut std::io::stderr(), &text, 1)
}

/// The files that the configuration names.
struct Files {
    policy: File,
    /// The contents that it was read from.
    contents: Contents,
    tls: Option<Tls>,
    engine_tls: Option<EngineTls>,
    page: Page,
}

/// Reads them.
fn open(config: &Config) -> Result<Files, Problems> {
    let mut problems = Problems::default();
    let contents = Contents::read(&config.policy);
    let file = contents.compile(&config.policy, &config.hash_key, config.spoken);
    let tls = config.tls.clone().map(Tls::open).transpose();
    if let Err(of_policy) = &file {
        problems.0.extend(of_policy.0.clone());
    }
    if let Err(why) = &tls {
        problems.0.push(Problem::new("tls_certificate", why.clone()));
    }
    let engine_tls = config.engine_tls.clone().map(EngineTls::open).transpose();
    if let Err(wrong) = &engine_tls {
        problems.0.extend(wrong.iter().map(problem_of));
    }
    let page = config.page.as_deref().map_or_else(|| Ok(Page::default()), Page::read);
    if let Err(why) = &page {
        problems.0.push(Problem::new("page", why.clone()));
    }
    match (file, tls, engine_tls, page) {
        (Ok(policy), Ok(tls), Ok(engine_tls), Ok(page)) => {
            Ok(Files { policy, contents, tls, engine_tls, page })
        }
        _ => Err(problems),
    }
}

/// The problem for a file of TLS to the engine that cannot be used, at its setting.
fn problem_of(bad: &BadFile) -> Problem {
    Problem::new(&format!("store_{}", bad.what), bad.why.clone())
}

fn warnings(config: &Config, file: &File) -> Vec<String> {
    let mut warnings = config.warnings.clone();
    let of_policy = active::warnings(&file.policy, !config.hash_key.is_empty(), config.spoken);
    warnings.extend(of_policy.0.iter().map(ToString::to_string));
    warnings
}

fn serve(config: Config, files: Files) -> ExitCode {
    let clock = Clock::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(config.threads)
        .enable_all()
        .build();
    let log = Log::to_stdout(clock);
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(why) => return failed(&log, &format!("no threads: {why}")),
    };
    let is_whole = runtime.block_on(run(config, files, clock, log));
    runtime.shutdown_background();
    ExitCode::from(u8::from(!is_whole))
}

fn failed(log: &Log, why: &str) -> ExitCode {
    log.message(Level::Error, "failed", why);
    log.close();
    ExitCode::from(1)
}

async fn run(mut config: Config, files: Files, clock: Clock, log: Log) -> bool {
    let Files { policy, contents, tls, engine_tls, page } = files;
    if let Some(options) = &mut config.engine {
        options.tls = engine_tls.map(Arc::new);
    }
    for warning in &config.warnings {
        log.message(Level::Warning, "setting_warning", warning);
    }
    match descriptors::connections(&log, &config) {
        Ok(connections) => config.limits.connections = connections,
        Err(why) => {
            failed(&log, &why);
            return false;
        }
    }
    let (gate, exporter) = match gate(&config, policy, clock, log) {
        Ok(gate) => gate,
        Err((log, why)) => {
            failed(&log, &why);
            return false;
        }
    };
    let traces = export(&gate, exporter);
    let log = &gate.log;
    gate.following.warn(&gate.following.active().policy, 0, log);
    if !gate.following.active().policy.fleet().is_empty() && config.engine.is_none() {
        log.message(Level::Info, "fleet_counted_here", FLEET_OF_ONE);
    }
    greet(&gate).await;
    gate.follow(0).await;
    let (signals, listener, operations) = match bind(&config).await {
        Ok(bound) => bound,
        Err(why) => {
            failed(log, &why);
            return false;
        }
    };
    let policy = PolicyFile::new(Arc::clone(&gate), config.policy, &contents);
    let policy = Arc::new(policy);
    let mut http =
        Http::new(Arc::clone(&gate), config.callers, config.operators, config.limits, page);
    http.readiness = config.readiness;
    let (http, tls) = (Arc::new(http), tls.map(Arc::new));
    let server = Server { http, tls, listener, operations, drain: config.drain };
    if let Some((listening, operations)) = server.addresses() {
        let scheme = if server.tls.is_some() { "https" } else { "http" };
        let fields = [
            ("url", format!("{scheme}://{listening}").into()),
            ("operations_url", format!("http://{operations}").into()),
        ];
        log.event(Level::Info, "listening", &fields);
    }
    let watched = Arc::clone(&policy);
    let watching = tokio::spawn(async move { watched.watch().await });
    let reload = async || reload(&gate, &policy).await;
    let is_whole = server.serve(signals, reload, flush(traces)).await;
    watching.abort();
    gate.log.close();
    is_whole
}

/// The signals, the listener for requests and the one for probes.
async fn bind(config: &Config) -> Result<(Signals, TcpListener, TcpListener), String> {
    let signals = Signals::take().map_err(|why| format!("no signals: {why}"))?;
    let [listener, operations] = [config.listen, config.operations_listen].map(async |address| {
        let bound = TcpListener::bind(address).await;
        bound.map_err(|why| format!("cannot listen on {address}: {why}"))
    });
    Ok((signals, listener.await?, operations.await?))
}

/// The task that sends traces, and the channel that ends it.
type Exporting = (watch::Sender<bool>, JoinHandle<()>);

/// Sends traces concurrently with all other work, if they are configured.
fn export(gate: &Arc<Gate>, exporter: Option<Exporter>) -> Option<Exporting> {
    let exporter = exporter?;
    let gate = Arc::clone(gate);
    let (end, ending) = watch::channel(false);
    let sending = tokio::spawn(async move {
        exporter.run(ending, |why| gate.log.message(Level::Warning, "traces_failed", why)).await;
    });
    Some((end, sending))
}

/// Sends the waiting traces.
async fn flush(traces: Option<Exporting>) {
    let Some((end, sending)) = traces else { return };
    end.send_replace(true);
    let _ = sending.await;
}

/// The gate that decides requests.
fn gate(
    config: &Config,
    file: File,
    clock: Clock,
    log: Log,
) -> Result<(Arc<Gate>, Option<Exporter>), (Log, String)> {
    let mut seeds = [[0; 16]; 3];
    for seed in &mut seeds {
        if let Err(why) = getrandom::fill(seed) {
            return Err((log, format!("no random bytes: {why}")));
        }
    }
    let [of_table, of_gate, of_traces] = seeds;
    let traces = config.traces.clone().map(|options| Traces::new(options, clock, of_traces));
    let (traces, exporter) = traces.unzip();
    let store = match store(config, clock, of_table, traces.as_ref()) {
        Ok(store) => store,
        Err(why) => return Err((log, why)),
    };
    let is_on = config.operators.tokens.admin.is_some();
    let following = Following::new(file, is_on, !config.hash_key.is_empty(), config.spoken);
    let gate = Gate::new(Parts {
        store,
        clock,
        log,
        following,
        hash_key: config.hash_key.clone(),
        fleet_secret: config.fleet_secret,
        log_share: config.log_share,
        is_uncounted: !config.operators.tokens.read_metrics(),
        seed: of_gate,
    });
    if let Some(traces) = traces {
        // No other code sets it.
        let _ = gate.traces.set(traces);
    }
    Ok((gate, exporter))
}

/// The store that is configured.
fn store(
    config: &Config,
    clock: Clock,
    seed: [u8; 16],
    traces: Option<&Traces>,
) -> Result<Store, String> {
    if let Some(mut options) = config.engine.clone() {
        options.shards = config.threads;
        let timeout = options.timeout;
        if let Some(traces) = traces {
            options.observer = Some(Arc::new(traces.clone()));
        }
        let engine = Engine::new(options).map_err(|why| format!("no random bytes: {why}"))?;
        return Ok(Store::Redis(Redis::new(engine, timeout, &config.hash_key)));
    }
    let data = config.data.as_deref();
    Memory::open(clock, config.table, seed, data).map(Store::Memory)
}

/// Logs the state of the store for the operator. A server whose engine does not respond starts all
/// the same, and `on_failure` decides meanwhile. So does a server whose disk is full; it denies
/// changes until there is room.
async fn greet(gate: &Gate) {
    if let Some(why) = gate.store.unwritable() {
        let message = format!("{why}; changes are denied until it can be written");
        gate.log.message(Level::Error, "data_unwritable", &message);
    }
    let Some(engine) = gate.store.engine() else { return };
    match engine.greet().await {
        Ok(warnings) => {
            for warning in warnings {
                gate.log.message(Level::Warning, "store_warning", &warning.to_string());
            }
        }
        Err(fault) => gate.log.message(Level::Error, "store_unreachable", fault.label()),
    }
}

/// Reads the certificates for the engine again, and the policy file. A disk that does not respond
/// holds up none of the threads that serve.
async fn reload(gate: &Arc<Gate>, policy: &PolicyFile) {
    let of_engine = Arc::clone(gate);
    // Mistakes are logged; a panic there leaves the certificates as they were.
    let _ = tokio::task::spawn_blocking(move || reload_engine_tls(&of_engine)).await;
    policy.reload().await;
}

fn reload_engine_tls(gate: &Gate) {
    let Some(engine) = gate.store.engine() else { return };
    match engine.reload_tls() {
        Ok(true) => gate.log.event(Level::Info, "store_certificates_reloaded", &[]),
        Ok(false) => {}
        Err(wrong) => {
            for bad in &wrong {
                let line = problem_of(bad).to_string();
                gate.log.message(Level::Error, "store_certificates_refused", &line);
            }
        }
    }
}
