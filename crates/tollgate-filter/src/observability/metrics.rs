//! The metrics of a policy, and their names: a family of the table in the policy crate, and its
//! labels, which `stats_tags` of the bootstrap read from the name:
//! `tollgate.decisions.plugin=<plugin>.rule=<rule>.quota=<quota>.tier=<tier>.result=<result>`,
//! where the quota is the one that denies or delays, and the tier is absent for the rule's own
//! quotas.
//!
//! Invariant: every counter is defined once, when the policy is configured; a request only adds, to
//! the counters that `counter_buffer` hands over. The table's rows are read in constants, so that
//! the module contains no help. The host frees no name, so their number is limited
//! (`metric_names`): a rule beyond the limit is counted as `plugin=(other).rule=(other)`, which is
//! not a label of a rule.

use tollgate_core::Span;
use tollgate_policy::{
    Disposition, Outcome, Policy, Rule, RuleDecision, RuleResult, SettledCharge, UnknownCost,
};
use tollgate_storage::table::Table;

use crate::counts::commit_stats::CommitStats;
use crate::host::proxy::{Counters, Proxy};
use crate::host::shared_data::SharedData;
use crate::observability::counter_buffer::{Counter, CounterBuffer};
use crate::observability::labels::Labels;
use crate::observability::metric_names::reserve;
use crate::observability::rule_metrics::{Define, RuleMetrics};

/// Events of lease requests to the authority of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseEvent {
    /// A lease request was sent.
    Sent,
    /// A lease was granted.
    Granted,
    /// The authority denied a client request.
    Denied,
    /// A lease request had no response, or none that can be used.
    Failed,
    /// No lease request could be sent for a client request, because too many are in flight.
    Overloaded,
}

impl LeaseEvent {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Sent, metric!(FleetAsked)),
        (Self::Granted, metric!(FleetGranted)),
        (Self::Denied, metric!(FleetRefused)),
        (Self::Failed, metric!(FleetFailed)),
        (Self::Overloaded, metric!(FleetOverloaded)),
    ];
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestResult {
    Passed,
    Delayed,
    Denied,
    /// No rule applied.
    Unlimited,
}

impl RequestResult {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Passed, "passed"),
        (Self::Delayed, "delayed"),
        (Self::Denied, "refused"),
        (Self::Unlimited, "unlimited"),
    ];
}

/// The metrics of one policy.
#[derive(Default)]
pub struct Metrics {
    rules: RuleMetrics,
    requests: [Option<Counter>; RequestResult::ALL.len()],
    /// Allowed, and denied.
    failed_requests: [Option<Counter>; 2],
    remembered_denials: Option<Counter>,
    retries: Option<Counter>,
    evictions: Option<Counter>,
    evictions_half_used: Option<Counter>,
    failures: Option<Counter>,
    left: Option<Counter>,
    unused: Option<Counter>,
    full: Option<Counter>,
    /// Of policies whose costs are settled: estimated, and final.
    cost_units: [Option<Counter>; 2],
    cost_unknown: [Option<Counter>; UnknownCost::ALL.len()],
    /// Of policies that limit requests in flight.
    in_flight_late: Option<Counter>,
    /// Of policies that count for a fleet.
    lease_events: [Option<Counter>; LeaseEvent::ALL.len()],
    gauges: Gauges,
}

/// Values that go down again, and waiting requests.
#[derive(Default)]
struct Gauges {
    waiting: [Option<u32>; 2],
    memory: Option<u32>,
    keys: Option<u32>,
    room: Option<u32>,
    paused: Option<u32>,
    waits: Option<u32>,
}

/// Events of requests that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A request was denied because too many wait.
    Full,
    /// The client of a waiting request left.
    Left,
    /// A time of a `leaky-queue` passed that a client had left and no other request could use.
    Unused,
}

