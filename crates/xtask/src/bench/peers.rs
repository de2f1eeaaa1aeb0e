//! Tollgate next to other limiters: the tables of `docs/comparison.md`.
//!
//! Invariant: every limiter gets the same requests at the same times, and every figure in the
//! document was measured. `tests/peers` has the limiters behind one interface.

use super::{
    callgrind,
    figures::{Table, between, least, without_heading},
};
use crate::{
    files,
    problem::{OrProblem, Problem, Result},
    run,
    tools::{npm, python},
    workspace::Workspace,
};
use std::{
    collections::HashMap,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const DOCUMENT: &str = "docs/comparison.md";
const FOLDER: &str = "tests/peers";
/// 10 requests a minute for each client, as in the README.
const LIMIT: usize = 10;
const WINDOW_S: u64 = 60;
const WINDOW_NS: u64 = WINDOW_S * 1_000_000_000;
/// The limiter whose decisions are exact.
const EXACT: &str = "sliding-log";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Rust,
    Node,
    Python,
}

/// A limiter: its name in `tests/peers`, the name in the tables, and whether its clock can be set.
#[derive(Debug, Clone, Copy)]
struct Peer(&'static str, &'static str, Language, bool);

use Language::{Node, Python, Rust};

const PEERS: [Peer; 13] = [
    Peer("gcra", "Tollgate's core, gcra", Rust, true),
    Peer("sliding-window", "Tollgate's core, sliding-window", Rust, true),
    Peer(EXACT, "Tollgate's core, sliding-log", Rust, true),
    Peer("fixed-window", "Tollgate's core, fixed-window", Rust, true),
    Peer("tollgate", "Tollgate, a whole policy with gcra", Rust, true),
    Peer("governor", "governor 0.10.4", Rust, true),
    Peer("throttlecrab", "throttlecrab 0.4.40", Rust, true),
    Peer("limitador", "limitador 0.14.0", Rust, false),
    Peer("rate-limiter-flexible", "rate-limiter-flexible 11.4.0", Node, true),
    Peer("express-rate-limit", "express-rate-limit 8.7.5", Node, true),
    Peer("limits-fixed", "limits 5.8.0, fixed window", Python, true),
    Peer("limits-sliding", "limits 5.8.0, sliding window counter", Python, true),
    Peer("limits-moving", "limits 5.8.0, moving window", Python, true),
];

/// One request: nanoseconds after the first, and its client.
type Request = (u64, String);

/// Measures everything and writes the document again; `log` is the day of real traffic.
pub fn measure(workspace: &Workspace, log: Option<&Path>) -> Result<String> {
    let programs = Programs::build(workspace)?;
    let path = workspace.root.join(DOCUMENT);
    let mut document = files::text(&path)?;
    match log.map(PathBuf::from).or_else(|| std::env::var_os("TOLLGATE_NASA_LOG").map(Into::into)) {
        Some(log) => {
            let text = files::bytes(&log)?;
            let day = day(&String::from_utf8_lossy(&text))?;
            document = put(&document, "day", &programs.accuracy(&day)?)?;
        }
        None => eprintln!("  the tables of the real day are unchanged: name its log by --log"),
    }
    document = put(&document, "bursts", &programs.accuracy(&bursts())?)?;
    document = put(&document, "cost", &programs.costs()?)?;
    files::write(&path, document)?;
    Ok(format!("### Other limiters\n\nWritten into {DOCUMENT}.\n"))
}

struct Programs {
    rust: PathBuf,
    folder: PathBuf,
    node_modules: PathBuf,
    python: PathBuf,
}

