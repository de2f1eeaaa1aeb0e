//! The counters of an isolate, or of a part of a server, until they are added to the sums.
//!
//! Invariant: integers only, and once a rule was counted nothing is allocated for it again until
//! the policy changes. A taken delta is counted nowhere else, and is sent again, under its number,
//! until it has arrived. Memory is bounded by the policy and by the sums' own bound. Deliberately
//! absent: sending.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use tollgate_core::Span;
use tollgate_policy::{
    DenyMatch, Disposition, Outcome, Policy, RuleDecision, RuleResult, SettledCharge, UnknownCost,
};

use super::delta::Delta;
use super::event::Event;
use super::policy::PolicyInForce;
use super::series::{MAX_SERIES, Series, TENANT};
use super::waits::{INFINITE, SUM, WAIT_BOUNDS_MS, wait_bucket};
use crate::log::Kind;
use tollgate_policy::metrics::Family;

/// The counters of one isolate, or of a part of a server.
#[derive(Debug)]
pub struct Counters {
    /// The counters are never read: only those that need no memory are counted.
    is_off: bool,
    events: [Cell<u64>; Event::ALL.len()],
    /// Not borrowed across an await.
    rules: RefCell<Rules>,
    waits: RefCell<Waits>,
}

/// Waits by length, and their sum.
#[derive(Debug, Default)]
struct Waits {
    buckets: [u64; WAIT_BOUNDS_MS.len().saturating_add(1)],
    sum_ms: u64,
}

/// The results of rules.
#[derive(Debug, Default)]
struct Rules {
    policy: PolicyInForce,
    /// One for each quota set of the policy, followed by one for each rule's tenants and one for
    /// each deny rule, when something was counted there.
    blocks: Vec<Option<Box<Block>>>,
    /// The counts under earlier policies.
    before: Vec<(Series, u64)>,
    /// Something was counted under an earlier policy since it was last taken.
    has_earlier: bool,
}

/// The counts of one quota set.
#[derive(Debug)]
struct Block {
    rule: String,
    tier: String,
    quotas: Vec<String>,
    /// By quota, the first row being without a quota, and result.
    results: Vec<[u32; RuleResult::ALL.len()]>,
    /// By quota: allowed, and nearly used up.
    near: Vec<u32>,
}

impl Counters {
    /// Nothing counted; `is_off` when the counters are never read.
    pub fn new(is_off: bool) -> Self {
        let events = [const { Cell::new(0) }; Event::ALL.len()];
        Self { is_off, events, rules: RefCell::default(), waits: RefCell::default() }
    }

    /// Counts one.
    pub fn add(&self, event: Event) {
        self.add_many(event, 1);
    }

    /// Counts this many.
    pub fn add_many(&self, event: Event, count: u64) {
        if let Some(cell) = self.events.get(event.index()) {
            cell.set(cell.get().saturating_add(count));
        }
    }

    /// Counts one decided request and its wait. True when a rule had a result that may be logged.
    pub fn count(&self, policy: &Policy, outcome: &Outcome<'_>, waited: Span) -> bool {
        self.count_answer(outcome, waited);
        let mut rules = (!self.is_off).then(|| self.rules.try_borrow_mut().ok()).flatten();
        let mut is_notable = false;
        for matched in outcome.deny_matches() {
            is_notable |= Kind::of(matched.result, matched.rule.is_enforced).is_some();
            if let Some(rules) = &mut rules {
                rules.count_deny(policy, &matched);
            }
        }
        for decision in outcome.decisions_after(waited) {
            is_notable |= Kind::of(decision.result, decision.is_binding).is_some();
            if let Some(rules) = &mut rules {
                rules.count(policy, &decision);
            }
        }
        is_notable
    }

