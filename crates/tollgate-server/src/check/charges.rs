//! What a request was charged, until somebody is told what was decided of it.
//!
//! Invariant: nobody is charged for an answer that he never had: charges that are dropped before
//! they are kept are given back, whether the client left, another part of the call was refused, or
//! too many asked. It is done once for each, and only for what a count said that it charged.
//! Deliberately absent: charges that were answered; a cost of these is settled (`settling`).

use std::sync::Arc;

use futures_util::future::join_all;
use tollgate_service::metrics::Event;

use crate::finish::{alone, to_its_end};
use crate::gate::Gate;
use crate::store::{Ask, Name, NoReply};

/// What one count was asked, and what it answered.
#[derive(Debug)]
pub(crate) struct Charge {
    pub(crate) name: Name,
    pub(crate) request: Vec<u8>,
    pub(crate) reply: Vec<u8>,
}

impl Charge {
    /// Takes it back: what the count says then.
    pub(crate) async fn refund(&self, gate: &Gate) -> Result<Vec<u8>, NoReply> {
        gate.counting.add(Event::Refund);
        let ask = Ask::Refund { request: &self.request, reply: &self.reply };
        gate.store.ask(&self.name, ask).await
    }
}

/// What a request was charged in all its counts.
#[derive(Debug, Default)]
#[must_use = "charges that are not kept are given back"]
pub(crate) struct Charges(Option<(Arc<Gate>, Vec<Charge>)>);

impl Charges {
    /// These charges.
    pub(crate) fn of(gate: &Arc<Gate>, charges: Vec<Charge>) -> Self {
        Self((!charges.is_empty()).then(|| (Arc::clone(gate), charges)))
    }

    /// They stand: what was decided is told now.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }

    /// Gives them back now; who leaves meanwhile changes nothing of that.
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
