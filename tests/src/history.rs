//! Checks the responses of a fleet against the commands that its engine received, in the order of
//! the commits.
//!
//! A commit is compare-and-swap on a value that has a random tag, so the values of each key form
//! chains: a commit follows the one whose value it expected. The checks are: the engine let one
//! commit follow each value; no commit rests on a value that was never written; the core reaches
//! each value from the one before by allowing requests one after the other, and denies none of
//! those charged; and every admission reported to a client was charged by a commit that the engine
//! had acknowledged before.
//!
//! Invariant: only the core defines what may be allowed. Two commits on one value are a fault of
//! the engine, unless the test declares that a failover may have lost writes: then commits that are
//! not in the chain of the final value are listed as lost.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use tollgate_core::Timestamp;
use tollgate_language::DescribedRequest;
use tollgate_policy::{Plan, Surface};
use tollgate_storage::Counts;

/// The length of the part of a value before the row: its version, and the tag.
const HEAD: usize = 17;
/// More than the number of requests for one key in any test.
const MOST: u64 = 1_000_000;

/// The engine's reply to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitReply {
    /// No reply was received.
    Nothing,
    /// The expected value was found; known since this time.
    Done(Instant),
    /// Nothing was written.
    Refused,
}

/// One commit, as sent to the engine; an absent value is an empty one.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The key in the engine.
    pub key: Vec<u8>,
    /// The value that must be present.
    pub expected: Vec<u8>,
    /// The new value; `None` where the replies only rest on the present value.
    pub new: Option<Vec<u8>>,
    /// The engine's time of the decision, in milliseconds.
    pub at_ms: u64,
    /// The reply.
    pub reply: CommitReply,
}

/// The messages that every request for a key sends to the core.
pub struct Judge {
    check: Vec<u8>,
    look: Vec<u8>,
}

impl Judge {
    /// For requests like the described one, which one rule of the policy counts in one key.
    pub fn new(policy: &str, described: &str) -> Self {
        let policy = tollgate_language::compile(policy, Surface::Server).expect("a policy");
        let facts = DescribedRequest::parse(described.as_bytes()).expect("a request");
        let mut plan = Plan::new();
        policy.plan(&facts, &mut plan);
        let partition = plan.partition(0).expect("a key");
        let (mut check, mut look) = (Vec::new(), Vec::new());
        partition.request(&policy, &mut check);
        partition.peek_request(&policy, &mut look);
        Self { check, look }
    }

    /// The number of requests that the core allows one after the other at `at_ms`, from `before`
    /// until its state is that of `after`; `None` when it never is.
    fn charges(&self, before: &[u8], after: &[u8], at_ms: u64) -> Option<u64> {
        let now = Timestamp::from_nanos(at_ms.checked_mul(1_000_000)?);
        let (mut counts, after) = (read(before)?, self.seen(&read(after)?, now)?);
        for charged in 0..MOST {
            if self.seen(&counts, now)? == after {
                return Some(charged);
            }
            let answered = counts.answer(&self.check, now).ok()?;
            if !is_charged(&answered.reply) {
                return None;
            }
        }
        None
    }

    /// The core's reply to a look at a state.
    fn seen(&self, counts: &Counts, now: Timestamp) -> Option<Vec<u8>> {
        Some(counts.clone().answer(&self.look, now).ok()?.reply)
    }
}

fn read(value: &[u8]) -> Option<Counts> {
    if value.is_empty() { Some(Counts::default()) } else { Counts::decode(value.get(HEAD..)?) }
}

/// True when a reply to a check reports that the request was charged.
pub fn is_charged(reply: &[u8]) -> bool {
    reply.first() == Some(&0) && reply.get(9).is_some_and(|flags| flags & 1 != 0)
}

/// Whether an engine may have lost acknowledged writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// It must not.
    Keeps,
    /// A replica may have taken over that had not received all writes.
    MayLose,
}

/// The facts about one key.
pub struct Key<'a> {
    /// The key in the engine.
    pub name: &'a [u8],
    /// `None` where charges also come from leases: then only the chain is checked.
    pub judge: Option<&'a Judge>,
    /// The times at which clients learned that they were allowed.
    pub told: &'a [Instant],
    /// The final value; empty for none.
    pub stands: &'a [u8],
}

/// The totals of a key's history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Commits that wrote, including those that were lost.
    pub commits: u64,
    /// Admissions that they charged, including those that were lost.
    pub charged: u64,
    /// Commits that were lost.
    pub lost_commits: u64,
    /// Admissions that lost commits had charged.
    pub lost: u64,
    /// Charged, but reported to no client: a process died in between.
    pub untold: u64,
}

impl History {
    /// Adds another history's totals.
    pub const fn add(&mut self, other: &Self) {
        self.commits += other.commits;
        self.charged += other.charged;
        self.lost_commits += other.lost_commits;
        self.lost += other.lost;
        self.untold += other.untold;
    }
}

