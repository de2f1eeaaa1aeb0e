//! The requests of a drive, and which of them have a reply.
//!
//! Invariant: a request is sent once, answered at most once, and refunded at most once. A refund
//! uses the place of its charge, with another id, so a late reply to the charge is not its reply.

use alloc::vec::Vec;

use tollgate_policy::Failure;

use crate::lease_course::CountRequest;
use crate::metrics::Event;

/// A request to a count. No two of a drive are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId {
    at: usize,
    purpose: Purpose,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send [this](crate::drive::Drive::request) now; several at the same time.
    Send(RequestId),
    /// Replies are missing.
    Wait,
    /// The plan has its outcome.
    Done,
}

/// Why a count has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingReply {
    /// The store reports an overload: the request is denied, whatever its rules decide.
    Overloaded,
    /// It failed.
    Failed(Failure),
}

/// The use of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a reply that cannot be read is to be counted"]
pub enum ReplyOutcome {
    /// It was used.
    Used,
    /// It cannot be read, and its count has failed.
    Misread,
    /// A refund has no reply, or none that can be read: cached denials of its count are to be
    /// forgotten, because they may contain the charge that was refunded.
    LostRefund,
    /// It was not sent for, or it came before.
    Unexpected,
}

/// A request to a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'d> {
    /// The partition of the plan.
    pub partition: usize,
    /// The event that it is counted as.
    pub event: Event,
    /// The request.
    pub ask: CountRequest<'d>,
}

/// A charge of a request that was allowed.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfirmedCharge {
    /// The partition of the plan.
    pub partition: usize,
    /// The request that charged, and its reply: both are needed to refund it.
    pub request: Vec<u8>,
    /// See `request`.
    pub reply: Vec<u8>,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// The decision, without a charge.
    Peek,
    /// The decision and the charge.
    Charge,
    /// The charge's refund.
    Refund,
    /// A report or the effect of a response, which nothing takes back.
    Record,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    Unsent,
    Sent,
    /// Answered, lost or cancelled.
    Closed,
    /// Answered: something is charged.
    Charged,
}

#[derive(Debug)]
struct SentRequest {
    partition: usize,
    purpose: Purpose,
    event: Event,
    state: RequestState,
    request: Vec<u8>,
    reply: Vec<u8>,
}

/// All requests of a drive.
#[derive(Debug, Default)]
pub(super) struct Requests(Vec<SentRequest>);

impl Requests {
    pub(super) fn add(
        &mut self,
        partition: usize,
        (purpose, event): (Purpose, Event),
        request: Vec<u8>,
    ) {
        let (state, reply) = (RequestState::Unsent, Vec::new());
        self.0.push(SentRequest { partition, purpose, event, state, request, reply });
    }

    /// The next request to send; it is sent now.
    pub(super) fn take(&mut self) -> Option<RequestId> {
        let mut each = self.0.iter_mut().enumerate();
        let (at, sent) = each.find(|(_, sent)| sent.state == RequestState::Unsent)?;
        sent.state = RequestState::Sent;
        Some(RequestId { at, purpose: sent.purpose })
    }

    pub(super) fn are_open(&self) -> bool {
        self.0.iter().any(|sent| sent.state == RequestState::Sent)
    }

    /// True when a reply to `id` is awaited.
    pub(super) fn is_open(&self, RequestId { at, purpose }: RequestId) -> bool {
        let sent = self.0.get(at).filter(|sent| sent.purpose == purpose);
        sent.is_some_and(|sent| sent.state == RequestState::Sent)
    }

    /// True when the count of `partition` was sent to charge, or has not replied yet.
    pub(super) fn charge_or_await(&self, partition: usize) -> bool {
        let mut its = self.0.iter().filter(|sent| sent.partition == partition);
        its.any(|sent| sent.purpose == Purpose::Charge || sent.state == RequestState::Sent)
    }

    /// True when a request was sent to the count of `partition`.
    pub(super) fn has_sent(&self, partition: usize) -> bool {
        self.0.iter().any(|sent| sent.partition == partition)
    }

    /// From now on no reply is awaited.
    pub(super) fn give_up(&mut self) {
        let open = self.0.iter_mut().filter(|sent| sent.state == RequestState::Sent);
        open.for_each(|sent| sent.state = RequestState::Closed);
    }

    pub(super) fn request(&self, RequestId { at, purpose }: RequestId) -> Option<Request<'_>> {
        let sent = self.0.get(at).filter(|sent| sent.purpose == purpose)?;
        let ask = match purpose {
            Purpose::Peek => CountRequest::Peek(&sent.request),
            Purpose::Charge | Purpose::Record => CountRequest::Charge(&sent.request),
            Purpose::Refund => CountRequest::Refund(&sent.request, &sent.reply),
        };
        Some(Request { partition: sent.partition, event: sent.event, ask })
    }

    /// Its partition, and whether it is a refund, when a reply to `id` is awaited; from now on none
    /// is.
    pub(super) fn close(&mut self, id: RequestId) -> Option<(usize, bool)> {
        let is_open = self.is_open(id);
        let sent = self.0.get_mut(id.at).filter(|_| is_open)?;
        sent.state = RequestState::Closed;
        Some((sent.partition, id.purpose == Purpose::Refund))
    }

    pub(super) fn was_charged(&mut self, id: RequestId, reply: Vec<u8>) {
        if let Some(sent) = self.0.get_mut(id.at).filter(|sent| sent.purpose != Purpose::Peek) {
            (sent.state, sent.reply) = (RequestState::Charged, reply);
        }
    }

    pub(super) fn cancel_unsent(&mut self) {
        let unsent = self.0.iter_mut().filter(|sent| sent.state == RequestState::Unsent);
        // A refund is sent in any case, and so is what is to be recorded.
        let unsent = unsent.filter(|sent| matches!(sent.purpose, Purpose::Peek | Purpose::Charge));
        unsent.for_each(|sent| sent.state = RequestState::Closed);
    }

    /// Requests for the refund of every charge.
    pub(super) fn refund_charged(&mut self) {
        for sent in self.0.iter_mut().filter(|sent| sent.is_charge()) {
            (sent.purpose, sent.event, sent.state) =
                (Purpose::Refund, Event::Refund, RequestState::Unsent);
        }
    }

    pub(super) fn have_charged(&self) -> bool {
        self.0.iter().any(|sent| sent.state == RequestState::Charged)
    }

    pub(super) fn into_charges(self) -> impl Iterator<Item = ConfirmedCharge> {
        self.0.into_iter().filter(SentRequest::is_charge).map(|sent| {
            let SentRequest { partition, request, reply, .. } = sent;
            ConfirmedCharge { partition, request, reply }
        })
    }
}

impl SentRequest {
    fn is_charge(&self) -> bool {
        self.state == RequestState::Charged && self.purpose == Purpose::Charge
    }
}
