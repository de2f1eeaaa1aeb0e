//! Envoy: how long it takes from nothing to its first response with each module, and how much
//! memory it has then. V8 compiles all of a wasm module before.
//!
//! Invariant: a start is a new Envoy with one worker; the rows differ in the filter and in nothing
//! else and take turns. CPU time holds on a busy machine, the time on the clock only on an idle
//! one.

use super::{
    cpu,
    effort::Effort,
    envoy::{PLENTY, bootstrap, native_per_client, policy, wasm},
    envoy_module,
    figures::{Table, figure, grouped, median, paired_difference},
    noop,
};
use crate::{
    build::product,
    problem::{OrProblem, Result},
    servers::{
        envoy::{self, Options},
        free_port,
    },
    workspace::Workspace,
};
use serde_json::{Value, json};
use std::{path::PathBuf, time::Instant};
use tollgate_policy::Surface;
use tollgate_policy::explain::{Ability, FILTER_MODULES};

/// One filter.
struct Row {
    label: &'static str,
    /// The file of its module, if it has one.
    module: Option<PathBuf>,
    filter: Option<Value>,
    /// The duration of each start.
    starts: Vec<Start>,
}

struct Start {
    clock_ms: f64,
    cpu_ms: f64,
    resident_mib: f64,
}

pub fn measure(workspace: &Workspace, effort: Effort) -> Result<String> {
    let mut rows = rows(workspace)?;
    let count = rows.len();
    for round in 0..effort.rounds as usize {
        eprintln!("  start: round {} of {}", round + 1, effort.rounds);
        for place in 0..count {
            let row = &mut rows[(round + place) % count];
            row.starts.push(start(workspace, row)?);
        }
    }
    table(&rows, effort.rounds).map(|table| table.markdown())
}

fn rows(workspace: &Workspace) -> Result<Vec<Row>> {
    let quota = json!({"limit": 1_000_000, "window": "1s"});
    let document = policy("/**", &json!([{"header": "x-key"}]), &quota);
    let compiled = tollgate_language::compile_plugin(&document.to_string(), Surface::Envoy);
    let compiled = compiled.or_problem("cannot compile a policy", "correct it")?;
    let compiled = json!({"compiled": compiled.to_compiled_text()});
    let row = |label, module, filter| Row { label, module, filter, starts: Vec::new() };
    let in_wasm = |label, module: PathBuf, configuration: &Value| {
        let filter = wasm(&module, "start", configuration);
        row(label, Some(module), Some(filter))
    };
    let bucket = json!({"max_tokens": PLENTY, "tokens_per_fill": PLENTY, "fill_interval": "1s"});
    let module = workspace.envoy_module();
    let dynamic = envoy_module::filter(&module, "start", &document);
    let mut rows = vec![
        row("no filter", None, None),
        row("native, per client", None, Some(native_per_client(&bucket))),
        row("the dynamic module", Some(module), Some(dynamic)),
        in_wasm("an empty module", noop::write(workspace)?, &json!({})),
    ];
    rows.extend(FILTER_MODULES.iter().map(|module| {
        let reads = module.has(Ability::Documents);
        let configuration = if reads { &document } else { &compiled };
        in_wasm(module.file, workspace.out.join(module.file), configuration)
    }));
    Ok(rows)
}

fn start(workspace: &Workspace, row: &Row) -> Result<Start> {
    let port = free_port()?;
    let config = bootstrap(port, row.filter.clone()).to_string();
    let options = Options { name: "start", config, ready: (port, "/"), concurrency: 1 };
    let begun = Instant::now();
    let server = envoy::start(workspace, options)?;
    let clock_ms = begun.elapsed().as_secs_f64() * 1000.0;
    let pid = server.running.pid();
    let cpu_ms = cpu::used_ns(pid)? as f64 / 1_000_000.0;
    let resident_mib = cpu::resident_memory_kib(pid)? as f64 / 1024.0;
    Ok(Start { clock_ms, cpu_ms, resident_mib })
}

fn table(rows: &[Row], rounds: u32) -> Result<Table> {
    let heading = [
        "",
        "bytes",
        "gzipped",
        "first response, ms",
        "over no filter",
        "CPU, ms",
        "over no filter",
        "resident, MiB",
    ];
    let mut table = Table::new("Envoy: start", &heading);
    let all = |row: &Row, of: fn(&Start) -> f64| row.starts.iter().map(of).collect::<Vec<f64>>();
    let clock = |row: &Row| all(row, |it| it.clock_ms);
    let cpu = |row: &Row| all(row, |it| it.cpu_ms);
    let Some((none, none_cpu)) = rows.first().map(|row| (clock(row), cpu(row))) else {
        return Ok(table);
    };
    for row in rows {
        let sizes = row.module.as_ref().map(|module| product::sizes(module)).transpose()?;
        let (bytes, zipped) = sizes
            .map_or_else(Default::default, |(bytes, zipped)| (grouped(bytes), grouped(zipped)));
        table.row([
            row.label.to_owned(),
            bytes,
            zipped,
            figure(median(&clock(row)), 0),
            figure(paired_difference(&clock(row), &none), 0),
            figure(median(&cpu(row)), 0),
            figure(paired_difference(&cpu(row), &none_cpu), 0),
            figure(median(&all(row, |it| it.resident_mib)), 0),
        ]);
    }
    table.note(&format!(
        "Medians of {rounds} starts in turns: from the start of the process with one worker to the \
         answer to a request through the filter; CPU until then, memory then."
    ));
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_row_is_what_the_others_are_compared_with() {
        let start = |clock_ms| Start { clock_ms, cpu_ms: 1.0, resident_mib: 64.0 };
        let row = |label, starts| Row { label, module: None, filter: None, starts };
        let rows = [
            row("no filter", vec![start(90.0), start(100.0), start(190.0)]),
            row("other", vec![start(190.0), start(200.0), start(300.0)]),
        ];
        let text = table(&rows, 3).unwrap().markdown();
        assert!(text.contains("| other |  |  | 200 | 100 | 1 | 0 | 64 |"), "{text}");
    }
}