    /// Counts the costs that a response settled.
    pub fn count_costs(&self, costs: &[SettledCharge]) {
        for cost in costs {
            self.add_many(Event::EstimatedUnit, cost.estimate);
            self.add_many(Event::FinalUnit, cost.charged());
            match cost.actual {
                Ok(_) => {}
                Err(UnknownCost::NoResponse) => self.add(Event::CostNoResponse),
                Err(UnknownCost::Absent) => self.add(Event::CostAbsent),
                Err(UnknownCost::Unreadable) => self.add(Event::CostUnreadable),
                Err(UnknownCost::Conflicting) => self.add(Event::CostConflicting),
                Err(UnknownCost::Compressed) => self.add(Event::CostCompressed),
                Err(UnknownCost::ContentType) => self.add(Event::CostContentType),
                Err(UnknownCost::Incomplete) => self.add(Event::CostIncomplete),
            }
        }
    }

    fn count_answer(&self, outcome: &Outcome<'_>, waited: Span) {
        let (event, wait) = match outcome.final_disposition() {
            Disposition::Deny { .. } | Disposition::Retry(_) => (Event::Refused, Span::ZERO),
            // A caller that only asks gets the wait in its response and has not waited.
            Disposition::Delay(delay) => {
                (Event::Delayed, if waited > Span::ZERO { waited } else { delay })
            }
            Disposition::Allow if waited > Span::ZERO => (Event::Delayed, waited),
            Disposition::Allow
                if outcome.rules().next().is_none() && outcome.deny_matches().next().is_none() =>
            {
                (Event::Unlimited, Span::ZERO)
            }
            Disposition::Allow => (Event::Passed, Span::ZERO),
        };
        self.add(event);
        if outcome.is_waiting_full() {
            self.add(Event::WaitingFull);
        }
        if event == Event::Delayed
            && let Ok(mut waits) = self.waits.try_borrow_mut()
        {
            waits.count(wait.as_millis_ceil());
        }
    }

    /// All counts since the last call, as the delta that isolate `isolate` sends with this number;
    /// `None` when there are none. `policy` is the one in force.
    pub fn take(&self, isolate: u64, sequence: u64, policy: PolicyInForce) -> Option<Delta> {
        let mut counts = Vec::new();
        for (event, cell) in Event::ALL.iter().zip(&self.events) {
            let (family, values) = event.series();
            push(Series::new(family, values), cell.take(), &mut counts);
        }
        if let Ok(mut waits) = self.waits.try_borrow_mut() {
            core::mem::take(&mut *waits).push(&mut counts);
        }
        if let Ok(mut rules) = self.rules.try_borrow_mut() {
            rules.end_policy();
            counts.append(&mut rules.before);
            rules.has_earlier = false;
        }
        if counts.is_empty() {
            return None;
        }
        Some(Delta { isolate, sequence, policy, counts })
    }
}

impl Waits {
    fn count(&mut self, milliseconds: u64) {
        if let Some(bucket) = self.buckets.get_mut(wait_bucket(milliseconds)) {
            *bucket = bucket.saturating_add(1);
        }
        self.sum_ms = self.sum_ms.saturating_add(milliseconds);
    }

    fn push(self, counts: &mut Vec<(Series, u64)>) {
        let bounds = WAIT_BOUNDS_MS.into_iter().map(|(_, bound)| bound).chain([INFINITE]);
        for (bound, count) in bounds.zip(self.buckets).chain([(SUM, self.sum_ms)]) {
            push(Series::new(Family::Waits, &[bound]), count, counts);
        }
    }
}

impl Rules {
    fn count(&mut self, policy: &Policy, decision: &RuleDecision<'_>) {
        let sets = policy.quota_sets().len();
        let is_tenants = decision.quota_set >= sets;
        let place =
            if is_tenants { sets.saturating_add(decision.rule) } else { decision.quota_set };
        let new = &|| Block::new(policy, decision);
        self.count_in(policy, place, new, &|block| block.count(decision));
    }

    fn count_deny(&mut self, policy: &Policy, matched: &DenyMatch<'_>) {
        let before = policy.quota_sets().len().saturating_add(policy.rules().len());
        let place = before.saturating_add(matched.index);
        let new = &|| Some(Block::of_deny(matched));
        self.count_in(policy, place, new, &|block| block.count_result(0, matched.result));
    }

