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

use tollgate_core::Span;
use tollgate_policy::{Outcome, Policy, RuleResult};

use crate::enforce::CommitStats;

/// The host's counters.
pub trait Counters {
    /// The number of the counter `name`, the same for the same name; `None` if the host has none.
    fn define(&self, name: &str) -> Option<u32>;
    /// The same for a gauge, which may go down again.
    fn define_gauge(&self, name: &str) -> Option<u32>;
    /// Adds to it.
    fn add(&self, counter: u32, by: i64);
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
    pub fn define(policy: &Policy, plugin: &str, counters: &impl Counters) -> Self {
        let define_rule = |rule: &str| {
            RuleResult::ALL.map(|result| {
                // Nobody blocks a key here.
                if result == RuleResult::Blocked {
                    return None;
                }
                let result = result.label();
                let rule = format!("tollgate.decisions.plugin={plugin}.rule={rule}");
                counters.define(&format!("{rule}.result={result}"))
            })
        };
        Self {
            rules: policy.rules().iter().map(|rule| define_rule(&rule.label())).collect(),
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

fn add(counters: &impl Counters, counter: Option<u32>, by: i64) {
    if let (Some(counter), true) = (counter, by > 0) {
        counters.add(counter, by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;
    use tollgate_policy::Surface;

    #[derive(Default)]
    struct Names(RefCell<Vec<String>>);

    impl Counters for Names {
        fn define(&self, name: &str) -> Option<u32> {
            self.0.borrow_mut().push(name.into());
            None
        }
        fn define_gauge(&self, name: &str) -> Option<u32> {
            self.define(name)
        }
        fn add(&self, _: u32, _: i64) {}
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
}
