//! One lane: a policy under simulated traffic, run piece by piece, and inspected afterwards.
//!
//! Invariant: the run is the simulator's, from the same policy, traffic and seed as `tollgate
//! simulate`, so its table is the same. A request is shown in full by running up to it again: only
//! the time of each request is stored, and at most [`MAX_TIMES`] of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tollgate_core::Span;
use tollgate_lab::simulator::{Fate, ObservedDecision, Requests, Run, START, Table, Traffic};
use tollgate_policy::{Policy, Surface};

use crate::request_details::{RequestDetails, request_details};
use crate::watch::Watch;

/// Requests that are found by their times; for later ones the last of these is found. 32 MB.
const MAX_TIMES: usize = 4_000_000;

/// The progress of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Progress {
    done: bool,
    offered: u64,
    at_ms: u64,
    length_ms: u64,
}

/// A lane.
#[derive(Debug)]
pub(crate) struct LaneRun {
    policy: Arc<Policy>,
    traffic: Traffic,
    seed: u64,
    run: Run,
    numbers: Numbers,
    watch: Watch,
    /// When requests came, in nanoseconds since the beginning.
    times: Vec<u64>,
    again: Option<DetailRun>,
}

/// The same run from its beginning, up to a request to be shown.
#[derive(Debug)]
struct DetailRun {
    run: Run,
    numbers: Numbers,
    /// Only for the request data that a policy may read.
    requests: Requests,
}

/// Numbers for requests, in the order in which they come.
#[derive(Debug, Default)]
struct Numbers {
    next: u64,
    /// The numbers of those that wait, by source and number.
    waiting: BTreeMap<(usize, u64), u64>,
}

impl Numbers {
    /// The number of the request, and whether it is a new one.
    fn of(&mut self, seen: &ObservedDecision<'_>) -> (u64, bool) {
        let name = (seen.request.source, seen.request.number);
        let known = self.waiting.get(&name).copied();
        let number = known.unwrap_or(self.next);
        if known.is_none() {
            self.next = self.next.saturating_add(1);
        }
        if seen.decided.fate() == Fate::Waiting {
            self.waiting.insert(name, number);
        } else {
            self.waiting.remove(&name);
        }
        (number, known.is_none())
    }
}

impl LaneRun {
    /// A lane at its beginning.
    ///
    /// # Errors
    /// The mistakes in the policy or the traffic, in words, one per line.
    pub(crate) fn new(policy: &str, traffic: &str, seed: u64) -> Result<Self, String> {
        let policy =
            tollgate_language::compile(policy, Surface::Envoy).map_err(|all| all.to_string())?;
        let traffic = Traffic::parse(traffic).map_err(|error| format!("traffic: {error}"))?;
        let policy = Arc::new(policy);
        Ok(Self {
            run: Run::new(Arc::clone(&policy), &traffic, seed),
            watch: Watch::new(&policy, &traffic, seed),
            numbers: Numbers::default(),
            times: Vec::new(),
            again: None,
            policy,
            traffic,
            seed,
        })
    }

    /// Continues for at most `budget` decisions.
    pub(crate) fn step(&mut self, budget: u64) -> Progress {
        let Self { run, numbers, watch, times, .. } = self;
        let progress = run.step(budget, &mut |seen| {
            let (_, is_new) = numbers.of(seen);
            watch.see(seen, is_new);
            if is_new && times.len() < MAX_TIMES {
                times.push(seen.request.at.since(START).as_nanos());
            }
        });
        if progress.is_done {
            watch.end(self.traffic.length());
        }
        Progress {
            done: progress.is_done,
            offered: progress.offered,
            at_ms: millis(progress.since_start),
            length_ms: millis(self.traffic.length()),
        }
    }

    /// The results so far.
    pub(crate) fn table(&mut self) -> Table {
        self.run.table()
    }

    pub(crate) const fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The number of the last request that came at most `until` after the beginning, or of the
    /// first one; `None` when none came.
    pub(crate) fn near(&self, until: Span) -> Option<u64> {
        let until = until.as_nanos();
        let before = self.times.partition_point(|at| *at <= until).saturating_sub(1);
        self.times.get(before)?;
        u64::try_from(before).ok()
    }

