//! Checks the judges: the exact log against one that counts everything again, and a run of the
//! simulator against the core itself.
//!
//! Guards: every figure of `docs/accuracy.md`; a faulty judge finds no errors.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use tollgate_accuracy::measure::{Arrival, measure};
use tollgate_accuracy::subject::{half, subjects};
use tollgate_accuracy::synthetic::{MODELS, policy};
use tollgate_core::{Span, Timestamp};
use tollgate_lab::simulator::{ExactLog, Run, Traffic, WindowCount};

const WINDOW: u64 = 10;

/// All units in `[start, start + window)`, counted again.
fn units_from(start: u64, history: &[(u64, u64)]) -> u64 {
    let inside = history.iter().filter(|(at, _)| (start..start + WINDOW).contains(at));
    inside.map(|(_, units)| units).sum()
}

/// The most units in any window; such a window can start with one of its units.
fn most(history: &[(u64, u64)]) -> u64 {
    history.iter().map(|(at, _)| units_from(*at, history)).max().unwrap_or(0)
}

/// The definition: with this request no window would exceed the limit.
fn fits(now: u64, cost: u64, limit: u64, history: &[(u64, u64)]) -> bool {
    let mut with = history.to_vec();
    with.push((now, cost));
    most(&with) <= limit
}

#[test]
fn the_exact_log_is_the_definition() {
    let mut random = Pcg32::seed_from_u64(1);
    let mut below = |end: u32| u64::from(random.next_u32() % end);
    let (mut admitted, mut refused) = (0, 0);
    for case in 0..2_000 {
        let limit = 1 + below(5);
        let mut log = ExactLog::new(limit, Span::from_nanos(WINDOW));
        let mut count = WindowCount::new(Span::from_nanos(WINDOW));
        let (mut now, mut history) = (1_000, Vec::new());
        for _ in 0..30 {
            // Often at one instant, often exactly a window later or one nanosecond away from that.
            now += [0, 0, 1, 3, WINDOW - 1, WINDOW, WINDOW + 1][usize::try_from(below(7)).unwrap()];
            let cost = below(4);
            let at = Timestamp::from_nanos(now);
            let is_due = fits(now, cost, limit, &history);
            assert_eq!(
                log.admits(at, cost),
                is_due,
                "case {case} at {now}: {cost} of {limit}, {history:?}"
            );
            assert_eq!(log.check(at, cost), is_due);
            if is_due {
                history.push((now, cost));
                count.record(at, cost);
                admitted += 1;
            } else {
                refused += 1;
            }
            assert_eq!(count.most(), most(&history), "case {case} at {now}: {history:?}");
        }
    }
    assert!(admitted > 10_000 && refused > 10_000, "{admitted} {refused}");
}

/// The simulator uses the policy layer and judges by keys and rules; `measure` uses the core and
/// judges by clients. Both must find the same.
#[test]
fn a_run_finds_what_the_core_asked_directly_gives() {
    let open = MODELS.iter().filter(|model| !model.document(1, 1).contains("retry"));
    let mut runs = 0;
    for model in open {
        for subject in subjects(5, Span::from_secs(10), &[half(5)], &[7]) {
            let traffic = Traffic::parse(&model.document(5, 10)).unwrap();
            let mut run = Run::new(policy(&subject).unwrap(), &traffic, 1);
            let mut arrivals = Vec::new();
            let mut observe = |seen: &tollgate_lab::simulator::ObservedDecision<'_>| {
                let client = u32::try_from(seen.request.client).unwrap();
                arrivals.push(Arrival { at: seen.request.at, client });
            };
            while !run.step(1_000, &mut observe).is_done {}
            let table = run.finish();
            let measured = measure(&subject.limiter, &arrivals);
            let (name, model) = (&subject.name, model.name);
            assert_eq!(measured.requests, table.offered, "{name}, {model}");
            assert_eq!(measured.denied, table.denied, "{name}, {model}");
            let errors = (measured.false_allow, measured.false_deny);
            assert_eq!(errors, (table.false_allow, table.false_deny), "{name}, {model}");
            assert_eq!(measured.most, table.most_admitted, "{name}, {model}");
            runs += 1;
        }
    }
    assert!(runs > 100, "{runs}");
}
