//! The Worker in plain workerd: CPU per request in both of its uses, compared with Workers that
//! decide nothing: the same in JavaScript, and in Rust built as ours is.
//!
//! Invariant: every server gets the same requests of one client and the same workerd configuration;
//! only the code in it differs. An allowed request is written to disk before its response, so that
//! is measured, too. This shows nothing about the platform's own servers, where storage is
//! replicated elsewhere.

use super::{
    cpu::{ProcessorRole, seated},
    effort::Effort,
    envoy,
    figures::{Table, figure, median, paired_difference, paired_ratio},
    load::{self, Expect, Subject},
    worker_start,
    wrk::Requests,
};
use crate::{
    build, files,
    problem::{Problem, Result},
    servers::{
        Server, free_port,
        http::Request,
        workerd::{self, Code, Options},
    },
    workspace::Workspace,
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Rows that others are compared with.
const NOOP: usize = 0;
const RUST_NOOP: usize = 3;
const RUST_COUNT: usize = 4;
const RUST_UPSERT: usize = 5;
const STRICT: usize = 6;
const RELAXED: usize = 7;
const DENIED: usize = 8;
const FORWARDER: usize = 9;

/// A target: a row, the twin that it is compared with, and the most it may be of its CPU, in
/// hundredths.
const TARGETS: [(usize, usize, u32); 3] =
    [(STRICT, RUST_UPSERT, 115), (RELAXED, RUST_COUNT, 125), (DENIED, RUST_NOOP, 130)];

const HEALTH: &str = "/.well-known/tollgate/health";
/// The request to the service.
const CHECK: &str =
    r#"{"method":"GET","host":"a.example","path":"/","headers":{},"client_ip":"192.0.2.1"}"#;
/// Reads the request and returns as much as the service does; counts before, as `tests/twin` does,
/// where the path says so.
const TWINS_SCRIPT: &str = include_str!("worker-twins.mjs");
/// Forwards to the origin and adds two fields.
const FORWARDER_SCRIPT: &str = include_str!("worker-forwarder.mjs");

/// The use that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Service,
    Proxy,
}

/// One row of the table.
struct Variant {
    /// Names its folder.
    folder: &'static str,
    label: &'static str,
    code: Code,
    used: Use,
    path: &'static str,
    expect: Expect,
}

pub fn measure(workspace: &Workspace, effort: Effort) -> Result<String> {
    build::worker::make_twin(workspace)?;
    let origin = envoy::plain(workspace, "bench-origin")?;
    let script = write_script(workspace)?;
    let variants = variants();
    let names: Vec<&str> = variants.iter().map(|variant| variant.label).collect();
    let subjects = variants.into_iter().map(|variant| start(workspace, variant, &origin, &script));
    let subjects = subjects.collect::<Result<Vec<Subject>>>()?;
    let costs = load::measure("worker", &subjects, effort)?;
    let bases = [("x JS no-op", NOOP), ("x Rust no-op", RUST_NOOP), ("x forwarder", FORWARDER)];
    let mut table = load::table("Worker: one request to workerd", &names, &costs, &bases);
    table.note(
        "workerd alone, wrk with 16 keep-alive connections, one client, so one object; a strict \
         admission is on disk before it is answered, and so is an upsert. `check`: the service, \
         `POST /check`. `proxy`: in front of an origin that is not counted; a denied request does not \
         reach it. Every figure is the median of the rounds; what is added and the ratios are taken \
         within a round. The twins in Rust are `tests/twin`, built as the Worker is: they ask one \
         object by one RPC and decide nothing.",
    );
    drop(subjects);
    let text = format!("{}\n{}", table.markdown(), targets(&names, &costs).markdown());
    Ok(format!("{text}\n{}", worker_start::measure(workspace)?))
}

/// The targets, and whether they are reached.
fn targets(names: &[&str], costs: &[Vec<f64>]) -> Table {
    let heading = ["", "compared with", "x CPU", "at most", "reached"];
    let mut table = Table::new("Worker: targets", &heading);
    for (row, base, hundredths) in TARGETS {
        let (ratio, most) =
            (paired_ratio(&costs[row], &costs[base]), f64::from(hundredths) / 100.0);
        let (name, base) = (names[row].to_owned(), names[base].to_owned());
        let reached = if ratio <= most { "yes" } else { "no" };
        table.row([name, base, figure(ratio, 2), figure(most, 2), reached.to_owned()]);
    }
    let request = figure(median(&costs[DENIED]), 0);
    let call = figure(paired_difference(&costs[STRICT], &costs[DENIED]), 0);
    table.note(&format!(
        "For the bill (`CPU_US_PER_REQUEST` and `CPU_US_PER_CALL` in `tollgate-report`): {request} us \
         per request denied from memory, {call} us more for one that calls an object which writes."
    ));
    table
}

