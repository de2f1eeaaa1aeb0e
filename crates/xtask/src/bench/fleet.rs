//! The cost of a decision for a server: with counts in its own memory, and on a Redis that servers
//! share, with CPU of the engine and round trips, compared with the commands that
//! `envoyproxy/ratelimit` sends for each key.
//!
//! Invariant: all ways of one store are measured in turns in each round; a figure is the median of
//! the rounds. CPU is that of the threads or processes that decide, so neighbours do not count;
//! latencies are shown next to PING's of the same round, and are not compared between machines.

use super::{
    effort::{Effort, example},
    figures::{Table, figure, least, median, most},
};
use crate::{
    children::{self, Stop},
    files,
    problem::{Problem, Result},
    run,
    servers::{START_TIMEOUT, Server, free_port, log_to},
    tools::apt,
    workspace::Workspace,
};
use std::{net::TcpStream, process::Command, time::Duration};

/// As the examples name them, in the order of the table.
const WAYS: [(&str, &str); 16] = [
    ("decide_many", "memory: 200,000 known keys, in process"),
    ("decide_hot", "memory: one hot key, in process"),
    ("json", "memory: the JSON of `/check`, in process"),
    ("http_check", "memory: through HTTP/1.1, pipelined"),
    ("http_empty", "a handler that does nothing, through HTTP/1.1"),
    ("grpc_ratelimit", "memory: one descriptor, through gRPC"),
    ("grpc_ext_authz", "memory: a request of `ext_authz`, through gRPC"),
    ("grpc_empty", "a handler that does nothing, through gRPC"),
    ("distinct_1", "Redis: fresh keys, one client"),
    ("distinct_64", "Redis: fresh keys, 64 clients"),
    ("distinct_512", "Redis: fresh keys, 512 clients"),
    ("again_64", "Redis: known keys, 64 clients"),
    ("hot_64", "Redis: one hot key, 64 clients"),
    ("ping_1", "PING, one client"),
    ("incr_expire_1", "INCRBY and EXPIRE, one client"),
    ("incr_expire_64", "INCRBY and EXPIRE, 64 in a pipeline"),
];

/// The engine's data for a key.
const MEMORY: [(&str, &str); 2] =
    [("commit", "ours, one quota of `gcra`"), ("incr_expire", "a count of INCRBY")];

pub fn measure(workspace: &Workspace, effort: Effort) -> Result<String> {
    let rounds = effort.rounds.to_string();
    let fix = "run the example by hand";
    let mut decisions = Command::new(example(workspace, "tollgate-server", "decisions")?);
    let memory = run::output(decisions.arg(&rounds), fix)?;
    let load = example(workspace, "tollgate-redis", "load")?;
    let port = free_port()?;
    let engine = engine(workspace, port)?;
    let mut client = Command::new(load);
    client.args([&port.to_string(), &engine.running.pid().to_string(), &rounds]);
    let shared = run::output(&mut client, fix)?;
    let edge = edge_table(&shared)?;
    Ok(format!("{}\n{edge}", table(&format!("{memory}{shared}"))?))
}

/// Ways to count, in the order of their table.
const EDGES: [(&str, &str); 5] = [
    ("incr_expire", "INCRBY and EXPIRE of a window, as `envoyproxy/ratelimit`"),
    ("fixed-window", "`fixed-window`"),
    ("gcra", "`gcra`, its burst the limit"),
    ("sliding-window", "`sliding-window`"),
    ("sliding-log", "`sliding-log`"),
];

/// The requests allowed around the edge of a window.
fn edge_table(said: &str) -> Result<String> {
    let heading = ["way", "admitted / limit", "least-most"];
    let mut table = Table::new("Across the edge of a window", &heading);
    for (way, name) in EDGES {
        let share = |line: &str| {
            let (limit, admitted) = line.strip_prefix(&format!("edge {way} "))?.split_once(' ')?;
            Some(admitted.parse::<f64>().ok()? / limit.parse::<f64>().ok()?)
        };
        let shares: Vec<f64> = said.lines().filter_map(share).collect();
        if shares.is_empty() {
            let why = format!("no edge of {way}");
            return Err(Problem::new("an example measured too little", why, "run it by hand"));
        }
        let spread = format!("{}-{}", figure(least(&shares), 2), figure(most(&shares), 2));
        table.row([name.to_owned(), figure(median(&shares), 2), spread]);
    }
    table.note(
        "A limit of 1,000 in a second, asked for without a pause from 0.3 s before the edge of a second of the wall \
         clock to 0.3 s after it: 0.6 s, in which a limit of a second is to admit 1.00.",
    );
    Ok(table.markdown())
}