    /// Counts in the block at `place`, a `new` one where there is none.
    fn count_in(
        &mut self,
        policy: &Policy,
        place: usize,
        new: &dyn Fn() -> Option<Block>,
        count: &dyn Fn(&mut Block),
    ) {
        let of = (policy.version(), policy.fingerprint());
        if of != (self.policy.version, self.policy.fingerprint) {
            // A request that was planned before the policy changed does not change it back.
            if of.0 < self.policy.version {
                let Some(mut block) = new() else { return };
                count(&mut block);
                self.has_earlier = true;
                return self.end(&mut block);
            }
            self.end_policy();
            self.has_earlier = !self.before.is_empty();
            self.blocks.clear();
            self.policy.version = of.0;
            self.policy.fingerprint = of.1;
        }
        if self.blocks.len() <= place {
            self.blocks.resize_with(place.saturating_add(1), || None);
        }
        let Some(slot) = self.blocks.get_mut(place) else { return };
        if slot.is_none() {
            *slot = new().map(Box::new);
        }
        if let Some(block) = slot {
            count(block);
        }
    }

    /// Adds up the counts under this policy; its blocks stay, with nothing in them.
    fn end_policy(&mut self) {
        let mut blocks = core::mem::take(&mut self.blocks);
        blocks.iter_mut().flatten().for_each(|block| self.end(block));
        self.blocks = blocks;
    }

    fn end(&mut self, block: &mut Block) {
        let mut counts = Vec::new();
        block.take(&mut counts);
        // Each series occurs once per policy: it is searched for among those of earlier ones.
        let known = if self.has_earlier { self.before.len() } else { 0 };
        for (series, count) in counts {
            let is_full = self.before.len() >= MAX_SERIES;
            let series = if is_full { series.other() } else { series };
            let known = if is_full { self.before.len() } else { known };
            match self.before.iter_mut().take(known).find(|(of, _)| *of == series) {
                Some((_, sum)) => *sum = sum.saturating_add(count),
                None => self.before.push((series, count)),
            }
        }
    }
}

impl Block {
    fn new(policy: &Policy, decision: &RuleDecision<'_>) -> Option<Self> {
        let rule = policy.rules().get(decision.rule)?.name().to_owned();
        let (tier, quotas) = match policy.quota_sets().get(decision.quota_set) {
            Some(set) => {
                let quotas = set.quotas().iter().map(|quota| quota.name().to_owned());
                (set.tier().unwrap_or_default().to_owned(), quotas.collect())
            }
            None => (TENANT.to_owned(), Vec::new()),
        };
        let results = vec![[0; RuleResult::ALL.len()]; quotas.len().saturating_add(1)];
        let near = vec![0; quotas.len()];
        Some(Self { rule, tier, quotas, results, near })
    }

    fn of_deny(matched: &DenyMatch<'_>) -> Self {
        Self {
            rule: matched.rule.name().to_owned(),
            tier: String::new(),
            quotas: Vec::new(),
            results: vec![[0; RuleResult::ALL.len()]],
            near: Vec::new(),
        }
    }

    fn count_result(&mut self, row: usize, result: RuleResult) {
        let cell = self.results.get_mut(row).and_then(|row| row.get_mut(result.index()));
        if let Some(cell) = cell {
            *cell = cell.saturating_add(1);
        }
    }

    fn count(&mut self, decision: &RuleDecision<'_>) {
        let row = decision.said_by().map_or(0, |quota| quota.saturating_add(1));
        // A tenant's own quotas have no rows: their names are data.
        let row = if row < self.results.len() { row } else { 0 };
        self.count_result(row, decision.result);
        for quota in decision.nearly_used_up() {
            if let Some(near) = self.near.get_mut(quota) {
                *near = near.saturating_add(1);
            }
        }
    }

    /// Takes all counts in it.
    fn take(&mut self, counts: &mut Vec<(Series, u64)>) {
        let names = core::iter::once("").chain(self.quotas.iter().map(String::as_str));
        for (quota, row) in names.zip(&mut self.results) {
            for (result, cell) in RuleResult::ALL.into_iter().zip(row) {
                if *cell > 0 {
                    let values = [&self.rule, quota, &self.tier, result.label()];
                    let series = Series::new(Family::Decisions, &values);
                    push(series, u64::from(core::mem::take(cell)), counts);
                }
            }
        }
        for (quota, cell) in self.quotas.iter().zip(&mut self.near) {
            if *cell > 0 {
                let series = Series::new(Family::NearLimit, &[&self.rule, quota, &self.tier]);
                push(series, u64::from(core::mem::take(cell)), counts);
            }
        }
    }
}