impl Programs {
    fn build(workspace: &Workspace) -> Result<Self> {
        let folder = workspace.root.join(FOLDER);
        let target = workspace.root.join("target/peers");
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&folder).args(["build", "--release", "--locked"]);
        run::shown(cargo.env("CARGO_TARGET_DIR", &target), "see what does not compile")?;
        Ok(Self {
            rust: target.join("release/tollgate-peers"),
            node_modules: npm::PEERS.modules(workspace),
            python: python::LIMITS.path(workspace),
            folder,
        })
    }

    fn command(&self, language: Language) -> Command {
        match language {
            Rust => Command::new(&self.rust),
            Node => {
                let mut node = Command::new("node");
                node.arg("--expose-gc").arg(self.folder.join("node/peer.mjs"));
                node.env("PEERS_MODULES", &self.node_modules);
                node
            }
            Python => {
                let mut python = Command::new("python3");
                python.arg(self.folder.join("peer.py")).env("PYTHONPATH", &self.python);
                python
            }
        }
    }

    /// The decision of each request: true for an admitted one.
    fn decisions(
        &self,
        Peer(name, _, language, _): Peer,
        requests: &[Request],
    ) -> Result<Vec<bool>> {
        let mut command = self.command(language);
        command.args(["trace", name, &LIMIT.to_string(), &WINDOW_S.to_string()]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .or_problem(format!("cannot start {}", run::line_of(&command)), "install it")?;
        let trace: String = requests.iter().map(|(at, key)| format!("{at} {key}\n")).collect();
        let mut input = child.stdin.take().expect("it is piped");
        // It reads everything before it writes anything.
        input
            .write_all(trace.as_bytes())
            .or_problem("cannot write the trace", "see its message")?;
        drop(input);
        let output =
            child.wait_with_output().or_problem("cannot read the decisions", "run again")?;
        let decided: Vec<bool> =
            output.stdout.trim_ascii().iter().map(|byte| *byte == b'1').collect();
        if decided.len() == requests.len() {
            return Ok(decided);
        }
        let why = format!("{} decisions of {} requests", decided.len(), requests.len());
        Err(Problem::new(format!("{name} did not decide everything"), why, "see its message"))
    }

    fn accuracy(&self, requests: &[Request]) -> Result<String> {
        let heading =
            ["limiter", "denied", "allowed wrongly", "denied wrongly", "most in a minute"];
        let mut table = Table::new("", &heading);
        let exact = PEERS.iter().find(|Peer(name, ..)| *name == EXACT).expect("it is listed");
        let exact = self.decisions(*exact, requests)?;
        for peer in PEERS.iter().filter(|Peer(.., has_clock)| *has_clock) {
            eprintln!("  peers: {}", peer.1);
            let decided = self.decisions(*peer, requests)?;
            table.row([vec![peer.1.to_owned()], row(&decided, &exact, requests)].concat());
        }
        Ok(without_heading(&table.markdown()).to_owned())
    }

    fn costs(&self) -> Result<String> {
        let heading = ["limiter", "instructions", "CPU, us", "bytes per key"];
        let mut table = Table::new("", &heading);
        for Peer(name, title, language, _) in PEERS {
            eprintln!("  peers: the cost of {title}");
            let number = |kind: &str, count: u64| -> Result<f64> {
                let mut command = self.command(language);
                let text =
                    run::output(command.args([kind, name, &count.to_string()]), "see its message")?;
                text.trim().parse().or_problem(format!("{name} wrote {text:?}"), "see tests/peers")
            };
            let instructions = match language {
                Rust => {
                    let words = |count| ["cost".to_owned(), name.to_owned(), count].to_vec();
                    format!("{:.0}", callgrind::each(&self.rust, (5_000, 15_000), words)?)
                }
                Node | Python => "-".to_owned(),
            };
            // A key may have 1,000 requests a minute. Node compiles what it runs often meanwhile.
            let (few, many) = match language {
                Rust => (0, 800_000),
                Node => (200_000, 900_000),
                Python => (20_000, 100_000),
            };
            let rounds = (0..3)
                .map(|_| Ok((number("cost", many)? - number("cost", few)?) / (many - few) as f64));
            let nanos = least(&rounds.collect::<Result<Vec<_>>>()?);
            let bytes = (number("memory", 100_001)? - number("memory", 1)?) / 100_000.0;
            let cells = [
                title.to_owned(),
                instructions,
                format!("{:.2}", nanos / 1000.0),
                format!("{bytes:.0}"),
            ];
            table.row(cells);
        }
        Ok(without_heading(&table.markdown()).to_owned())
    }
}

/// The figures of one limiter: percentages are of all requests.
fn row(decided: &[bool], exact: &[bool], requests: &[Request]) -> Vec<String> {
    let denied = decided.iter().filter(|is_admitted| !**is_admitted).count();
    let share = |wrong: (bool, bool)| {
        let count = decided.iter().copied().zip(exact.iter().copied()).filter(|it| *it == wrong);
        format!("{:.2} %", count.count() as f64 * 100.0 / requests.len() as f64)
    };
    let most = most_in_a_window(decided, requests);
    vec![denied.to_string(), share((true, false)), share((false, true)), most.to_string()]
}

