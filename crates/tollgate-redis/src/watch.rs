//! Checks whether a node still has its data, with a marker that all servers find there.
//!
//! Invariant: a marker is made once and never written again, so a different marker, or none, shows
//! that the node lost its data while the connection to it stayed the same (`FLUSHALL`, an operator
//! who deletes). Deliberately absent: which keys were lost. A loss between two checks, at most a
//! second apart, is known only at the second one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::commit::Fault;
use tollgate_core::{Span, Timestamp};

use crate::node::Node;
use crate::reply::time_of;
use crate::topology::slot_of;
use crate::transport::Transport;

/// Returns the marker, made if there is none, and the clock. `SET` comes last, as in the script of
/// commits.
const LOOK: &[u8] = b"local time = redis.call('TIME') \
                      local stands = redis.call('GET', KEYS[1]) \
                      if not stands then redis.call('SET', KEYS[1], ARGV[1]) end \
                      return {stands or ARGV[1], time[1], time[2]}";

/// A key of a wanted slot is found by trial: this many trials fail with probability e^-12.
const MAX_TRIES: u32 = 200_000;

/// This many checks without a reply are more than one late reply.
const UNANSWERED: u32 = 3;

/// The checks of the nodes, one at a time.
#[derive(Debug, Default)]
pub(crate) struct NodeChecks {
    pub(crate) watch: tokio::sync::Mutex<CheckHistory>,
    /// How often a node was found to have lost its data.
    emptied: AtomicU64,
    /// Consecutive checks in which some node did not reply.
    unanswered: AtomicU32,
}

impl NodeChecks {
    /// Records whether all nodes replied; returns the nodes that lost their data.
    pub(crate) fn note(&self, results: CheckResults) -> Vec<LostNode> {
        let before = self.unanswered.load(Ordering::Relaxed);
        let unanswered = if results.is_partial { before.saturating_add(1) } else { 0 };
        self.unanswered.store(unanswered, Ordering::Relaxed);
        let lost = u64::try_from(results.lost.len()).unwrap_or(u64::MAX);
        self.emptied.fetch_add(lost, Ordering::Relaxed);
        results.lost
    }

    /// How often a node was found to have lost its data.
    pub(crate) fn emptied(&self) -> u64 {
        self.emptied.load(Ordering::Relaxed)
    }

    /// False after several consecutive checks in which some node did not reply.
    pub(crate) fn are_answered(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) < UNANSWERED
    }
}

/// The results of the last check of each node.
#[derive(Debug, Default)]
pub(crate) struct CheckHistory {
    /// By lane: the connection, the key of the marker, and the marker.
    seen: HashMap<usize, NodeMarker>,
    /// Keys by slot, which are found by trial.
    keys: HashMap<u16, Option<Vec<u8>>>,
}

#[derive(Debug, PartialEq, Eq)]
struct NodeMarker {
    connection: u64,
    key: Vec<u8>,
    marker: Vec<u8>,
}

/// The results of one check of all nodes.
#[derive(Debug, Default)]
pub(crate) struct CheckResults {
    pub(crate) lost: Vec<LostNode>,
    /// Some node did not reply.
    pub(crate) is_partial: bool,
}

/// A node that lost its data, and its clock in the reply to the check `sent` at this time.
#[derive(Debug)]
pub(crate) struct LostNode {
    pub(crate) lane: usize,
    pub(crate) connection: u64,
    pub(crate) time: Timestamp,
    pub(crate) sent: Span,
}

/// The result of checking a node.
#[derive(Debug)]
struct NodeReply {
    connection: u64,
    marker: Vec<u8>,
    time: Timestamp,
}

