//! A node's clock, which may be wrong: the time it shows at a true time.
//!
//! Invariant: a function of the true time alone. It never shows a time before the epoch.

use tollgate_core::{Span, Timestamp};

use crate::simulator::traffic::START;
use crate::simulator::traffic::document::Fault;

/// A clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    faults: Vec<Fault>,
}

impl Clock {
    pub(crate) const fn new(faults: Vec<Fault>) -> Self {
        Self { faults }
    }

    /// The time it shows at the true time `at`: every fault applies to the result of those before
    /// it.
    pub(crate) fn read(&self, at: Timestamp) -> Timestamp {
        self.faults.iter().fold(at, |shown, fault| fault.read(at, shown))
    }

    /// How far it can step back in total.
    pub(crate) fn steps_back(&self) -> Span {
        let back = |fault: &Fault| match fault {
            Fault::Back { by, .. } | Fault::Oscillates { by, .. } => by.0,
            Fault::Freezes { length, .. } => length.0,
            Fault::Fast { .. } | Fault::Slow { .. } | Fault::Forward { .. } => Span::ZERO,
        };
        self.faults.iter().map(back).fold(Span::ZERO, Span::saturating_add)
    }
}

impl Fault {
    fn read(&self, at: Timestamp, shown: Timestamp) -> Timestamp {
        let since = at.since(START);
        match self {
            Self::Fast { ppm } => shown.saturating_add(millionths(since, ppm.0)),
            Self::Slow { ppm } => shown.saturating_sub(millionths(since, ppm.0)),
            Self::Forward { at, by } if since >= at.0 => shown.saturating_add(by.0),
            Self::Back { at, by } if since >= at.0 => shown.saturating_sub(by.0),
            Self::Oscillates { by, every } => {
                let turn = since.as_nanos().checked_div(every.0.as_nanos()).unwrap_or(0);
                if turn & 1 == 1 { shown.saturating_add(by.0) } else { shown }
            }
            Self::Freezes { at, length } => {
                let frozen = since.saturating_sub(at.0);
                if frozen < length.0 { shown.saturating_sub(frozen) } else { shown }
            }
            Self::Forward { .. } | Self::Back { .. } => shown,
        }
    }
}

/// `ppm` millionths of a time, rounded down.
fn millionths(of: Span, ppm: u64) -> Span {
    let nanos = u128::from(of.as_nanos()).saturating_mul(ppm.into()) / 1_000_000;
    Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::traffic::Traffic;

    fn shown(faults: &str, seconds: &[u64]) -> Vec<u64> {
        let document = format!(
            r#"{{"length": "1h", "sources": [{{"arrivals": {{"instants": {{"at": []}}}}}}],
                "servers": {{"clocks": [[{faults}]]}}}}"#
        );
        let traffic = Traffic::parse(&document).expect(&document);
        let clock = Clock::new(traffic.servers().clocks[0].clone());
        let at = |seconds: &u64| START.saturating_add(Span::from_secs(*seconds));
        let shown = |seconds| clock.read(at(seconds)).since(START).as_nanos() / 1_000_000;
        seconds.iter().map(shown).collect()
    }

    #[test]
    fn each_fault_shows_its_times() {
        assert_eq!(shown(r#"{"fast": {"ppm": 1000}}"#, &[0, 100]), [0, 100_100]);
        assert_eq!(shown(r#"{"slow": {"ppm": 1000}}"#, &[0, 100]), [0, 99_900]);
        let forward = r#"{"forward": {"at": "10s", "by": "5s"}}"#;
        assert_eq!(shown(forward, &[9, 10, 20]), [9_000, 15_000, 25_000]);
        let back = r#"{"back": {"at": "10s", "by": "5s"}}"#;
        assert_eq!(shown(back, &[9, 10, 20]), [9_000, 5_000, 15_000]);
        let oscillates = r#"{"oscillates": {"by": "500ms", "every": "2s"}}"#;
        assert_eq!(shown(oscillates, &[1, 2, 3, 4]), [1_000, 2_500, 3_500, 4_000]);
        let freezes = r#"{"freezes": {"at": "2s", "length": "3s"}}"#;
        assert_eq!(shown(freezes, &[1, 2, 4, 5, 6]), [1_000, 2_000, 2_000, 5_000, 6_000]);
        let both = format!("{forward}, {back}");
        assert_eq!(shown(&both, &[9, 10]), [9_000, 10_000]);
    }
}
