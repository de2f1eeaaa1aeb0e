//! Envoy: instructions of one request, counted by callgrind, which also sees V8's compiled code:
//! within 2 % the same however busy the machine is.
//!
//! Invariant: all rows are listeners of one Envoy with one worker and differ only in the HTTP
//! filter; each gets the same requests, on enough connections at once that Envoy does not look for
//! more work after each. Its work at its start and between the rows is not counted.

use super::{
    callgrind,
    envoy::{PLENTY, bootstrap, native_per_client, policy, wasm},
    figures::{Table, figure},
};
use crate::{
    children::{self, Running, Stop},
    files,
    problem::{OrProblem, Problem, Result},
    run,
    servers::{free_port, http::Connection, log_to, until},
    tools::envoy::CURRENT,
    workspace::Workspace,
};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command, time::Duration};

/// Until the host has its caches, and a limiter that starts full denies.
const FIRST_TURNS: usize = 10;
const COUNTED_TURNS: usize = 64;
/// Each has one request in flight per turn.
const CONNECTIONS: usize = 16;
/// For Envoy's start: all of the filter is compiled by an emulated processor.
const PATIENCE: Duration = Duration::from_secs(400);

/// The fields of each request besides `host` and the key.
const USUAL: [&str; 8] = [
    "user-agent: curl/8.5.0",
    "accept: */*",
    "accept-encoding: gzip, br",
    "accept-language: en-GB,en;q=0.9",
    "cookie: session=5f2b1c9e8d7a4f60b3c1",
    "referer: https://shop.example/list",
    "x-request-start: t=1700000000",
    "cache-control: no-cache",
];
/// How many more fields a request has that came through a browser and other proxies.
const MORE: usize = 20;

/// One listener.
pub(super) struct Row {
    pub(super) label: &'static str,
    filter: Option<Value>,
    is_denied: bool,
    has_more_fields: bool,
    /// The row that it is compared with, and the highest ratio to it: the measured one, and 2 % for
    /// another processor.
    pub(super) ceiling: Option<(usize, f64)>,
}

impl Row {
    pub(super) const fn new(
        label: &'static str,
        filter: Option<Value>,
        ceiling: Option<(usize, f64)>,
    ) -> Self {
        Self { label, filter, is_denied: false, has_more_fields: false, ceiling }
    }

    pub(super) fn denied(self) -> Self {
        Self { is_denied: true, ..self }
    }

    pub(super) fn with_more_fields(self) -> Self {
        Self { has_more_fields: true, ..self }
    }
}

pub(super) const NATIVE: usize = 1;
pub(super) const NATIVE_DENIED: usize = 2;
pub(super) const NATIVE_MORE: usize = 3;
const BY_HEADER: usize = 5;
/// As many as a policy may have.
const MANY_RULES: usize = 1_000;

fn rows(module: &Path) -> Vec<Row> {
    natives().into_iter().chain(ours(module)).chain(of_many(module)).collect()
}

/// The rows that ours are compared with.
pub(super) fn natives() -> [Row; BY_HEADER - 1] {
    let plenty = json!({"max_tokens": PLENTY, "tokens_per_fill": PLENTY, "fill_interval": "1s"});
    let one = json!({"max_tokens": 1, "tokens_per_fill": 1, "fill_interval": "86400s"});
    let native = |label, bucket| Row::new(label, Some(native_per_client(bucket)), None);
    [
        Row::new("no filter", None, None),
        native("native, per client", &plenty),
        native("native, denied", &one).denied(),
        native("native, per client, 20 more fields", &plenty).with_more_fields(),
    ]
}

/// One rule by a header, which allows.
pub(super) fn by_header() -> Value {
    policy("/**", &json!([{"header": "x-key"}]), &json!({"limit": 1_000_000, "window": "1s"}))
}

/// One rule by a header, which denies.
pub(super) fn denying() -> Value {
    policy("/**", &json!([{"header": "x-key"}]), &json!({"limit": 1, "window": "1d"}))
}

