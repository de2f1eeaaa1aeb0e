//! Stored bytes that are not valid counts: a failure for the one request that finds them, as in
//! Envoy, and then the count starts empty.

use serde_json::json;
use tollgate_e2e::workerd::{Setup, answer, check_request};

/// Stores the junk that `x-junk` names before the object reads its row for the first time.
const JUNK: &str = r#"
import Tollgate, { Limiter as Real } from "./entry.mjs";
let junk = null;
export default class extends Tollgate {
  fetch(request) {
    junk = request.headers.get("x-junk");
    return super.fetch(request);
  }
}
const record = [3, 0, 0, 0, 8, 0, 0, 0, 1, 2];
const KINDS = {
  empty: new Uint8Array(0),
  short: new Uint8Array(15).fill(7),
  head: new Uint8Array(16).fill(7),
  garbage: new Uint8Array(300).fill(255),
  zeros: new Uint8Array(40),
  "half a record": new Uint8Array([...new Uint8Array(16), ...record]),
  "half a set": new Uint8Array([2, ...new Uint8Array(25), ...record]),
  text: "a text of some length, which is no blob at all",
  number: 20,
  "a huge number": 1e12,
  fraction: 0.5,
};
export class Limiter extends Real {
  check(request) {
    if (junk !== null) {
      const sql = this.ctx.storage.sql;
      sql.exec(`CREATE TABLE IF NOT EXISTS state_v2 (id INTEGER PRIMARY KEY, row BLOB NOT NULL)`);
      sql.exec(`INSERT OR REPLACE INTO state_v2 (id, row) VALUES (0, ?)`, KINDS[junk]);
    }
    return super.check(request);
  }
}
"#;

const KINDS: [&str; 11] = [
    "empty",
    "short",
    "head",
    "garbage",
    "zeros",
    "half a record",
    "half a set",
    "text",
    "number",
    "a huge number",
    "fraction",
];

// Guards: a junk row read as an empty count even where `on_failure` denies; and one that fails its
// key for ever.
#[test]
fn a_row_that_cannot_be_read_fails_one_request_and_is_gone() {
    for on_failure in ["allow", "deny"] {
        let quota = json!({"name": "q", "algorithm": "gcra", "limit": 100, "window": "366d"});
        let rule = json!({"name": "one", "key": ["client_ip"], "quotas": [quota]});
        let policy = json!({"version": 1, "on_failure": on_failure, "rules": [rule]});
        let worker = Setup::new(policy).front(JUNK).start();
        for (i, kind) in KINDS.into_iter().enumerate() {
            let ask = |junk: bool| {
                let request = check_request("GET", "/", &format!("192.0.2.{i}"));
                let request = if junk { request.header("x-junk", kind) } else { request };
                answer(&worker.client().send(&request))
            };
            let failed = ask(true);
            assert_eq!(failed["decision"], on_failure, "{kind}");
            assert_eq!(failed["rules"], json!([{"name": "one", "result": "failed"}]), "{kind}");
            let status = if on_failure == "deny" { json!(503) } else { json!(null) };
            assert_eq!(
                (&failed["status"], failed["failure"] == true),
                (&status, !status.is_null())
            );
            for left in [99, 98] {
                let healed = ask(false);
                assert_eq!(healed["decision"], "allow", "{kind}");
                let field = healed["headers"]["ratelimit"].as_str().expect("a field");
                assert!(field.starts_with(&format!("\"q\";r={left};")), "{kind}: {field}");
            }
        }
        let log = worker.log();
        let told = log.lines().filter(|line| line.contains("failures: corrupt=1 ")).count();
        assert!(told >= 1, "{log}");
    }
}