/// The most requests of one client that were admitted within any time shorter than the window.
fn most_in_a_window(decided: &[bool], requests: &[Request]) -> usize {
    let mut admitted: HashMap<&str, Vec<u64>> = HashMap::new();
    for ((at, client), _) in requests.iter().zip(decided).filter(|(_, is_admitted)| **is_admitted) {
        admitted.entry(client).or_default().push(*at);
    }
    let most = admitted.values().map(|times| {
        let mut first = 0;
        let counts = times.iter().enumerate().map(|(last, at)| {
            while times[first] + WINDOW_NS <= *at {
                first += 1;
            }
            last + 1 - first
        });
        counts.max().unwrap_or(0)
    });
    most.max().unwrap_or(0)
}

/// The requests of a log of tab-separated columns, of which the first is the client and the third
/// the time in seconds. Line `i` of the `n` of a second comes at floor(1000 i / n) ms of it.
fn day(text: &str) -> Result<Vec<Request>> {
    let lines: Option<Vec<(u64, &str)>> = text
        .lines()
        .skip(1)
        .map(|line| {
            let mut columns = line.split('\t');
            let client = columns.next()?;
            Some((columns.nth(1)?.parse().ok()?, client))
        })
        .collect();
    let fix = "name the log that docs/accuracy.md describes";
    let lines =
        lines.ok_or_else(|| Problem::new("cannot read the log", "a line has no time", fix))?;
    let start = lines.first().map_or(0, |(second, _)| *second);
    let mut of_second: HashMap<u64, (u64, u64)> = HashMap::new();
    lines.iter().for_each(|(second, _)| of_second.entry(*second).or_default().1 += 1);
    let request = |(second, client): &(u64, &str)| {
        let (i, n) = of_second.get_mut(second).expect("it was counted");
        let millis = (second - start) * 1000 + 1000 * *i / *n;
        *i += 1;
        (millis * 1_000_000, (*client).to_owned())
    };
    Ok(lines.iter().map(request).collect())
}

/// 300 clients for ten minutes: each sends 12 requests in two seconds, at random times 0 to 40 s
/// apart. The same in every run.
fn bursts() -> Vec<Request> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut requests = Vec::new();
    for client in 0..300 {
        let mut millis = random(60_000);
        while millis < 600_000 {
            requests.extend((0..12).map(|_| (millis + random(2000), format!("client-{client}"))));
            millis += random(40_000);
        }
    }
    requests.sort();
    requests.into_iter().map(|(millis, client)| (millis * 1_000_000, client)).collect()
}

/// The document with `text` between the marks of the block `name`.
fn put(document: &str, name: &str, text: &str) -> Result<String> {
    let begin = format!("<!-- made: {name} -->\n");
    let made = between(document, [&begin, "<!-- end -->"], &format!("\n{}\n\n", text.trim()));
    let why = format!("{DOCUMENT} has no block {name:?}");
    made.ok_or_else(|| Problem::new("cannot write the tables", why, "restore the block"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_of_a_second_are_spread_in_their_order() {
        let log = "host\tlogname\ttime\na\t-\t7\nb\t-\t9\na\t-\t9\n";
        let at = |millis: u64, client: &str| (millis * 1_000_000, client.to_owned());
        assert_eq!(day(log).unwrap(), [at(0, "a"), at(2000, "b"), at(2500, "a")]);
        assert!(day("host\na\n").is_err());
    }

    #[test]
    fn a_window_ends_before_its_length_is_over() {
        let at = |second: u64| (second * 1_000_000_000, "a".to_owned());
        let requests = [at(0), at(1), at(59), at(60), at(61)];
        assert_eq!(most_in_a_window(&[true; 5], &requests), 3);
        assert_eq!(most_in_a_window(&[true, false, true, true, true], &requests), 3);
        assert_eq!(most_in_a_window(&[false; 5], &requests), 0);
    }

    #[test]
    fn bursts_are_the_same_in_every_run() {
        let requests = bursts();
        assert!(requests.is_sorted() && requests.len() > 50_000, "{}", requests.len());
        assert_eq!(requests, bursts());
    }

    #[test]
    fn a_block_is_replaced_and_nothing_else() {
        let document = "a\n<!-- made: x -->\nold\n<!-- end -->\nb\n";
        let put_once = put(document, "x", "new\n").unwrap();
        assert_eq!(put_once, "a\n<!-- made: x -->\n\nnew\n\n<!-- end -->\nb\n");
        assert_eq!(put(&put_once, "x", "new").unwrap(), put_once);
        assert!(put(document, "y", "").is_err());
    }
}