fn push(series: Series, count: u64, counts: &mut Vec<(Series, u64)>) {
    if count > 0 {
        counts.push((series, count));
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::format;

    use crate::store::policy::Source;

    use super::*;
    use tollgate_core::Timestamp;
    use tollgate_language::DescribedRequest;
    use tollgate_policy::{Plan, Surface};
    use tollgate_storage::{Counts, Shard, ShardMode, Sharded};

    const POLICY: &str = r#"{"version": 1, "rules": [
        {"name": "api", "when": {"paths": ["/api"]}, "key": ["client_ip"],
         "quotas": [{"name": "minute", "limit": 100, "window": "1m"}, {"name": "day", "limit": 3, "window": "1d", "algorithm": "fixed-window"}],
         "tiers": [{"name": "gold", "when": {"headers": {"x-tier": ["gold"]}}, "quotas": [{"name": "minute", "limit": 1, "window": "1m", "algorithm": "fixed-window"}]}]},
        {"name": "trial", "when": {"paths": ["/api"]}, "mode": "shadow", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1d", "algorithm": "fixed-window"}]},
        {"name": "queue", "when": {"paths": ["/queue"]}, "key": ["client_ip"], "quotas": [{"limit": 10, "window": "10s", "algorithm": "leaky-queue", "burst": 5}]}
    ]}"#;

    /// Decides one request of one client on `stored`, which represents all objects.
    fn decide(policy: &Policy, body: &str, stored: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> Plan {
        let facts = DescribedRequest::parse(body.as_bytes()).expect("a request");
        let mut plan = Plan::new();
        policy.plan(&facts, &mut plan);
        plan.each_partition(|partition| {
            let bytes = stored.get(partition.key()).map(Vec::as_slice);
            partition.load(policy, bytes);
        });
        plan.decide(policy, Timestamp::from_millis(1_780_000_000_000));
        for partition in plan.partitions().filter(|partition| partition.changed()) {
            stored.insert(partition.key().to_vec(), partition.value().to_vec());
        }
        plan
    }

    fn request(path: &str, tier: &str) -> String {
        format!(
            r#"{{"method": "GET", "path": "{path}", "headers": {{"x-tier": "{tier}"}}, "client_ip": "192.0.2.1"}}"#
        )
    }

    // Guards: a key of which a shard holds a few units, reported as nearly used up all the time.
    #[test]
    fn what_a_shard_holds_is_not_what_the_key_has_left() {
        let policy = r#"{"version": 1, "rules": [{"name": "site", "key": [], "shards": 2, "quotas": [{"limit": 1000, "window": "1h"}]}]}"#;
        let policy = tollgate_language::compile(policy, Surface::Worker).expect("a policy");
        let counters = Counters::new(false);
        let (mut shard, mut counts, mut held) = (Shard::new(7), Counts::default(), 0);
        let now = Timestamp::from_millis(1_780_000_000_000);
        for _ in 0..20 {
            let facts = request("/", "");
            let facts = DescribedRequest::parse(facts.as_bytes()).expect("a request");
            let (mut plan, mut bytes) = (Plan::new(), Vec::new());
            policy.plan(&facts, &mut plan);
            plan.partition(0).expect("one key").request(&policy, &mut bytes);
            let reply = match shard.check(&bytes, ShardMode::Waits, now).expect("a request") {
                Sharded::Ask(question) => {
                    let reply = counts.answer(&question, now).expect("a question").reply;
                    shard.apply_reply(&question, Some(&reply), now).expect("a reply").0
                }
                Sharded::Answered(reply) => {
                    held += 1;
                    reply
                }
                other => panic!("{other:?}"),
            };
            let mut partition = plan.partition_mut(0).expect("one key");
            partition.accept(&policy, &reply).expect("a reply");
            counters.count(&policy, &plan.outcome(&policy), Span::ZERO);
        }
        assert!(held >= 5, "{held} from what it held");
        let exported = exported(counters.take(1, 1, PolicyInForce::default()));
        assert_eq!(
            exported,
            ["tollgate_decisions_total site,,,allowed 20", "tollgate_requests_total passed 20"]
        );
    }

    /// The counts in a delta, as lines.
    fn exported(delta: Option<Delta>) -> Vec<String> {
        let line = |(series, count): &(Series, u64)| {
            let name = series.family().map_or("", |family| family.describe().name);
            let values: Vec<&str> = series.values().collect();
            format!("{name} {} {count}", values.join(","))
        };
        let mut lines: Vec<String> =
            delta.map_or_else(Vec::new, |delta| delta.counts.iter().map(line).collect());
        lines.sort();
        lines
    }

    #[test]
    fn what_rules_said_is_counted_once_by_the_quota_that_said_it() {
        let policy = tollgate_language::compile(POLICY, Surface::Worker).expect("a policy");
        let counters = Counters::new(false);
        let mut stored = BTreeMap::new();
        let mut notable = Vec::new();
        let asked = [("/api", ""), ("/api", ""), ("/api", ""), ("/api", ""), ("/other", "")];
        for (path, tier) in asked.into_iter().chain([("/api", "gold"), ("/api", "gold")]) {
            let plan = decide(&policy, &request(path, tier), &mut stored);
            notable.push(counters.count(&policy, &plan.outcome(&policy), Span::ZERO));
        }
        for _ in 0..2 {
            let plan = decide(&policy, &request("/queue", ""), &mut stored);
            counters.count(&policy, &plan.outcome(&policy), Span::ZERO);
        }
        assert_eq!(notable, [false, true, true, true, false, true, true]);
        let expected = [
            "tollgate_requests_total passed 5",
            "tollgate_requests_total delayed 1",
            "tollgate_requests_total refused 2",
            "tollgate_requests_total unlimited 1",
            "tollgate_wait_seconds 1.0 1",
            "tollgate_wait_seconds sum 1000",
            "tollgate_decisions_total api,,,allowed 3",
            "tollgate_decisions_total api,,gold,allowed 1",
            "tollgate_decisions_total api,day,,denied 1",
            "tollgate_decisions_total api,minute,gold,denied 1",
            "tollgate_decisions_total queue,,,allowed 1",
            "tollgate_decisions_total queue,queue,,delayed 1",
            "tollgate_decisions_total trial,,,allowed 1",
            "tollgate_decisions_total trial,trial,,shadowed 5",
            "tollgate_near_limit_total api,day, 1",
            "tollgate_near_limit_total api,minute,gold 1",
            "tollgate_near_limit_total trial,trial, 1",
        ];
        let (version, fingerprint) = (0, policy.fingerprint());
        let source = Source::Written;
        let delta = counters.take(7, 1, PolicyInForce { version, fingerprint, source });
        let in_force = delta.as_ref().map(|delta| (delta.isolate, delta.sequence, delta.policy));
        assert_eq!(in_force, Some((7, 1, PolicyInForce { version, fingerprint, source })));
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(exported(delta), expected);
        let again = counters.take(7, 2, PolicyInForce { version, fingerprint, source });
        assert_eq!(again, None, "nothing came since");
    }

    #[test]
    fn a_rule_that_denies_without_counting_is_counted_by_its_name() {
        let policy = r#"{"version": 1, "rules": [
            {"name": "blocked", "deny": true, "when": {"paths": ["/x"]}},
            {"name": "trial", "deny": true, "mode": "shadow", "when": {"paths": ["/x", "/y", "/api"]}},
            {"name": "api", "when": {"paths": ["/api"]}, "key": ["client_ip"], "quotas": [{"limit": 100, "window": "1m"}]}]}"#;
        let policy = tollgate_language::compile(policy, Surface::Worker).expect("a policy");
        let (counters, mut stored) = (Counters::new(false), BTreeMap::new());
        for (path, expected) in [
            ("/x", ["refused blocked denied"].as_slice()),
            ("/y", &["shadow_refused trial shadowed"]),
            ("/api", &["shadow_refused trial shadowed"]),
            ("/", &[]),
        ] {
            let plan = decide(&policy, &request(path, ""), &mut stored);
            let outcome = plan.outcome(&policy);
            let is_notable = counters.count(&policy, &outcome, Span::ZERO);
            assert_eq!(is_notable, !expected.is_empty(), "{path}");
            let lines = crate::events::notable_results(&policy, outcome).map(|it| {
                assert_eq!(it.line.status, (path == "/x").then_some(403));
                let event = serde_json::to_value(it.line.event).expect("a word");
                format!(
                    "{} {} {}",
                    event.as_str().unwrap_or_default(),
                    it.line.rule,
                    it.line.result
                )
            });
            assert_eq!(lines.collect::<Vec<_>>(), expected, "{path}");
        }
        assert_eq!(
            exported(counters.take(1, 1, PolicyInForce::default())),
            [
                "tollgate_decisions_total api,,,allowed 1",
                "tollgate_decisions_total blocked,,,denied 1",
                "tollgate_decisions_total trial,,,shadowed 2",
                "tollgate_requests_total passed 2",
                "tollgate_requests_total refused 1",
                "tollgate_requests_total unlimited 1",
            ]
        );
    }

    #[test]
    fn a_settled_cost_counts_its_estimate_and_what_stays_charged() {
        let counters = Counters::new(false);
        let settled = |actual| SettledCharge { rule: 0, estimate: 10, actual };
        counters.count_costs(&[settled(Ok(3)), settled(Ok(25))]);
        counters.count_costs(&UnknownCost::ALL.map(|reason| settled(Err(reason))));
        assert_eq!(
            exported(counters.take(1, 1, PolicyInForce::default())),
            [
                "tollgate_cost_units_total estimate 90",
                "tollgate_cost_units_total final 98",
                "tollgate_cost_unknown_total absent 1",
                "tollgate_cost_unknown_total compressed 1",
                "tollgate_cost_unknown_total conflicting 1",
                "tollgate_cost_unknown_total content_type 1",
                "tollgate_cost_unknown_total incomplete 1",
                "tollgate_cost_unknown_total no_response 1",
                "tollgate_cost_unknown_total unreadable 1",
            ]
        );
    }

    #[test]
    fn another_policy_keeps_what_the_one_before_counted() {
        let mut policies: Vec<Policy> = [
            POLICY,
            &POLICY.replace("trial", "new"),
            &POLICY.replace("\"name\": \"api\"", "\"name\": \"renamed\""),
        ]
        .map(|text| tollgate_language::compile(text, Surface::Worker).expect("a policy"))
        .into();
        (1..).zip(&mut policies).for_each(|(version, policy)| policy.set_version(version));
        let counters = Counters::new(false);
        // The second is in force, and requests of the first are still in progress.
        for place in [0, 1, 0, 1, 0, 2] {
            let plan = decide(&policies[place], &request("/queue", ""), &mut BTreeMap::new());
            counters.count(&policies[place], &plan.outcome(&policies[place]), Span::ZERO);
            let plan = decide(&policies[place], &request("/api", ""), &mut BTreeMap::new());
            counters.count(&policies[place], &plan.outcome(&policies[place]), Span::ZERO);
        }
        let exported = exported(counters.take(1, 1, PolicyInForce::default()));
        for line in [
            "tollgate_decisions_total api,,,allowed 5",
            "tollgate_decisions_total renamed,,,allowed 1",
            "tollgate_decisions_total trial,,,allowed 4",
            "tollgate_decisions_total new,,,allowed 2",
            "tollgate_decisions_total queue,,,allowed 6",
            "tollgate_requests_total passed 12",
        ] {
            assert!(exported.iter().any(|found| found == line), "{line}: {exported:#?}");
        }
    }

    #[test]
    fn counters_that_nobody_reads_take_no_memory_for_rules() {
        let policy = tollgate_language::compile(POLICY, Surface::Worker).expect("a policy");
        let counters = Counters::new(true);
        let mut stored = BTreeMap::new();
        for is_notable in [false, true] {
            let plan = decide(&policy, &request("/api", "gold"), &mut stored);
            let outcome = plan.outcome(&policy);
            assert_eq!(counters.count(&policy, &outcome, Span::ZERO), is_notable);
        }
        assert!(counters.rules.borrow().blocks.is_empty());
    }
}