impl Metrics {
    /// Defines all metrics. `plugin` is the plugin's label.
    pub fn define(
        policy: &Policy,
        labels: &Labels,
        plugin: &str,
        host: &(impl Counters + SharedData),
        define: Define<'_>,
    ) -> Self {
        let rules = RuleMetrics::define(policy, labels, plugin, host, define);
        let has_fleet = !policy.fleet().is_empty();
        let settles = policy.rules().iter().any(|rule| rule.settled_cost().is_some());
        let in_flight = policy.rules().iter().any(Rule::limits_requests_in_flight);
        let in_flight_late = in_flight.then(|| define(metric!(InFlightLate))).flatten();
        let mut of_costs = |name: &str, label: &str, word: &str| {
            settles.then(|| define(&labelled(name, label, word)))?
        };
        let cost_units = ["estimate", "final"].map(|word| of_costs(metric!(CostUnits), "of", word));
        let cost_unknown =
            UnknownCost::ALL.map(|reason| of_costs(metric!(CostUnknown), "reason", reason.label()));
        Self {
            rules,
            requests: RequestResult::ALL
                .map(|(_, word)| define(&labelled(metric!(Requests), "answer", word))),
            failed_requests: ["allow", "deny"]
                .map(|word| define(&labelled(metric!(FailedRequests), "on_failure", word))),
            remembered_denials: define(metric!(EnvoyRememberedDenials)),
            retries: define(metric!(CasRetries)),
            evictions: define(metric!(EnvoyEvictions)),
            evictions_half_used: define(metric!(EvictionsHalfUsed)),
            failures: define(metric!(EnvoyFailures)),
            left: define(metric!(WaitingLeft)),
            unused: define(metric!(PlacesUnused)),
            full: define(metric!(WaitingFull)),
            cost_units,
            cost_unknown,
            in_flight_late,
            lease_events: LeaseEvent::ALL.map(|(_, name)| has_fleet.then(|| define(name))?),
            gauges: Gauges::define(plugin, host, has_fleet),
        }
    }

    /// Defines the metrics that later policies may need, where none can be defined then: rules
    /// without metrics of their own are counted as others.
    pub fn define_rest(&mut self, host: &impl Counters, define: Define<'_>) {
        self.rules.define_other(define);
        let mut fill = |counter: &mut Option<Counter>, name: &str| {
            *counter = counter.or_else(|| define(name));
        };
        for (counter, word) in self.cost_units.iter_mut().zip(["estimate", "final"]) {
            fill(counter, &labelled(metric!(CostUnits), "of", word));
        }
        for (counter, reason) in self.cost_unknown.iter_mut().zip(UnknownCost::ALL) {
            fill(counter, &labelled(metric!(CostUnknown), "reason", reason.label()));
        }
        fill(&mut self.in_flight_late, metric!(InFlightLate));
        for (counter, (_, name)) in self.lease_events.iter_mut().zip(LeaseEvent::ALL) {
            fill(counter, name);
        }
        let paused = &mut self.gauges.paused;
        *paused = paused.or_else(|| host.define_gauge(metric!(FleetPaused)));
    }

    /// Counts the final decisions on one request, which has waited this long in total. True when a
    /// rule did anything other than allow it.
    pub fn count<H: Proxy>(
        &self,
        outcome: &Outcome<'_>,
        waited: Span,
        has_failed: bool,
        buffer: &CounterBuffer<H>,
    ) -> bool {
        let disposition = outcome.final_disposition();
        let result = match disposition {
            Disposition::Deny { .. } | Disposition::Retry(_) => RequestResult::Denied,
            Disposition::Delay(_) => RequestResult::Delayed,
            Disposition::Allow if waited > Span::ZERO => RequestResult::Delayed,
            Disposition::Allow => RequestResult::Passed,
        };
        self.record_result(result, buffer);
        // When only shadow rules fail, `on_failure` decides nothing.
        let is_binding = |it: RuleDecision<'_>| it.is_binding && it.result == RuleResult::Failed;
        if has_failed && outcome.decisions().any(is_binding) {
            let [allowed, denied] = self.failed_requests;
            match disposition {
                Disposition::Allow | Disposition::Delay(_) => buffer.add(allowed, 1),
                Disposition::Deny { .. } | Disposition::Retry(_) => {
                    if outcome.is_failure() {
                        buffer.add(denied, 1);
                    }
                }
            }
        }
        self.rules.count(outcome, waited, buffer)
    }

