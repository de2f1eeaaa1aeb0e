//! Compares the suggestions with a naive oracle; checks their bounds and the second pass.
#![allow(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::float_arithmetic)]

use super::counts::Counts;
use super::*;
use std::collections::BTreeMap;
use tollgate_core::{Algorithm, Quota, Span, Verdict};
use tollgate_policy::Surface;
use tollgate_test_support::Random;

/// A request: key, time in nanoseconds, cost.
type KeyUse = (u64, u64, u64);

/// Bursts and pauses of a few keys, on a coarse grid so that times meet the window's edge.
fn trace(seed: u64, keys: u64, len: usize, grid: u64) -> Vec<KeyUse> {
    let mut random = Random::new(seed);
    let mut at = random.below(3) * grid;
    let mut asked = Vec::new();
    while asked.len() < len {
        at += match random.below(8) {
            0 => grid * random.below(40),
            1..4 => grid,
            _ => 0,
        };
        let key = random.below(keys).min(random.below(keys));
        let cost = match random.below(20) {
            0 => 0,
            1 => 1 + random.below(9),
            2 if keys > 90 => 5_000_000_000 + random.below(2),
            _ => 1,
        };
        asked.push((hash(key), at, cost));
    }
    asked
}

/// A hash like the engine's: all 64 bits are spread.
fn hash(key: u64) -> u64 {
    Random::new(key).number()
}

/// The greatest sum of any half-open window, from every window that ends with a request.
fn oracle(asked: &[KeyUse], window: u64) -> BTreeMap<u64, u64> {
    let mut peaks = BTreeMap::new();
    for (last, (key, end, _)) in asked.iter().enumerate() {
        let is_in_window = |asked: &&KeyUse| end - asked.1 < window;
        let in_window = asked[..=last].iter().rev().take_while(is_in_window);
        let sum = in_window.filter(|(other, ..)| other == key).map(|asked| asked.2).sum();
        let peak: &mut u64 = peaks.entry(*key).or_default();
        *peak = (*peak).max(sum);
    }
    peaks
}

fn counted(asked: &[KeyUse], window: u64, bounds: Bounds) -> Counts {
    let mut counts = Counts::new(Span::from_nanos(window), bounds);
    for (key, at, cost) in asked {
        counts.push(*key, Timestamp::from_nanos(*at), *cost);
    }
    counts
}

#[test]
fn below_the_bounds_counts_are_those_of_the_oracle() {
    let mut greatest = 0;
    for seed in 0..60 {
        let keys = [1, 3, 20, 100][seed as usize % 4];
        let asked = trace(seed, keys, 400, 1_000_000);
        for window in [1_000_000, 7_000_000, 10_500_001, 60_000_000] {
            let counts = counted(&asked, window, Bounds::default());
            let peaks: BTreeMap<u64, u64> =
                counts.keys().iter().map(|key| (key.hash, key.peak)).collect();
            assert_eq!(peaks, oracle(&asked, window), "seed {seed}, window {window}");
            assert_eq!(counts.requests(), 400);
            assert!(counts.one_in() == 1 && counts.keys().iter().all(|key| !key.in_parts));
            greatest = greatest.max(peaks.into_values().max().unwrap_or(0));
        }
    }
    assert!(greatest > 5_000_000_000, "costs beyond 32 bits were counted: {greatest}");
}

/// Beyond its log a key is counted in parts: never below the true count, and never above that of a
/// window longer by one part.
#[test]
fn beyond_the_log_counts_are_at_least_the_oracles_and_less_than_a_part_more() {
    let (mut more, mut in_parts) = (0, 0);
    for seed in 0..8 {
        // Of 9,000 steps, so that the longest windows, of 4,096 parts of a step or two, move.
        let asked = trace(seed, 3, 3000, 10_000);
        for (log, window) in [(1, 100_000), (4, 1_000_000), (16, 40_960_000), (1, 61_440_000)] {
            let counts = counted(&asked, window, Bounds { log, ..Bounds::default() });
            let least = oracle(&asked, window);
            let most = oracle(&asked, window + counts.part().as_nanos());
            for key in counts.keys() {
                let (least, most) = (least[&key.hash], most[&key.hash]);
                assert!((least..=most).contains(&key.peak), "{seed}: {least} {} {most}", key.peak);
                assert!(key.in_parts || key.peak == least);
                more += usize::from(key.peak > least);
                in_parts += usize::from(key.in_parts);
            }
        }
    }
    assert!(in_parts > 80 && more > 5, "{in_parts} {more}");
}