/// A Redis that persists nothing and evicts nothing.
fn engine(workspace: &Workspace, port: u16) -> Result<Server> {
    let folder = workspace.out.join("bench");
    files::make_folder(&folder)?;
    let mut engine = Command::new(apt::REDIS.program(workspace));
    engine.current_dir(&folder).args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
    engine.args(["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]);
    let log = workspace.out.join("run/redis.log");
    log_to(&mut engine, &log)?;
    let running = children::spawn(&mut engine, Stop::Group)?;
    let is_up = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    let engine = Server { name: "redis", port, running, log };
    engine.wait_until(is_up, START_TIMEOUT, Duration::from_millis(20))
}

fn table(said: &str) -> Result<String> {
    let heading = [
        "way",
        "server, us",
        "engine, us",
        "round trips",
        "p50, us",
        "p99, us",
        "a server core",
        "an engine core",
    ];
    let mut table = Table::new("A decision of tollgate-server", &heading);
    for (way, name) in WAYS {
        let rows: Vec<Row> = said.lines().filter_map(|line| row(line, way)).collect();
        if rows.is_empty() {
            let why = format!("no line of {way}");
            return Err(Problem::new("an example measured too little", why, "run it by hand"));
        }
        let of = |column: fn(&Row) -> Option<f64>| {
            let known: Vec<f64> = rows.iter().filter_map(column).collect();
            (!known.is_empty()).then(|| median(&known))
        };
        let shown = |value: Option<f64>, digits| {
            value.map_or_else(|| "-".to_owned(), |value| figure(value, digits))
        };
        let is_answered = !way.starts_with("ping") && !way.starts_with("incr");
        let own = of(|row| Some(row.own_us));
        let speed = own.filter(|_| is_answered).map(|own| 1e6 / own);
        let trips = of(|row| row.trips).filter(|_| is_answered);
        table.row([
            name.to_owned(),
            shown(own, 2),
            shown(of(|row| row.engine_us), 2),
            shown(trips, 3),
            shown(of(|row| row.half_us), 0),
            shown(of(|row| row.slow_us), 0),
            shown(speed, 0),
            shown(of(|row| row.engine_us).map(|engine| 1e6 / engine), 0),
        ]);
    }
    let memory = MEMORY.map(|(way, name)| {
        let prefix = format!("memory {way} ");
        let bytes = said.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or("-");
        format!("{name} {bytes}")
    });
    table.note(&format!(
        "CPU of what decides and of the engine, for each request; the last columns are answers in a second of one core. \
         Of PING and the other commands the client is no server; latencies of a pipeline are those of all of it. \
         Bytes of the engine's memory that a key takes: {}.",
        memory.join(", "),
    ));
    Ok(table.markdown())
}

/// One line of an example, for each of its requests; memory has no engine and no calls to one.
struct Row {
    own_us: f64,
    engine_us: Option<f64>,
    trips: Option<f64>,
    half_us: Option<f64>,
    slow_us: Option<f64>,
}

/// Of the line of a way: requests and nanoseconds of the server, and for Redis nanoseconds of the
/// engine, calls and two latencies.
fn row(line: &str, way: &str) -> Option<Row> {
    let mut words = line.split_whitespace();
    if words.next()? != way {
        return None;
    }
    let numbers: Vec<f64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let (requests, own, shared) = match numbers[..] {
        [requests, own] => (requests, own, None),
        [requests, own, engine, calls, half, slow] => {
            (requests, own, Some([engine / requests, calls / requests, half, slow]))
        }
        _ => return None,
    };
    Some(Row {
        own_us: own / requests / 1e3,
        engine_us: shared.map(|[engine, ..]| engine / 1e3),
        trips: shared.map(|[_, trips, ..]| trips),
        half_us: shared.map(|[_, _, half, _]| half / 1e3),
        slow_us: shared.map(|[.., slow]| slow / 1e3),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_rows() {
        let mut said: String = WAYS.map(|(way, _)| format!("{way} 100 50000\n")).concat();
        assert!(
            table(&said).unwrap().contains(
                "| memory: one hot key, in process | 0.50 | - | - | - | - | 2000000 | - |"
            )
        );
        said =
            said.replace("hot_64 100 50000", "hot_64 1000 2000000 500000 30 90000 100000\nother 1");
        let shown = table(&said).unwrap();
        let hot = "| Redis: one hot key, 64 clients | 2.00 | 0.50 | 0.030 | 90 | 100 | 500000 | 2000000 |";
        assert!(shown.contains(hot), "{shown}");
        // A way that is not measured must not be a missing row.
        assert!(table(&said.replace("json 100", "jsn 100")).is_err());
        assert!(table(&said.replace("json 100", "json x")).is_err());
    }

    #[test]
    fn every_way_to_count_has_a_row() {
        let said: String = EDGES.map(|(way, _)| format!("edge {way} 1000 1500\n")).concat();
        assert!(edge_table(&said).unwrap().contains("| `sliding-log` | 1.50 | 1.50-1.50 |"));
        assert!(edge_table(&said.replace("edge gcra", "edge gc")).is_err());
    }
}