    /// How many keys there is room for in `tables`; they hold none yet if they are `new`.
    pub fn set_room(&self, tables: &[Table], is_new: bool, counters: &impl Counters) {
        if let (Some(keys), true) = (self.gauges.keys, is_new) {
            counters.record(keys, 0);
        }
        let of = |table: &Table| {
            let buckets = 1_u64.checked_shl(table.extent().level.into()).unwrap_or(u64::MAX);
            buckets.saturating_mul(u64::try_from(table.size().ways()).unwrap_or(u64::MAX))
        };
        if let Some(room) = self.gauges.room {
            counters.record(room, tables.iter().fold(0, |sum, it| sum.saturating_add(of(it))));
        }
    }

    /// Counts a request that no rule applied to.
    pub fn count_unlimited<H: Proxy>(&self, buffer: &CounterBuffer<H>) {
        self.record_result(RequestResult::Unlimited, buffer);
    }

    /// Counts a request that is denied because nothing can be known about it.
    pub fn count_undecided<H: Proxy>(&self, buffer: &CounterBuffer<H>) {
        self.record_result(RequestResult::Denied, buffer);
        let [_, denied] = self.failed_requests;
        buffer.add(denied, 1);
    }

    fn record_result<H: Proxy>(&self, result: RequestResult, buffer: &CounterBuffer<H>) {
        let place = RequestResult::ALL.iter().position(|(known, _)| *known == result);
        buffer.add(place.and_then(|place| *self.requests.get(place)?), 1);
    }

    /// Records how long a request waited before it continued.
    pub fn wait(&self, waited: Span, counters: &impl Counters) {
        if let Some(waits) = self.gauges.waits {
            counters.record(waits, waited.as_millis_ceil());
        }
    }

    /// Counts an event of a request that waits, or would wait.
    pub fn count_wait<H: Proxy>(&self, wait: Wait, buffer: &CounterBuffer<H>) {
        let counter = match wait {
            Wait::Full => self.full,
            Wait::Left => self.left,
            Wait::Unused => self.unused,
        };
        buffer.add(counter, 1);
    }

    /// Counts the outcome of this many lease requests.
    pub fn count_lease_event<H: Proxy>(
        &self,
        event: LeaseEvent,
        count: usize,
        buffer: &CounterBuffer<H>,
    ) {
        let place = LeaseEvent::ALL.iter().position(|(known, _)| *known == event);
        buffer.add(
            place.and_then(|place| *self.lease_events.get(place)?),
            i64::try_from(count).unwrap_or(i64::MAX),
        );
    }

