//! Envoy: the effect of another policy on clients, while they send.
//!
//! Invariant: each connection has a time for every request, and a latency is counted from that time
//! on, so that a request's wait behind a slow one before it is not lost. Rows differ in the module
//! and in how the policy comes, and every change is another policy. These are latencies: on a busy
//! machine they are the neighbours', and only the difference to the row above is meaningful.

use super::{
    envoy::{bootstrap, wasm},
    figures::{Table, figure, quantile},
};
use crate::{
    files,
    problem::{OrProblem, Problem, Result},
    servers::{
        envoy::{self, Options},
        free_port,
        http::Connection,
    },
    workspace::Workspace,
};
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};
use tollgate_policy::Surface;

const CONNECTIONS: u32 = 8;
/// Per connection: 2,000 requests per second in all, half of what one worker can serve.
const EVERY: Duration = Duration::from_millis(4);
const CHANGES: u32 = 10;
const BETWEEN_CHANGES: Duration = Duration::from_secs(1);
/// How long after a file was moved into place a request counts as one during the reload.
const DURING: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(10);
const RULES: u32 = 100;

/// One request: when it was due, and how long its response took.
type Sample = (Instant, Duration);

pub fn measure(workspace: &Workspace) -> Result<String> {
    let heading = ["", "requests", "p50, ms", "p99, ms", "most, ms"];
    let mut table = Table::new("Envoy: requests while policies change", &heading);
    for (name, module, is_slim) in
        [("default", workspace.envoy_wasm(), false), ("slim", workspace.envoy_slim_wasm(), true)]
    {
        eprintln!("  reload: {name}");
        let (samples, changes) = run(workspace, &module, is_slim)?;
        let is_during = |at: Instant| {
            changes.iter().any(|change| at >= *change && at.duration_since(*change) < DURING)
        };
        let (during, before): (Vec<Sample>, Vec<Sample>) =
            samples.into_iter().partition(|(at, _)| is_during(*at));
        table.row(row(&format!("{name}, between changes"), &before));
        table.row(row(&format!("{name}, during one"), &during));
    }
    table.note(&format!(
        "Two workers, {CONNECTIONS} connections, 2,000 requests a second, each with a time of its own; {CHANGES} \
         changes of a policy with {RULES} rules by ECDS, and {} ms after each count as during it.",
        DURING.as_millis(),
    ));
    Ok(table.markdown())
}

fn row(label: &str, samples: &[Sample]) -> [String; 5] {
    let mut ms: Vec<f64> =
        samples.iter().map(|(_, latency)| latency.as_secs_f64() * 1000.0).collect();
    ms.sort_by(f64::total_cmp);
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|part| figure(quantile(&ms, part), 2));
    [label.to_owned(), ms.len().to_string(), p50, p99, most]
}

/// All requests, and when a policy was put into place.
fn run(workspace: &Workspace, module: &Path, is_slim: bool) -> Result<(Vec<Sample>, Vec<Instant>)> {
    let folder = workspace.out.join("run/reload");
    let file = folder.join("ecds.json");
    put(&file, module, is_slim, 0)?;
    let port = free_port()?;
    let found = json!({"name": "tollgate", "config_discovery": {
        "config_source": {"path_config_source": {"path": file}, "resource_api_version": "V3"},
        "type_urls": ["type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"],
    }});
    let mut config = bootstrap(port, Some(found));
    config["node"] = json!({"id": "bench", "cluster": "bench"});
    let options =
        Options { name: "reload", config: config.to_string(), ready: (port, "/"), concurrency: 2 };
    let _server = envoy::start(workspace, options)?;
    let samples = Mutex::new(Vec::new());
    let mut changes = Vec::new();
    let begin = Instant::now() + Duration::from_millis(100);
    let end = begin + BETWEEN_CHANGES * (CHANGES + 1);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let (samples, first) = (&samples, begin + EVERY * number / CONNECTIONS);
                scope.spawn(move || {
                    let own = client(port, first, end)?;
                    samples.lock().map(|mut all| all.extend(own)).map_err(|_| stopped())
                })
            })
            .collect();
        for number in 1..=CHANGES {
            let at = begin + BETWEEN_CHANGES * number;
            thread::sleep(at.saturating_duration_since(Instant::now()));
            changes.push(Instant::now());
            put(&file, module, is_slim, number)?;
        }
        clients.into_iter().try_for_each(|client| client.join().map_err(|_| stopped())?)
    })?;
    Ok((samples.into_inner().unwrap_or_default(), changes))
}

fn stopped() -> Problem {
    Problem::new("a client stopped", "it panicked", "read its output above")
}

/// Sends at its times, and returns how long each response took.
fn client(port: u16, first: Instant, end: Instant) -> Result<Vec<Sample>> {
    let fix = "read Envoy's log in target/tollgate/run";
    let mut connection = Connection::open(port, PATIENCE).or_problem("no connection", fix)?;
    let mut samples = Vec::new();
    let mut due = first;
    while due < end {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let request = "GET /path-7/x HTTP/1.1\r\nhost: bench\r\nx-key: client-1\r\n\r\n";
        let status = connection.send(request).and_then(|()| connection.answer());
        match status.or_problem("a request has no response", fix)? {
            200 => {}
            other => return Err(Problem::new("a request is denied", other.to_string(), fix)),
        }
        samples.push((due, due.elapsed()));
        due += EVERY;
    }
    Ok(samples)
}

/// Moves the filter with policy `number` into place.
fn put(file: &Path, module: &Path, is_slim: bool, number: u32) -> Result<()> {
    let rule = |i: u32| {
        json!({
            "name": format!("rule-{i}"), "when": {"paths": [format!("/path-{i}/**")]},
            "key": [{"header": "x-key"}],
            "quotas": [{"limit": 1_000_000 + number, "window": "1s"}],
        })
    };
    let document = json!({"version": 1, "rules": (0..RULES).map(rule).collect::<Vec<Value>>()});
    let configuration = if is_slim {
        let plugin = tollgate_language::compile_plugin(&document.to_string(), Surface::Envoy);
        json!({"compiled": plugin.or_problem("cannot compile", "correct it")?.to_compiled_text()})
    } else {
        document
    };
    let filter = wasm(module, "reload", &configuration);
    let response = json!({"version_info": number.to_string(), "resources": [{
        "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        "name": "tollgate", "typed_config": filter["typed_config"],
    }]});
    let partial = file.with_extension("partial");
    files::write(&partial, response.to_string())?;
    files::rename(&partial, file)
}
