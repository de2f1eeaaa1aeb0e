//! `tollgate-server` with counts in memory: instructions of one `POST /check`, and bytes per key.
//!
//! Invariant: the program as it ships, with one thread and one connection. Its work at its start is
//! not counted. Every few seconds it adds up its counters, two million instructions: of several
//! rounds the one with the fewest counts.

use super::{
    callgrind, cpu,
    envoy_counted::{connected, dump},
    figures::{Table, figure, least},
};
use crate::{
    children::{self, Running, Stop},
    files,
    problem::{OrProblem, Problem, Result},
    run,
    servers::{free_port, http::Connection, log_to},
    workspace::Workspace,
};
use serde_json::{Value, json};
use std::{path::PathBuf, process::Command};

/// A policy, and the most instructions of a request under it: the measured ones, and 2 % for
/// another processor.
struct Row {
    label: &'static str,
    rules: fn() -> Value,
    most: f64,
}

const ROWS: [Row; 3] = [
    Row {
        label: "allowed, one `gcra` quota",
        rules: || json!([rule("address", "client_ip", 1_000_000)]),
        most: 43_800.0,
    },
    Row { label: "denied", rules: || json!([rule("address", "client_ip", 1)]), most: 55_700.0 },
    Row {
        label: "allowed, two keys",
        rules: || json!([rule("address", "client_ip", 1_000_000), rule("host", "host", 1_000_000)]),
        most: 65_600.0,
    },
];

/// The most bytes per key: the measured ones, and a tenth for another allocator.
const MOST_BYTES: f64 = 65.0;

const FIRST_REQUESTS: usize = 100;
const COUNTED_REQUESTS: usize = 500;
const ROUNDS: usize = 4;
/// As many as the default settings hold.
const KEYS: u32 = 1_000_000;
/// The requests in one body.
const BATCH: u32 = 100;

fn rule(name: &str, key: &str, limit: u32) -> Value {
    json!({"name": name, "key": [key], "quotas": [{"limit": limit, "window": "1d"}]})
}

pub fn measure(workspace: &Workspace) -> Result<String> {
    Ok(table(&count(workspace)?).markdown())
}

/// Counts, and fails where there is more than the ceilings.
pub fn check(workspace: &Workspace) -> Result<()> {
    let rows = count(workspace)?;
    println!("\n{}", table(&rows).markdown());
    let report = |(label, figure, most): &(&str, f64, f64)| {
        (figure > most).then(|| format!("{label}: {figure:.0} of {most:.0}"))
    };
    let exceeded: Vec<String> = rows.iter().filter_map(report).collect();
    callgrind::within("the server costs more than its ceiling", &exceeded)
}

/// Each figure with its ceiling.
fn count(workspace: &Workspace) -> Result<Vec<(&'static str, f64, f64)>> {
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--release", "-p", "tollgate-server"]);
    run::shown(&mut cargo, "correct crates/tollgate-server")?;
    let mut rows = Vec::new();
    for row in &ROWS {
        rows.push((row.label, instructions(workspace, &(row.rules)())?, row.most));
    }
    let policy = json!([rule("address", "client_ip", 1_000)]);
    rows.push(("bytes per key, one `gcra` quota", bytes_per_key(workspace, &policy)?, MOST_BYTES));
    Ok(rows)
}

fn table(rows: &[(&str, f64, f64)]) -> Table {
    let mut table = Table::new("Server: one `POST /check`", &["", "measured", "at most"]);
    for (label, count, most) in rows {
        table.row([(*label).to_owned(), figure(*count, 0), figure(*most, 0)]);
    }
    table.note(&format!(
        "User instructions of the whole program, counted by callgrind: one thread, one connection, counts in memory. \
         Bytes: what the resident memory grew by for {KEYS} keys, by their number."
    ));
    table
}

/// User instructions of one request.
fn instructions(workspace: &Workspace, rules: &Value) -> Result<f64> {
    let folder = workspace.out.join("run/callgrind-server");
    files::make_empty(&folder)?;
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--tool=callgrind");
    valgrind.arg(format!("--callgrind-out-file={}", folder.join("out").display()));
    valgrind.arg(program(workspace));
    let (server, mut client) = start(&folder, valgrind, rules)?;
    let body = json!({"method": "GET", "path": "/api/items", "host": "a.example", "client_ip": "192.0.2.1"});
    ask(&mut client, &body, FIRST_REQUESTS)?;
    dump(&server, &folder)?; // the instructions before
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        ask(&mut client, &body, COUNTED_REQUESTS)?;
        rounds.push(dump(&server, &folder)? / COUNTED_REQUESTS as f64);
    }
    Ok(least(&rounds))
}

fn bytes_per_key(workspace: &Workspace, rules: &Value) -> Result<f64> {
    let folder = workspace.out.join("run/server-keys");
    files::make_empty(&folder)?;
    let (server, mut client) = start(&folder, Command::new(program(workspace)), rules)?;
    let mut fill = |keys: std::ops::Range<u32>| -> Result<f64> {
        for first in keys.step_by(BATCH as usize) {
            let request = |key: u32| {
                let [_, a, b, c] = key.to_be_bytes();
                json!({"method": "GET", "path": "/", "client_ip": format!("10.{a}.{b}.{c}")})
            };
            let requests: Vec<Value> = (first..first + BATCH).map(request).collect();
            ask(&mut client, &json!({"requests": requests}), 1)?;
        }
        Ok(cpu::resident_memory_kib(server.pid())? as f64 * 1024.0)
    };
    let before = fill(0..1_000)?;
    Ok((fill(1_000..1_000 + KEYS)? - before) / f64::from(KEYS))
}

fn program(workspace: &Workspace) -> PathBuf {
    workspace.target.join("release/tollgate-server")
}

/// Starts the program that `command` names with these rules, and connects to it.
fn start(
    folder: &std::path::Path,
    mut command: Command,
    rules: &Value,
) -> Result<(Running, Connection)> {
    let policy = folder.join("policy.json");
    files::write(&policy, json!({"version": 1, "rules": rules}).to_string())?;
    let (port, operations) = (free_port()?, free_port()?);
    command.arg("--policy").arg(&policy).args(["--threads", "1"]);
    command.args(["--listen", &format!("127.0.0.1:{port}")]);
    command.args(["--operations-listen", &format!("127.0.0.1:{operations}")]);
    log_to(&mut command, &folder.join("log"))?;
    Ok((children::spawn(&mut command, Stop::Group)?, connected(port)?))
}

fn ask(client: &mut Connection, body: &Value, count: usize) -> Result<()> {
    let body = body.to_string();
    let request = format!(
        "POST /check HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let fix = "read its log in target/tollgate/run";
    for _ in 0..count {
        client.send(&request).or_problem("the server takes no request", fix)?;
        let status = client.answer().or_problem("the server does not respond", fix)?;
        if status != 200 {
            return Err(Problem::new("the server did not decide", format!("{status}"), fix));
        }
    }
    Ok(())
}
