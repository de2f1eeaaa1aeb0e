//! The cost of traffic in a real workerd: calls of objects, rows, alarms; the table of
//! `docs/cost.md`.
//!
//! A module in front of `entry.mjs` is the clock, rings the alarms and counts, so that every figure
//! is the same on every machine. After an intended change: `TOLLGATE_BLESS=1`, and read the
//! difference.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tollgate_e2e::fleet_node::{Node, question};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::server::{CHECK_TOKEN, FLEET_SECRET};
use tollgate_e2e::workerd::{Setup, Workerd};
use tollgate_report::bill::{
    ACTIVE_US_PER_CALL, CPU_US_PER_CALL, CPU_US_PER_REQUEST, PRICES, PRICES_READ_ON,
    ROWS_OF_A_NEW_KEY, Usage, dollars,
};
use tollgate_test_support::golden::is_blessing;

/// `x-at` is the time; `x-finish` runs everything that is due until then, and returns the counts.
const COUNTING: &str = r#"
import Tollgate, { Limiter as Shipped } from "./entry.mjs";

const SAVE_AFTER_MS = 50;
const counts = { calls: 0, rows: 0, alarms: 0, saves: 0 };
let now = 0;
Date.now = () => now;

// What objects are to do, and when: by their names, as the platform may put one to sleep meanwhile.
const saves = new Map();
const alarms = new Map();

// Whose step is under way: steps are synchronous. Every other timer is the deadline of a call,
// which a busy machine would miss: another decision, and another number of calls.
let current;
const BUSY_MS = 120_000;
const realTimeout = setTimeout;
globalThis.setTimeout = (run, ms, ...rest) =>
  ms === SAVE_AFTER_MS && current ? saves.set(current, { at: now + ms, run }) : realTimeout(run, ms + BUSY_MS, ...rest);

const counted = (id, storage) => ({
  sql: {
    exec(...query) {
      const cursor = storage.sql.exec(...query);
      counts.rows += cursor.rowsWritten;
      return cursor;
    },
  },
  setAlarm(at) {
    counts.rows++;
    alarms.set(id, Number(at));
    return Promise.resolve();
  },
  deleteAll() {
    counts.rows++;
    return storage.deleteAll();
  },
});

export class Limiter extends Shipped {
  constructor(ctx, env) {
    super(ctx, env);
    this.id = ctx.id.toString();
    Object.defineProperty(this, "ctx", { value: { storage: counted(this.id, ctx.storage) } });
  }

  check(request) {
    current = this.id;
    try {
      return super.check(request);
    } finally {
      current = undefined;
    }
  }

  save() {
    counts.saves++;
    const { run } = saves.get(this.id);
    saves.delete(this.id);
    run();
  }

  async ring() {
    counts.alarms++;
    alarms.delete(this.id);
    await super.alarm();
  }
}

/** Lets everything happen that is due. */
async function catchUp(objects) {
  const object = (id) => objects.get(objects.idFromString(id));
  for (const [id, { at }] of [...saves]) if (at <= now) await object(id).save();
  for (const [id, at] of [...alarms]) if (at <= now) await object(id).ring();
}

const counting = (objects) => ({
  getByName(name) {
    const object = objects.getByName(name);
    return {
      check: (request) => (counts.calls++, object.check(request)),
      refund: (request, reply) => (counts.calls++, object.refund(request, reply)),
    };
  },
});

export default class extends Tollgate {
  constructor(ctx, env) {
    super(ctx, { ...env, LIMITER: counting(env.LIMITER) });
    this.objects = env.LIMITER;
  }

  async fetch(request) {
    now = Number(request.headers.get("x-at") ?? now);
    await catchUp(this.objects);
    return request.headers.has("x-finish") ? Response.json(counts) : super.fetch(request);
  }
}
"#;

/// A quiet moment, in milliseconds since 1970.
const START: u64 = 1_780_000_000_000;
const SECOND: u64 = 1_000;
/// The duration of each traffic.
const SECONDS: u64 = 60;
/// The most in one `POST /check`.
const BATCH: usize = 100;

