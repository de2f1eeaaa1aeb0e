//! `--suggest`: for each quota of a policy, how much its clients used at most in any one window,
//! and the limits at which none, 0.1 and 1 % of them would be touched.
//!
//! It observes a replay, which tells it of every request and every quota set that decided about
//! it; then the same replay once more ([`SecondPass`]), in which the suggested limits are tried by
//! the rule's own algorithm. What was counted is what was asked
//! for, admitted or not: a client that is refused today is counted whole.
//!
//! Invariant: a share that is said to be replayed was replayed, at exactly the limit beside it.
//! Memory is bounded ([`Bounds`]), and where a bound was met the suggestion says so.
//!
//! Deliberately not here: reading the log twice, and words; both are the caller's.

mod counts;
mod given_up;
mod line;
mod percentiles;
mod trial;

use std::ops::Range;

use serde::Serialize;
use tollgate_core::{Limiter, Timestamp};
use tollgate_policy::{Policy, QuotaSet};

pub use counts::{Bounds, PARTS};
use counts::{Counts, Key};
use line::{at_limit, line};
use percentiles::Peaks;
pub use percentiles::Share;
use trial::Trial;

use crate::observer::{Counted, Observer};

/// What is suggested for one quota of a rule, or of a tier of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Suggestion {
    /// The rule's name.
    pub rule: String,
    /// The tier's name, if these are not the rule's own quotas.
    pub tier: Option<String>,
    /// The quota's name.
    pub quota: String,
    /// The algorithm's name.
    pub algorithm: &'static str,
    /// The window in milliseconds.
    pub window_ms: u64,
    /// The limit in the policy.
    pub limit_now: u64,
    /// Requests that the quota decided about.
    pub requests: u64,
    /// Distinct keys among them; where a sample was counted, its keys times [`Sample::one_in`].
    pub clients: u64,
    /// False when the rule has one count for all requests, so that there are no clients to touch:
    /// only the greatest count is of use then, and no limit is suggested.
    pub per_client: bool,
    /// The greatest numbers of quota units that the clients used in any one window.
    pub greatest: Greatest,
    /// When only some of the keys could be counted.
    pub sample: Option<Sample>,
    /// When some keys had too many requests in a window to be counted one by one.
    pub in_parts: Option<InParts>,
    /// For each [`Share`] a limit; empty without clients.
    pub limits: Vec<SuggestedLimit>,
    /// Requests in the second pass of keys that the first had not: the log has changed meanwhile.
    pub strangers: u64,
}

/// How the clients' greatest counts are spread: quota units in one window, nearest ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Greatest {
    /// Half of the clients use at most this.
    pub p50: u64,
    /// 99 % of them.
    pub p99: u64,
    /// 99.9 % of them.
    pub p99_9: u64,
    /// All of them.
    pub max: u64,
}

/// There were too many keys, or too many requests within a window, to count them all: the keys of a
/// uniform sample were counted, each of them exactly, and percentiles are the sample's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// One key of so many was counted; a power of two.
    pub one_in: u64,
    /// So many keys were counted.
    pub keys: u64,
    /// The greatest count of the sample. [`Greatest::max`] is an upper bound of all keys' then,
    /// from a sketch, never below the true one.
    pub max: u64,
}

/// Keys with more than 4,096 requests in one window: those beyond were added up in parts of the
/// window, so their greatest count is that of a window longer by one part, never below the true
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct InParts {
    /// So many keys.
    pub keys: u64,
    /// The length of one part in nanoseconds: the window / 4,096, rounded up.
    pub part_ns: u64,
}

/// A limit for one wished share of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuggestedLimit {
    /// At most so many per cent of the clients are to be touched: `0`, `0.1` or `1`.
    pub wished_percent: &'static str,
    /// The lowest limit that no more clients than wished exceed in any window. The one that is
    /// suggested is higher or lower where the algorithm refuses more clients than those, or fewer.
    pub counted: u64,
    /// Clients that exceed `counted`: those that an exact limiter would have touched.
    pub exceed: u64,
    /// The limit of the line; `None` where the algorithm cannot hold such a limit.
    pub limit: Option<u64>,
    /// The quota to be put into the policy, as JSON; or why the algorithm cannot hold it.
    pub line: String,
    /// What the second pass says of the line; `None` where there was none.
    pub replayed: Option<Replayed>,
    /// The share of touched clients is a sample's: that of all of them is within so many millionths
    /// of it, 997 times of 1,000 (three standard errors).
    pub within_ppm: Option<u64>,
}

