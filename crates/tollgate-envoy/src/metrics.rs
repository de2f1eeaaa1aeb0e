//! What is counted, and under which names.
//!
//! Invariant: every counter is defined once, when the policy is configured; a request only adds.
//! Names: `tollgate.decisions.plugin=<plugin>.rule=<rule>.result=<result>`, which three
//! `stats_tags` of the bootstrap turn into labels, and, of all plugins together:
//! `tollgate.cas_retries`, commits that lost a race and were decided again; `tollgate.evictions`,
//! live keys that left a full bucket to another, and `tollgate.evictions_half_used`, those of them
//! that had used half of a quota or more (while it stands still, a full table forgave nobody who
//! was limited); `tollgate.failures`, states that could not be read or written. Of requests that
//! wait: the gauges `tollgate.waiting` and `tollgate.waiting_bytes`; `tollgate.waiting_full`,
//! refused because too many wait; `tollgate.waiting_left`, whose clients left; and
//! `tollgate.places_unused`. The gauge `tollgate.memory_bytes` is what the workers' virtual
//! machines have of memory, as of the last change of the others.
//!
//! Of a plugin that follows a server: the gauge `tollgate.policy_version.plugin=<plugin>`, the
//! number of the policy in force, 0 for that of the configuration and where none follows; and of
//! all together `tollgate.policy_fetch_failures`, times that the server's could not be had, and
//! `tollgate.policy_refused`, policies that were had and not taken, by each worker.
//!
//! The host frees no name, so there are at most so many (`metric_names`): a rule that comes then is
//! counted as `plugin=(other).rule=(other)`, which is no label of a rule.
//!
//! Of policies that count for a fleet: `tollgate.fleet_asked`, questions to the authority;
//! `tollgate.fleet_granted`, leases; `tollgate.fleet_refused`, requests that it refused;
//! `tollgate.fleet_failed`, questions without an answer that can be used;
//! `tollgate.fleet_overloaded`, requests that could not be asked about because too much is under
//! way; and the gauge `tollgate.fleet_paused`, requests that wait for an answer.

use tollgate_core::Span;
use tollgate_policy::{Outcome, Policy, Rule, RuleResult};

use crate::commit_stats::CommitStats;
use crate::metric_names::claim;
use crate::shared_data::SharedData;

/// The host's counters.
pub trait Counters {
    /// The number of the counter `name`, the same for the same name; `None` if the host has none.
    fn define(&self, name: &str) -> Option<u32>;
    /// The same for a gauge, which may go down again.
    fn define_gauge(&self, name: &str) -> Option<u32>;
    /// Adds to it.
    fn add(&self, counter: u32, by: i64);
    /// Sets a gauge.
    fn record(&self, gauge: u32, value: u64);
}

/// What becomes of questions to the authority of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// One was sent.
    Sent,
    /// A lease was granted.
    Granted,
    /// The authority refused a request.
    Refused,
    /// One had no answer, or none that can be used.
    Failed,
    /// A request could not be asked about, because too much is under way.
    Overloaded,
}

impl Asked {
    const NAMES: [&'static str; 5] = [
        "tollgate.fleet_asked",
        "tollgate.fleet_granted",
        "tollgate.fleet_refused",
        "tollgate.fleet_failed",
        "tollgate.fleet_overloaded",
    ];

    const fn index(self) -> usize {
        match self {
            Self::Sent => 0,
            Self::Granted => 1,
            Self::Refused => 2,
            Self::Failed => 3,
            Self::Overloaded => 4,
        }
    }
}

/// The counters of one policy.
#[derive(Default)]
pub struct Metrics {
    rules: Vec<[Option<u32>; RuleResult::ALL.len()]>,
    retries: Option<u32>,
    evictions: Option<u32>,
    evictions_half_used: Option<u32>,
    failures: Option<u32>,
    waiting: [Option<u32>; 2],
    memory: Option<u32>,
    left: Option<u32>,
    unused: Option<u32>,
    full: Option<u32>,
    /// Of policies that count for a fleet.
    asked: [Option<u32>; Asked::NAMES.len()],
    paused: Option<u32>,
}

