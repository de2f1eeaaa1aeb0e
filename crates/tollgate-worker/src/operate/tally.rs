//! Failures, counted and reported in few lines of the log.
//!
//! Invariant: nothing fails in silence, and no flood of failures is a flood of lines. The first is
//! reported at once; then at most one line every ten seconds reports the failures since, with
//! totals since the isolate started. A line holds counts and the platform's last error message,
//! never a key. Deliberately absent: a timer, which an isolate has only within a request; the next
//! request reports the last failures.

use tollgate_core::{Span, Timestamp};
use tollgate_service::metrics::Event;

/// The shortest time between two lines.
const BETWEEN_LINES: Span = Span::from_secs(10);

/// The longest error message of the platform that is repeated, in characters.
const MAX_WORD: usize = 200;

/// The kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// An object did not reply in time.
    Late,
    /// An object, or the platform in its place, gave an error.
    Failed,
    /// The reply of an object does not fit the call.
    Misread,
    /// An object could not read its stored row.
    Corrupt,
    /// A request was allowed because of it, by `on_failure`.
    LetThrough,
    /// A request was denied because of it, by `on_failure`.
    Refused,
    /// The origin gave no response.
    Origin,
    /// An exception of our own: a request was not sent to the origin.
    Internal,
    /// Counts could not be sent to the sums.
    Metrics,
    /// The policy object did not report in time, or at all, which policy is in force.
    Unchecked,
    /// A request was decided under a policy that could not be confirmed to be still in force.
    Outdated,
    /// A request met counts of a newer policy, and could not be planned under that.
    Behind,
    /// A request was decided although its tenant's quotas could not be found out.
    Tenant,
}

impl FailureKind {
    /// Each kind, with its word in a line of the log, where people and their alerts look for it.
    const ALL: [(Self, &str); 13] = [
        (Self::Late, "late"),
        (Self::Failed, "failed"),
        (Self::Misread, "misread"),
        (Self::Corrupt, "corrupt"),
        (Self::LetThrough, "let_through"),
        (Self::Refused, "refused"),
        (Self::Origin, "origin"),
        (Self::Internal, "internal"),
        (Self::Metrics, "metrics"),
        (Self::Unchecked, "unchecked"),
        (Self::Outdated, "outdated"),
        (Self::Behind, "behind"),
        (Self::Tenant, "tenant"),
    ];

    /// The event in the metrics; an exception of our own is in the log only.
    pub(crate) const fn event(self) -> Option<Event> {
        Some(match self {
            Self::Internal => return None,
            Self::Late => Event::Late,
            Self::Failed | Self::Behind => Event::Failed,
            Self::Misread => Event::Misread,
            Self::Corrupt => Event::Corrupt,
            Self::LetThrough => Event::LetThrough,
            Self::Refused => Event::RefusedByFailure,
            Self::Origin => Event::Origin,
            Self::Metrics => Event::FlushFailed,
            Self::Unchecked => Event::PolicyCheckFailed,
            Self::Outdated => Event::OutdatedPolicy,
            Self::Tenant => Event::UnknownTenant,
        })
    }
}

/// How often each thing failed since the last line, and since the isolate started.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    since: [u64; FailureKind::ALL.len()],
    total: [u64; FailureKind::ALL.len()],
    last_word: String,
    reported_at: Option<Timestamp>,
    /// Some failure is not reported yet.
    pub(crate) is_due: bool,
}

impl Tally {
    /// Counts one `failure`; `word` is the platform's error message, if any.
    pub(crate) fn note(&mut self, failure: FailureKind, word: &str) {
        for counts in [&mut self.since, &mut self.total] {
            let of =
                counts.iter_mut().zip(FailureKind::ALL).find(|(_, (kind, _))| *kind == failure);
            if let Some((count, _)) = of {
                *count = count.saturating_add(1);
            }
        }
        if !word.is_empty() {
            let one_line = word.chars().map(|c| if c.is_control() { ' ' } else { c });
            self.last_word = one_line.take(MAX_WORD).collect();
        }
        self.is_due = true;
    }

    /// The line to log, if it is time for one.
    pub(crate) fn line(&mut self, now: Timestamp) -> Option<String> {
        // A clock that was set back must not silence us.
        let is_early = |at: Timestamp| at <= now && now < at.saturating_add(BETWEEN_LINES);
        if !self.is_due || self.reported_at.is_some_and(is_early) {
            return None;
        }
        let mut line = String::from("failures: ");
        line.push_str(&words(&self.since));
        line.push_str("; since this isolate started: ");
        line.push_str(&words(&self.total));
        if !self.last_word.is_empty() {
            line.push_str("; last error: ");
            line.push_str(&self.last_word);
        }
        self.since = Default::default();
        self.last_word.clear();
        self.is_due = false;
        self.reported_at = Some(now);
        Some(line)
    }
}

/// `late=3 let_through=3`: the counts that are not zero.
fn words(counts: &[u64]) -> String {
    let some = counts.iter().zip(FailureKind::ALL).filter(|(count, _)| **count > 0);
    some.map(|(count, (_, word))| format!("{word}={count}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(Span::from_secs(seconds))
    }

    #[test]
    fn the_first_failure_is_reported_at_once_and_a_flood_in_one_line() {
        let mut tally = Tally::default();
        assert_eq!(tally.line(at(100)), None);
        tally.note(FailureKind::Late, "");
        tally.note(FailureKind::LetThrough, "");
        let first = "late=1 let_through=1";
        let expected = format!("failures: {first}; since this isolate started: {first}");
        assert_eq!(tally.line(at(100)).as_ref(), Some(&expected));
        assert_eq!(tally.line(at(200)), None, "nothing came since");
        tally.note(FailureKind::Late, "");
        assert!(tally.line(at(200)).is_some());
        for second in 200..210 {
            for _ in 0..1000 {
                tally.note(FailureKind::Failed, "storage\nis broken");
                tally.note(FailureKind::Refused, "");
            }
            assert_eq!(tally.line(at(second)), None, "{second}");
        }
        let line = "failures: failed=10000 refused=10000; since this isolate started: late=2 \
                    failed=10000 let_through=1 refused=10000; last error: storage is broken";
        assert_eq!(tally.line(at(210)).as_deref(), Some(line));
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_silence() {
        let mut tally = Tally::default();
        tally.note(FailureKind::Origin, "x");
        assert!(tally.line(at(1_000_000)).is_some());
        tally.note(FailureKind::Origin, &"x".repeat(10_000));
        let line = tally.line(at(5)).expect("a line");
        assert!(line.len() < 400, "{}", line.len());
    }
}
