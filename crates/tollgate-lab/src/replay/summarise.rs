//! Builds the summary from the counts of a replay.
//!
//! Invariant: nothing is counted here.

use std::cmp::Reverse;

use tollgate_access_log::{Counts, OrderCounts};
use tollgate_core::Timestamp;
use tollgate_policy::explain::{Read, Reader};
use tollgate_policy::spec::Fact;
use tollgate_policy::{CompiledQuota, QuotaSet, RuleResult};

use crate::replay::clients::Marks;
use crate::replay::engine::{BITS, Replay, limited};
use crate::replay::label::hidden_line;
use crate::replay::lane::{DELAYED, DENIED, Lane, MARKED, SHADOWED, UNREADABLE};
use crate::replay::observer::Observer;
use crate::replay::summary::{
    Bin, Cause, ChangeCounts, Clients, Damage, FirstLimited, LimitedKey, LogSummary,
    PolicyComparison, QuotaSummary, RuleSummary, Sample, Summary, Timeline, TopKeys,
};
use crate::replay::time::Moment;

/// The most rows of tenants' own quotas in a rule; a policy with a plan per customer has one row
/// per customer.
const MAX_OWN_ROWS: usize = 100;

/// The note in a replay or a simulation of a policy with tenants.
pub const WITHOUT_ENTRIES: &str = "entries of tenants are not read: they are in a store and not in the policy, so every request was decided by rules and tiers";

/// The counts of the readers of a log.
#[derive(Clone, Debug, Default)]
pub struct LogCounts {
    lines: Vec<Counts>,
    order: Vec<OrderCounts>,
    damaged: Vec<Damage>,
}

impl LogCounts {
    /// Adds the counts of one reader and of its order.
    pub fn add(&mut self, lines: &Counts, order: &OrderCounts) {
        self.lines.push(lines.clone());
        self.order.push(*order);
    }

    /// Records that a log breaks off.
    pub fn damaged(&mut self, log: String, message: String) {
        self.damaged.push(Damage { log, message });
    }
}

impl<O: Observer> Replay<O> {
    /// Ends the replay and decides every request that still waits. Returns the summary and the
    /// observer.
    #[must_use]
    pub fn finish(mut self, log: &LogCounts) -> (Summary, O) {
        self.end();
        let summary = Summary {
            log: self.log(log),
            requests: self.lanes.first().map(|lane| lane.tally).unwrap_or_default(),
            clients: self.clients_of(0),
            rules: self.lanes.first().map(rules).unwrap_or_default(),
            keys: self.lanes.first().map(|lane| top(lane, self.options.top)).unwrap_or_default(),
            timeline: self.timeline(),
            waits: self.lanes.first().and_then(|lane| lane.waits.summary()),
            against: self.lanes.get(1).map(|lane| self.compared(lane)),
            suggestions: None,
            fail_if: Vec::new(),
            notes: self.notes(),
        };
        (summary, self.into_observer())
    }

    fn log(&self, log: &LogCounts) -> LogSummary {
        let sum =
            |of: fn(&OrderCounts) -> u64| log.order.iter().map(of).fold(0, u64::saturating_add);
        let lines = |of: fn(&Counts) -> u64| log.lines.iter().map(of).fold(0, u64::saturating_add);
        let unparsable = |counts: &Counts| {
            counts.unparsable().map(|(_, lines)| lines).fold(0, u64::saturating_add)
        };
        let most_late_ns = log.order.iter().map(|counts| counts.most_late_ns).max().unwrap_or(0);
        let is_any = self.first_at.is_some();
        LogSummary {
            lines: lines(|counts| counts.lines.saturating_sub(counts.empty)),
            unparsable: lines(unparsable),
            causes: self.causes(&log.lines),
            already_refused: self.already_refused,
            outside: self.outside,
            out_of_order: sum(|counts| counts.sorted),
            late: sum(|counts| counts.late),
            most_late_ms: most_late_ns.div_ceil(1_000_000),
            hurried_seconds: sum(|counts| counts.hurried_seconds),
            crowded_seconds: sum(|counts| counts.crowded_seconds),
            ahead: sum(|counts| counts.ahead),
            damaged: log.damaged.clone(),
            first: self.first_at.map(Moment),
            last: is_any.then_some(Moment(self.now)),
        }
    }