    /// Counts requests in flight that were confirmed too late.
    pub fn count_late<H: Proxy>(&self, count: usize, buffer: &CounterBuffer<H>) {
        if count > 0 {
            buffer.add(self.in_flight_late, i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Counts the costs that a response settled.
    pub fn count_costs<H: Proxy>(&self, costs: &[SettledCharge], buffer: &CounterBuffer<H>) {
        let [estimated, last] = self.cost_units;
        let units = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
        for cost in costs {
            buffer.add(estimated, units(cost.estimate));
            buffer.add(last, units(cost.charged()));
            if let Err(reason) = cost.actual {
                buffer.add(self.cost_unknown.get(reason.index()).copied().flatten(), 1);
            }
        }
    }

    /// The gauge of requests that wait for a response of the authority, if the policy counts for a
    /// fleet.
    pub const fn paused(&self) -> Option<u32> {
        self.gauges.paused
    }

    /// Adds this many waiting requests, with this many bytes, to the gauges; negative numbers
    /// subtract.
    pub fn change_waiting(&self, by: [i64; 2], counters: &impl Counters) {
        for (gauge, by) in self.gauges.waiting.into_iter().zip(by) {
            change(gauge, by, counters);
        }
    }

    /// The memory of this virtual machine has grown by this many bytes.
    pub fn grow_memory(&self, by: i64, counters: &impl Counters) {
        change(self.gauges.memory, by, counters);
    }

    /// Counts the other events of a commit.
    pub fn add<H: Proxy>(&self, stats: &CommitStats, host: &H, buffer: &CounterBuffer<H>) {
        buffer.add(self.remembered_denials, stats.remembered);
        buffer.add(self.retries, stats.retries);
        buffer.add(self.evictions, stats.evictions);
        buffer.add(self.evictions_half_used, stats.evictions_half_used);
        buffer.add(self.failures, stats.failures);
        change(self.gauges.keys, stats.new_keys, host);
    }
}

impl Gauges {
    fn define(plugin: &str, host: &(impl Counters + SharedData), has_fleet: bool) -> Self {
        let keys = labelled(metric!(TableKeys), "plugin", plugin);
        let is_named = reserve(host, &[(keys.clone(), 2)]) == [true];
        let gauge = |name: &str| is_named.then(|| host.define_gauge(name)).flatten();
        Self {
            waiting: [metric!(Waiting), metric!(WaitingBytes)].map(|name| host.define_gauge(name)),
            memory: host.define_gauge(metric!(MemoryBytes)),
            keys: gauge(&keys),
            room: gauge(&labelled(metric!(TableRoom), "plugin", plugin)),
            paused: has_fleet.then(|| host.define_gauge(metric!(FleetPaused))).flatten(),
            waits: host.define_histogram(metric!(WaitMs)),
        }
    }
}

/// The name of a family with one label.
fn labelled(name: &str, label: &str, value: &str) -> String {
    format!("{name}.{label}={value}")
}

fn change(gauge: Option<u32>, by: i64, counters: &impl Counters) {
    if let Some(gauge) = gauge.filter(|_| by != 0) {
        counters.add(gauge, by);
    }
}

/// The metrics of a plugin that follows a server.
pub struct FollowMetrics {
    version: Option<u32>,
    failures: Option<u32>,
    refused: Option<u32>,
}

impl FollowMetrics {
    /// Defines them for the plugin of this label.
    pub fn define(plugin: &str, host: &(impl Counters + SharedData)) -> Self {
        let version = labelled(metric!(EnvoyPolicyVersion), "plugin", plugin);
        let is_named = reserve(host, &[(version.clone(), 1)]) == [true];
        Self {
            version: is_named.then(|| host.define_gauge(&version)).flatten(),
            failures: host.define(metric!(PolicyFetchFailures)),
            refused: host.define(metric!(PolicyRefused)),
        }
    }

    /// This version is in force.
    pub fn set_version(&self, version: u64, counters: &impl Counters) {
        if let Some(gauge) = self.version {
            counters.record(gauge, version);
        }
    }

    /// The server's policy could not be fetched.
    pub fn count_failure(&self, counters: &impl Counters) {
        change(self.failures, 1, counters);
    }

    /// A policy was fetched and rejected.
    pub fn count_refused(&self, counters: &impl Counters) {
        change(self.refused, 1, counters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};
    use std::collections::BTreeSet;
    use tollgate_policy::Surface;
    use tollgate_policy::metrics::{Description, FAMILIES, Kind};

    use crate::host::shared_data::{Stored, Written};
    use crate::observability::metric_names::{MAX_NAMES, OWN_NAMES};

    #[derive(Default)]
    struct Names(
        RefCell<Vec<String>>,
        RefCell<Option<Vec<u8>>>,
        Cell<u32>,
        RefCell<Vec<(Kind, String)>>,
    );

    impl Names {
        fn note(&self, kind: Kind, name: &str) -> Option<u32> {
            self.0.borrow_mut().push(name.into());
            self.3.borrow_mut().push((kind, name.into()));
            None
        }
    }

    impl SharedData for Names {
        fn get(&self, _: &[u8]) -> Stored {
            let value = self.1.borrow().clone();
            value.map_or(Stored::Absent, |value| Stored::Value(value, self.2.get()))
        }
        fn set(&self, _: &[u8], value: &[u8], cas: u32) -> Written {
            if self.1.borrow().is_some() && cas != self.2.get() {
                return Written::Lost;
            }
            self.2.set(self.2.get().wrapping_add(1));
            *self.1.borrow_mut() = Some(value.to_vec());
            Written::Done
        }
    }

    fn policy(rules: impl Iterator<Item = String>) -> Policy {
        let quotas = r#""key": [], "quotas": [{"limit": 1, "window": "1s"}]"#;
        let rules: Vec<_> =
            rules.map(|name| format!(r#"{{"name": "{name}", {quotas}}}"#)).collect();
        let document = format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(", "));
        tollgate_language::compile(&document, Surface::Envoy).unwrap()
    }

    fn define(policy: &Policy, plugin: &str, names: &Names) -> Metrics {
        let of = |name: &str| {
            let _ = Counters::define(names, name);
            None
        };
        Metrics::define(policy, &Labels::new(policy), plugin, names, &mut { of })
    }

    impl Counters for Names {
        fn define(&self, name: &str) -> Option<u32> {
            self.note(Kind::Counter, name)
        }
        fn define_gauge(&self, name: &str) -> Option<u32> {
            self.note(Kind::Gauge, name)
        }
        fn define_histogram(&self, name: &str) -> Option<u32> {
            self.note(Kind::Histogram, name)
        }
        fn add(&self, _: u32, _: i64) {}
        fn record(&self, _: u32, _: u64) {}
    }

    /// Each name is a family's and labels of it in the table's order; each family has a name.
    #[test]
    fn names_are_those_of_the_table() {
        let document = r#"{"version": 1, "rules": [{"name": "r", "scope": "fleet", "key": [],
            "quotas": [{"limit": 1, "window": "1s"}], "tiers": [{"name": "gold",
            "when": {"headers": {"x": ["y"]}}, "quotas": [{"limit": 2, "window": "1s"}]}]},
            {"name": "s", "key": [], "quotas": [{"limit": 9, "window": "1s"}],
             "cost": {"estimate": 1, "max": 9, "actual": {"header": "x-cost"}}},
            {"name": "t", "key": [], "concurrency": {"limit": 9}}]}"#;
        let policy = tollgate_language::compile(document, Surface::Envoy).unwrap();
        let names = Names::default();
        define(&policy, "edge", &names);
        FollowMetrics::define("edge", &names);
        let of_envoy = |row: &&Description| row.surfaces.contains(&Surface::Envoy);
        // Those two are defined next to the code that counts them.
        let mut found = BTreeSet::from([metric!(Uncounted), metric!(UnverifiedAddresses)]);
        for (kind, name) in names.3.into_inner() {
            let parts: Vec<_> = name.split('.').collect();
            let family = parts[..2].join(".");
            let mut rows = FAMILIES.iter().filter(of_envoy);
            let row = rows.find(|row| row.envoy_name == family).unwrap();
            let of_name = parts[2..].iter().map(|part| part.split_once('=').unwrap().0);
            let mut labels = row.labels.iter();
            assert!(of_name.into_iter().all(|label| labels.any(|known| *known == label)), "{name}");
            assert_eq!(kind, row.kind, "{name}");
            found.insert(row.envoy_name);
        }
        let all = FAMILIES.iter().filter(of_envoy).map(|row| row.envoy_name);
        assert_eq!(found, all.collect());
    }

    #[test]
    fn rules_and_plugins_are_told_apart() {
        let rule = |name| {
            format!(
                r#"{{"name": "{name}", "key": [], "quotas": [{{"limit": 1, "window": "1s"}}]}}"#
            )
        };
        let document =
            format!(r#"{{"version": 1, "rules": [{}, {}]}}"#, rule("api v1.2/x='y'"), rule("b"));
        let policy = tollgate_language::compile(&document, Surface::Envoy).unwrap();
        let names = Names::default();
        define(&policy, "edge", &names);
        define(&policy, "admin", &names);
        let mut names = names.0.into_inner();
        let denied =
            "tollgate.decisions.plugin=edge.rule=api_v1_2_x__y_.quota=api_v1_2_x__y_.result=denied";
        assert!(names.iter().any(|name| name == denied), "{names:?}");
        // All but those that are counted of all plugins together.
        names.retain(|name| name.starts_with("tollgate.decisions."));
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        // Allowed, failed, malformed, denied without a quota and by it.
        assert_eq!(all, 2 * 2 * 5);
    }

    #[test]
    fn a_rule_that_denies_without_counting_has_its_results() {
        let document = r#"{"version": 1, "rules": [{"name": "no admin", "deny": true, "when": {"methods": ["PUT"]}},
            {"name": "trial", "deny": true, "mode": "shadow"}]}"#;
        let policy = tollgate_language::compile(document, Surface::Envoy).unwrap();
        let names = Names::default();
        define(&policy, "edge", &names);
        let mut names = names.0.into_inner();
        names.retain(|name| name.starts_with("tollgate.decisions."));
        let expected = [
            "no_admin.result=denied",
            "no_admin.result=malformed",
            "trial.result=shadowed",
            "trial.result=malformed",
        ];
        assert_eq!(
            names,
            expected.map(|name| format!("tollgate.decisions.plugin=edge.rule={name}"))
        );
    }

    // Guards: an unlimited number of names, which the host never frees: a hundred policies of a
    // hundred rules each, and every one of them is counted.
    #[test]
    fn names_are_bounded_however_often_policies_are_replaced() {
        let names = Names::default();
        let mut is_full = false;
        for round in 0..100 {
            let policy = policy((0..100).map(|i| format!("r{round}-{i}")));
            let before = names.0.borrow().len();
            define(&policy, "edge", &names);
            FollowMetrics::define("edge", &names);
            let named = names.0.borrow()[before..].to_vec();
            is_full = named.iter().any(|name| name.contains("(other)"));
            if is_full {
                let own = named.iter().filter(|name| name.contains(".rule=r")).count();
                assert!(own < 100 * 6);
            }
        }
        assert!(is_full, "the last ones have no names");
        // Families that had names keep them.
        let first = policy((0..100).map(|i| format!("r0-{i}")));
        let before = names.0.borrow().len();
        define(&first, "edge", &names);
        assert!(!names.0.borrow()[before..].iter().any(|name| name.contains("(other)")));
        let mut all = names.0.into_inner();
        all.sort();
        all.dedup();
        assert!(all.len() <= MAX_NAMES, "{}", all.len());
        assert!(
            all.len() > MAX_NAMES - 2 * OWN_NAMES,
            "{}: as many as there is room for",
            all.len()
        );
        let own = all.iter().filter(|name| !name.contains("plugin=edge")).count();
        assert!(own <= OWN_NAMES, "{own} are of no rule and no plugin");
    }

    #[test]
    fn a_host_that_does_not_answer_gives_no_names() {
        struct Silent;
        impl SharedData for Silent {
            fn get(&self, _: &[u8]) -> Stored {
                Stored::Unreachable
            }
            fn set(&self, _: &[u8], _: &[u8], _: u32) -> Written {
                Written::Unreachable
            }
        }
        assert_eq!(reserve(&Silent, &[("a".into(), 7), ("b".into(), 7)]), [false, false]);
    }
}
