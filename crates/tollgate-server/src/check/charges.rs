//! The charges of a request, until its caller gets the decision.
//!
//! Invariant: no client that left before its response was made is charged; one whose connection
//! breaks while the response is sent stays charged. Charges that are dropped
//! before they are kept are refunded, whether the client left, another part of the call was denied,
//! or there was an overload. Each is refunded once, and only the amount that the count reported as
//! charged. Deliberately absent: charges whose response was sent; their cost is settled
//! (`settling`).

use std::sync::Arc;

use futures_util::future::join_all;
use tollgate_service::metrics::Event;

use crate::finish::{alone, to_its_end};
use crate::gate::Gate;
use crate::store::{Name, NoReply, StoreRequest};

/// The request to one count, and its response.
#[derive(Debug)]
pub(crate) struct Charge {
    pub(crate) name: Name,
    pub(crate) request: Vec<u8>,
    pub(crate) reply: Vec<u8>,
    /// Where its count is remembered when it denies.
    pub(crate) places: Vec<u64>,
}

impl Charge {
    /// Refunds it: returns the count's response to that.
    pub(crate) async fn refund(&self, gate: &Gate) -> Result<Vec<u8>, NoReply> {
        gate.counting.add(Event::Refund);
        let ask = StoreRequest::Refund { request: &self.request, reply: &self.reply };
        let reply = gate.store.ask(&self.name, ask).await;
        // Also without a reply: the store may have refunded it.
        gate.denials.forget(&self.places);
        gate.lines.place_freed(&self.name, gate.clock.now());
        reply
    }
}

/// The charges of a request in all its counts.
#[derive(Debug, Default)]
#[must_use = "charges that are not kept are given back"]
pub(crate) struct Charges(Option<(Arc<Gate>, Vec<Charge>)>);

impl Charges {
    /// These charges.
    pub(crate) fn of(gate: &Arc<Gate>, charges: Vec<Charge>) -> Self {
        Self((!charges.is_empty()).then(|| (Arc::clone(gate), charges)))
    }

    /// Keeps the charges: the caller gets the decision now.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }

    /// Refunds them now, even if the caller leaves meanwhile.
    pub(crate) async fn give_back(mut self) {
        if let Some((gate, charges)) = self.0.take() {
            to_its_end(give_back(gate, charges)).await;
        }
    }
}

impl Drop for Charges {
    fn drop(&mut self) {
        if let Some((gate, charges)) = self.0.take() {
            alone(give_back(gate, charges));
        }
    }
}

async fn give_back(gate: Arc<Gate>, charges: Vec<Charge>) {
    for reply in join_all(charges.iter().map(|charge| charge.refund(&gate))).await {
        if let Err(why) = reply {
            gate.note_no_reply(&why);
        }
    }
}
