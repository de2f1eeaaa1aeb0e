//! Runs the rows of the vectors through [`Limiter`]: the one place where the tables meet the API.
//!
//! Nothing here reads a clock or a file, so that it runs natively and as wasm.

use tollgate_core::{Algorithm, Charge, Decision, Limiter, Quota, Span, Timestamp, Verdict};

use super::format::{Case, Event, Expectation, Expected, QuotaLine};

/// One quota with its bytes.
pub struct Bucket {
    pub limiter: Limiter,
    pub state: Vec<u8>,
}

/// A receipt for every quota of a layered case.
struct Receipt {
    at_ns: u64,
    cost: u64,
    charges: Vec<Charge>,
}

/// Runs a case; returns every disagreement as `file:line: ...`.
pub fn run(case: &Case) -> Vec<String> {
    let mut buckets: Vec<Bucket> = case.quotas.iter().map(Bucket::new).collect();
    let mut receipts: Vec<Receipt> = Vec::new();
    let mut wrong = Vec::new();
    for row in &case.rows {
        let now = Timestamp::from_nanos(row.at_ns);
        let problem = match &row.event {
            Event::Check { cost, peek, expected } => {
                let (answer, charges) = ask(&mut buckets, now, *cost, *peek);
                if let Some(charges) = charges {
                    receipts.push(Receipt { at_ns: row.at_ns, cost: *cost, charges });
                }
                differs(&answer, expected)
            }
            Event::Within { limit, cost, expected } => {
                let whole = buckets[0].limiter;
                buckets[0].limiter = whole.within(*limit).expect("a counter");
                let (answer, charges) = ask(&mut buckets, now, *cost, false);
                buckets[0].limiter = whole;
                receipts.extend(charges.map(|charges| Receipt {
                    at_ns: row.at_ns,
                    cost: *cost,
                    charges,
                }));
                differs(&answer, expected)
            }
            Event::Debit { units } => {
                buckets.iter_mut().for_each(|b| b.limiter.debit(&mut b.state, *units, now));
                None
            }
            Event::Change(line) => {
                buckets[0] = buckets[0].changed(line, now);
                None
            }
            Event::Refund { cost, charged_at_ns } => {
                let wanted = |r: &Receipt| (r.at_ns, r.cost) == (*charged_at_ns, *cost);
                match receipts.iter().rposition(wanted) {
                    None => Some("nothing like that was charged".to_owned()),
                    Some(index) => {
                        refund(&mut buckets, &receipts.remove(index).charges, now);
                        None
                    }
                }
            }
        };
        if let Some(problem) = problem {
            let algorithm = &case.quotas[0].algorithm;
            wrong.push(format!(
                "{}:{} ({algorithm}) {}: {problem}",
                case.file, row.line, case.title
            ));
        }
    }
    wrong
}

impl Bucket {
    fn new(line: &QuotaLine) -> Self {
        let limiter = limiter(line);
        Self { limiter, state: vec![0; limiter.state_len()] }
    }

    fn changed(&self, line: &QuotaLine, now: Timestamp) -> Self {
        let mut next = Self::new(line);
        next.limiter.carry(&self.limiter, &self.state, now, &mut next.state);
        next
    }
}

/// The limiter of a quota line.
pub fn limiter(line: &QuotaLine) -> Limiter {
    let algorithm = Algorithm::parse(&line.algorithm).expect("an algorithm");
    let algorithm = line.buckets.map_or(algorithm, |buckets| algorithm.with_buckets(buckets));
    let algorithm = if line.weighted { algorithm.weighted() } else { algorithm };
    let quota = Quota::new(line.limit, Span::from_nanos(line.window_ns)).expect("a quota");
    let quota = line.burst.map_or(quota, |burst| quota.with_burst(burst).expect("a burst"));
    let quota = if line.strict { quota.strict() } else { quota };
    Limiter::new(algorithm, quota).expect("a limiter")
}

/// All or nothing: peeks at every quota first, and charges them only if all allow.
fn ask(
    buckets: &mut [Bucket],
    now: Timestamp,
    cost: u64,
    peek: bool,
) -> (Expected, Option<Vec<Charge>>) {
    let looked: Vec<Decision> =
        buckets.iter().map(|b| b.limiter.peek(&b.state, now, cost)).collect();
    let admitted = looked.iter().all(Decision::is_admitted);
    if !admitted {
        let left = |b: &Bucket| b.limiter.peek(&b.state, now, 0);
        let untouched: Vec<Decision> = buckets.iter().map(left).collect();
        let denials: Vec<&Decision> = looked.iter().filter(|d| !d.is_admitted()).collect();
        let never = denials.iter().any(|d| d.retry_after.is_none());
        let longest = denials.iter().filter_map(|d| d.retry_after).max();
        let mut answer = summary(Expectation::Deny, &untouched);
        answer.retry_after_ns = if never { None } else { longest.map(|span| span.as_nanos()) };
        if let [only] = looked.as_slice() {
            assert_eq!(only.remaining, answer.remaining, "a denial reports what is left");
            answer.reset_after_ns = Some(only.reset_after.as_nanos());
        }
        return (answer, None);
    }
    let waits = looked.iter().map(|d| match d.verdict {
        Verdict::Delay(wait) => wait.as_nanos(),
        _ => 0,
    });
    let verdict = match waits.max() {
        Some(wait_ns) if wait_ns > 0 => Expectation::Delay { wait_ns },
        _ => Expectation::Allow,
    };
    let answer = summary(verdict, &looked);
    if peek {
        return (answer, None);
    }
    let check = |(bucket, looked): (&mut Bucket, &Decision)| {
        let decision = bucket.limiter.check(&mut bucket.state, now, cost);
        assert_eq!(decision, *looked, "peek answers as check does");
        decision.charge(now, cost).expect("admitted")
    };
    (answer, Some(buckets.iter_mut().zip(&looked).map(check).collect()))
}

fn summary(verdict: Expectation, decisions: &[Decision]) -> Expected {
    let remaining = decisions.iter().map(|d| d.remaining).min().unwrap_or(0);
    let reset_after_ns = match decisions {
        [only] => Some(only.reset_after.as_nanos()),
        _ => None,
    };
    Expected { verdict, remaining, retry_after_ns: None, reset_after_ns }
}

fn refund(buckets: &mut [Bucket], charges: &[Charge], now: Timestamp) {
    for (bucket, charge) in buckets.iter_mut().zip(charges) {
        bucket.limiter.refund(&mut bucket.state, *charge, now);
    }
}

fn differs(answer: &Expected, expected: &Expected) -> Option<String> {
    let mut comparable = answer.clone();
    if expected.reset_after_ns.is_none() {
        comparable.reset_after_ns = None;
    }
    (comparable != *expected)
        .then(|| format!("\n  expected {expected:?}\n  answered {comparable:?}"))
}
