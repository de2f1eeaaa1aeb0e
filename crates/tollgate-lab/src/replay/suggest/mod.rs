//! `--suggest`: for each quota of a policy, the greatest usage of its clients in any one window,
//! how many of them each limit would affect over the whole range, where that hardly depends on the
//! limit, and the clients with the greatest usage.
//!
//! It observes a replay, which reports every request and every quota set that decided it. In a
//! second replay ([`SecondPass`]) the rule's own algorithm tries the suggested limits. All
//! requested units are counted, allowed or not: a client that is denied today is counted in full.
//!
//! Invariant: a share that is reported as replayed was replayed, at exactly the limit shown with
//! it. Memory is bounded ([`Bounds`]), and the suggestion reports it when a bound was reached.
//!
//! Deliberately not here: reading the log twice, and the wording; both are the caller's.

mod counts;
mod curve;
mod unsampled_keys;
mod heaviest;
mod line;
mod percentiles;
mod suggestion;
mod trial;

use std::ops::Range;

use tollgate_core::{Limiter, Timestamp};
use tollgate_policy::{Policy, QuotaSet};

pub use counts::{Bounds, PARTS};
use counts::{Counts, Key};
use curve::Between;
use heaviest::Heaviest;
pub use heaviest::HeavyClient;
use line::{at_limit, line};
use percentiles::Peaks;
pub use percentiles::Share;
pub use suggestion::{
    CurveLimit, CurveReplayed, Gap, Greatest, InParts, Replayed, Sample, SuggestedLimit, Suggestion,
};
use trial::Trial;

use crate::replay::observer::{CountedRequest, Observer};

/// One quota and its counts.
#[derive(Debug)]
struct Series {
    rule: String,
    tier: Option<String>,
    quota: String,
    /// True when the line must contain the name.
    is_named: bool,
    per_client: bool,
    limiter: Limiter,
    counts: Counts,
}

/// The first pass.
#[derive(Debug)]
pub struct Suggest {
    bounds: Bounds,
    /// For each quota set of the policy, its range of quotas in `series`.
    sets: Vec<Range<usize>>,
    series: Vec<Series>,
    shares: Vec<Share>,
}

/// The second pass.
#[derive(Debug)]
pub struct SecondPass {
    sets: Vec<Range<usize>>,
    series: Vec<Settled>,
    shares: Vec<Share>,
}

/// One quota after the first pass.
#[derive(Debug)]
struct Settled {
    series: Series,
    peaks: Peaks,
    gap: Option<Between>,
    /// The limits of the curve.
    curve: Vec<u64>,
    heaviest: Heaviest,
    trial: Trial,
}

impl Suggest {
    /// Counts for every quota of the policy. Each quota has the bounds on keys to itself; those on
    /// requests within a window and on states are divided among the quotas.
    #[must_use]
    pub fn new(policy: &Policy, bounds: Bounds) -> Self {
        let of_all: usize = policy.quota_sets().iter().map(|set| set.quotas().len()).sum();
        let share = |bytes: usize| bytes.checked_div(of_all).unwrap_or(bytes).max(1);
        let bounds = Bounds { live: share(bounds.live), trial: share(bounds.trial), ..bounds };
        let mut suggest =
            Self { bounds, sets: Vec::new(), series: Vec::new(), shares: Share::USUAL.to_vec() };
        for set in policy.quota_sets() {
            let first = suggest.series.len();
            if !set.is_closed() {
                suggest.series.extend(series_of(policy, set, bounds));
            }
            suggest.sets.push(first..suggest.series.len());
        }
        suggest
    }

    /// Suggests a limit for this share of the clients, too.
    #[must_use]
    pub fn touching(mut self, share: Share) -> Self {
        self.shares.push(share);
        self.shares.sort_unstable();
        self.shares.dedup();
        self
    }

    /// One request that quota set `set` of the policy decided, whatever the decision: the partition
    /// key's hash (64 bits, keyed), the time and the cost. In the order of time; a time earlier
    /// than the one before counts as that one.
    pub fn push(&mut self, set: usize, key: u64, at: Timestamp, cost: u64) {
        let series = self.sets.get(set).cloned().and_then(|range| self.series.get_mut(range));
        for series in series.into_iter().flatten() {
            series.counts.push(key, at, cost);
        }
    }

