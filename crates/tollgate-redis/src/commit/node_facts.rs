//! The facts that replies show about their node: its clock, whether it replies, and for how long it
//! has known all leases.
//!
//! Invariant: a node without a reply so far, or with a new connection, is steady only from its next
//! reply on.

use tollgate_core::{Span, Timestamp};

use crate::commit::call::Reply;
use crate::commit::committer::Committer;
use crate::commit::lane::Lane;
use crate::commit::tally::Tally;

impl<T> Committer<T> {
    /// Sets the connection by which the node `lane` is called from now on; a number above 0. A new
    /// connection may lead to another node, or to one that lost writes: nothing is leased for a
    /// while.
    pub fn connected(&mut self, lane: usize, connection: u64) {
        self.know_lane(lane);
        if let Some(lane) = self.lanes.get_mut(lane).filter(|it| it.connection != connection) {
            lane.connection = connection;
            lane.steady.disturb();
        }
    }

    /// The node `lane` lost its data, on the connection that is known: nothing is leased for a
    /// while.
    pub fn emptied(&mut self, lane: usize) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.steady.disturb();
        }
    }

    /// Takes the first reply that another committer received on a connection: the node's `time`, in
    /// a reply to a call with these `sent` and `received` times. No other committer needs a reply
    /// of its own before it leases.
    pub fn record_shared_reply(
        &mut self,
        (lane, connection): (usize, u64),
        time: Timestamp,
        sent: Span,
        received: Span,
    ) {
        self.connected(lane, connection);
        if let Some(lane) = self.lanes.get_mut(lane).filter(|it| !it.steady.is_known()) {
            lane.steady.record_reply(time, sent, received);
        }
    }

    /// Makes room for the state of a node.
    pub(crate) fn know_lane(&mut self, lane: usize) {
        while self.lanes.len() <= lane {
            self.lanes.push(Lane::new(&self.settings));
        }
    }

    /// Takes the facts about a node from a reply.
    pub(crate) fn record_reply(&mut self, number: usize, sent: Span, reply: &Reply, mono: Span) {
        let Some(lane) = self.lanes.get_mut(number) else { return };
        match reply {
            Reply::Done { time } | Reply::Alone { time, .. } | Reply::Mismatch { time, .. } => {
                lane.clock.record_reply(*time, sent, mono);
                lane.steady.record_reply(*time, sent, mono);
                lane.window.done();
                lane.lacks_script = false;
            }
            Reply::OtherTime { time, .. } => {
                Tally::add(&mut self.tally.other_times);
                lane.steady.record_reply(*time, sent, mono);
                if lane.clock.record_rejection(*time, sent, mono) {
                    Tally::add(&mut self.tally.clocks_set);
                } else {
                    lane.window.late();
                }
                lane.lacks_script = false;
            }
            Reply::NoScript => lane.lacks_script = true,
            Reply::Unknown(fault) | Reply::Refused(fault) if fault.is_silence() => {
                if lane.breaker.failed(mono, &self.settings) {
                    Tally::add(&mut self.tally.opened);
                }
                return;
            }
            // It was not sent, or the node redirects the call, perhaps to itself. Nodes may
            // redirect without end, so this is no evidence about the node.
            Reply::Elsewhere { .. } => return lane.breaker.no_evidence(),
            Reply::Unknown(_) | Reply::Refused(_) | Reply::Stored(_) => {}
        }
        lane.breaker.answered(&self.settings);
    }
}