/// What the rule's own algorithm did at the suggested limit, by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Clients that were refused at least once.
    pub touched: u64,
    /// Of so many: all clients, or all of the sample.
    pub of: u64,
    /// False when even twice the counted limit touched more clients than wished.
    pub as_wished: bool,
}

/// One quota: what it is, and what was counted.
#[derive(Debug)]
struct Series {
    rule: String,
    tier: Option<String>,
    quota: String,
    /// The name has to stand in the line.
    is_named: bool,
    per_client: bool,
    limiter: Limiter,
    counts: Counts,
}

/// The first pass.
#[derive(Debug)]
pub struct Suggest {
    bounds: Bounds,
    /// For each quota set of the policy, its quotas among `series`.
    sets: Vec<Range<usize>>,
    series: Vec<Series>,
}

/// The second pass.
#[derive(Debug)]
pub struct SecondPass {
    sets: Vec<Range<usize>>,
    series: Vec<(Series, Peaks, Trial)>,
}

impl Suggest {
    /// Counts for every quota of the policy. The bounds on keys are each quota's; those on requests
    /// within a window and on states are shared out among the quotas.
    #[must_use]
    pub fn new(policy: &Policy, bounds: Bounds) -> Self {
        let of_all: usize = policy.quota_sets().iter().map(|set| set.quotas().len()).sum();
        let share = |bytes: usize| bytes.checked_div(of_all).unwrap_or(bytes).max(1);
        let bounds = Bounds { live: share(bounds.live), trial: share(bounds.trial), ..bounds };
        let mut suggest = Self { bounds, sets: Vec::new(), series: Vec::new() };
        for set in policy.quota_sets() {
            let first = suggest.series.len();
            suggest.series.extend(series_of(policy, set, bounds));
            suggest.sets.push(first..suggest.series.len());
        }
        suggest
    }

    /// One request that quota set `set` of the policy decided about, whatever it decided: the
    /// partition key's hash (64 bits, keyed), the time and the cost. In the order of time; an
    /// earlier time than the one before counts as that one.
    pub fn push(&mut self, set: usize, key: u64, at: Timestamp, cost: u64) {
        let series = self.sets.get(set).cloned().and_then(|range| self.series.get_mut(range));
        for series in series.into_iter().flatten() {
            series.counts.push(key, at, cost);
        }
    }

    /// Ends the first pass: the limits are known, and are to be replayed.
    #[must_use]
    pub fn second_pass(self) -> SecondPass {
        let most_bytes = self.bounds.trial;
        let series = self.series.into_iter().map(|mut series| {
            series.counts.settle();
            let peaks = Peaks::new(series.counts.keys().iter().map(|key| key.peak));
            let limits = if series.per_client { &Share::ALL[..] } else { &[] };
            let limits = limits.iter().map(|share| series.counted(&peaks, *share));
            let trial = Trial::new(&series.limiter, limits, most_bytes);
            (series, peaks, trial)
        });
        SecondPass { sets: self.sets, series: series.collect() }
    }
}

impl Observer for Suggest {
    fn counted(&mut self, request: Counted) {
        self.push(request.quota_set, request.key, request.at, request.cost);
    }
}

impl Observer for SecondPass {
    fn counted(&mut self, request: Counted) {
        self.push(request.quota_set, request.key, request.at, request.cost);
    }
}

impl SecondPass {
    /// One request, as [`Suggest::push`] was told of it.
    pub fn push(&mut self, set: usize, key: u64, at: Timestamp, cost: u64) {
        let series = self.sets.get(set).cloned().and_then(|range| self.series.get_mut(range));
        for (series, _, trial) in series.into_iter().flatten() {
            trial.push(&series.counts, key, at, cost);
        }
    }

    /// The suggestions after the second pass, in the order of the policy.
    #[must_use]
    pub fn finish(self) -> Vec<Suggestion> {
        self.suggestions(true)
    }

    /// The suggestions without a second pass: none of their limits was replayed.
    #[must_use]
    pub fn leave_out(self) -> Vec<Suggestion> {
        self.suggestions(false)
    }