    fn causes(&self, logs: &[Counts]) -> Vec<Cause> {
        let mut causes: Vec<Cause> = Vec::new();
        for counts in logs {
            for (cause, lines) in counts.unparsable() {
                let of_it = counts.samples().iter().filter(|sample| sample.cause == cause);
                let samples = of_it.map(|sample| Sample {
                    line: sample.line,
                    text: match self.options.is_private {
                        true => hidden_line(&self.options.secret, &sample.text),
                        false => sample.text.clone(),
                    },
                });
                let words = cause.to_string();
                match causes.iter_mut().find(|known| known.cause == words) {
                    Some(known) => {
                        known.lines = known.lines.saturating_add(lines);
                        let room = 3_usize.saturating_sub(known.samples.len());
                        known.samples.extend(samples.take(room));
                    }
                    None => {
                        let samples = samples.collect();
                        causes.push(Cause { cause: words, lines, samples });
                    }
                }
            }
        }
        causes
    }

    fn clients_of(&self, lane: u32) -> Clients {
        let shift = BITS.saturating_mul(lane);
        let count = |mark: Marks| self.clients.count(|marks| marks >> shift & mark != 0);
        Clients {
            total: self.clients.count(|_| true),
            denied: count(DENIED),
            delayed: count(DELAYED),
            unreadable: count(UNREADABLE),
            marked: count(MARKED),
            shadowed: count(SHADOWED),
            one_of: self.clients.one_of(),
            requests_without: self.without_client,
        }
    }

    fn timeline(&self) -> Timeline {
        let bin = |(at, counts): (Timestamp, &crate::replay::timeline::Counts)| Bin {
            at: Moment(at),
            total: counts.total,
            denied: counts.denied,
            delayed: counts.delayed,
            over: counts.over,
        };
        Timeline { bin_seconds: self.bins.seconds(), bins: self.bins.iter().map(bin).collect() }
    }

    fn compared(&self, lane: &Lane) -> PolicyComparison {
        let count = |is: fn((bool, bool)) -> bool| self.clients.count(|m| is(limited(m)));
        PolicyComparison {
            requests: lane.tally,
            clients: self.clients_of(1),
            rules: rules(lane),
            changed_requests: self.changed,
            changed_clients: ChangeCounts {
                newly_limited: count(|(here, there)| here && !there),
                no_longer_limited: count(|(here, there)| !here && there),
                both: count(|(here, there)| here && there),
            },
            newly_limited: self.newly_limited.clone(),
            no_longer_limited: self.no_longer_limited.clone(),
        }
    }

    /// The facts needed to judge the figures.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let one_of = self.clients.one_of();
        if one_of > 1 {
            notes.push(format!(
                "the numbers of clients are estimates: one client of {one_of} was counted"
            ));
        }
        for lane in &self.lanes {
            for rule in lane.policy.rules().iter().filter(|rule| rule.chooses_keys()) {
                notes.push(format!(
                    "rule \"{}\" is enforced for a part of the keys, chosen by a secret of the surface: this replay chooses others",
                    rule.name()
                ));
            }
        }
        if self.lanes.iter().any(|lane| lane.policy.tenants().is_some() && !lane.knows_tenants) {
            notes.push(WITHOUT_ENTRIES.to_owned());
        }
        notes.dedup();
        for (i, lane) in self.lanes.iter().enumerate() {
            let of = if i == 0 { "" } else { " of the other policy" };
            let names = lane.rules.iter().zip(lane.policy.rule_names());
            for (_, name) in names.filter(|(counts, _)| lane.tally.total > 0 && counts.is_idle()) {
                notes.push(format!("rule \"{name}\"{of} applied to no request"));
            }
        }
        let is_network =
            |read: &Read<'_>| read.fact == Fact::Client && !matches!(read.by, Reader::Key(_));
        let mut lanes = self.lanes.iter();
        if self.names.is_any()
            && lanes.any(|lane| lane.policy.explain().reads().iter().any(is_network))
        {
            let note =
                "clients of the log are host names, which no condition by client_cidrs matches";
            notes.push(note.to_owned());
        }
        if self.late > 0 {
            notes.push(format!(
                "{} requests of one log were older than requests of another log that were already decided, and were decided at the time of those",
                self.late
            ));
        }
        notes
    }
}

