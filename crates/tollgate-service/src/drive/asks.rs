//! The requests of a drive, and which of them have a reply.
//!
//! Invariant: a request is sent once, answered at most once, and refunded at most once. A refund
//! uses the place of its charge, with another id, so a late reply to the charge is not its reply.

use alloc::vec::Vec;

use tollgate_policy::Failure;

use crate::lease_course::Ask;
use crate::metrics::Event;

/// A request to a count. No two of a drive are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskId {
    at: usize,
    used_as: Use,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send [this](crate::drive::Drive::request) now; several at the same time.
    Send(AskId),
    /// Replies are missing.
    Wait,
    /// The plan has its outcome.
    Done,
}

/// Why a count has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The store reports an overload: the request is denied, whatever its rules decide.
    Overloaded,
    /// It failed.
    Failed(Failure),
}

/// What became of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a reply that cannot be read is to be counted"]
pub enum Heard {
    /// It was used.
    Used,
    /// It cannot be read, and its count has failed.
    Misread,
    /// A refund has no reply, or none that can be read: cached denials of its count are to be
    /// forgotten, because they may contain the charge that was refunded.
    LostRefund,
    /// It was not asked for, or it came before.
    Unasked,
}

/// What is sent to a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'d> {
    /// The partition of the plan.
    pub partition: usize,
    /// The event that it is counted as.
    pub event: Event,
    /// The request.
    pub ask: Ask<'d>,
}

/// A charge of a request that was allowed.
#[derive(Debug, PartialEq, Eq)]
pub struct Charge {
    /// The partition of the plan.
    pub partition: usize,
    /// The request that charged, and its reply: both are needed to refund it.
    pub request: Vec<u8>,
    /// See `request`.
    pub reply: Vec<u8>,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// The decision, without a charge.
    Look,
    /// The decision and the charge.
    Charge,
    /// The charge's refund.
    Refund,
    /// A report or the effect of a response, which nothing takes back.
    Record,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unsent,
    Sent,
    /// Answered, lost or cancelled.
    Closed,
    /// Answered: something is charged.
    Charged,
}

#[derive(Debug)]
struct Asked {
    partition: usize,
    used_as: Use,
    event: Event,
    state: State,
    request: Vec<u8>,
    reply: Vec<u8>,
}

/// All requests of a drive.
#[derive(Debug, Default)]
pub(super) struct Asks(Vec<Asked>);

impl Asks {
    pub(super) fn add(
        &mut self,
        partition: usize,
        (used_as, event): (Use, Event),
        request: Vec<u8>,
    ) {
        let (state, reply) = (State::Unsent, Vec::new());
        self.0.push(Asked { partition, used_as, event, state, request, reply });
    }

    /// The next request to send; it is sent now.
    pub(super) fn take(&mut self) -> Option<AskId> {
        let mut each = self.0.iter_mut().enumerate();
        let (at, asked) = each.find(|(_, asked)| asked.state == State::Unsent)?;
        asked.state = State::Sent;
        Some(AskId { at, used_as: asked.used_as })
    }

    pub(super) fn are_open(&self) -> bool {
        self.0.iter().any(|asked| asked.state == State::Sent)
    }

    /// True when a reply to `id` is awaited.
    pub(super) fn is_open(&self, AskId { at, used_as }: AskId) -> bool {
        let asked = self.0.get(at).filter(|asked| asked.used_as == used_as);
        asked.is_some_and(|asked| asked.state == State::Sent)
    }

    /// True when the count of `partition` was asked to charge, or has not replied yet.
    pub(super) fn charge_or_await(&self, partition: usize) -> bool {
        let mut its = self.0.iter().filter(|asked| asked.partition == partition);
        its.any(|asked| asked.used_as == Use::Charge || asked.state == State::Sent)
    }

    /// True when a request was sent to the count of `partition`.
    pub(super) fn has_asked(&self, partition: usize) -> bool {
        self.0.iter().any(|asked| asked.partition == partition)
    }

    /// From now on no reply is awaited.
    pub(super) fn give_up(&mut self) {
        let open = self.0.iter_mut().filter(|asked| asked.state == State::Sent);
        open.for_each(|asked| asked.state = State::Closed);
    }

    pub(super) fn request(&self, AskId { at, used_as }: AskId) -> Option<Request<'_>> {
        let asked = self.0.get(at).filter(|asked| asked.used_as == used_as)?;
        let ask = match used_as {
            Use::Look => Ask::Look(&asked.request),
            Use::Charge | Use::Record => Ask::Charge(&asked.request),
            Use::Refund => Ask::Refund(&asked.request, &asked.reply),
        };
        Some(Request { partition: asked.partition, event: asked.event, ask })
    }

    /// Its partition, and whether it is a refund, when a reply to `id` is awaited; from now on none
    /// is.
    pub(super) fn close(&mut self, id: AskId) -> Option<(usize, bool)> {
        let is_open = self.is_open(id);
        let asked = self.0.get_mut(id.at).filter(|_| is_open)?;
        asked.state = State::Closed;
        Some((asked.partition, id.used_as == Use::Refund))
    }

    pub(super) fn was_charged(&mut self, id: AskId, reply: Vec<u8>) {
        if let Some(asked) = self.0.get_mut(id.at).filter(|asked| asked.used_as != Use::Look) {
            (asked.state, asked.reply) = (State::Charged, reply);
        }
    }

    pub(super) fn cancel_unsent(&mut self) {
        let unsent = self.0.iter_mut().filter(|asked| asked.state == State::Unsent);
        // A refund is sent in any case, and so is what is to be recorded.
        let unsent = unsent.filter(|asked| matches!(asked.used_as, Use::Look | Use::Charge));
        unsent.for_each(|asked| asked.state = State::Closed);
    }

    /// Asks for the refund of every charge.
    pub(super) fn refund_charged(&mut self) {
        for asked in self.0.iter_mut().filter(|asked| asked.is_charge()) {
            (asked.used_as, asked.event, asked.state) = (Use::Refund, Event::Refund, State::Unsent);
        }
    }

    pub(super) fn have_charged(&self) -> bool {
        self.0.iter().any(|asked| asked.state == State::Charged)
    }

    pub(super) fn into_charges(self) -> impl Iterator<Item = Charge> {
        self.0.into_iter().filter(Asked::is_charge).map(|asked| {
            let Asked { partition, request, reply, .. } = asked;
            Charge { partition, request, reply }
        })
    }
}

impl Asked {
    fn is_charge(&self) -> bool {
        self.state == State::Charged && self.used_as == Use::Charge
    }
}