/// A busy key takes at most its log and one entry per part, whatever it sends.
#[test]
fn a_flood_of_one_key_takes_bounded_memory() {
    let flood = (0..300_000).map(|i| (hash(1), i * 10, 1));
    let mut counts = Counts::new(Span::from_millis(2), Bounds::default());
    let mut most = 0;
    for (key, at, cost) in flood {
        counts.push(key, Timestamp::from_nanos(at), cost);
        most = most.max(counts.allocated());
    }
    // 4,096 entries of 16 bytes, 4,097 parts of 24, and the spare capacity of a vector.
    assert!(most < 2 * (4096 * 16 + 4097 * 24) + 1024, "{most}");
    let peak = counts.keys()[0].peak;
    assert!((200_000..=200_000 + 49).contains(&peak), "{peak}");
}

#[test]
fn a_million_keys_of_one_request_take_64_bytes_each_at_most() {
    let mut counts = Counts::new(Span::from_secs(60), Bounds::default());
    for i in 0..1_000_000 {
        counts.push(hash(i), Timestamp::from_millis(i), 1);
    }
    // 60,000 of them are within the window.
    assert!(counts.allocated() < 64 * 1_000_000, "{}", counts.allocated());
    assert_eq!(counts.keys().len(), 1_000_000);
    assert_eq!(counts.find(hash(999_999)), Some(999_999));
}

/// The sketch: a sample of the keys, each counted exactly, with shares within the stated error; and
/// an upper bound of all maxima.
#[test]
fn beyond_the_bound_on_keys_a_sample_is_within_its_stated_error() {
    let (window, keys) = (Span::from_secs(10), 60_000);
    for (seed, bounds) in [
        (1, Bounds { keys: 10_000, ..Bounds::default() }),
        (2, Bounds { keys: 3000, ..Bounds::default() }),
        (3, Bounds { live: 2000, ..Bounds::default() }),
    ] {
        let mut random = Random::new(seed);
        // Key k sends 1 to 40 times in a row, few keys often.
        let mut asked = Vec::new();
        for key in 0..keys {
            let busy = 1 + 39 / (1 + random.below(200));
            let from = random.below(600_000);
            asked.extend((0..busy).map(|i| (hash(key), (from + i * 100) * 1_000_000, 1)));
        }
        asked.sort_by_key(|(_, at, _)| *at);
        let exact = counted(&asked, window.as_nanos(), Bounds::default());
        let sample = counted(&asked, window.as_nanos(), bounds);
        assert!(exact.one_in() == 1 && sample.one_in() > 1);
        assert!(sample.keys().len() <= bounds.keys);
        let truth = |hash| exact.keys()[exact.find(hash).unwrap() as usize].peak;
        for key in sample.keys() {
            assert_eq!(key.peak, truth(key.hash), "who is in the sample is counted exactly");
        }
        let exact = Peaks::new(exact.keys().iter().map(|key| key.peak));
        let kept = Peaks::new(sample.keys().iter().map(|key| key.peak));
        let estimated = kept.len() * sample.one_in();
        let off = estimated.abs_diff(keys);
        assert!(off * off < 9 * keys * sample.one_in(), "{estimated} clients of {keys}");
        for share in [Share::USUAL[1], Share::USUAL[2]] {
            let limit = kept.exceeded_by_at_most(share.of(kept.len()));
            // The clients over that limit among all, compared with those in the sample.
            let (of_all, of_kept) = (exact.above(limit) as f64, kept.above(limit) as f64);
            let (of_all, of_kept) = (of_all / keys as f64, of_kept / kept.len() as f64);
            let error = share.error_ppm(kept.len()) as f64 / 1e6;
            assert!((of_all - of_kept).abs() <= error, "{of_all} {of_kept} {error}");
        }
        let max = exact.exceeded_by_at_most(0);
        let bound = sample.given_up_peak().max(kept.exceeded_by_at_most(0));
        assert!((max..max + 10).contains(&bound), "{bound} is never below {max}, and near it");
    }
}