fn ours(module: &Path) -> [Row; 8] {
    let row = |label, name, policy, ceiling| {
        Row::new(label, Some(named(module, name, policy)), Some(ceiling))
    };
    let with = |mut policy: Value, place: &str, value: Value| {
        *policy.pointer_mut(place).expect("it is there") = value;
        policy
    };
    let answering = |mut policy: Value, response: Value| {
        policy["response"] = response;
        policy
    };
    let never = with(by_header(), "/rules/0/when/paths", json!(["/never"]));
    let never_of_more = never.clone();
    let by_address = with(by_header(), "/rules/0/key", json!(["client_ip"]));
    let one_field = answering(by_header(), json!({"policy": false}));
    let no_body = answering(denying(), json!({"body": "none"}));
    [
        row("Tollgate, no rule concerned", "never", never, (NATIVE, 1.11)),
        row("Tollgate, key: header", "header", by_header(), (NATIVE, 1.29)),
        row("Tollgate, key: header, one field", "one", one_field, (NATIVE, 1.27)),
        row("Tollgate, key: client_ip", "address", by_address, (NATIVE, 1.28)),
        row("Tollgate, denied", "denied", denying(), (NATIVE_DENIED, 1.50)).denied(),
        row("Tollgate, denied, no body", "bare", no_body, (NATIVE_DENIED, 1.38)).denied(),
        row(
            "Tollgate, no rule concerned, 20 more fields",
            "never-more",
            never_of_more,
            (NATIVE_MORE, 1.06),
        )
        .with_more_fields(),
        row("Tollgate, key: header, 20 more fields", "more", by_header(), (NATIVE_MORE, 1.16))
            .with_more_fields(),
    ]
}

/// As many rules as a policy may have, of which one concerns the requests.
fn of_many(module: &Path) -> [Row; 2] {
    let own = one_of_many(|i| json!([{"header": format!("x-{i}")}]));
    // The states of one key's definition are in one value, of which few are used.
    let same = one_of_many(|_| json!([{"header": "x-key"}]));
    let row = |label, name, policy, most| {
        Row::new(label, Some(named(module, name, policy)), Some((BY_HEADER, most)))
    };
    [
        row("Tollgate, key: header, 1,000 rules", "many", own, 1.03),
        row("Tollgate, key: header, 1,000 rules with this key", "same", same, 1.03),
    ]
}

/// The filter with a policy whose rule has this name. Machines of one id are one: more than four
/// cannot be under callgrind.
fn named(module: &Path, name: &str, mut policy: Value) -> Value {
    policy["rules"][0]["name"] = name.into();
    let mut filter = wasm(module, "counted", &policy);
    filter["typed_config"]["config"]["root_id"] = name.into();
    filter
}

/// The first concerns the requests, the others have paths of their own.
fn one_of_many(key_of: impl Fn(usize) -> Value) -> Value {
    let mut all = by_header();
    let others = (1..MANY_RULES).map(|i| {
        let mut rule = by_header()["rules"][0].take();
        rule["name"] = format!("part-{i}").into();
        rule["when"]["paths"] = json!([format!("/part-{i}/**")]);
        rule["key"] = key_of(i);
        rule
    });
    if let Some(rules) = all["rules"].as_array_mut() {
        rules.extend(others);
        rules[0]["when"]["paths"] = json!(["/"]);
    }
    all
}

/// Counts all rows, and fails where one costs more than its ceiling.
pub fn check(workspace: &Workspace) -> Result<()> {
    let rows = rows(&workspace.envoy_wasm());
    let counts = count(workspace, &rows)?;
    println!("\n{}", table(&rows, &counts).markdown());
    let exceeded: Vec<String> = (rows.iter().zip(&counts))
        .filter_map(|(row, count)| {
            let (base, most) = row.ceiling?;
            let ratio = count / counts[base];
            (ratio > most).then(|| format!("{}: {ratio:.3} of {most:.2}", row.label))
        })
        .collect();
    callgrind::within("a request costs more than its ceiling", &exceeded)
}

fn table(rows: &[Row], counts: &[f64]) -> Table {
    let heading = ["", "instructions", "added", "x native", "at most"];
    let mut table = Table::new("Envoy: instructions of one request", &heading);
    for (row, count) in rows.iter().zip(counts) {
        let against =
            |(base, most): (usize, f64)| (figure(count / counts[base], 3), figure(most, 2));
        let (ratio, most) = row.ceiling.map_or((String::new(), String::new()), against);
        let added = figure(count - counts[0], 0);
        table.row([row.label.to_owned(), figure(*count, 0), added, ratio, most]);
    }
    table.note(
        "Counted by callgrind: Envoy with one worker, `direct_response`, 10 fields, one client, 16 connections. \
         Native is `local_ratelimit` per client with dynamic descriptors and its three fields; ours has two.",
    );
    table
}

/// Instructions of one request of each row.
pub(super) fn count(workspace: &Workspace, rows: &[Row]) -> Result<Vec<f64>> {
    let folder = workspace.out.join("run/callgrind");
    files::make_empty(&folder)?;
    let ports = rows.iter().map(|_| free_port()).collect::<Result<Vec<u16>>>()?;
    let envoy = start(workspace, &folder, &config(rows, &ports))?;
    let mut counts = Vec::new();
    for (row, port) in rows.iter().zip(ports) {
        let mut clients = (0..CONNECTIONS).map(|_| connected(port)).collect::<Result<Vec<_>>>()?;
        ask(&mut clients, row, FIRST_TURNS)?;
        dump(&envoy, &folder)?; // the instructions before
        ask(&mut clients, row, COUNTED_TURNS)?;
        counts.push(dump(&envoy, &folder)? / (COUNTED_TURNS * CONNECTIONS) as f64);
    }
    Ok(counts)
}