    /// Ends the first pass: the limits are known, and will be replayed.
    #[must_use]
    pub fn second_pass(self) -> SecondPass {
        let (most_bytes, shares) = (self.bounds.trial, self.shares);
        let settled = |series: Series| Settled::new(series, &shares, most_bytes);
        let series = self.series.into_iter().map(settled).collect();
        SecondPass { sets: self.sets, series, shares }
    }
}

impl Settled {
    fn new(mut series: Series, shares: &[Share], most_bytes: usize) -> Self {
        series.counts.settle();
        let keys = if series.per_client { series.counts.keys() } else { &[] };
        let heaviest = Heaviest::new(keys);
        let peaks = Peaks::new(series.counts.keys().iter().map(|key| key.peak));
        let gap = curve::widest(&peaks).filter(|_| series.per_client);
        let curve = if series.per_client { curve::limits(&peaks, gap) } else { Vec::new() };
        let shares = if series.per_client { shares } else { &[] };
        let limits = shares.iter().map(|share| series.counted(&peaks, *share));
        let trial = Trial::new(&series.limiter, limits, &curve, most_bytes);
        Self { series, peaks, gap, curve, heaviest, trial }
    }
}

impl Observer for Suggest {
    fn counted(&mut self, request: CountedRequest) {
        self.push(request.quota_set, request.key, request.at, request.cost);
    }
}

impl Observer for SecondPass {
    fn counted(&mut self, request: CountedRequest) {
        for settled in self.of(request.quota_set) {
            settled.heaviest.push(&request);
        }
        self.push(request.quota_set, request.key, request.at, request.cost);
    }

    fn wants_label(&self, quota_set: usize, key: u64) -> bool {
        let range = self.sets.get(quota_set).cloned();
        let series = range.and_then(|range| self.series.get(range)).unwrap_or_default();
        series.iter().any(|settled| settled.heaviest.wants_label(key))
    }

    fn labelled(&mut self, quota_set: usize, key: u64, label: String) {
        for settled in self.of(quota_set) {
            settled.heaviest.label(key, label.clone());
        }
    }
}

impl SecondPass {
    /// One request, as in [`Suggest::push`].
    pub fn push(&mut self, set: usize, key: u64, at: Timestamp, cost: u64) {
        for Settled { series, trial, .. } in self.of(set) {
            trial.push(&series.counts, key, at, cost);
        }
    }

    /// The suggestions after the second pass, in the order of the policy.
    #[must_use]
    pub fn finish(self) -> Vec<Suggestion> {
        self.suggestions(Some(()))
    }

    /// The suggestions without a second pass: none of their limits was replayed.
    #[must_use]
    pub fn leave_out(self) -> Vec<Suggestion> {
        self.suggestions(None)
    }

    /// The quotas of a quota set.
    fn of(&mut self, set: usize) -> &mut [Settled] {
        let range = self.sets.get(set).cloned();
        range.and_then(|range| self.series.get_mut(range)).unwrap_or_default()
    }

