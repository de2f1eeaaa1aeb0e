//! What replies say of the node that they come from: its clock, whether it answers, and for how
//! long it has been the one that knows all leases.
//!
//! Invariant: a node that was not heard, or by another connection, is steady from then on only.

use tollgate_core::{Span, Timestamp};

use crate::commit::call::Reply;
use crate::commit::committer::Committer;
use crate::commit::lane::Lane;
use crate::commit::tally::Tally;

impl<T> Committer<T> {
    /// By which connection the node `lane` is asked from now on; a number above 0. With another one
    /// than before it may be another node, or one that lost writes: nothing is leased for a while.
    pub fn connected(&mut self, lane: usize, connection: u64) {
        self.know_lane(lane);
        if let Some(lane) = self.lanes.get_mut(lane).filter(|it| it.connection != connection) {
            lane.connection = connection;
            lane.steady.disturb();
        }
    }

    /// The node `lane` lost what it had, by the connection that is known: nothing is leased for a
    /// while.
    pub fn emptied(&mut self, lane: usize) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.steady.disturb();
        }
    }

    /// What another committer heard first by a connection: the node's `time`, in a reply to what
    /// was `sent` and came back at `received`. Nobody is to hear it once more to lease.
    pub fn heard(
        &mut self,
        (lane, connection): (usize, u64),
        time: Timestamp,
        sent: Span,
        received: Span,
    ) {
        self.connected(lane, connection);
        if let Some(lane) = self.lanes.get_mut(lane).filter(|it| !it.steady.is_known()) {
            lane.steady.hear(time, sent, received);
        }
    }

    /// Makes room for what is known of a node.
    pub(crate) fn know_lane(&mut self, lane: usize) {
        while self.lanes.len() <= lane {
            self.lanes.push(Lane::new(&self.settings));
        }
    }

    /// What a reply says of its node.
    pub(crate) fn hear(&mut self, number: usize, sent: Span, reply: &Reply, mono: Span) {
        let Some(lane) = self.lanes.get_mut(number) else { return };
        match reply {
            Reply::Done { time } | Reply::Alone { time, .. } | Reply::Mismatch { time, .. } => {
                lane.clock.hear(*time, sent, mono);
                lane.steady.hear(*time, sent, mono);
                lane.window.done();
                lane.lacks_script = false;
            }
            Reply::OtherTime { time, .. } => {
                Tally::add(&mut self.tally.other_times);
                lane.steady.hear(*time, sent, mono);
                if lane.clock.was_refused(*time, sent, mono) {
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
            // It was not sent, or the node sends us on, perhaps to itself: nodes may do that
            // without end, so it tells nothing of this one.
            Reply::Elsewhere { .. } => return lane.breaker.untold(),
            Reply::Unknown(_) | Reply::Refused(_) | Reply::Stands(_) => {}
        }
        lane.breaker.answered(&self.settings);
    }
}
