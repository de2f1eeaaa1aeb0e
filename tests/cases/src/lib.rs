//! Seeded random policies and traces, and what every surface must answer to them.
//!
//! A case is a policy document and a trace of requests with their times. The [`Reference`] is the policy
//! layer over a map; a surface answers the same requests at the same times, and everything it says
//! must be the same: status, fields with their bytes, body, waits and marks ([`Seen`]). What the
//! reference said is kept as one digest a case in `golden.txt`, so that a target which runs the reference
//! itself (as wasm, optimised) is compared with the native one.
//!
//! Invariant: pure and deterministic. The same number gives the same case on every target, for ever; no
//! clock, no I/O, no order that depends on a hash.
//!
//! One request at a time: it is answered to its end, waits included, before the next one comes at its own
//! time, which may be earlier than the end of a wait. So a queue fills up.
//!
//! Left out, because surfaces do not see or do not do it alike:
//! - routes, countries, systems and claims: each surface has its own source for them;
//! - header values that are not UTF-8: a Worker's platform hands over U+FFFD for what is none;
//! - `cookie` and `x-forwarded-for` as plain headers in conditions and keys: Envoy joins their lines in its
//!   own way;
//! - requests without a peer (a Unix socket), with a target that is no path (`*`, a whole URL), and with one
//!   that workerd refuses (`"`, `<`, `>`, `^`, `|` and `` ` `` unescaped);
//! - backslashes, and dots beside what servers resolve differently, but for escaped slashes: a Worker's platform has
//!   made one path of them before anybody is asked;
//! - clients that leave before the response: Envoy then never learns its status, the Worker does;
//! - failures of a store, the limit of waiting requests and of a table: surfaces fail differently;
//! - times between milliseconds, which a Worker's clock does not have; [`limits`] has them;
//! - a clock that goes back where one request counts in several places: the Worker charges and gives
//!   back what Envoy only looks at, and what is given back after the clock went back is not the same to
//!   the unit.

pub mod coverage;
pub mod limits;
mod policies;
mod random;
mod reference;
mod requests;
mod seen;

use serde_json::Value;
use tollgate_policy::Surface;

pub use reference::{Expected, Reference};
pub use requests::Request;
pub use seen::{Digest, Seen, hidden_keys};

use random::Random;

/// Cases, if the environment says nothing else.
pub const CASES: u32 = 400;
/// Events of each: [`CASES`] times this is what the project promises to compare, 100,000.
pub const EVENTS: usize = 250;

/// What keys are hashed with before clients are told, where a test may choose; what the small host of the
/// filter gives for random bytes (`tests/e2e/envoy_host.rs`).
pub const HASH_KEY: [u8; 16] = [7; 16];

/// The digest of every case, as the reference made it natively.
pub const GOLDEN: &str = include_str!("../golden.txt");

/// The command that writes `golden.txt` anew.
pub const BLESS: &str = "TOLLGATE_BLESS=1 cargo test -p tollgate-cases";

/// A policy and a trace.
pub struct Case {
    /// What it is made of.
    pub number: u32,
    /// The document.
    pub policy: Value,
    /// When the trace begins, in milliseconds since 1970.
    pub start_ms: u64,
    /// The clock may go back between requests; else a request comes at the earliest when everything about
    /// the one before is decided.
    pub wavers: bool,
    /// The requests.
    pub events: Vec<Event>,
}

/// One request, when it comes, and how the origin answers if it passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Milliseconds since the request before came.
    pub step_ms: i64,
    /// The request.
    pub request: Request,
    /// The status of the origin's response.
    pub status: u16,
}

impl Case {
    /// The case `number`, always the same one.
    pub fn new(number: u32) -> Self {
        let mut random = Random::new(0x7011_6a7e_0000_0000 | u64::from(number));
        let written = policies::policy(&mut random);
        // Far in the future of every real clock: no timer of a server rings because of it.
        let start_ms = 4_102_444_800_000 + random.below(10_000_000_000);
        let event = |_| {
            let step_ms = step_ms(&mut random, &written);
            let request = requests::request(&mut random);
            // What goes wrong in gRPC stands in its own status, never in that of HTTP.
            let statuses: &[u16] =
                if request.grpc().is_some() { &[200] } else { &[200, 200, 200, 401, 404, 500] };
            Event { step_ms, request, status: *random.pick(statuses) }
        };
        let events = (0..EVENTS).map(event).collect();
        Self { number, policy: written.document, start_ms, wavers: written.wavers, events }
    }

    /// What to say when a surface answers the event `index` otherwise than expected.
    pub fn difference(
        &self,
        surface: &str,
        index: usize,
        expected: &Expected,
        actual: &str,
    ) -> String {
        format!(
            "{surface} differs in case {} (tollgate_cases::Case::new), event {index}, at {} ms\n\
             policy: {}\nrequest: {:?}\n--- expected\n{}--- {surface}\n{actual}",
            self.number, expected.at_ms, self.policy, self.events[index], expected.seen
        )
    }
}

/// The case `number` as the reference answers it here: to be compared with another target's.
pub fn transcript(number: u32) -> String {
    let case = Case::new(number);
    let mut text = format!("case {number}, policy: {}\n", case.policy);
    for (index, expected) in Reference::new(&case, Surface::Envoy, HASH_KEY).enumerate() {
        let Event { request, .. } = &case.events[index];
        let Expected { at_ms, seen, rules, .. } = expected;
        text.push_str(&format!("\n{index} at {at_ms} ms: {request:?}\n{rules:?}\n{seen}"));
    }
    text
}

/// How long after the request before: often at once, mostly within a window, sometimes far ahead.
fn step_ms(random: &mut Random, written: &policies::Written) -> i64 {
    let window = written.window_ms;
    let ms = match random.below(100) {
        0..45 => 0,
        45..75 => random.below(window / 8 + 1),
        75..90 => random.below(window),
        90..94 => window,
        94..97 => window + random.below(20 * window),
        97..99 if written.wavers => return -number(random.below(window.min(29_000)) + 1),
        99 if written.wavers => return -number(31_000 + random.below(2 * window)),
        _ => 1,
    };
    number(ms)
}

fn number(ms: u64) -> i64 {
    i64::try_from(ms).expect("a short time")
}

/// How many cases to run: [`CASES`], or what `TOLLGATE_CASES` says.
pub fn cases() -> u32 {
    let text = std::env::var("TOLLGATE_CASES").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(CASES).min(CASES)
}

/// The golden digest of a case.
pub fn golden(kind: &str, number: u32) -> Option<&'static str> {
    let wanted = format!("{kind} {number}");
    GOLDEN.lines().find_map(|line| line.strip_prefix(wanted.as_str())?.strip_prefix(' '))
}
