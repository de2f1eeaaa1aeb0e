//! A cost that differs from the charged one: the id that the caller gets with the response, and the
//! handling of the final cost that the caller sends with it.
//!
//! Invariant: an id is valid where it was issued: its seal is the store's. Every count settles on
//! its own and remembers the settled ids, so repeated requests make no difference. A store that
//! does not respond may have settled: the caller is asked to send the same again. Deliberately
//! absent: the policy; the id contains the charge.

use futures_util::future::join_all;
use tollgate_policy::{Partition, Policy};
use tollgate_service::ApiResponse;
use tollgate_service::check::Decided;
use tollgate_service::metrics::Event;
use tollgate_service::settle::{self, Receipts, SettleRequest};
use tollgate_storage::Settlement;

use crate::gate::Gate;
use crate::store::{NoReply, StoreRequest};

/// The id of a decided request, where the store seals any.
pub(crate) fn id(gate: &Gate, policy: &Policy, decided: &Decided) -> Option<String> {
    let sealer = gate.store.sealer()?;
    let name_of =
        |partition: Partition<'_>| gate.name_of(policy, (partition.group(), partition.key()));
    let number = number()?;
    Some(sealer.id(&Receipts::of(&decided.plan, policy, number, &name_of)))
}

/// The number of a new id; `None` without randomness.
pub(super) fn number() -> Option<u64> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).ok()?;
    Some(u64::from_le_bytes(random))
}

/// Settles the costs in `body`.
pub async fn answer(gate: &Gate, body: &[u8]) -> ApiResponse {
    // By the clock that is further behind: each count decides exactly by its own.
    let now = gate.clock.now().min(gate.clock.wall());
    let SettleRequest { receipts, cost } = match settle::request(gate.store.sealer(), body, now) {
        Ok(asked) => asked,
        Err(answer) => return answer,
    };
    let number = receipts.number;
    let each = receipts.counts.iter().map(|(name, receipt)| async move {
        gate.counting.add(Event::Settle);
        let request = Settlement::request(number, cost, receipt);
        gate.store.ask(name, StoreRequest::Check(&request)).await
    });
    let each = join_all(each).await.into_iter().map(|reply| read(gate, reply));
    settle::answer(cost, each.collect())
}

/// Reads a count's response; a wrong response is counted.
fn read(gate: &Gate, reply: Result<Vec<u8>, NoReply>) -> Option<Settlement> {
    let reply = reply.inspect_err(|why| gate.note_no_reply(why)).ok()?;
    let settlement = Settlement::read(&reply);
    if settlement.is_err() {
        gate.note(Event::Misread, "what was settled cannot be read");
    }
    settlement.ok()
}
