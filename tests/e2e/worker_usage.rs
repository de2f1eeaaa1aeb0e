//! The report of a calendar's periods in a real workerd, over HTTP.
//!
//! A module in front of `entry.mjs` sets the clock that a request names.

use std::cell::Cell;

use tollgate_e2e::http::{Request, Response};
use tollgate_e2e::usage::{Counting, ahead_ns, assert_is_an_exact_log, policy};
use tollgate_e2e::workerd::{Setup, Workerd};

/// `x-ahead`: how far the clock is ahead of the machine's, in milliseconds.
const CLOCK: &str = r#"
import Tollgate, { Limiter, Metrics, Policies, Tenants } from "./entry.mjs";
export { Limiter, Metrics, Policies, Tenants };

const realNow = Date.now;
let ahead = 0;
Date.now = () => realNow() + ahead;

export default class extends Tollgate {
  async fetch(request) {
    ahead = Number(request.headers.get("x-ahead"));
    return super.fetch(request);
  }
}
"#;

struct Worker {
    workerd: Workerd,
    ahead_ms: Cell<i64>,
}

impl Counting for Worker {
    // A millisecond more for each of the two roundings down, here and of the platform's clock: at
    // the first moment of a day a fast request would otherwise be of the day before.
    fn set_time(&mut self, ms: u64) {
        self.ahead_ms.set(ahead_ns(ms) / 1_000_000 + 2);
    }

    fn send(&self, request: Request) -> Response {
        let request = request.header("x-ahead", self.ahead_ms.get().to_string());
        self.workerd.client().send(&request.header("authorization", "Bearer secret"))
    }
}

// Guards: an invoice that differs from what was counted; and a key in a log.
#[test]
fn a_report_of_the_worker_is_an_exact_log() {
    let setup = Setup::new(policy()).operated().front(CLOCK).binding("ADMIN_TOKEN", "secret");
    let workerd = setup.binding("HASH_KEY", "a secret of this test").start();
    let mut worker = Worker { workerd, ahead_ms: Cell::new(0) };
    assert_is_an_exact_log(&mut worker, 3);
    let log = worker.workerd.log();
    assert!(!log.contains("1+2") && !log.contains("1%2B2"), "{log}");
}