/// The requests sent, and their results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counted {
    requests: u64,
    refused: u64,
    calls: u64,
    rows: u64,
    alarms: u64,
    saves: u64,
}

struct Traffic {
    worker: Workerd,
    client: Client,
    sent: u64,
    refused: u64,
}

impl Traffic {
    fn start(rules: &Value) -> Self {
        let policy = json!({"version": 1, "rules": rules});
        let worker = Setup::new(policy).front(COUNTING).files_in_memory().start();
        let client = worker.client();
        Self { worker, client, sent: 0, refused: 0 }
    }

    /// One request of each of these keys, `ms` after the start.
    fn send(&mut self, ms: u64, keys: &[usize]) {
        for keys in keys.chunks(BATCH) {
            let each = keys.iter().map(|key| {
                let headers = json!({"x-key": format!("k{key}")});
                json!({"method": "GET", "path": "/", "headers": headers})
            });
            let body = json!({"requests": each.collect::<Vec<_>>()}).to_string();
            let request = Request::post("/check", body).header("x-at", (START + ms).to_string());
            let response = self.client.send(&request);
            let answers: Value = serde_json::from_str(&response.text()).expect("answers");
            let answers = answers["answers"].as_array().expect("a list");
            assert_eq!(answers.len(), keys.len());
            let refused = answers.iter().filter(|answer| answer["decision"] == "deny").count();
            self.refused += refused as u64;
            self.sent += keys.len() as u64;
        }
    }

    /// The totals, with all the remaining work until every state is deleted.
    fn finish(self) -> Counted {
        let mut told = Value::Null;
        // An alarm is set for at least a day later.
        for days in 1..=3 {
            let at = START + days * 2 * 86_400 * SECOND;
            let ask = Request::get("/").header("x-finish", "yes").header("x-at", at.to_string());
            told = serde_json::from_str(&self.worker.client().send(&ask).text()).expect("counts");
        }
        let count = |name: &str| told[name].as_u64().expect("a count");
        Counted {
            requests: self.sent,
            refused: self.refused,
            calls: count("calls"),
            rows: count("rows"),
            alarms: count("alarms"),
            saves: count("saves"),
        }
    }
}

fn rule(name: &str, key: &Value, limit: u64, durability: &str) -> Value {
    let quota = json!({"name": name, "limit": limit, "window": "1m", "algorithm": "gcra"});
    json!({"name": name, "key": key, "durability": durability, "quotas": [quota]})
}

fn one_key(limit: u64, durability: &str) -> Traffic {
    Traffic::start(&json!([rule("each", &json!([{"header": "x-key"}]), limit, durability)]))
}

/// 100 clients, each once per second.
fn steady(durability: &str) -> Counted {
    let mut traffic = one_key(60, durability);
    let keys: Vec<usize> = (0..100).collect();
    (0..SECONDS).for_each(|second| traffic.send(second * SECOND, &keys));
    traffic.finish()
}

/// 100 clients, each 30 times within 30 ms, twice per minute.
fn bursts(durability: &str) -> Counted {
    let mut traffic = one_key(600, durability);
    let keys: Vec<usize> = (0..100).collect();
    for burst in 0..2 {
        (0..30).for_each(|n| traffic.send(burst * 30 * SECOND + n, &keys));
    }
    traffic.finish()
}

/// Each of `keys` clients sends a hundred times its limit, all minute long.
fn attack(keys: usize, durability: &str) -> Counted {
    // Enough requests for one key, and not too many for a thousand.
    let (limit, each) = if keys == 1 { (60, 6_000) } else { (1, 100) };
    let mut traffic = one_key(limit, durability);
    let keys: Vec<usize> = (0..keys).collect();
    (0..each).for_each(|n| traffic.send(n * SECONDS * SECOND / each, &keys));
    traffic.finish()
}

