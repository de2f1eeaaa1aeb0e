//! The units that clients of a rule have used in the current and in the previous period of a
//! calendar, as JSON and as lines for a spreadsheet.
//!
//! Invariant: a report contains names of the policy, numbers, times, and the keys that the caller
//! named. Every client has the same lines, also one that has used nothing. Deliberately absent: how
//! the states were read, and periods before the previous one, which no state contains.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::iter;

use serde::Serialize;
use tollgate_core::{Calendar, CalendarTime, CalendarUsage, Limiter, PeriodUsage};
use tollgate_policy::{GivenKey, Policy, QuotaSet, Rule, Tenant, pk_text};
use tollgate_storage::KeyState;

use crate::csv::write_line;
use crate::store::usage::UsageFormat;

/// A report.
#[derive(Serialize)]
pub(crate) struct UsageReport<'a> {
    pub(crate) rule: &'a str,
    /// The name of a unit, where the policy gives one.
    pub(crate) unit: Option<&'a str>,
    pub(crate) keys: Vec<KeyUsage<'a>>,
}

/// The use of one client.
#[derive(Serialize)]
pub(crate) struct KeyUsage<'a> {
    /// The parts of its key, as the caller named them.
    key: &'a [String],
    tenant: Option<&'a str>,
    /// The hash of the key in responses and logs.
    pk: String,
    /// The time of the report, by the clock of the process that counts.
    at: String,
    quotas: Vec<QuotaUsage>,
}

#[derive(Serialize)]
struct QuotaUsage {
    /// The tier of the quota; `None` for the rule's own, and for a tenant's.
    tier: Option<String>,
    /// It is in the entry of the tenant.
    is_of_tenant: bool,
    name: String,
    limit: u64,
    calendar: String,
    current: Period,
    previous: Option<Period>,
}

#[derive(Serialize)]
struct Period {
    /// By the clock of the quota; the end is the first moment after it.
    start: String,
    end: String,
    start_utc: String,
    end_utc: String,
    used: u64,
    remaining: u64,
    over_limit: u64,
}

/// The quotas in which a client may count.
pub(crate) struct Counted<'a> {
    /// The client.
    pub(crate) key: &'a GivenKey,
    /// The entry of its tenant.
    pub(crate) tenant: Option<&'a Tenant>,
    /// It counts in the tenant's own quotas only.
    pub(crate) is_apart: bool,
}

/// The name of a tenant's quota that its entry does not contain any more.
const FORMER: &str = "the tenant's own";

impl<'a> KeyUsage<'a> {
    /// The use of the client with these parts of a key, in `state`.
    pub(crate) fn new(
        policy: &Policy,
        counted: &Counted<'_>,
        (key, tenant): (&'a [String], Option<&'a str>),
        state: &KeyState,
    ) -> Self {
        let rule = policy.rules().get(counted.key.rule);
        let sets = rule.into_iter().flat_map(|rule| rule.quota_sets(policy));
        let mut quotas = Vec::new();
        for set in sets.filter(|_| !counted.is_apart) {
            QuotaUsage::of_set(set, state, &mut quotas);
        }
        match counted.tenant.and_then(|tenant| tenant.own_quotas(counted.key.rule)) {
            Some(set) => QuotaUsage::of_set(set, state, &mut quotas),
            None => QuotaUsage::of_former(policy, counted.key, state, &mut quotas),
        }
        let (pk, at) = (pk_text(counted.key.pk(policy)), CalendarTime::utc(state.at).to_string());
        Self { key, tenant, pk, at, quotas }
    }
}

impl KeyUsage<'_> {
    /// True when it has no quota by a calendar.
    pub(crate) const fn is_empty(&self) -> bool {
        self.quotas.is_empty()
    }
}

impl QuotaUsage {
    fn of_set(set: &QuotaSet, state: &KeyState, out: &mut Vec<Self>) {
        let tier = || set.tier().map(ToString::to_string);
        let used = state.usage(&set.to_stored());
        for (quota, used) in set.quotas().iter().zip(used) {
            let source = (tier(), set.is_of_tenant(), quota.name());
            out.extend(Self::new(source, quota.limiter(), used));
        }
    }

