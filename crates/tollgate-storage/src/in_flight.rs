//! Requests in flight whose caller reports that they still run, or have ended.
//!
//! Invariant: a request is released once, also when its end is reported again
//! ([`ReleasedRequests`](crate::released::ReleasedRequests)), and is not counted after its end. To
//! confirm it twice changes nothing (`in_flight.rs` of the core). Each count does so on its own, by
//! the limit that counts the request now: what runs was carried to it. Nothing depends on the
//! policy, which may have changed since. So a request can be repeated when its reply is lost.
//!
//! Receipt: a request of format 2 in which every rule is confirmed (`wire`). Request: [`REPORTS`];
//! a random number of the request `u64`; 1 to confirm it, 2 when it has ended, `u8`; the receipt,
//! whose flag shows whether the report must be durable. Reply: [`IN_FLIGHT`] `u8`; after a
//! confirmation the receipt of what is still counted, with the time of the confirmation; else
//! nothing.

use alloc::vec::Vec;

use tollgate_core::{Charge, Limiter, Span, Timestamp};

use crate::counted_set::CountedSet;
use crate::counts::{Answered, Counts};
use crate::due::Due;
use crate::leases::clock::Clock;
use crate::request::{Head, Request, RequestRule, RuleHead, is_strict};
use crate::stored_set::StoredSet;
use crate::wire::{IN_FLIGHT, RENEWED, REPORTS, Reader, STRICT, WireError};

const RENEW: u8 = 1;
const RELEASE: u8 = 2;

/// The report about a request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlightReport {
    /// It still runs.
    Runs,
    /// It has ended.
    Ended,
}

impl InFlightReport {
    /// The report to one count; `number` is a random number that all receipts of one request share,
    /// and `receipt` is that of the charge, or of the last confirmation.
    #[must_use]
    pub fn request(self, number: u64, receipt: &[u8]) -> Vec<u8> {
        let what = match self {
            Self::Runs => RENEW,
            Self::Ended => RELEASE,
        };
        [&REPORTS[..], &number.to_le_bytes(), &[what], receipt].concat()
    }

    /// Reads the reply of [`Counts::report_in_flight`]: the receipt of what is still counted, empty
    /// when nothing is.
    ///
    /// # Errors
    /// The bytes are not such a reply.
    pub fn read(reply: &[u8]) -> Result<&[u8], WireError> {
        let (first, receipt) = reply.split_first().ok_or(WireError::Malformed)?;
        let is_receipt = || receipt.is_empty() || read_receipt(receipt).is_ok();
        (*first == IN_FLIGHT && is_receipt()).then_some(receipt).ok_or(WireError::Malformed)
    }
}

/// The shortest `max_age` of the limits in a receipt; `None` for bytes that are not a receipt.
#[must_use]
pub fn max_age_of(receipt: &[u8]) -> Option<Span> {
    read_receipt(receipt).ok()?.rules.iter().filter_map(own_max_age).min()
}

fn own_max_age(rule: &RequestRule<'_>) -> Option<Span> {
    let set = StoredSet::read(&mut &*rule.parameters)?;
    set.quotas().iter().filter_map(|quota| quota.limiter().max_age()).min()
}

/// Reads a receipt: at least one rule, and all of them limit requests in flight.
fn read_receipt(receipt: &[u8]) -> Result<Request<'_>, WireError> {
    let read = Request::read(receipt)?;
    let is_counted = |rule: &RequestRule<'_>| {
        rule.due == Due::Renewed && rule.charged.is_some() && own_max_age(rule).is_some()
    };
    let is_receipt = !read.rules.is_empty() && read.rules.iter().all(is_counted);
    is_receipt.then_some(read).ok_or(WireError::Malformed)
}

impl Counts {
    /// Carries out the report of [`InFlightReport::request`].
    ///
    /// # Errors
    /// The bytes are not such a request; nothing is changed then.
    pub fn report_in_flight(
        &mut self,
        request: &[u8],
        clock: impl Into<Clock>,
    ) -> Result<Answered, WireError> {
        let mut bytes = Reader(request);
        if bytes.bytes(REPORTS.len())? != REPORTS {
            return Err(WireError::Malformed);
        }
        let (number, what) = (bytes.u64()?, bytes.u8()?);
        let flags = if is_strict(bytes.0) { STRICT } else { 0 };
        let receipt = read_receipt(bytes.0)?;
        let (now, is_ended) = self.advance(&clock.into());
        let mut reply = Vec::from([IN_FLIGHT]);
        let is_over = self.released.contains(number, now);
        let is_changed = match what {
            RENEW | RELEASE if is_over => false,
            RENEW => self.renew((&receipt, flags), now, &mut reply),
            RELEASE => self.release(number, &receipt, now),
            _ => return Err(WireError::Malformed),
        };
        Ok(Answered { reply, is_changed: is_changed || is_ended })
    }