fn rules(lane: &Lane) -> Vec<RuleSummary> {
    let of_rule = |(i, (name, counts)): (usize, (&str, &crate::replay::lane::RuleCounts))| {
        let result = |result: RuleResult| counts.results.get(result.index()).copied().unwrap_or(0);
        let first = counts.first.as_ref();
        RuleSummary {
            name: name.to_owned(),
            allowed: result(RuleResult::Allowed),
            denied: result(RuleResult::Denied).saturating_add(result(RuleResult::Penalised)),
            delayed: result(RuleResult::Delayed),
            marked: result(RuleResult::Marked),
            shadowed: result(RuleResult::Shadowed),
            malformed: result(RuleResult::Malformed),
            limited_keys: lane.top.count_of(i),
            limited_keys_are_exact: lane.top.error() == 0,
            first: first.map(|(at, key)| FirstLimited { at: Moment(*at), key: key.clone() }),
            quotas: quotas(lane, i),
        }
    };
    lane.policy.rule_names().zip(&lane.rules).enumerate().map(of_rule).collect()
}

/// The quotas of a rule and of its tiers, then the tenants' own ones that most often had no room.
fn quotas(lane: &Lane, rule: usize) -> Vec<QuotaSummary> {
    let of_policy = lane.policy.quota_sets();
    let (counts, counts_of_own) = lane.quotas.split_at_checked(of_policy.len()).unwrap_or_default();
    let quota = |set: &QuotaSet, quota: &CompiledQuota, limited: u64, of_tenants: bool| {
        let limiter = quota.limiter();
        QuotaSummary {
            name: quota.name().to_owned(),
            tier: set.tier().map(str::to_owned),
            of_tenants,
            limit: limiter.quota().limit(),
            window_ms: quota.window().as_millis_ceil(),
            algorithm: limiter.counts_by().to_owned(),
            limited,
        }
    };
    let rows = |sets: &[QuotaSet], counts: &[Vec<u64>], of_tenants: bool| -> Vec<QuotaSummary> {
        let of_rule = sets.iter().zip(counts).filter(|(set, _)| set.rule() == rule);
        let of_set = |(set, counts): (&QuotaSet, &Vec<u64>)| {
            let quotas = set.quotas().iter().zip(counts);
            quotas.map(|(of, limited)| quota(set, of, *limited, of_tenants)).collect::<Vec<_>>()
        };
        of_rule.flat_map(of_set).collect()
    };
    let mut own = rows(lane.sets.own(), counts_of_own, true);
    own.sort_by_key(|row| Reverse(row.limited));
    own.truncate(MAX_OWN_ROWS);
    let mut all = rows(of_policy, counts, false);
    all.extend(own);
    all
}

fn top(lane: &Lane, many: usize) -> TopKeys {
    let key = |entry: &crate::replay::top::Entry| {
        let [denied, delayed, marked, shadowed] = entry.counts;
        LimitedKey {
            rule: lane.policy.rules().get(entry.of).map_or("", |r| r.name()).to_owned(),
            key: entry.label.to_string(),
            denied,
            delayed,
            marked,
            shadowed,
            error: entry.error,
            first: Moment(entry.first),
            last: Moment(entry.last),
        }
    };
    TopKeys {
        top: lane.top.first(many).into_iter().map(key).collect(),
        counted_at_most: lane.top.most(),
        error: lane.top.error(),
    }
}
