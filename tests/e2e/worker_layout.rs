//! A row that an earlier version stored: after a deployment the object continues its counts.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use tollgate_e2e::workerd::{Setup, answer, check_request};
use tollgate_policy::{Policy, Surface};

/// Stores the row of `x-row`, as hexadecimal digits, before the object reads its own for the first
/// time.
const PLANTED: &str = r#"
import Tollgate, { Limiter as Real } from "./entry.mjs";
let planted = null;
let name; // of the object that was asked last
const bytes = (hex) => Uint8Array.from(hex.match(/../g), (pair) => parseInt(pair, 16));
export default class extends Tollgate {
  // With `x-asked` what an isolate of before asks the object of the request before this one.
  async fetch(request) {
    planted = request.headers.get("x-row");
    const asked = request.headers.get("x-asked");
    if (asked === null) return super.fetch(request);
    try {
      const reply = await this.env.LIMITER.get(name).check(bytes(asked));
      return Response.json({ reply: [...reply] });
    } catch (error) {
      return Response.json({ error: error.message });
    }
  }
}
export class Limiter extends Real {
  check(request) {
    const sql = this.ctx.storage.sql;
    name = this.ctx.id;
    if (planted !== null) {
      sql.exec("CREATE TABLE IF NOT EXISTS state_v1 (id INTEGER PRIMARY KEY, row BLOB NOT NULL)");
      sql.exec("INSERT OR REPLACE INTO state_v1 (id, row) VALUES (0, ?)", bytes(planted));
    }
    const reply = super.check(request);
    const tables = [...sql.exec("SELECT name FROM sqlite_master WHERE name LIKE 'state%'")];
    console.log("tables:", tables.map((table) => table.name).join(" "));
    return reply;
  }
}
"#;

/// Identity of the rule `api` with these quotas, as the Worker of commit 7a4de38 stored it.
const RECORD_ID: [u8; 4] = [0x7b, 0xfd, 0x12, 0x8c];
const QUARTER_OF_AN_HOUR: u128 = 900_000_000_000;

/// A row of layout 1 in which `used` of an hour's units were used just now: group and alarm, then
/// the record.
fn row_of_layout_1(used: u32) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
    let newest = u64::try_from(now / QUARTER_OF_AN_HOUR).expect("64 bits");
    let place = usize::try_from(newest % 5).expect("small");
    let mut counters = [0_u32; 5];
    counters[place] = used;
    let mut row = [0; 16].to_vec();
    row.extend(RECORD_ID);
    row.extend(36_u32.to_le_bytes());
    row.extend(newest.to_le_bytes());
    row.extend(counters.into_iter().flat_map(u32::to_le_bytes));
    row.extend([0; 8]); // no unit of the day is used
    row.into_iter().map(|byte| format!("{byte:02x}")).collect()
}

// Guards: a deployment that resets every key whose state has a new layout, and its rows that fail
// requests.
#[test]
fn a_row_of_layout_1_counts_on() {
    let hour = json!({"name": "hour", "limit": 5, "window": "1h", "algorithm": "sliding-buckets", "buckets": 4});
    let day = json!({"name": "day", "limit": 20, "window": "1d"});
    let rule = json!({"name": "api", "key": ["client_ip"], "quotas": [hour, day]});
    let worker = Setup::new(json!({"version": 1, "rules": [rule]})).front(PLANTED).start();
    for (used, ip) in [(0, "192.0.2.1"), (3, "192.0.2.2"), (4, "192.0.2.3"), (5, "192.0.2.4")] {
        let row = row_of_layout_1(used);
        let ask = |is_first: bool| {
            let request = check_request("GET", "/", ip);
            let request = if is_first { request.header("x-row", &row) } else { request };
            answer(&worker.client().send(&request))
        };
        for asked in 0..3 {
            let answer = ask(asked == 0);
            let expected = if used + asked < 5 { "allow" } else { "deny" };
            assert_eq!(answer["decision"], expected, "{used} used before, {asked} since: {answer}");
            let field = answer["headers"]["ratelimit"].as_str().expect("a field");
            let left = 5_u32.saturating_sub(used + asked + 1);
            assert!(field.starts_with(&format!("\"hour\";r={left};")), "{used}, {asked}: {field}");
        }
    }
    let log = worker.log();
    assert!(!log.contains("corrupt"), "{log}");
    // The first charge migrates the row; until then, and without a charge, it stays.
    let tables = |names: &str| {
        let said = format!("tables: {names}");
        log.lines().filter(|line| line.ends_with(&said)).count()
    };
    let (taken_over, untouched) = (tables("state_v2"), tables("state_v1"));
    assert!(taken_over >= 6 && untouched >= 1, "{taken_over}, {untouched}: {log}");
    assert!(!log.contains("state_v1 state_v2"), "{log}");
}

/// A group, a rule, binding, a cost of one: the request of an isolate with the earlier code.
fn asked_before(group: &[u8], record_id: [u8; 4]) -> String {
    let bytes = [group, &record_id, &[1], &1_u64.to_le_bytes()].concat();
    bytes.into_iter().map(|byte| format!("{byte:02x}")).collect()
}

// Guards: isolates with the earlier code that allow every request, or that are decided by other
// quotas, while a deployment spreads and objects already have today's code.
#[test]
fn an_isolate_of_before_is_answered_by_an_object_of_today() {
    let hour = json!({"name": "hour", "limit": 5, "window": "1h", "algorithm": "sliding-buckets", "buckets": 4});
    let day = json!({"name": "day", "limit": 20, "window": "1d"});
    let rule = json!({"name": "api", "key": ["client_ip"], "quotas": [hour, day]});
    let policy = json!({"version": 1, "rules": [rule]});
    let group = Policy::compile(&policy.to_string(), Surface::Worker).expect("a policy");
    let group = group.groups()[0].identity().to_le_bytes();
    let worker = Setup::new(policy).front(PLANTED).start();
    let today = answer(&worker.client().send(&check_request("GET", "/", "192.0.2.1")));
    assert_eq!(today["decision"], "allow");
    let before = |asked: &str| {
        let request = check_request("GET", "/", "192.0.2.1").header("x-asked", asked);
        answer(&worker.client().send(&request))
    };
    for left in (0..4).rev() {
        let reply = &before(&asked_before(&group, RECORD_ID))["reply"];
        let reply: Vec<u64> = serde_json::from_value(reply.clone()).expect("bytes");
        // The time, whether it was charged, and for each quota: allowed, no delay, limit,
        // remaining, ...
        assert_eq!((reply.len(), reply[8], reply[9]), (9 + 2 * 41, 1, 0), "{reply:?}");
        assert_eq!((reply[18], reply[26]), (5, left), "{reply:?}");
    }
    let refused = answer(&worker.client().send(&check_request("GET", "/", "192.0.2.1")));
    assert_eq!(refused["decision"], "deny", "isolates of both count together");
    let unknown = before(&asked_before(&group, [7, 0, 0, 0]));
    assert_eq!(unknown["error"], "the other side has another version of the policy");
    assert_eq!(before("00")["error"], "malformed request or reply");
}