    /// Confirms the requests of `receipt`; appends the new receipt of those that are counted. True
    /// when there are any.
    fn renew(
        &mut self,
        (receipt, flags): (&Request<'_>, u8),
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> bool {
        let mut is_changed = false;
        for rule in &receipt.rules {
            // A count that was lost begins again with what is confirmed.
            let mut lost = None;
            let kept = match self.sets.iter_mut().find(|it| it.stable_id() == rule.stable_id()) {
                Some(kept) => kept,
                None => {
                    let Some(set) = StoredSet::read(&mut &*rule.parameters) else { continue };
                    lost.insert(CountedSet::fresh(set))
                }
            };
            if !kept.renew(rule, now) {
                continue;
            }
            if !is_changed {
                let Request { version, group, .. } = *receipt;
                Head { version, group, flags, under: None }.write(out);
            }
            is_changed = true;
            let (rule, cost) = (rule.rule, rule.cost);
            RuleHead { flags: RENEWED, rule, cost, longest: None }.write(out);
            out.extend_from_slice(&kept.quotas.parameters);
            out.extend(now.as_nanos().to_le_bytes());
            if let Some(lost) = lost {
                self.group = receipt.group;
                self.sets.push(lost);
                self.make_room(receipt, now);
            }
        }
        is_changed
    }

    /// Releases the requests of `receipt`; true when there is a count of them.
    fn release(&mut self, number: u64, receipt: &Request<'_>, now: Timestamp) -> bool {
        let mut longest = None;
        for rule in &receipt.rules {
            if let Some(kept) = self.kept(rule.stable_id()) {
                longest = longest.max(kept.release(rule, now));
            }
        }
        let Some(max_age) = longest else { return false };
        let is_last = !self.sets.iter().any(|kept| kept.counts_in_flight(now));
        self.released.add(number, max_age, is_last, now);
        true
    }
}

impl CountedSet {
    /// False when it does not count this request any more.
    fn renew(&mut self, rule: &RequestRule<'_>, now: Timestamp) -> bool {
        let mut is_counted = self.limits_requests_in_flight();
        self.each_in_flight(rule, |limiter, state, charge| {
            is_counted &= limiter.renew(state, charge, now);
        });
        is_counted
    }

    /// The time for which an id of this request may have an effect from now on; `None` when it has
    /// none any more, so that nothing is released: it is not the last id of a request that runs.
    fn release(&mut self, rule: &RequestRule<'_>, now: Timestamp) -> Option<Span> {
        let mut longest = None;
        self.each_in_flight(rule, |limiter, state, charge| {
            let is_valid = |age: &Span| now.since(charge.at) < *age;
            if let Some(max_age) = limiter.max_age().filter(is_valid) {
                limiter.refund(state, charge, now);
                longest = longest.max(Some(max_age));
            }
        });
        longest
    }

    /// True when requests are in flight.
    fn counts_in_flight(&self, now: Timestamp) -> bool {
        self.quotas.set.quotas().iter().any(|quota| {
            let limiter = quota.limiter();
            let left = quota.state(&self.states).map(|state| limiter.peek(state, now, 0).remaining);
            limiter.max_age().is_some() && left.is_some_and(|left| left < limiter.limit())
        })
    }

    fn each_in_flight(
        &mut self,
        rule: &RequestRule<'_>,
        mut each: impl FnMut(&Limiter, &mut [u8], Charge),
    ) {
        if !self.limits_requests_in_flight() {
            return;
        }
        let charge =
            Charge { at: rule.charged.unwrap_or_default(), cost: rule.cost, delay: Span::ZERO };
        for quota in self.quotas.set.quotas() {
            if let Some(state) = quota.state_mut(&mut self.states) {
                each(quota.limiter(), state, charge);
            }
        }
    }
}