/// What happens to requests that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// One was refused because too many wait.
    Full,
    /// The client of one left.
    Left,
    /// A time of a `leaky-queue` passed that a client had left and nobody else could use.
    Unused,
}

impl Metrics {
    /// Defines the counters of every rule. `plugin` is the plugin's label: rules of two plugins may
    /// have one name.
    pub fn define(policy: &Policy, plugin: &str, host: &(impl Counters + SharedData)) -> Self {
        let counters = host;
        let define_rule = |rule: &str| {
            RuleResult::ALL.map(|result| {
                let name = || format!("tollgate.decisions.{rule}.result={}", result.label());
                is_counted(result).then(|| counters.define(&name())).flatten()
            })
        };
        let names = RuleResult::ALL.into_iter().filter(|result| is_counted(*result)).count();
        let names = u8::try_from(names).unwrap_or(u8::MAX);
        let family = |rule: &Rule| (format!("plugin={plugin}.rule={}", rule.label()), names);
        let families: Vec<_> = policy.rules().iter().map(family).collect();
        let mut other = None;
        let mut counters_of = |((rule, _), is_named): (&(String, u8), bool)| {
            if is_named {
                define_rule(rule)
            } else {
                *other.get_or_insert_with(|| define_rule(OTHER))
            }
        };
        let is_named = claim(host, &families);
        let rules = families.iter().zip(is_named).map(&mut counters_of).collect();
        let of_fleet = |name: &str, is_gauge: bool| {
            let has_fleet = policy.has_fleet();
            has_fleet.then(|| {
                if is_gauge { counters.define_gauge(name) } else { counters.define(name) }
            })?
        };
        Self {
            rules,
            retries: counters.define("tollgate.cas_retries"),
            evictions: counters.define("tollgate.evictions"),
            evictions_half_used: counters.define("tollgate.evictions_half_used"),
            failures: counters.define("tollgate.failures"),
            waiting: ["tollgate.waiting", "tollgate.waiting_bytes"]
                .map(|name| counters.define_gauge(name)),
            memory: counters.define_gauge("tollgate.memory_bytes"),
            left: counters.define("tollgate.waiting_left"),
            unused: counters.define("tollgate.places_unused"),
            full: counters.define("tollgate.waiting_full"),
            asked: Asked::NAMES.map(|name| of_fleet(name, false)),
            paused: of_fleet("tollgate.fleet_paused", true),
        }
    }

    /// Counts the last decisions on one request, which has waited this long to be decided again.
    pub fn count(&self, outcome: &Outcome<'_>, waited: Span, counters: &impl Counters) {
        for (rule, result) in outcome.rules_after(waited) {
            let counter = self.rules.get(rule).and_then(|row| *row.get(result.index())?);
            add(counters, counter, 1);
        }
    }

    /// Counts what happened to a request that waits, or would.
    pub fn count_wait(&self, wait: Wait, counters: &impl Counters) {
        let counter = match wait {
            Wait::Full => self.full,
            Wait::Left => self.left,
            Wait::Unused => self.unused,
        };
        add(counters, counter, 1);
    }

