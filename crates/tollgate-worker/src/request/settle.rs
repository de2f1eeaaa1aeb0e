//! Settling a cost that differs from its estimate: the id that a caller gets with the response, and
//! the handling of the cost that the caller later sends with it.
//!
//! Invariant: an id is valid only where it was issued: its seal is of the secret `HASH_KEY` and of
//! the namespace of these objects. Every key's object settles on its own and remembers what it
//! settled, so it makes no difference which isolates are called, how often, or at once. An object
//! that does not reply may have settled: the caller is asked to send the same again. Deliberately
//! absent: the policy; the id contains the charge, and the object its final value.

use tollgate_core::Timestamp;
use tollgate_policy::{Partition, Policy};
use tollgate_service::ApiResponse;
use tollgate_service::check::Decided;
use tollgate_service::metrics::Event;
use tollgate_service::settle::{self, Receipts, Sealer, SettleRequest};
use tollgate_storage::Settlement;

use crate::counts::object_name::name_of;
use crate::counts::objects::Objects;
use crate::deployment::{Gate, RequestContext};
use crate::operate::tally::FailureKind;
use crate::runtime::js::{self, Call, NoReply};

impl Gate {
    /// The key that seals ids; `None` where there is no secret for it.
    pub(crate) fn sealer(&self) -> Option<&Sealer> {
        let Objects { namespace, hash_key, .. } = &self.objects;
        let make = || {
            let identity =
                if hash_key.is_empty() { String::new() } else { js::identity_of(namespace) };
            Sealer::new(hash_key, identity.as_bytes()).filter(|_| !identity.is_empty())
        };
        self.sealer.get_or_init(make).as_ref()
    }
}

/// The id of a decided request, where there is a [`Gate::sealer`].
pub(crate) fn id(gate: &Gate, policy: &Policy, decided: &Decided) -> Option<String> {
    let name_of = |partition: Partition<'_>| gate.objects.hash_of(policy, partition.key());
    let receipts = Receipts::of(&decided.plan, policy, js::random(), &name_of);
    gate.sealer().map(|sealer| sealer.id(&receipts))
}

/// Sends a request that may be repeated to the object with this name.
pub(crate) fn send(objects: &Objects, hash: &[u8; 32], request: &[u8], since: Timestamp) -> Call {
    let time = (objects.timeout_ms, since);
    let object = js::key_object(&objects.namespace, &name_of(hash), None, time);
    Call::check(&object, request)
}

/// Settles the costs in `body`.
pub(crate) async fn settled(visit: &RequestContext<'_>, body: &[u8]) -> ApiResponse {
    let SettleRequest { receipts, cost } =
        match settle::request(visit.gate.sealer(), body, js::now()) {
            Ok(asked) => asked,
            Err(answer) => return answer,
        };
    let objects = &visit.gate.objects;
    let since = js::now();
    let ask = |(hash, receipt): &([u8; 32], Vec<u8>)| {
        objects.counters.add(Event::Settle);
        send(objects, hash, &Settlement::request(receipts.number, cost, receipt), since)
    };
    // All of them at the same time.
    let calls: Vec<Call> = receipts.counts.iter().map(ask).collect();
    let mut said = Vec::with_capacity(calls.len());
    for call in calls {
        said.push(read(objects, call.reply().await, Settlement::read));
    }
    objects.report();
    settle::answer(cost, said)
}

/// Reads an object's reply with `read`; a failure is counted.
pub(crate) fn read<T, E>(
    objects: &Objects,
    reply: Result<Vec<u8>, NoReply>,
    read: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Option<T> {
    let (kind, word) = match reply {
        Ok(reply) => match read(&reply) {
            Ok(value) => return Some(value),
            // A row that cannot be read was removed: the count starts again, without this charge.
            Err(_) if reply.is_empty() => (FailureKind::Corrupt, String::new()),
            Err(_) => (FailureKind::Misread, String::new()),
        },
        Err(NoReply::Late) => (FailureKind::Late, String::new()),
        Err(NoReply::Failed(word)) => (FailureKind::Failed, word),
    };
    objects.note(kind, &word);
    None
}