    fn suggestions(&self, was_replayed: bool) -> Vec<Suggestion> {
        let of = |(series, peaks, trial): &(Series, Peaks, Trial)| {
            series.suggestion(peaks, was_replayed.then_some(trial))
        };
        self.series.iter().map(of).collect()
    }
}

fn series_of(policy: &Policy, set: &QuotaSet, bounds: Bounds) -> Vec<Series> {
    let rule = policy.rules().get(set.rule());
    let group = rule.and_then(|rule| policy.groups().get(rule.group()));
    let rule = rule.map_or("", |rule| rule.name());
    let series = set.quotas().iter().map(|quota| Series {
        rule: rule.to_owned(),
        tier: set.tier().map(str::to_owned),
        quota: quota.name().to_owned(),
        is_named: set.quotas().len() > 1 || quota.name() != rule,
        per_client: group.is_some_and(|group| !group.counts_all()),
        limiter: *quota.limiter(),
        counts: Counts::new(quota.window(), bounds),
    });
    series.collect()
}

impl Series {
    /// The lowest limit that no more clients than wished exceed.
    fn counted(&self, peaks: &Peaks, share: Share) -> u64 {
        let limit = peaks.exceeded_by_at_most(share.of(peaks.len()));
        let unseen = if share == Share::Nobody { self.counts.given_up_peak() } else { 0 };
        limit.max(unseen).max(1)
    }

    fn suggestion(&self, peaks: &Peaks, trial: Option<&Trial>) -> Suggestion {
        let (counts, keys) = (&self.counts, peaks.len());
        let is_sampled = counts.one_in() > 1;
        let max = peaks.exceeded_by_at_most(0);
        let in_parts = counts.keys().iter().filter(|key: &&Key| key.in_parts).count();
        let in_parts = u64::try_from(in_parts).unwrap_or(u64::MAX);
        let shares = if self.per_client && keys > 0 { &Share::ALL[..] } else { &[] };
        Suggestion {
            rule: self.rule.clone(),
            tier: self.tier.clone(),
            quota: self.quota.clone(),
            algorithm: self.limiter.algorithm().name(),
            window_ms: self.limiter.quota().window().as_nanos() / 1_000_000,
            limit_now: self.limiter.quota().limit(),
            requests: counts.requests(),
            clients: keys.saturating_mul(counts.one_in()),
            per_client: self.per_client,
            greatest: Greatest {
                p50: peaks.median(),
                p99: peaks.exceeded_by_at_most(Share::OneInHundred.of(keys)),
                p99_9: peaks.exceeded_by_at_most(Share::OneInThousand.of(keys)),
                max: max.max(counts.given_up_peak()),
            },
            sample: is_sampled.then(|| Sample { one_in: counts.one_in(), keys, max }),
            in_parts: (in_parts > 0)
                .then(|| InParts { keys: in_parts, part_ns: counts.part().as_nanos() }),
            limits: shares.iter().map(|share| self.suggested(peaks, *share, trial)).collect(),
            strangers: trial.map_or(0, Trial::strangers),
        }
    }

    fn suggested(&self, peaks: &Peaks, share: Share, trial: Option<&Trial>) -> SuggestedLimit {
        let (counted, clients) = (self.counted(peaks, share), peaks.len());
        let most = share.of(clients);
        let outcome = trial.and_then(|trial| trial.outcome(&self.limiter, counted, most));
        let limiter =
            outcome.map_or_else(|| at_limit(&self.limiter, counted), |outcome| Ok(outcome.limiter));
        let name = self.is_named.then_some(self.quota.as_str());
        SuggestedLimit {
            wished_percent: share.percent(),
            counted,
            exceed: peaks.above(counted),
            limit: limiter.ok().map(|limiter| limiter.quota().limit()),
            line: limiter.map_or_else(|error| error.to_string(), |limiter| line(&limiter, name)),
            replayed: outcome.map(|outcome| Replayed {
                touched: outcome.denied,
                of: clients,
                as_wished: outcome.denied <= most,
            }),
            within_ppm: (self.counts.one_in() > 1).then(|| share.error_ppm(clients)),
        }
    }
}

#[cfg(test)]
mod tests;