    /// A tenant's quotas that were counted, and are not in its entry any more.
    fn of_former(policy: &Policy, key: &GivenKey, state: &KeyState, out: &mut Vec<Self>) {
        let Some(set) = key.tenants_set(policy, state) else { return };
        for (quota, used) in set.quotas().iter().zip(state.usage(set)) {
            out.extend(Self::new((None, true, FORMER), quota.limiter(), used));
        }
    }

    fn new(
        (tier, is_of_tenant, name): (Option<String>, bool, &str),
        limiter: &Limiter,
        used: Option<CalendarUsage>,
    ) -> Option<Self> {
        let (calendar, used) = (limiter.calendar()?, used?);
        let period = |usage| Period::new(calendar, limiter.limit(), usage);
        Some(Self {
            tier,
            is_of_tenant,
            name: name.to_string(),
            limit: limiter.limit(),
            calendar: calendar.to_string(),
            current: period(used.current),
            previous: used.previous.map(period),
        })
    }
}

impl Period {
    fn new(calendar: &Calendar, limit: u64, PeriodUsage { span, used }: PeriodUsage) -> Self {
        Self {
            start: calendar.time_of(span.start_at).to_string(),
            end: calendar.time_of(span.end_at).to_string(),
            start_utc: CalendarTime::utc(span.start_at).to_string(),
            end_utc: CalendarTime::utc(span.end_at).to_string(),
            used,
            remaining: limit.saturating_sub(used),
            over_limit: used.saturating_sub(limit),
        }
    }
}

impl UsageReport<'_> {
    /// The report in this format.
    pub(crate) fn text(&self, format: UsageFormat) -> String {
        match format {
            UsageFormat::Json => serde_json::to_string(self).unwrap_or_default(),
            UsageFormat::Csv => self.csv(),
        }
    }

    /// One line for each client, quota and period; each part of a key has a column.
    fn csv(&self) -> String {
        let parts = self.keys.iter().map(|used| used.key.len()).max().unwrap_or(0);
        let names: Vec<String> = (0..parts).map(|i| format!("key[{i}]")).collect();
        let mut text = String::new();
        let keys = names.iter().map(String::as_str);
        write_line(COLUMNS.0.into_iter().chain(keys).chain(COLUMNS.1), &mut text);
        for of_key in &self.keys {
            for quota in &of_key.quotas {
                let periods =
                    [("current", Some(&quota.current)), ("previous", quota.previous.as_ref())];
                for (name, period) in periods {
                    let Some(period) = period else { continue };
                    self.write_period(of_key, parts, quota, (name, period), &mut text);
                }
            }
        }
        text
    }

    fn write_period(
        &self,
        of_key: &KeyUsage<'_>,
        parts: usize,
        quota: &QuotaUsage,
        (name, period): (&str, &Period),
        out: &mut String,
    ) {
        let absent = parts.saturating_sub(of_key.key.len());
        let key = of_key.key.iter().map(String::as_str).chain(iter::repeat_n("", absent));
        let numbers = [quota.limit, period.used, period.remaining, period.over_limit];
        let [limit, used, remaining, over_limit] = numbers.map(|number| number.to_string());
        let values = [
            of_key.tenant.unwrap_or_default(),
            &of_key.pk,
            quota.tier.as_deref().unwrap_or_default(),
            if quota.is_of_tenant { "true" } else { "false" },
            &quota.name,
            self.unit.unwrap_or_default(),
            &limit,
            name,
            &period.start,
            &period.end,
            &period.start_utc,
            &period.end_utc,
            &used,
            &remaining,
            &over_limit,
            &of_key.at,
        ];
        write_line([self.rule].into_iter().chain(key).chain(values), out);
    }
}

/// The columns before and after those of the key.
const COLUMNS: ([&str; 1], [&str; 16]) = (
    ["rule"],
    [
        "tenant",
        "pk",
        "tier",
        "is_of_tenant",
        "quota",
        "unit",
        "limit",
        "period",
        "start",
        "end",
        "start_utc",
        "end_utc",
        "used",
        "remaining",
        "over_limit",
        "at",
    ],
);

/// The quotas by calendar in which clients of a rule may count.
pub(crate) fn by_calendar(policy: &Policy, rule: &Rule) -> usize {
    let quotas = rule.quota_sets(policy).flat_map(QuotaSet::quotas);
    quotas.filter(|quota| quota.limiter().calendar().is_some()).count()
}