    /// Counts what became of so many questions.
    pub fn count_asked(&self, asked: Asked, count: usize, counters: &impl Counters) {
        let counter = self.asked.get(asked.index()).copied().flatten();
        add(counters, counter, i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The gauge of requests that wait for an answer of the authority, if the policy counts for a
    /// fleet.
    pub const fn paused(&self) -> Option<u32> {
        self.paused
    }

    /// So many more, or fewer, wait now, with so many bytes.
    pub fn change_waiting(&self, by: [i64; 2], counters: &impl Counters) {
        for (gauge, by) in self.waiting.into_iter().zip(by) {
            if let (Some(gauge), true) = (gauge, by != 0) {
                counters.add(gauge, by);
            }
        }
    }

    /// The memory of this virtual machine has grown by so many bytes.
    pub fn grow_memory(&self, by: i64, counters: &impl Counters) {
        add(counters, self.memory, by);
    }

    /// Counts what happened besides.
    pub fn add(&self, stats: &CommitStats, counters: &impl Counters) {
        add(counters, self.retries, stats.retries);
        add(counters, self.evictions, stats.evictions);
        add(counters, self.evictions_half_used, stats.evictions_half_used);
        add(counters, self.failures, stats.failures);
    }
}

/// What rules are counted as that have no names of their own.
const OTHER: &str = "plugin=(other).rule=(other)";

/// Nobody blocks a key here.
fn is_counted(result: RuleResult) -> bool {
    result != RuleResult::Blocked
}

/// What is counted of a plugin that follows a server.
pub struct FollowMetrics {
    version: Option<u32>,
    failures: Option<u32>,
    refused: Option<u32>,
}

impl FollowMetrics {
    /// Defines them for the plugin of this label.
    pub fn define(plugin: &str, host: &(impl Counters + SharedData)) -> Self {
        let version = format!("tollgate.policy_version.plugin={plugin}");
        let is_named = claim(host, &[(version.clone(), 1)]) == [true];
        Self {
            version: is_named.then(|| host.define_gauge(&version)).flatten(),
            failures: host.define("tollgate.policy_fetch_failures"),
            refused: host.define("tollgate.policy_refused"),
        }
    }

    /// This version is in force.
    pub fn set_version(&self, version: u64, counters: &impl Counters) {
        if let Some(gauge) = self.version {
            counters.record(gauge, version);
        }
    }

    /// The server's policy could not be had.
    pub fn count_failure(&self, counters: &impl Counters) {
        add(counters, self.failures, 1);
    }

    /// One was had, and not taken.
    pub fn count_refused(&self, counters: &impl Counters) {
        add(counters, self.refused, 1);
    }
}

fn add(counters: &impl Counters, counter: Option<u32>, by: i64) {
    if let (Some(counter), true) = (counter, by > 0) {
        counters.add(counter, by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};
    use tollgate_policy::Surface;

    use crate::metric_names::{MAX_NAMES, OWN_NAMES};
    use crate::shared_data::{Stored, Written};

    #[derive(Default)]
    struct Names(RefCell<Vec<String>>, RefCell<Option<Vec<u8>>>, Cell<u32>);

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
        Policy::compile(&document, Surface::Envoy).unwrap()
    }

    impl Counters for Names {
        fn define(&self, name: &str) -> Option<u32> {
            self.0.borrow_mut().push(name.into());
            None
        }
        fn define_gauge(&self, name: &str) -> Option<u32> {
            self.define(name)
        }
        fn add(&self, _: u32, _: i64) {}
        fn record(&self, _: u32, _: u64) {}
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
        let policy = Policy::compile(&document, Surface::Envoy).unwrap();
        let names = Names::default();
        Metrics::define(&policy, "edge", &names);
        Metrics::define(&policy, "admin", &names);
        let mut names = names.0.into_inner();
        let denied = "tollgate.decisions.plugin=edge.rule=api_v1_2_x__y_.result=denied";
        assert!(names.iter().any(|name| name == denied), "{names:?}");
        // All but those that are counted of all plugins together.
        names.retain(|name| name.starts_with("tollgate.decisions."));
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(all, 2 * 2 * (RuleResult::ALL.len() - 1));
    }

    // Guards: names without end, which the host never frees: a hundred policies of a hundred rules
    // each, and every one of them is counted.
    #[test]
    fn names_are_bounded_however_often_policies_are_replaced() {
        let names = Names::default();
        let mut is_full = false;
        for round in 0..100 {
            let policy = policy((0..100).map(|i| format!("r{round}-{i}")));
            let before = names.0.borrow().len();
            let metrics = Metrics::define(&policy, "edge", &names);
            FollowMetrics::define("edge", &names);
            assert_eq!(metrics.rules.len(), 100);
            let named = names.0.borrow()[before..].to_vec();
            is_full = named.iter().any(|name| name.contains("(other)"));
            if is_full {
                let own = named.iter().filter(|name| name.contains(".rule=r")).count();
                assert!(own < 100 * (RuleResult::ALL.len() - 1));
            }
        }
        assert!(is_full, "the last ones have no names");
        // Who had names has them still.
        let first = policy((0..100).map(|i| format!("r0-{i}")));
        let before = names.0.borrow().len();
        Metrics::define(&first, "edge", &names);
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
        assert_eq!(claim(&Silent, &[("a".into(), 7), ("b".into(), 7)]), [false, false]);
    }
}