    fn suggestions(&self, was_replayed: Option<()>) -> Vec<Suggestion> {
        self.series.iter().map(|settled| settled.suggestion(&self.shares, was_replayed)).collect()
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

impl Settled {
    fn suggestion(&self, shares: &[Share], was_replayed: Option<()>) -> Suggestion {
        let Self { series, peaks, curve, heaviest, .. } = self;
        let trial = was_replayed.map(|()| &self.trial);
        let (counts, keys) = (&series.counts, peaks.len());
        let in_parts = counts.keys().iter().filter(|key: &&Key| key.in_parts).count();
        let in_parts = u64::try_from(in_parts).unwrap_or(u64::MAX);
        let shares = if series.per_client && keys > 0 { shares } else { &[] };
        Suggestion {
            rule: series.rule.clone(),
            tier: series.tier.clone(),
            quota: series.quota.clone(),
            algorithm: series.limiter.counts_by(),
            window_ms: series.limiter.quota().window().as_nanos() / 1_000_000,
            limit_now: series.limiter.quota().limit(),
            requests: counts.requests(),
            clients: keys.saturating_mul(counts.one_in()),
            per_client: series.per_client,
            greatest: series.greatest(peaks),
            sample: (counts.one_in() > 1).then(|| Sample {
                one_in: counts.one_in(),
                keys,
                max: peaks.greatest(),
            }),
            in_parts: (in_parts > 0)
                .then(|| InParts { keys: in_parts, part_ns: counts.part().as_nanos() }),
            limits: shares.iter().map(|share| series.suggested(peaks, *share, trial)).collect(),
            curve: curve.iter().map(|limit| self.at(*limit, trial)).collect(),
            gap: self.gap.map(|gap| self.gap(gap, trial)),
            heaviest: heaviest.clients(was_replayed),
            strangers: trial.map_or(0, Trial::strangers),
        }
    }

    /// The effect of a limit of the curve.
    fn at(&self, limit: u64, trial: Option<&Trial>) -> CurveLimit {
        let outcome = trial.and_then(|trial| trial.at(&self.series.limiter, limit));
        let replayed = outcome
            .map(|outcome| CurveReplayed { clients: outcome.denied, requests: outcome.requests });
        CurveLimit { limit, exceed: self.peaks.above(limit), replayed }
    }

    /// The part of a gap in which every limit that was tried affects the same clients.
    fn gap(&self, gap: Between, trial: Option<&Trial>) -> Gap {
        let inside = self.curve.iter().filter(|limit| (gap.from..=gap.to).contains(*limit));
        let touches = |limit: &&u64| {
            let replayed = self.at(**limit, trial).replayed;
            replayed.map(|replayed| replayed.clients) == Some(gap.clients)
        };
        let mut inside = inside.skip_while(|limit| !touches(limit)).take_while(touches).copied();
        let first = inside.next();
        let from = first.unwrap_or(gap.from);
        let to = inside.last().or(first).unwrap_or(gap.to);
        let middle = u128::from(from).saturating_mul(to.into()).isqrt();
        let middle = u64::try_from(middle).unwrap_or(to);
        let limiter = at_limit(&self.series.limiter, middle).ok();
        Gap {
            from,
            to,
            clients: gap.clients,
            is_replayed: first.is_some(),
            line: limiter.map(|limiter| self.series.line(&limiter)),
        }
    }
}

impl Series {
    /// The lowest limit that no more clients than wished exceed.
    fn counted(&self, peaks: &Peaks, share: Share) -> u64 {
        let limit = peaks.exceeded_by_at_most(share.of(peaks.len()));
        let unseen = if share == Share::NOBODY { self.counts.given_up_peak() } else { 0 };
        limit.max(unseen).max(1)
    }

    fn greatest(&self, peaks: &Peaks) -> Greatest {
        let keys = peaks.len();
        Greatest {
            p50: peaks.median(),
            p99: peaks.exceeded_by_at_most(keys / 100),
            p99_9: peaks.exceeded_by_at_most(keys / 1000),
            max: peaks.greatest().max(self.counts.given_up_peak()),
        }
    }

    /// The line of a policy for this limiter.
    fn line(&self, limiter: &Limiter) -> String {
        line(limiter, self.is_named.then_some(self.quota.as_str()))
    }

    fn suggested(&self, peaks: &Peaks, share: Share, trial: Option<&Trial>) -> SuggestedLimit {
        let (counted, clients) = (self.counted(peaks, share), peaks.len());
        let most = share.of(clients);
        let outcome = trial.and_then(|trial| trial.outcome(&self.limiter, counted, most));
        let limiter =
            outcome.map_or_else(|| at_limit(&self.limiter, counted), |outcome| Ok(outcome.limiter));
        SuggestedLimit {
            wished_percent: share.percent(),
            counted,
            exceed: peaks.above(counted),
            limit: limiter.ok().map(|limiter| limiter.quota().limit()),
            line: limiter.map_or_else(|error| error.to_string(), |limiter| self.line(&limiter)),
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