impl CheckHistory {
    /// Checks every node that has keys; returns those that lost their data. `mono` reads the clock
    /// of all committers. A node that does not reply is checked again the next time.
    pub(crate) async fn check_all(
        &mut self,
        transport: &Transport,
        mono: impl Fn() -> Span,
    ) -> CheckResults {
        let Transport { topology, prefix, timeout, .. } = transport;
        let mut all = CheckResults::default();
        for (lane, slot) in topology.holders() {
            let Some(node) = topology.node(lane) else {
                // Its address is not known yet.
                all.is_partial = true;
                continue;
            };
            let Some(key) = self.key(prefix, slot) else { continue };
            let mut fresh = [0; 16];
            if getrandom::fill(&mut fresh).is_err() {
                continue;
            }
            let sent = mono();
            let results = tokio::time::timeout(*timeout, look(&node, &key, &fresh)).await;
            let Ok(Ok(found)) = results else {
                all.is_partial = true;
                continue;
            };
            let NodeReply { connection, time, .. } = found;
            if self.is_lost(lane, key, found) {
                all.lost.push(LostNode { lane, connection, time, sent });
            }
        }
        all
    }

    /// The key of a marker in `slot`; without one, of a marker anywhere.
    fn key(&mut self, prefix: &str, slot: Option<u16>) -> Option<Vec<u8>> {
        let key = |number: u32| format!("{prefix}epoch:{number}").into_bytes();
        let Some(slot) = slot else { return Some(key(0)) };
        let find = || (0..MAX_TRIES).map(key).find(|key| slot_of(key) == slot);
        self.keys.entry(slot).or_insert_with(find).clone()
    }

    /// Takes the result; true when the node lost its data since the last check on the same
    /// connection.
    fn is_lost(&mut self, lane: usize, key: Vec<u8>, found: NodeReply) -> bool {
        let NodeReply { connection, marker, .. } = found;
        let now = NodeMarker { connection, key, marker };
        let before = self.seen.get(&lane);
        let is_same = |it: &NodeMarker| it.connection == now.connection && it.key == now.key;
        let is_lost = before.is_some_and(|it| is_same(it) && it.marker != now.marker);
        self.seen.insert(lane, now);
        is_lost
    }
}

/// Checks a node; `fresh` becomes the marker where there is none.
async fn look(node: &Node, key: &[u8], fresh: &[u8]) -> Result<NodeReply, Fault> {
    let ready = node.ready().await?;
    let connection = node.number_of(&ready);
    let reply = ready.connection.ask(&[b"EVAL", LOOK, b"1", key, fresh]).await?;
    let Some([marker, seconds, micros]) = reply.parts() else { return Err(Fault::Error) };
    let marker = marker.bytes().ok_or(Fault::Nonsense)?.to_vec();
    let time = time_of(seconds, micros).ok_or(Fault::Nonsense)?;
    Ok(NodeReply { connection, marker, time })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(connection: u64, marker: &str) -> NodeReply {
        NodeReply { connection, marker: marker.into(), time: Timestamp::ZERO }
    }

    #[test]
    fn another_marker_by_the_same_connection_is_a_loss() {
        let mut watch = CheckHistory::default();
        let mut lost = |lane, key: &str, connection, marker| {
            watch.is_lost(lane, key.into(), found(connection, marker))
        };
        assert!(!lost(0, "k", 1, "a"), "the first look");
        assert!(!lost(0, "k", 1, "a"));
        assert!(lost(0, "k", 1, "b"));
        assert!(!lost(0, "k", 1, "b"), "reported once");
        assert!(!lost(0, "k", 2, "c"), "another connection is known to everybody");
        assert!(!lost(0, "other", 2, "d"), "a slot that moved");
        assert!(!lost(1, "other", 2, "e"), "another node");
    }

    #[test]
    fn one_late_answer_says_nothing_and_one_answer_ends_the_doubt() {
        let looks = NodeChecks::default();
        let mut look = |is_partial| {
            looks.note(CheckResults { is_partial, ..CheckResults::default() });
            looks.are_answered()
        };
        assert_eq!([true, true, true, true].map(&mut look), [true, true, false, false]);
        assert_eq!([false, true, true, true].map(&mut look), [true, true, true, false]);
    }

    #[test]
    fn a_marker_is_found_for_every_slot() {
        let mut watch = CheckHistory::default();
        for slot in [0, 1, 8_191, 16_383] {
            let key = watch.key("tollgate:", Some(slot)).map(|key| slot_of(&key));
            assert_eq!(key, Some(slot));
        }
        assert_eq!(watch.key("a:", None).as_deref(), Some(&b"a:epoch:0"[..]));
        // All keys of this prefix are in one slot.
        assert_eq!(watch.key("{a}:", Some(2)), None);
    }
}