/// Many clients, one request each, all of them under one limit that they exceed a hundred times.
fn fresh_clients(durability: &str) -> Counted {
    let (limit, clients) = (30, 3_000);
    let mut traffic = Traffic::start(&json!([
        rule("each", &json!([{"header": "x-key"}]), 60, durability),
        rule("all", &json!([]), limit, durability),
    ]));
    (0..clients).for_each(|n| traffic.send(n as u64 * SECONDS * SECOND / clients as u64, &[n]));
    traffic.finish()
}

/// The same per million requests, in billed units.
fn per_million(counted: Counted) -> Usage {
    let scaled = |count: u64| (count * 1_000_000).div_ceil(counted.requests);
    let (calls, alarms) = (scaled(counted.calls), scaled(counted.alarms));
    let woken = calls + alarms;
    Usage {
        requests: 1_000_000,
        cpu_us: CPU_US_PER_REQUEST * 1_000_000 + CPU_US_PER_CALL * woken,
        calls,
        alarms,
        rows_written: scaled(counted.rows),
        rows_read: 0,
        active_ms: (ACTIVE_US_PER_CALL * woken).div_ceil(1000) + 50 * scaled(counted.saves),
    }
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let cut = digits.chars().enumerate().flat_map(|(i, digit)| {
        let comma = i > 0 && (digits.len() - i).is_multiple_of(3);
        comma.then_some(',').into_iter().chain([digit])
    });
    cut.collect()
}

fn row(name: &str, durability: &str, counted: Counted) -> String {
    let refused = (counted.refused * 1000).div_euclid(counted.requests);
    let usage = per_million(counted);
    format!(
        "| {name} | {durability} | {}.{} % | {} | {} | {} | {} s | {} |\n",
        refused / 10,
        refused % 10,
        grouped(usage.calls),
        grouped(usage.rows_written),
        grouped(usage.alarms),
        grouped(usage.cpu_us.div_ceil(1_000_000)),
        dollars(usage.micro_dollars()),
    )
}

fn traffic_table() -> String {
    let mut table = "\n| traffic | durability | refused | object calls | rows written | alarms | \
                     CPU | dollars |\n|---|---|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for durability in ["strict", "relaxed"] {
        let (one, many) = (attack(1, durability), attack(1000, durability));
        let fresh = fresh_clients(durability);
        for counted in [one, many] {
            // The promised figure: a flood makes hardly more calls than there are allowed requests.
            let admitted = counted.requests - counted.refused;
            assert!((counted.calls - admitted) * 50 <= counted.requests, "{counted:?}");
            assert!(counted.refused * 100 >= counted.requests * 98, "{counted:?}");
        }
        for (name, counted) in [
            ("steady: 100 keys, each once per second", steady(durability)),
            ("bursts: 100 keys, each 30 at once every 30 s", bursts(durability)),
            ("attack: one key, 100 times its limit", one),
            ("attack: 1,000 keys, 100 times their limits", many),
            ("attack: two keys, each client new, 100 times the limit of all", fresh),
        ] {
            table.push_str(&row(name, durability, counted));
        }
    }
    table
}

fn price_table() -> String {
    let mut table = format!(
        "\n| price on {PRICES_READ_ON} | US dollars | included each month |\n|---|---:|---:|\n"
    );
    for price in PRICES {
        let (whole, part) = (price.micro_dollars / 1_000_000, price.micro_dollars % 1_000_000);
        let part = format!("{part:06}");
        let part = part.trim_end_matches('0');
        let part = format!("{part:0<2}");
        table.push_str(&format!(
            "| {} | {whole}.{part} per {} | {} |\n",
            price.what, price.unit, price.included
        ));
    }
    table
}

/// True when the text between the markers of `name` in `text` is `made`; otherwise it is replaced.
fn between(text: &mut String, name: &str, made: &str) -> bool {
    let (begin, end) = (format!("<!-- {name}: made -->\n"), format!("\n<!-- {name}: end -->"));
    let from = text.find(&begin).map(|at| at + begin.len()).expect("a marker");
    let to = from + text[from..].find(&end).expect("a marker");
    let same = &text[from..to] == made;
    text.replace_range(from..to, made);
    same
}