/// Checks the history of a key.
///
/// # Errors
/// A violation by the fleet or by the engine.
pub fn check(all: &[Commit], key: &Key<'_>, engine: Engine) -> Result<History, String> {
    let of_key: Vec<&Commit> = all.iter().filter(|commit| commit.key == key.name).collect();
    let done = done(&of_key, key.stands);
    rests_on_written(&of_key, &done)?;
    let kept = kept(&done, key.stands, engine)?;
    let mut history = History::default();
    let mut charges: Vec<Option<Instant>> = Vec::new();
    for commit in &done {
        let Some(new) = &commit.new else { continue };
        let charged = match key.judge {
            None => 0,
            Some(judge) => judge.charges(&commit.expected, new, commit.at_ms).ok_or_else(|| {
                let (from, to) = (tag(&commit.expected), tag(new));
                format!("the core does not come from {from} to {to} at {}", commit.at_ms)
            })?,
        };
        history.commits += 1;
        history.charged += charged;
        if !kept.contains(new) {
            history.lost_commits += 1;
            history.lost += charged;
        }
        let known_at = if let CommitReply::Done(at) = commit.reply { Some(at) } else { None };
        charges.extend((0..charged).map(|_| known_at));
    }
    if key.judge.is_some() {
        history.untold = told(charges, key.told)?;
    }
    Ok(history)
}

/// The commits that were done: those that the engine acknowledged, and those without a reply whose
/// value was seen afterwards.
fn done<'a>(of_key: &[&'a Commit], stands: &[u8]) -> Vec<&'a Commit> {
    let seen: HashSet<&[u8]> = of_key.iter().map(|commit| &*commit.expected).collect();
    let is_done = |commit: &&&Commit| match commit.reply {
        CommitReply::Done(_) => true,
        CommitReply::Refused => false,
        CommitReply::Nothing => commit
            .new
            .as_deref()
            .is_some_and(|new| !new.is_empty() && (seen.contains(new) || new == stands)),
    };
    of_key.iter().filter(is_done).copied().collect()
}

/// No commit that was done, including that of a denial, rests on bytes that were never written.
fn rests_on_written(of_key: &[&Commit], done: &[&Commit]) -> Result<(), String> {
    let written: HashSet<&[u8]> = of_key.iter().filter_map(|it| it.new.as_deref()).collect();
    for commit in done {
        if !commit.expected.is_empty() && !written.contains(&*commit.expected) {
            return Err(format!("nobody wrote {}", tag(&commit.expected)));
        }
    }
    Ok(())
}

/// The values of the chain that ends in the final value.
fn kept(done: &[&Commit], stands: &[u8], engine: Engine) -> Result<HashSet<Vec<u8>>, String> {
    let mut after: BTreeMap<&[u8], u32> = BTreeMap::new();
    let mut before: HashMap<&[u8], &[u8]> = HashMap::new();
    for commit in done {
        let Some(new) = &commit.new else { continue };
        if before.insert(new, &commit.expected).is_some() && !new.is_empty() {
            return Err(format!("two commits wrote {}", tag(new)));
        }
        *after.entry(&commit.expected).or_default() += 1;
    }
    let mut kept = HashSet::new();
    let mut at = stands;
    while !at.is_empty() && kept.insert(at.to_vec()) {
        at = before.get(at).ok_or_else(|| format!("{} stands there from nobody", tag(at)))?;
    }
    if engine == Engine::Keeps {
        if let Some((value, count)) = after.iter().find(|(_, count)| **count > 1) {
            return Err(format!("{count} commits follow {}", tag(value)));
        }
        let is_kept = |commit: &&Commit| commit.new.as_ref().is_none_or(|new| kept.contains(new));
        if let Some(lost) = done.iter().find(|commit| !is_kept(commit)) {
            return Err(format!(
                "{} does not stand there",
                tag(lost.new.as_deref().unwrap_or_default())
            ));
        }
    }
    Ok(kept)
}

/// Checks that every admission reported to a client has a charge of its own that was known before;
/// returns the number of charges reported to no client.
fn told(charges: Vec<Option<Instant>>, told: &[Instant]) -> Result<u64, String> {
    let mut known: Vec<Instant> = charges.iter().copied().flatten().collect();
    let unknown = charges.len() - known.len();
    let mut told = told.to_vec();
    known.sort_unstable();
    told.sort_unstable();
    if told.len() > charges.len() {
        return Err(format!("{} admissions were told, {} charged", told.len(), charges.len()));
    }
    // A server that looked for its own tag after a call without a reply knows of the charge; the
    // time at which it learned this is unknown.
    for (i, at) in told.iter().enumerate() {
        let is_late = i >= unknown && known.get(i - unknown).is_none_or(|known| known > at);
        if is_late {
            return Err(format!("admission {i} was told before its commit was acknowledged"));
        }
    }
    Ok((charges.len() - told.len()) as u64)
}