fn variants() -> [Variant; 12] {
    use Expect::{Passed, Refused};
    let check = |folder, label, code, path, expect| {
        let used = Use::Service;
        Variant { folder, label, code, used, path, expect }
    };
    let proxy = |folder, label, code, expect| {
        let used = Use::Proxy;
        Variant { folder, label, code, used, path: "/", expect }
    };
    let js = |folder, label, path| check(folder, label, Code::Script(TWINS_SCRIPT), path, Passed);
    let rust = |folder, label, path| check(folder, label, Code::Twin, path, Passed);
    let ours = |limit, window, kept| Code::WithPolicy(policy(limit, window, kept));
    let plenty = || ours(1_000_000, "1s", "strict");
    let one = || ours(1, "1d", "strict");
    let relaxed = ours(1_000_000, "1s", "relaxed");
    [
        js("bench-js-noop", "check: JavaScript, no-op", "/noop"),
        js("bench-js-count", "check: JavaScript, counts in memory", "/count"),
        js("bench-js-upsert", "check: JavaScript, one upsert", "/upsert"),
        rust("bench-rust-noop", "check: Rust, no-op", "/noop"),
        rust("bench-rust-count", "check: Rust, counts in memory", "/count"),
        rust("bench-rust-upsert", "check: Rust, one upsert", "/upsert"),
        check("bench-check", "check: Tollgate, strict, allowed", plenty(), "/check", Passed),
        check("bench-relaxed", "check: Tollgate, relaxed, allowed", relaxed, "/check", Passed),
        check("bench-denied", "check: Tollgate, denied from memory", one(), "/check", Refused),
        proxy("bench-forwarder", "proxy: JavaScript", Code::Script(FORWARDER_SCRIPT), Passed),
        proxy("bench-proxy", "proxy: Tollgate, strict, allowed", plenty(), Passed),
        proxy("bench-proxy-denied", "proxy: Tollgate, denied from memory", one(), Refused),
    ]
}

fn policy(limit: u64, window: &str, durability: &str) -> String {
    let quota = json!({"limit": limit, "window": window, "algorithm": "gcra"});
    let rule = json!({"name": "bench", "key": ["client_ip"], "durability": durability,
        "quotas": [quota]});
    json!({"version": 1, "rules": [rule]}).to_string()
}

fn start(ws: &Workspace, variant: Variant, origin: &Server, script: &Path) -> Result<Subject> {
    let port = free_port()?;
    let mut vars = BTreeMap::new();
    if variant.used == Use::Proxy {
        vars.insert("ORIGIN".to_owned(), format!("http://127.0.0.1:{}", origin.port));
    }
    let ready = if variant.code.is_ours() { HEALTH } else { "/" };
    let Variant { folder: name, code, path, .. } = variant;
    let options = Options { name, port, vars, code, has_assets: false, ready };
    let server = seated(ProcessorRole::Server, || workerd::start(ws, options))?;
    let client = vec!["cf-connecting-ip: 192.0.2.1"];
    let (requests, mut expect) = match variant.used {
        Use::Proxy => (Requests { path, headers: client, script: None }, variant.expect),
        Use::Service => {
            let script = Some(script.to_owned());
            (Requests { path, headers: Vec::new(), script }, variant.expect)
        }
    };
    if variant.used == Use::Service {
        see_decision(port, path, variant.expect)?;
        // The service responds with 200 whatever it decided.
        expect = Expect::Passed;
    }
    Ok(Subject { name: variant.label, server, requests, expect })
}

/// The second response in a row must be the one of the table's row.
fn see_decision(port: u16, path: &str, expect: Expect) -> Result<()> {
    let wanted = match expect {
        Expect::Passed => r#""decision":"allow""#,
        Expect::Refused => r#""decision":"deny""#,
    };
    let fix = "see whether POST /check still responds as the README shows";
    let request = Request::new(port, path).header("Content-Type", "application/json").post(CHECK);
    request.text()?;
    let answer = request.text()?;
    match answer.contains(wanted) {
        true => Ok(()),
        false => Err(Problem::new(format!("the response lacks {wanted}"), answer, fix)),
    }
}

/// The requests of wrk to the service.
fn write_script(workspace: &Workspace) -> Result<PathBuf> {
    let file = workspace.out.join("run/bench-check.lua");
    let script = format!(
        "wrk.method = 'POST'\nwrk.headers['content-type'] = 'application/json'\nwrk.body = '{CHECK}'\n"
    );
    files::write(&file, script)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_that_others_are_compared_with_are_where_they_should_be() {
        let rows = variants();
        assert!(matches!(rows[NOOP].code, Code::Script(TWINS_SCRIPT)));
        assert!(matches!(rows[FORWARDER].code, Code::Script(FORWARDER_SCRIPT)));
        for (row, path) in [(RUST_NOOP, "/noop"), (RUST_COUNT, "/count"), (RUST_UPSERT, "/upsert")]
        {
            assert!(matches!(rows[row].code, Code::Twin));
            assert_eq!(rows[row].path, path);
        }
        for row in [STRICT, RELAXED, DENIED] {
            assert!(rows[row].code.is_ours());
        }
        assert!(matches!(&rows[RELAXED].code, Code::WithPolicy(text) if text.contains("relaxed")));
        assert_eq!(rows[DENIED].expect, Expect::Refused);
        let folders: std::collections::BTreeSet<_> = rows.iter().map(|row| row.folder).collect();
        assert_eq!(folders.len(), rows.len());
    }

    #[test]
    fn a_target_is_reached_at_its_ceiling_and_not_above_it() {
        let names: Vec<_> = variants().iter().map(|row| row.label).collect();
        let mut costs = vec![vec![100.0]; names.len()];
        costs[STRICT] = vec![115.0];
        costs[RELAXED] = vec![126.0];
        let table = targets(&names, &costs).markdown();
        let rows = table.lines().filter(|line| line.starts_with('|'));
        let verdicts: Vec<_> = rows.filter_map(|line| line.rsplit(" | ").next()).collect();
        assert_eq!(verdicts[verdicts.len() - 3..], ["yes |", "no |", "yes |"], "{table}");
    }

    #[test]
    fn what_is_sent_fits_into_a_lua_string() {
        assert!(!CHECK.contains(['\'', '\\', '\n']));
        assert!(serde_json::from_str::<serde_json::Value>(CHECK).is_ok());
    }
}
