//! A quota at a suggested limit, and its line in a policy.
//!
//! Invariant: the line compiles to exactly the limiter that was replayed.

use tollgate_core::{
    Algorithm, Calendar, CalendarUnit, Limiter, MAX_LIMIT, Quota, QuotaError, Weekday,
};
use tollgate_policy::explain::words::utc_offset;

/// The limiter of `now`, with its algorithm, window and strictness, at another limit: at least 1
/// and at most the maximum in a policy.
///
/// Its burst is the limit, so a client within the limit is never denied for sending everything at
/// once. A strict one of an algorithm with a burst gets half of the limit, rounded up, because with
/// burst = limit it would regain one unit per window.
///
/// # Errors
/// A limit that the algorithm cannot hold: above 1024 by the log.
pub(super) fn at_limit(now: &Limiter, limit: u64) -> Result<Limiter, QuotaError> {
    let limiter = plain_at_limit(now, limit)?;
    Ok(now.penalty().and_then(|penalty| limiter.with_penalty(*penalty)).unwrap_or(limiter))
}

fn plain_at_limit(now: &Limiter, limit: u64) -> Result<Limiter, QuotaError> {
    let quota = now.quota();
    let limit = limit.clamp(1, MAX_LIMIT);
    if let Some(calendar) = now.calendar() {
        return Limiter::new_calendar_window(limit, *calendar);
    }
    let mut new = Quota::new(limit, quota.window())?;
    if quota.is_strict() {
        new = new.strict();
        if now.algorithm().has_burst() {
            new = new.with_burst(limit.div_ceil(2))?;
        }
    }
    Limiter::new(now.algorithm(), new)
}

/// The quota as a line of a policy: `{ "limit": 27, "window": "1m", "algorithm": "gcra", "burst":
/// 27 }`; with its `name` where there is one.
pub(super) fn line(limiter: &Limiter, name: Option<&str>) -> String {
    let quota = limiter.quota();
    let algorithm = limiter.algorithm();
    let mut line = String::from("{ ");
    if let Some(name) = name {
        // The names of quotas are %x20-7E: two characters of them need a backslash.
        let name = name.replace('\\', "\\\\").replace('"', "\\\"");
        line.push_str(&format!("\"name\": \"{name}\", "));
    }
    let in_words = match limiter.calendar().map(Calendar::unit) {
        Some(CalendarUnit::Month { .. }) => "1mo".to_owned(),
        Some(CalendarUnit::Week { .. }) => "1w".to_owned(),
        Some(CalendarUnit::Day | CalendarUnit::Hour) | None => window(quota.window().as_nanos()),
    };
    let limit = quota.limit();
    let algorithm_name = algorithm.name();
    line.push_str(&format!(
        "\"limit\": {limit}, \"window\": \"{in_words}\", \"algorithm\": \"{algorithm_name}\""
    ));
    if let Algorithm::SlidingBuckets { buckets, weighted } = algorithm {
        line.push_str(&format!(", \"buckets\": {buckets}"));
        line.push_str(if weighted { ", \"weighted\": true" } else { "" });
    }
    if algorithm.has_burst() {
        line.push_str(&format!(", \"burst\": {}", quota.burst()));
    }
    if quota.is_strict() {
        line.push_str(", \"strict\": true");
    }
    if let Some(calendar) = limiter.calendar() {
        line.push_str(&calendar_fields(calendar));
    }
    if let Some(penalty) = limiter.penalty() {
        let steps = penalty.steps().map(|step| format!("\"{}\"", window(step.as_nanos())));
        line.push_str(&format!(", \"penalty\": [{}]", steps.collect::<Vec<_>>().join(", ")));
    }
    line.push_str(" }");
    line
}