    /// All data of one request; `None` when there is none with this number.
    pub(crate) fn request_details(&mut self, number: u64) -> Option<RequestDetails> {
        if number >= self.numbers.next {
            return None;
        }
        let fresh = || DetailRun {
            run: Run::new(Arc::clone(&self.policy), &self.traffic, self.seed),
            numbers: Numbers::default(),
            requests: Requests::new(&self.traffic, self.seed),
        };
        // A request that was already passed is reached from the beginning.
        let mut again = self.again.take().filter(|again| again.numbers.next <= number);
        let DetailRun { run, numbers, requests } = again.get_or_insert_with(fresh);
        let mut found = None;
        loop {
            let progress = run.step(1, &mut |seen| {
                let (this, _) = numbers.of(seen);
                if this == number
                    && let Some(facts) = requests.facts(*seen.request)
                {
                    found = request_details(number, seen, &facts).or(found.take());
                }
            });
            if found.is_some() || progress.is_done {
                self.again = again;
                return found;
            }
        }
    }
}

/// Milliseconds, rounded down.
fn millis(span: Span) -> u64 {
    span.as_nanos().checked_div(1_000_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule that denies, one that delays, one that does not apply.
    const POLICY: &str = r#"{"version": 1, "rules": [
        {"name": "each", "key": ["client_ip"], "quotas": [{"limit": 5, "window": "10s"}]},
        {"name": "line", "key": ["client_ip"], "action": {"delay": {"max": "5s"}},
         "quotas": [{"limit": 3, "window": "10s", "name": "slow"}]},
        {"name": "none", "when": {"paths": ["/none"]}, "key": [],
         "quotas": [{"limit": 1, "window": "1s"}]}]}"#;
    const TRAFFIC: &str = r#"{"length": "60s", "sources": [
        {"arrivals": {"poisson": {"rate": "4/s"}}, "clients": {"count": 3, "zipf": 1.0}},
        {"arrivals": {"instants": {"at": ["1s", "1s", "59s"]}}, "retry": {"attempts": 2, "wait": "retry_after"}}]}"#;

    fn done(policy: &str, traffic: &str) -> LaneRun {
        let mut lane = LaneRun::new(policy, traffic, 7).unwrap();
        while !lane.step(10).done {}
        lane
    }

    #[test]
    fn the_table_is_that_of_the_simulator_however_it_is_run() {
        let policy = Arc::new(tollgate_language::compile(POLICY, Surface::Envoy).unwrap());
        let traffic = Traffic::parse(TRAFFIC).unwrap();
        let table = Run::new(policy, &traffic, 7).finish();
        assert!(table.delayed > 10 && table.denied > 10 && table.admitted > 10, "{table:?}");
        assert_eq!(done(POLICY, TRAFFIC).table(), table);
    }

    #[test]
    fn the_series_add_up_to_the_table() {
        let mut lane = done(POLICY, TRAFFIC);
        let table = lane.table();
        let sum = |name| lane.watch().bins.series(name, 97).unwrap().iter().sum::<f64>();
        let counts = [table.offered, table.admitted, table.delayed, table.denied];
        let sums = ["offered", "admitted", "delayed", "denied"].map(sum);
        assert_eq!(counts.map(|count| f64::from(u32::try_from(count).unwrap())), sums);
    }

    /// Guards: the state of a delayed request, shown as if nothing were used.
    #[test]
    fn until_whole_is_shown_for_delayed_requests_too() {
        let policy = r#"{"version": 1, "rules": [{"name": "queue", "key": ["client_ip"],
            "quotas": [{"limit": 3, "window": "9s", "algorithm": "leaky-queue"}]}]}"#;
        let traffic = r#"{"length": "10s", "sources": [
            {"arrivals": {"instants": {"at": ["0s", "1s", "2s"]}}}]}"#;
        let lane = done(policy, traffic);
        let whole = lane.watch().bins.series("whole_after", 10).unwrap();
        assert_eq!(whole.get(..3), Some(&[3_000.0, 5_000.0, 7_000.0][..]));
    }

    /// Guards: a request that is shown as another one, as happened to those that waited.
    #[test]
    fn every_request_is_shown_as_it_was_decided() {
        let mut lane = done(POLICY, TRAFFIC);
        let table = lane.table();
        let mut fates = BTreeMap::new();
        for number in 0..table.offered {
            let details = serde_json::to_value(lane.request_details(number).unwrap()).unwrap();
            assert_eq!(details["index"], number);
            let fate = details["fate"].as_str().unwrap().to_owned();
            assert_eq!(details["status"], if fate == "denied" { 429 } else { 200 }, "{details}");
            assert_eq!(details["wait_ms"] == 0, fate != "delayed", "{details}");
            assert!(details["why"].as_array().unwrap().len() >= 4, "{details}");
            *fates.entry(fate).or_insert(0) += 1;
        }
        let counts =
            [("admitted", table.admitted), ("delayed", table.delayed), ("denied", table.denied)];
        assert_eq!(fates, counts.map(|(fate, count)| (fate.to_owned(), count)).into());
        assert!(lane.request_details(table.offered).is_none());
        // Backwards, from a run that has passed it.
        let details = serde_json::to_string(&lane.request_details(0).unwrap()).unwrap();
        assert!(
            details.contains("rule \\\"none\\\" does not apply: it is for path /none"),
            "{details}"
        );
    }

    #[test]
    fn a_request_is_found_by_its_time() {
        let traffic = r#"{"length": "10s", "sources": [
            {"arrivals": {"instants": {"at": ["2500us", "1s", "1s", "9s"]}}}]}"#;
        let lane = done(POLICY, traffic);
        let near = |millis| lane.near(Span::from_millis(millis)).unwrap();
        assert_eq!([0, 2, 3, 999, 1_000, 8_999, 9_000, 99_999].map(near), [0, 0, 0, 0, 2, 2, 3, 3]);
        let nobody = r#"{"length": "10s", "sources": [{"arrivals": {"instants": {"at": []}}}]}"#;
        let mut lane = done(POLICY, nobody);
        assert_eq!((lane.near(Span::ZERO), lane.request_details(0).is_none()), (None, true));
    }

    /// Guards: a true count of another key, of denied requests, or of another window.
    #[test]
    fn the_true_count_is_the_tables_where_there_is_one_key() {
        for algorithm in ["gcra", "fixed-window", "sliding-window", "sliding-log", "leaky-queue"] {
            let policy = format!(
                r#"{{"version": 1, "rules": [{{"name": "all", "key": [], "quotas": [
                    {{"limit": 10, "window": "10s", "algorithm": "{algorithm}"}}]}}]}}"#
            );
            let mut lane = done(&policy, TRAFFIC);
            let most = lane.table().most_admitted;
            let series = lane.watch().bins.series("true_count", 600).unwrap();
            let highest = series.iter().copied().fold(0.0, f64::max);
            assert!(series.iter().all(|count| !count.is_nan()), "{algorithm}");
            let most = f64::from(u32::try_from(most).unwrap());
            // Requests that a queue releases after the end are not in the picture.
            let is_equal = algorithm == "leaky-queue" && highest <= most || highest == most;
            assert!(is_equal && highest >= 9.0, "{algorithm}: {highest} of {most}");
        }
    }

    #[test]
    fn the_client_who_asks_most_is_watched() {
        let traffic = r#"{"length": "60s", "sources": [
            {"arrivals": {"steady": {"rate": "1/s"}}},
            {"arrivals": {"steady": {"rate": "3/s"}}, "request": {"path": "/none"}}]}"#;
        let lane = done(POLICY, traffic);
        let watched = serde_json::to_value(&lane.watch().watched).unwrap();
        assert_eq!((&watched["rule"], &watched["client"]), (&"each".into(), &"10.0.0.1".into()));
        assert_eq!((&watched["limit"], &watched["window_ms"]), (&5.into(), &10_000.into()));
        let lowest = lane.watch().bins.series("remaining", 60).unwrap();
        assert!(lowest.iter().copied().fold(9.0, f64::min) == 2.0, "{lowest:?}");
        let nobody = r#"{"version": 1, "rules": []}"#;
        assert!(done(nobody, traffic).watch().watched.is_none());
    }

    #[test]
    fn mistakes_are_explained_in_words() {
        let wrong = |policy, traffic| LaneRun::new(policy, traffic, 1).err().unwrap();
        assert!(wrong("{", TRAFFIC).starts_with("not JSON"));
        let error = wrong(POLICY, r#"{"length": "0s", "sources": []}"#);
        assert!(error.starts_with("traffic: length: must be"), "{error}");
    }
}