/// The tag of a value, for display.
fn tag(value: &[u8]) -> String {
    let bytes = value.get(1..HEAD).unwrap_or_default();
    if bytes.is_empty() {
        return "nothing".to_owned();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DESCRIBED: &str = r#"{"method": "GET", "path": "/", "client_ip": "192.0.2.1"}"#;

    fn judge(limit: u64) -> Judge {
        let policy = format!(
            r#"{{"version": 1, "rules": [{{"name": "r", "key": ["client_ip"], "quotas":
               [{{"algorithm": "fixed-window", "limit": {limit}, "window": "1h"}}]}}]}}"#
        );
        Judge::new(&policy, DESCRIBED)
    }

    /// Commits of this many admissions each, in a chain, a millisecond apart.
    fn history(judge: &Judge, admissions: &[u64], began: Instant) -> (Vec<Commit>, Vec<Instant>) {
        let (mut counts, mut value) = (Counts::default(), Vec::new());
        let (mut all, mut told) = (Vec::new(), Vec::new());
        for (i, count) in admissions.iter().enumerate() {
            let (number, at_ms) = (u8::try_from(i).unwrap(), 1_780_000_000_000 + i as u64);
            let now = Timestamp::from_nanos(at_ms * 1_000_000);
            for _ in 0..*count {
                assert!(is_charged(&counts.answer(&judge.check, now).unwrap().reply));
            }
            let mut new = vec![1];
            new.extend([number; 16]);
            counts.encode(now, &mut new);
            let at = began + Duration::from_millis(2 * i as u64);
            told.extend((0..*count).map(|_| at + Duration::from_millis(1)));
            let (key, expected) = (b"k".to_vec(), value);
            value = new.clone();
            all.push(Commit { key, expected, new: Some(new), at_ms, reply: CommitReply::Done(at) });
        }
        (all, told)
    }

    fn checked(
        all: &[Commit],
        judge: &Judge,
        told: &[Instant],
        engine: Engine,
    ) -> Result<History, String> {
        let stands = all.last().and_then(|last| last.new.clone()).unwrap();
        check(all, &Key { name: b"k", judge: Some(judge), told, stands: &stands }, engine)
    }

    #[test]
    fn what_a_fleet_may_do_passes_in_any_order_of_the_record() {
        let judge = judge(10);
        let (mut all, mut told) = history(&judge, &[3, 0, 5, 2], Instant::now());
        let good = History { commits: 4, charged: 10, ..History::default() };
        assert_eq!(checked(&all, &judge, &told, Engine::Keeps), Ok(good));
        // Two commits whose replies were never received, and one that was not done.
        told.truncate(8);
        all[1].reply = CommitReply::Nothing;
        let refused =
            Commit { reply: CommitReply::Refused, new: Some(vec![1; 40]), ..all[2].clone() };
        all.insert(0, refused);
        all.swap(1, 2);
        let some = History { untold: 2, ..good };
        assert_eq!(checked(&all, &judge, &told, Engine::Keeps), Ok(some));
    }

    #[test]
    fn two_commits_on_one_value_are_found_or_lost() {
        let judge = judge(10);
        let (mut all, told) = history(&judge, &[3, 5], Instant::now());
        let mut other = all[1].clone();
        other.new.as_mut().unwrap()[1] = 77;
        all.insert(1, other);
        let told = [told.clone(), told[3..].to_vec()].concat();
        assert!(checked(&all, &judge, &told, Engine::Keeps).unwrap_err().contains("2 commits"));
        let lost = History { commits: 3, charged: 13, lost_commits: 1, lost: 5, untold: 0 };
        assert_eq!(checked(&all, &judge, &told, Engine::MayLose), Ok(lost));
    }

    #[test]
    fn what_the_core_does_not_admit_is_found() {
        // Eleven admissions under a limit of eleven are not a valid history under a limit of ten.
        let (more, ten) = (judge(11), judge(10));
        let (all, told) = history(&more, &[6, 5], Instant::now());
        assert!(checked(&all, &ten, &told, Engine::MayLose).is_err());
        // A value that returns to an earlier one.
        let (mut all, told) = history(&ten, &[3, 5, 1], Instant::now());
        let (first, last) = (all[0].new.clone().unwrap(), all[2].new.as_mut().unwrap());
        last.splice(HEAD.., first[HEAD..].iter().copied());
        assert!(checked(&all, &ten, &told, Engine::Keeps).unwrap_err().contains("does not come"));
    }

    #[test]
    fn a_commit_that_is_missing_is_found() {
        let judge = judge(10);
        let (mut all, told) = history(&judge, &[3, 5, 1], Instant::now());
        all.remove(1);
        assert!(checked(&all, &judge, &told, Engine::MayLose).unwrap_err().contains("nobody"));
        let (mut all, told) = history(&judge, &[3, 5], Instant::now());
        all[1].reply = CommitReply::Refused;
        assert!(checked(&all, &judge, &told, Engine::Keeps).is_err());
    }

    #[test]
    fn an_admission_without_or_before_its_commit_is_found() {
        let judge = judge(10);
        let began = Instant::now();
        let (all, told) = history(&judge, &[3, 5], began);
        let more = [&told[..], &[began]].concat();
        assert!(checked(&all, &judge, &more, Engine::Keeps).unwrap_err().contains("9 admissions"));
        let mut early = told;
        early[7] = began;
        let found = checked(&all, &judge, &early, Engine::Keeps).unwrap_err();
        assert!(found.contains("before its commit"), "{found}");
    }
}