/// The fields of a quota that counts by a calendar, without those that have their default.
fn calendar_fields(calendar: &Calendar) -> String {
    let mut fields = String::from(", \"align\": \"calendar\"");
    match calendar.unit() {
        CalendarUnit::Month { anchor_day } if anchor_day != 1 => {
            fields.push_str(&format!(", \"anchor_day\": {anchor_day}"));
        }
        CalendarUnit::Week { start } if start != Weekday::Monday => {
            fields.push_str(&format!(", \"week_start\": \"{}\"", start.name()));
        }
        CalendarUnit::Month { .. }
        | CalendarUnit::Week { .. }
        | CalendarUnit::Day
        | CalendarUnit::Hour => {}
    }
    if calendar.utc_offset() != 0 {
        let offset = utc_offset(calendar.utc_offset());
        fields.push_str(&format!(", \"utc_offset\": \"{offset}\""));
    }
    fields
}

/// The window in the largest unit in which it is a whole number; a policy uses whole milliseconds.
fn window(nanos: u64) -> String {
    let millis = nanos / 1_000_000;
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    let whole = units.into_iter().find(|(unit, _)| millis.is_multiple_of(*unit));
    let (unit, name) = whole.unwrap_or((1, "ms"));
    format!("{}{name}", millis.checked_div(unit).unwrap_or(millis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::Span;
    use tollgate_policy::Surface;

    /// Every algorithm, strict or not, at several limits: the line compiles to the replayed
    /// limiter.
    #[test]
    fn the_line_compiles_to_the_limiter_that_was_replayed() {
        let mut seen = 0;
        for algorithm in Algorithm::ALL.map(|algorithm| algorithm.with_buckets(24)) {
            for (millis, strict) in
                [(60_000, false), (60_000, true), (1500, false), (86_400_000, true)]
            {
                let quota = Quota::new(10, Span::from_millis(millis)).unwrap();
                let quota = if strict { quota.strict().with_burst(10).unwrap() } else { quota };
                let Ok(now) = Limiter::new(algorithm, quota) else { continue };
                for limit in [0, 1, 2, 27, 1024] {
                    let new = at_limit(&now, limit).unwrap();
                    let line = line(&new, Some(r#"a "b" \"#));
                    let policy = format!(
                        r#"{{"version":1,"rules":[{{"name":"r","key":["client_ip"],"quotas":[{line}]}}]}}"#
                    );
                    let policy = tollgate_language::compile(&policy, Surface::Envoy)
                        .unwrap_or_else(|problems| panic!("{line}: {problems}"));
                    let quota = &policy.quota_sets()[0].quotas()[0];
                    assert_eq!(*quota.limiter(), new, "{line}");
                    assert_eq!(quota.name(), r#"a "b" \"#);
                    seen += 1;
                }
            }
        }
        assert!(seen > 120, "{seen}");
    }

    #[test]
    fn the_line_of_a_calendar_compiles_to_the_limiter_that_was_replayed() {
        let month = |anchor_day| CalendarUnit::Month { anchor_day };
        let week = |start| CalendarUnit::Week { start };
        for (unit, offset) in [
            (CalendarUnit::Hour, 0),
            (CalendarUnit::Day, -90),
            (week(Weekday::Monday), 0),
            (week(Weekday::Sunday), 840),
            (month(1), 0),
            (month(31), 330),
        ] {
            let calendar = Calendar::new(unit, offset).unwrap();
            let now = Limiter::new_calendar_window(10, calendar).unwrap();
            let new = at_limit(&now, 27).unwrap();
            let line = line(&new, None);
            let policy =
                format!(r#"{{"version":1,"rules":[{{"name":"r","key":[],"quotas":[{line}]}}]}}"#);
            let policy = tollgate_language::compile(&policy, Surface::Envoy)
                .unwrap_or_else(|problems| panic!("{line}: {problems}"));
            let limiter = policy.quota_sets()[0].quotas()[0].limiter();
            assert_eq!((limiter, limiter.limit()), (&new, 27), "{line}");
        }
    }

    #[test]
    fn what_the_algorithm_cannot_hold_is_an_error() {
        let quota = Quota::new(10, Span::from_secs(60)).unwrap();
        let log = Limiter::new(Algorithm::SlidingLog, quota).unwrap();
        assert_eq!(at_limit(&log, 1025), Err(QuotaError::LimitOfAlgorithm { max_limit: 1024 }));
        let gcra = Limiter::new(Algorithm::Gcra, quota).unwrap();
        assert!(at_limit(&gcra, u64::MAX).is_err(), "more than one unit per nanosecond");
    }
}