// Guards: a bill that is guessed, and a path whose cost grows unseen.
#[test]
fn the_page_of_costs_is_what_is_counted() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cost.md");
    let mut text = fs::read_to_string(&file).expect("docs/cost.md");
    let traffic = traffic_table();
    let same =
        between(&mut text, "traffic", &traffic) & between(&mut text, "prices", &price_table());
    if is_blessing() {
        fs::write(&file, text).expect("the page is written");
        return;
    }
    assert!(same, "docs/cost.md does not say:\n{traffic}\nif this is meant: TOLLGATE_BLESS=1");
}

// Guards: leases that cost more than the page states: a call and a row for each message, whatever
// it reports and requests.
#[test]
fn a_question_about_leases_is_a_call_and_a_row() {
    let mut rules = json!([rule("each", &json!([{"header": "x-key"}]), 1_000_000, "relaxed")]);
    rules[0]["scope"] = json!("fleet");
    let policy = json!({"version": 1, "rules": rules});
    let facts = json!({"method": "GET", "path": "/", "headers": {"x-key": "a"}});
    let node = Node::of_request(1, &policy.to_string(), &facts, &[1]);
    let count = |bodies: Vec<Vec<u8>>| {
        let worker = Setup::new(&policy).front(COUNTING).files_in_memory();
        let worker =
            worker.binding("CHECK_TOKEN", CHECK_TOKEN).binding("FLEET_SECRET", FLEET_SECRET);
        let worker = worker.start();
        let mut client = worker.client();
        for body in &bodies {
            let asked = question(body).header("x-at", START.to_string());
            assert_eq!(client.send(&asked).status, 200);
        }
        let sent = bodies.len() as u64;
        Traffic { worker, client, sent, refused: 0 }.finish()
    };
    // Each returns the lease of the one before, and leases again.
    let leases = |questions: u64| count((1..=questions).map(|n| node.wanting(n, 10)).collect());
    let (few, more) = (leases(10), leases(110));
    assert_eq!((more.calls - few.calls, more.rows - few.rows), (100, 100));
    assert_eq!((few.calls, few.alarms, more.alarms), (10, 1, 1));
    let again = count(vec![node.wanting(1, 10); 10]);
    let rows = ROWS_OF_A_NEW_KEY + 9;
    assert_eq!((again.calls, again.rows), (10, rows), "a message that comes again is a row, too");
    let direct = |questions: usize| count(vec![node.message(1); questions]);
    let (few, more) = (direct(10), direct(110));
    assert_eq!((more.calls - few.calls, more.rows - few.rows), (100, 100));
}

// Guards: figures of `tollgate check` that the Worker exceeds.
#[test]
fn what_check_counts_is_what_happens() {
    for durability in ["strict", "relaxed"] {
        let mut fresh = one_key(60, durability);
        fresh.send(0, &(0..20).collect::<Vec<_>>());
        let counted = fresh.finish();
        assert_eq!((counted.calls, counted.alarms), (20, 20), "{durability}");
        assert_eq!(counted.rows, 20 * ROWS_OF_A_NEW_KEY, "{durability}");
    }
    let count = |requests: u64| {
        let mut traffic = Traffic::start(&json!([
            rule("each", &json!([{"header": "x-key"}]), 1000, "strict"),
            rule("path", &json!(["path"]), 1000, "strict"),
        ]));
        (0..requests).for_each(|n| traffic.send(n * 10, &[1]));
        let counted = traffic.finish();
        assert_eq!((counted.requests, counted.refused), (requests, 0));
        counted
    };
    let (few, more) = (count(10), count(110));
    assert_eq!(more.calls - few.calls, 200, "two keys, each charged without a look before");
    assert_eq!(more.rows - few.rows, 200, "a row each");
    assert_eq!((more.alarms, few.alarms), (2, 2));
}