fn config(rows: &[Row], ports: &[u16]) -> Value {
    let listener = |(row, port): (&Row, &u16)| {
        let mut listener =
            bootstrap(*port, row.filter.clone())["static_resources"]["listeners"][0].take();
        listener["name"] = format!("counted-{port}").into();
        listener
    };
    let listeners: Vec<Value> = rows.iter().zip(ports).map(listener).collect();
    json!({"static_resources": {"listeners": listeners}})
}

fn start(workspace: &Workspace, folder: &Path, config: &Value) -> Result<Running> {
    let file = folder.join("envoy.json");
    files::write(&file, config.to_string())?;
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind");
    command.arg(format!("--callgrind-out-file={}", folder.join("out").display()));
    command.arg(CURRENT.binary(workspace)).arg("-c").arg(&file);
    command.args(["--log-level", "warn", "--use-dynamic-base-id", "--concurrency", "1"]);
    command.args(["--drain-time-s", "1"]);
    log_to(&mut command, &folder.join("envoy.log"))?;
    children::spawn(&mut command, Stop::Group)
}

pub(super) fn connected(port: u16) -> Result<Connection> {
    let open = || Ok(Connection::open(port, PATIENCE).ok());
    until(PATIENCE, Duration::from_millis(200), open)?.ok_or_else(|| {
        let what = "the server does not start under callgrind";
        Problem::new(what, "it takes no connection", "see its log in target/tollgate/run")
    })
}

/// Sends this many requests on each connection and reads each whole response, which must be the
/// row's.
fn ask(clients: &mut [Connection], row: &Row, turns: usize) -> Result<()> {
    let more = (0..MORE).filter(|_| row.has_more_fields);
    let more = more.map(|i| format!("x-forwarded-part-{i}: some-value-of-{i}"));
    let lines: Vec<String> = USUAL.iter().map(|line| (*line).to_owned()).chain(more).collect();
    let lines = lines.join("\r\n");
    let request =
        format!("GET / HTTP/1.1\r\nhost: shop.example\r\nx-key: client-1\r\n{lines}\r\n\r\n");
    for _ in 0..turns {
        for client in &mut *clients {
            client.send(&request).or_problem(row.label, "read Envoy's log")?;
        }
        for client in &mut *clients {
            let status = client.answer().or_problem(row.label, "read Envoy's log")?;
            // A limiter that starts full denies from the second request on.
            if status != 200 && !(row.is_denied && status == 429) {
                let why = format!("it answered {status}");
                return Err(Problem::new(row.label, why, "see how its filter is configured"));
            }
        }
    }
    Ok(())
}

/// Instructions since the last dump.
pub(super) fn dump(envoy: &Running, folder: &Path) -> Result<f64> {
    let before = dumps(folder);
    let mut control = Command::new("callgrind_control");
    run::output(control.args(["--dump", &envoy.pid().to_string()]), "see valgrind's log")?;
    let counted = until(PATIENCE, Duration::from_millis(50), || {
        let new = dumps(folder).into_iter().find(|file| !before.contains(file));
        Ok(new.and_then(|file| total(&fs::read_to_string(file).ok()?)))
    })?;
    counted.ok_or_else(|| {
        let why = "callgrind_control ran, and there is no new file";
        Problem::new("callgrind counted nothing", why, "see valgrind's log")
    })
}

fn dumps(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().contains("/out.")).collect()
}

/// The last line of a dump that is whole: `totals: 12345`.
fn total(dump: &str) -> Option<f64> {
    dump.lines().rev().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_that_others_are_compared_with_are_where_they_should_be() {
        let rows = rows(Path::new("ours"));
        assert_eq!(rows[NATIVE].label, "native, per client");
        assert!(rows[NATIVE_DENIED].is_denied && rows[NATIVE_DENIED].ceiling.is_none());
        assert!(rows[NATIVE_MORE].has_more_fields && rows[NATIVE_MORE].ceiling.is_none());
        assert_eq!(rows[BY_HEADER].label, "Tollgate, key: header");
        for row in &rows {
            let Some((base, _)) = row.ceiling else { continue };
            assert_eq!(row.is_denied, rows[base].is_denied, "{}", row.label);
            assert_eq!(row.has_more_fields, rows[base].has_more_fields, "{}", row.label);
        }
    }

    #[test]
    fn reads_what_callgrind_counted() {
        assert_eq!(total("events: Ir\nfn=(1)\n1 2\ntotals: 78300\n"), Some(78_300.0));
        assert_eq!(total("events: Ir\nfn=(1)\n"), None);
    }
}