/// The bound for removed keys holds for keys that were busy before, after and across the removal.
#[test]
fn what_is_given_up_is_never_bounded_below_the_truth() {
    for seed in 0..20 {
        let asked = trace(seed, 89, 3000, 1_000_000);
        for window in [5_000_000, 50_000_001] {
            let bounds = Bounds { keys: 30, log: 8, ..Bounds::default() };
            let counts = counted(&asked, window, bounds);
            let kept = counts.keys().iter().map(|key| key.peak).max().unwrap_or(0);
            let max = oracle(&asked, window).into_values().max().unwrap();
            assert!(counts.one_in() > 1);
            assert!(counts.given_up_peak().max(kept) >= max, "seed {seed}, window {window}");
        }
    }
}

fn policy(quotas: &str, key: &str) -> Policy {
    let text =
        format!(r#"{{"version":1,"rules":[{{"name":"each","key":[{key}],"quotas":[{quotas}]}}]}}"#);
    tollgate_language::compile(&text, Surface::Library).unwrap()
}

fn suggested(policy: &Policy, asked: &[KeyUse], bounds: Bounds) -> Vec<Suggestion> {
    let mut first = Suggest::new(policy, bounds);
    for (key, at, cost) in asked {
        first.push(0, *key, Timestamp::from_nanos(*at), *cost);
    }
    let mut second = first.second_pass();
    for (key, at, cost) in asked {
        second.push(0, *key, Timestamp::from_nanos(*at), *cost);
    }
    second.finish()
}

/// The number of keys that this limiter denies at least once when it decides them one by one, and
/// the number of requests that it denies.
fn denied(limiter: &Limiter, asked: &[KeyUse]) -> (u64, u64) {
    let mut states: BTreeMap<u64, (Vec<u8>, u64)> = BTreeMap::new();
    for (key, at, cost) in asked {
        let empty = || (vec![0; limiter.state_len()], 0);
        let (state, denied) = states.entry(*key).or_insert_with(empty);
        let decision = limiter.admit(state, Timestamp::from_nanos(*at), *cost);
        *denied += u64::from(decision.verdict() == Verdict::Deny);
    }
    let denied = states.values().map(|(_, denied)| *denied);
    (denied.clone().filter(|denied| *denied > 0).count() as u64, denied.sum())
}

fn denied_keys(limiter: &Limiter, asked: &[KeyUse]) -> u64 {
    denied(limiter, asked).0
}

/// For every algorithm: the line in the policy, applied to the whole trace, affects exactly as many
/// clients as the second pass reports, although that skipped keys it could not affect.
#[test]
fn the_replayed_share_is_that_of_the_line() {
    let (mut raised, mut lowered, mut curved) = (0, 0, 0);
    for seed in 0..3 {
        let asked = trace(seed, 80 + seed % 2 * 400, 3000, 250_000_000);
        let asked: Vec<KeyUse> =
            asked.into_iter().map(|(k, at, cost)| (k, at, cost.min(9))).collect();
        let peaks = oracle(&asked, 10_000_000_000);
        for algorithm in Algorithm::ALL {
            for strict in [false, true] {
                let name = algorithm.name();
                let quota = format!(r#"{{"limit":3,"window":"10s","algorithm":"{name}"}}"#);
                let quota = if strict { quota.replace('}', r#","strict":true}"#) } else { quota };
                let text = format!(
                    r#"{{"version":1,"rules":[{{"name":"each","key":["client_ip"],"quotas":[{quota}]}}]}}"#
                );
                let Ok(policy) = tollgate_language::compile(&text, Surface::Library) else {
                    continue;
                };
                let suggestion = &suggested(&policy, &asked, Bounds::default())[0];
                let keys = suggestion.clients;
                let now = *policy.quota_sets()[0].quotas()[0].limiter();
                for CurveLimit { limit, exceed, replayed } in &suggestion.curve {
                    let Ok(limiter) = at_limit(&now, *limit) else { continue };
                    let (clients, requests) = denied(&limiter, &asked);
                    assert_eq!(
                        *replayed,
                        Some(CurveReplayed { clients, requests }),
                        "{name} {limit}"
                    );
                    let above = peaks.values().filter(|peak| *peak > limit).count() as u64;
                    assert_eq!(*exceed, above, "{name} {limit}");
                    curved += 1;
                }
                for (limit, share) in suggestion.limits.iter().zip(Share::USUAL) {
                    let Some(replayed) = limit.replayed else {
                        assert!(limit.limit.is_none(), "{name}: {limit:?}");
                        continue;
                    };
                    let quota = format!(r#"[{}]"#, limit.line);
                    let line = self::policy(&quota[1..quota.len() - 1], r#""client_ip""#);
                    let limiter = *line.quota_sets()[0].quotas()[0].limiter();
                    let denied = denied_keys(&limiter, &asked);
                    assert_eq!(replayed.touched, denied, "{name} {strict}, seed {seed}: {limit:?}");
                    assert!(replayed.as_wished && replayed.touched <= share.of(keys), "{limit:?}");
                    assert_eq!(replayed.of, keys);
                    // The next lower limit that was tried affects too many.
                    let found = limit.limit.unwrap();
                    let rungs = trial::ladder(&limiter, limit.counted).map(Result::unwrap);
                    let lower = rungs.filter(|rung| rung.quota().limit() < found).last();
                    if let Some(lower) = lower {
                        assert!(denied_keys(&lower, &asked) > share.of(keys), "{name}: {limit:?}");
                    }
                    raised += usize::from(found > limit.counted);
                    lowered += usize::from(found < limit.counted);
                }
            }
        }
    }
    assert!(raised > 5 && lowered > 5, "both directions happen: {raised} {lowered}");
    assert!(curved > 150, "{curved}");
}

/// The log is exact, so its replayed share is the counted one.
#[test]
fn the_log_touches_exactly_who_exceeds_the_limit() {
    let asked = trace(7, 80, 3000, 250_000_000)
        .into_iter()
        .map(|(key, at, cost)| (key, at, cost.min(1)))
        .collect::<Vec<_>>();
    let quota = r#"{"limit":10,"window":"10s","algorithm":"sliding-log"}"#;
    let suggestion = &suggested(&policy(quota, r#""client_ip""#), &asked, Bounds::default())[0];
    for limit in &suggestion.limits {
        assert_eq!(limit.replayed.unwrap().touched, limit.exceed, "{limit:?}");
        assert_eq!(limit.limit, Some(limit.counted));
    }
    assert_eq!(suggestion.limits[0].counted, suggestion.greatest.max);
    assert_eq!(suggestion.limits[1].counted, suggestion.greatest.p99_9);
    assert_eq!(suggestion.limits[2].counted, suggestion.greatest.p99);
}

#[test]
fn several_quotas_are_suggested_one_by_one_and_named() {
    let quotas = r#"{"name":"s","limit":2,"window":"1s"},{"name":"m","limit":9,"window":"1m"}"#;
    let asked: Vec<KeyUse> = (0..40).map(|i| (hash(i % 2), i * 400_000_000, 1)).collect();
    let suggestions = suggested(&policy(quotas, r#""client_ip""#), &asked, Bounds::default());
    let of = |i: usize| (suggestions[i].quota.as_str(), suggestions[i].greatest.max);
    assert_eq!((suggestions.len(), of(0), of(1)), (2, ("s", 2), ("m", 20)));
    let line = &suggestions[1].limits[0].line;
    let expected =
        r#"{ "name": "m", "limit": 17, "window": "1m", "algorithm": "gcra", "burst": 17 }"#;
    assert_eq!(line, expected);
}

#[test]
fn one_count_for_all_gets_its_peak_and_no_limit() {
    let asked: Vec<KeyUse> = (0..40).map(|i| (hash(0), i * 400_000_000, 1)).collect();
    let quota = r#"{"limit":10,"window":"10s"}"#;
    let suggestion = &suggested(&policy(quota, ""), &asked, Bounds::default())[0];
    assert!(!suggestion.per_client && suggestion.limits.is_empty());
    assert_eq!((suggestion.greatest.max, suggestion.clients), (25, 1));
}

#[test]
fn without_a_request_nothing_is_suggested() {
    let quota = r#"{"limit":10,"window":"10s"}"#;
    let suggestion = &suggested(&policy(quota, r#""client_ip""#), &[], Bounds::default())[0];
    assert!(suggestion.per_client && suggestion.limits.is_empty() && suggestion.clients == 0);
}

/// A second pass that would take too much memory is left out, and the suggestion reports no
/// results.
#[test]
fn states_beyond_their_bound_leave_the_second_pass_out() {
    let asked = trace(1, 80, 3000, 250_000_000);
    let quota = r#"{"limit":10,"window":"10s","algorithm":"sliding-window"}"#;
    let policy = policy(quota, r#""client_ip""#);
    let bounds = Bounds { trial: 1000, ..Bounds::default() };
    for limit in &suggested(&policy, &asked, bounds)[0].limits {
        assert_eq!(limit.replayed, None);
        assert_eq!(limit.limit, Some(limit.counted));
    }
    let all = Suggest::new(&policy, Bounds::default()).second_pass().leave_out();
    assert!(all[0].limits.is_empty());
}

/// A log that grew between the passes is noticed.
#[test]
fn keys_that_only_the_second_pass_has_are_counted() {
    let policy = policy(r#"{"limit":10,"window":"10s"}"#, r#""client_ip""#);
    let mut first = Suggest::new(&policy, Bounds::default());
    first.push(0, hash(1), Timestamp::from_nanos(5), 1);
    let mut second = first.second_pass();
    second.push(0, hash(1), Timestamp::from_nanos(5), 1);
    second.push(0, hash(2), Timestamp::from_nanos(5), 1);
    second.push(9, hash(2), Timestamp::from_nanos(5), 1);
    assert_eq!(second.finish()[0].strangers, 1);
}

#[test]
fn a_quota_is_valid_whatever_is_suggested() {
    // Limits from one to the largest, in windows from the shortest to the longest.
    for (limit, millis) in [(1, 1), (999_999, 1), (1, 366 * 86_400_000), (1 << 40, 86_400_000)] {
        let quota = Quota::new(limit, Span::from_millis(millis)).unwrap();
        let now = Limiter::new(Algorithm::Gcra, quota).unwrap();
        let trial = Trial::new(&now, [limit, limit + 1].into_iter(), &[], 1 << 20);
        assert!(trial.outcome(&now, limit, 0).is_some(), "{limit} {millis}");
    }
}

/// 288 clients that send at most 43 in a minute, and 8 abusers that send 632 or more.
fn abused() -> Vec<KeyUse> {
    let mut asked = Vec::new();
    for client in 0..288 {
        let many = 1 + client % 43;
        asked.extend((0..many).map(|i| (hash(client), i * 1_300_000_000 + client, 1)));
    }
    for abuser in 0..8 {
        let many = 632 + abuser * 10;
        asked.extend((0..many).map(|i| (hash(1_000 + abuser), i * 60_000_000_000 / many, 1)));
    }
    asked.sort_by_key(|(_, at, _)| *at);
    asked
}

// Guards: a limit of 363 per minute for 1 % of the clients, which is the rate of the abusers.
#[test]
fn the_gap_below_the_abusers_is_named() {
    let asked = abused();
    let policy = policy(r#"{"limit":10,"window":"1m"}"#, r#""client_ip""#);
    let suggestion = &suggested(&policy, &asked, Bounds::default())[0];
    let gap = suggestion.gap.as_ref().unwrap();
    assert_eq!((gap.clients, gap.is_replayed), (8, true), "{gap:?}");
    assert!(gap.from <= 45 && (300..632).contains(&gap.to), "{gap:?}");
    let now = *policy.quota_sets()[0].quotas()[0].limiter();
    for limit in (gap.from..=gap.to).step_by(7).chain([gap.to]) {
        assert_eq!(denied_keys(&at_limit(&now, limit).unwrap(), &asked), 8, "{limit}");
    }
    let line = gap.line.as_ref().unwrap();
    let line = self::policy(line, r#""client_ip""#);
    assert_eq!(denied_keys(line.quota_sets()[0].quotas()[0].limiter(), &asked), 8);
    // The heaviest clients are listed by usage.
    let heaviest: Vec<u64> = suggestion.heaviest.iter().map(|client| client.greatest).collect();
    assert_eq!(heaviest, [702, 692, 682, 672, 662, 652, 642, 632, 43, 43]);
}

#[test]
fn a_share_of_ones_own_is_suggested_among_the_others() {
    let asked = abused();
    let policy = policy(r#"{"limit":10,"window":"1m"}"#, r#""client_ip""#);
    let mut first = Suggest::new(&policy, Bounds::default()).touching(Share::parse("3%").unwrap());
    for (key, at, cost) in &asked {
        first.push(0, *key, Timestamp::from_nanos(*at), *cost);
    }
    let mut second = first.second_pass();
    for (key, at, cost) in &asked {
        second.push(0, *key, Timestamp::from_nanos(*at), *cost);
    }
    let suggestion = &second.finish()[0];
    let wished: Vec<&str> =
        suggestion.limits.iter().map(|limit| limit.wished_percent.as_str()).collect();
    assert_eq!(wished, ["0", "0.1", "1", "3"]);
    let limit = &suggestion.limits[3];
    let touched = limit.replayed.unwrap();
    assert_eq!((limit.counted, touched.touched, touched.of), (43, 8, 296), "{limit:?}");
}
