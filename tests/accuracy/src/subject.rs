//! The limiters that are measured: every algorithm of the core with every option that it has.
//!
//! Invariant: nothing is listed twice. The algorithms are `Algorithm::ALL`. The core determines
//! whether one has a burst or strictness, because it rejects combinations that it cannot hold.

use tollgate_core::{Algorithm, DEFAULT_BUCKETS, Limiter, MAX_BUCKETS, Quota, Span};

/// A limiter and its name in tables.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The algorithm, and the options that differ from the default.
    pub name: String,
    /// The limiter.
    pub limiter: Limiter,
}

/// The options besides the algorithm.
#[derive(Clone, Copy, Debug)]
struct Options {
    burst: Option<u64>,
    is_strict: bool,
}

/// Every algorithm at `limit` per `window`: with its defaults, with each of `bursts`, and each of
/// these strict; rolling windows in each of `parts` parts.
///
/// Combinations that an algorithm cannot hold are left out, and so is a burst that equals the
/// limit, which is the default.
#[must_use]
pub fn subjects(limit: u64, window: Span, bursts: &[u64], parts: &[u16]) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for algorithm in Algorithm::ALL.into_iter().flat_map(|algorithm| in_parts(algorithm, parts)) {
        let given = bursts.iter().filter(|burst| **burst != limit).map(|burst| Some(*burst));
        for burst in [None].into_iter().chain(given) {
            for is_strict in [false, true] {
                let options = Options { burst, is_strict };
                subjects.extend(subject(algorithm, limit, window, options));
            }
        }
    }
    subjects
}

/// The same algorithm in each of `parts`, also weighted; or alone if its window has no parts.
fn in_parts(algorithm: Algorithm, parts: &[u16]) -> Vec<Algorithm> {
    if algorithm.buckets().is_none() {
        return vec![algorithm];
    }
    let parted = parts.iter().map(|buckets| algorithm.with_buckets(*buckets));
    parted.flat_map(|algorithm| [algorithm, algorithm.weighted()]).collect()
}

/// `None` if the core rejects it, or if the options do not change its decisions.
fn subject(algorithm: Algorithm, limit: u64, window: Span, options: Options) -> Option<Subject> {
    let mut quota = Quota::new(limit, window).expect("a limit and a window of ours");
    if let Some(burst) = options.burst {
        quota = quota.with_burst(burst).ok()?;
    }
    let without = Limiter::new(algorithm, quota).ok()?;
    if options.is_strict {
        quota = quota.strict();
    }
    let limiter = Limiter::new(algorithm, quota).ok()?;
    // Strictness does not change an algorithm that never exceeds its limit.
    let is_same = options.is_strict && without.max_in_window() == limit;
    let name = name_of(&limiter);
    (!is_same).then_some(Subject { name, limiter })
}

/// `gcra, burst limit / 2, strict`: the same at every limit, so that tables can use one row.
fn name_of(limiter: &Limiter) -> String {
    let quota = limiter.quota();
    let mut name = limiter.algorithm().name().to_owned();
    if quota.burst() == half(quota.limit()) && quota.limit() > 1 {
        name.push_str(", burst limit / 2");
    } else if quota.burst() != quota.limit() {
        name.push_str(&format!(", burst {}", quota.burst()));
    }
    if let Some(buckets) = limiter.algorithm().buckets() {
        name.push_str(&format!(", {buckets} parts"));
    }
    if limiter.algorithm().is_weighted() {
        name.push_str(", weighted");
    }
    if quota.is_strict() {
        name.push_str(", strict");
    }
    name
}

/// Half of a limit, rounded down: the burst that leaves a strict quota room to regrow.
#[must_use]
pub const fn half(limit: u64) -> u64 {
    limit / 2
}

/// The numbers of parts in tables: the default and the most.
pub const PARTS: [u16; 2] = [DEFAULT_BUCKETS, MAX_BUCKETS];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_is_there_with_its_options_and_no_name_twice() {
        let subjects = subjects(10, Span::from_secs(60), &[5, 10, 20], &PARTS);
        for algorithm in Algorithm::ALL {
            assert!(subjects.iter().any(|one| one.name.starts_with(algorithm.name())));
        }
        for (i, one) in subjects.iter().enumerate() {
            assert!(subjects[..i].iter().all(|other| other.name != one.name), "{}", one.name);
        }
        let has = |name: &str| subjects.iter().any(|one| one.name == name);
        for name in ["gcra", "gcra, strict", "gcra, burst limit / 2, strict", "gcra, burst 20"] {
            assert!(has(name), "{name}");
        }
        for name in ["sliding-window, strict", "sliding-buckets, 360 parts", "sliding-log"] {
            assert!(has(name), "{name}");
        }
        for name in ["gcra, burst 10", "fixed-window, strict", "gcra, burst 20, strict"] {
            assert!(!has(name), "{name}");
        }
    }
}
