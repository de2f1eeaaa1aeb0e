//! `POST /lease`: nodes of a fleet lease units of its counts, report the units that they spent, and
//! request decisions for which they have no units.
//!
//! Invariant: a count is one object, named in the same way for a node and for a request that comes
//! here, by a hash under the fleet's secret. Without the token a node gets no response: a node that
//! leases can starve all others. When one object does not reply, only its key fails. The object may
//! still have carried out the call, and the units that it leased then come back when the lease
//! ends. Deliberately absent: the accounting, which is the object's (`Counts::answer`), and the
//! rounds in which objects are called; those are in the service.

use std::pin::Pin;

use tollgate_core::Timestamp;
use tollgate_service::lease::{self, KEPT, Lease, Refused, newer};
use tollgate_service::metrics::Event;
use tollgate_service::{
    Api, ApiResponse, CountRequest, Course, PREFIX, PolicyCall, PolicyReply, StoreCall, StoreReply,
    Unauthorized,
};
use tollgate_storage::{LeaseReply, read_leased};
use worker::web_sys;

use crate::active::{self, Active};
use crate::counts::object_name::object_name;
use crate::counts::objects::Objects;
use crate::deployment::{Gate, RequestContext};
use crate::follow::{newest, policy_of};
use crate::operate::store;
use crate::operate::tally::FailureKind;
use crate::request::events::note_token;
use crate::runtime::js::{self, Call, KeyObject, NoReply};
use crate::settings::FLEET_SECRET;

/// The path where nothing is forwarded, the same as a server's; below the prefix it always exists.
const PATH: &str = "/lease";
const NAME: &str = "lease";

/// How often keys that are behind a newer policy are asked again. A policy is rarely replaced again
/// meanwhile.
const MAX_REPLANS: u32 = 2;

type ObjectReply = Result<Vec<u8>, NoReply>;

/// True for a path that is handled here.
pub(crate) fn is_ours(path: &str, is_service: bool) -> bool {
    path.strip_prefix(PREFIX) == Some(NAME) || is_service && path == PATH
}

/// Responds to a node. A future behind a pointer, so that none of it is compiled into the code that
/// every request runs: it is in the half of the module that is loaded when a node leases.
#[inline(never)]
pub(crate) fn answer<'a>(
    visit: RequestContext<'a>,
    request: &'a web_sys::Request,
) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, ApiResponse>> + 'a>> {
    Box::pin(async move { answered(&visit, request).await })
}

async fn answered(
    visit: &RequestContext<'_>,
    request: &web_sys::Request,
) -> Result<Vec<u8>, ApiResponse> {
    let objects = &visit.gate.objects;
    if request.method() != "POST" {
        return Err(ApiResponse::not_allowed("POST"));
    }
    if !visit.deployment.authorizes(request) {
        return Err(unauthorized(objects, request));
    }
    if objects.fleet_secret.is_none() {
        return Err(lease::off(FLEET_SECRET));
    }
    let Some(body) = js::body(request, lease::MAX_BODY).await else {
        return Err(lease::too_long());
    };
    let content_type = request.headers().get("content-type").ok().flatten();
    let read = read(visit, content_type.as_deref(), &body).await;
    let lease = read.map_err(|refused| {
        if refused.is_of_another_policy {
            objects.counters.add(Event::LeaseConflict);
        }
        refused.answer
    })?;
    objects.counters.add(Event::LeaseQuestion);
    let replies = decide(visit, lease, (content_type.as_deref(), &body)).await;
    objects.report();
    Ok(lease::answer(replies))
}

/// Reads a node's request; if its policy is not known here, asks the policy object for it.
async fn read(
    visit: &RequestContext<'_>,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Lease, Refused> {
    let fleet = &visit.gate.fleet;
    let read = fleet.read(content_type, body);
    let is_unknown = read.as_ref().is_err_and(|refused| refused.is_of_another_policy);
    if !is_unknown || fleet.has_missed() || visit.gate.follower.is_none() {
        return read;
    }
    if let Some(active) = newest(visit).await {
        fleet.follow(&active);
        ask_before(visit.gate, &active).await;
    }
    let read = fleet.read(content_type, body);
    if read.is_err() {
        fleet.miss();
    }
    read
}

/// Learns the policy that was in force before `active`, if its nodes still get responses.
async fn ask_before(gate: &Gate, active: &Active) {
    let version = active.version;
    if gate.fleet.knows_before(version) {
        return;
    }
    let next = version.saturating_add(1);
    let call = PolicyCall::History { before: Some(next), limit: 1 };
    let PolicyReply::History { rows, .. } = policy_object(gate, call).await else { return };
    let row = rows.first().filter(|row| row.version == version);
    let end = |at_ms| Timestamp::from_millis(at_ms).saturating_add(KEPT);
    let before = row.map(|row| (row.before, end(row.row.at_ms)));
    let mut found = None;
    if let Some((number, end)) = before.filter(|(number, end)| *number > 0 && js::now() < *end) {
        let reply = policy_object(gate, PolicyCall::Version { number }).await;
        let PolicyReply::Version(current) = reply else { return };
        let text = current.and_then(|current| current.text);
        let compiled = text.and_then(|text| active::compile(&text, &gate.settings).ok());
        found = compiled.map(|policy| (policy, end));
    }
    gate.fleet.learn_before(version, found);
}

/// The reply of the policy object; without a reply, one that does not contain the requested data.
async fn policy_object(gate: &Gate, call: PolicyCall) -> PolicyReply {
    let timeout_ms = gate.objects.timeout_ms;
    match store::policy(gate, &StoreCall::Policy(call), timeout_ms).await {
        StoreReply::Policy(reply) => reply,
        _ => PolicyReply::SendText,
    }
}

fn unauthorized(objects: &Objects, request: &web_sys::Request) -> ApiResponse {
    let detail = "send \"authorization: Bearer\" with the token of this service";
    let answer =
        ApiResponse::problem(401, "Unauthorized", detail).with("www-authenticate", "Bearer");
    let has_token = request.headers().has("authorization").unwrap_or_default();
    note_token(objects, Unauthorized::of(Api::Check, &answer, has_token));
    answer
}

/// Decides all keys, none of them for a request that another denies. Keys that are behind a newer
/// policy are decided again under that.
async fn decide(
    visit: &RequestContext<'_>,
    mut lease: Lease,
    (content_type, body): (Option<&str>, &[u8]),
) -> Vec<LeaseReply> {
    let objects = &visit.gate.objects;
    let since = js::now();
    let mut replies = ask(objects, &lease, Course::new(&lease), since).await;
    for _ in 0..MAX_REPLANS {
        let Some(generation) = versions(&lease, &replies).into_iter().flatten().max() else {
            break;
        };
        let Some(active) = policy_of(visit, generation).await else { break };
        visit.gate.fleet.follow(&active);
        let Ok(again) = visit.gate.fleet.read(content_type, body) else { break };
        objects.counters.add(Event::PolicyRetry);
        let known = versions(&lease, &replies).into_iter().zip(replies);
        let known = known.map(|(newer, reply)| newer.is_none().then_some(reply)).collect();
        lease = again;
        replies = ask(objects, &lease, Course::again(&lease, known), since).await;
    }
    report(objects, &lease, replies)
}

/// The replies in the form sent to the node. A key that is still behind is not decided.
fn report(objects: &Objects, lease: &Lease, replies: Vec<ObjectReply>) -> Vec<LeaseReply> {
    let each = versions(lease, &replies).into_iter().zip(replies);
    let tell = |(newer, reply): (Option<u64>, ObjectReply)| match newer {
        None => replied(objects, reply),
        Some(_) => {
            objects.note(FailureKind::Behind, "");
            LeaseReply::Failed
        }
    };
    each.map(tell).collect()
}

/// For each key the version that its object has seen, where that is newer than ours.
fn versions(lease: &Lease, replies: &[ObjectReply]) -> Vec<Option<u64>> {
    let each = lease.keys().iter().zip(replies);
    each.map(|(key, reply)| newer(key, reply.as_ref().ok()?)).collect()
}

/// Calls the objects, all of a round at the same time, within one time-out for all rounds.
async fn ask(
    objects: &Objects,
    lease: &Lease,
    mut course: Course<'_, NoReply>,
    since: Timestamp,
) -> Vec<ObjectReply> {
    let object = |key: &lease::Key| {
        let name = object_name(&objects.hash_key, &key.name);
        js::key_object(&objects.namespace, &name, None, (objects.timeout_ms, since))
    };
    let keys: Vec<KeyObject> = lease.keys().iter().map(object).collect();
    loop {
        let call = |round: tollgate_service::Round<'_>| {
            objects.counters.add(round.ask.event());
            let key = keys.get(round.key)?;
            Some(match round.ask {
                CountRequest::Peek(request) | CountRequest::Charge(request) => {
                    Call::check(key, request)
                }
                CountRequest::Refund(request, reply) => Call::refund(key, request, reply),
            })
        };
        let calls: Vec<Call> = course.round().into_iter().filter_map(call).collect();
        if calls.is_empty() {
            return course.replies(|| NoReply::Late);
        }
        let mut replies = Vec::with_capacity(calls.len());
        for call in calls {
            replies.push(call.reply().await);
        }
        for why in course.receive(replies) {
            note(objects, &why);
        }
    }
}

/// A reply in the form sent to the node.
fn replied(objects: &Objects, reply: ObjectReply) -> LeaseReply {
    match reply {
        Ok(reply) if reply.is_empty() => {
            objects.note(FailureKind::Corrupt, "");
            LeaseReply::Failed
        }
        Ok(reply) => {
            let leased = read_leased(&reply).map(|(leased, _)| leased).unwrap_or_default();
            let units = leased.iter().flatten().fold(0_u64, |sum, it| sum.saturating_add(it.units));
            objects.counters.add_many(Event::LeaseUnit, units);
            LeaseReply::Decided(reply)
        }
        Err(why) => {
            note(objects, &why);
            LeaseReply::Failed
        }
    }
}

fn note(objects: &Objects, why: &NoReply) {
    match why {
        NoReply::Late => objects.note(FailureKind::Late, ""),
        NoReply::Failed(word) => objects.note(FailureKind::Failed, word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_server_is_ours_where_nothing_is_forwarded() {
        let below = format!("{PREFIX}lease");
        assert!(is_ours("/lease", true) && !is_ours("/lease", false));
        assert!(is_ours(&below, true) && is_ours(&below, false));
        for other in ["/lease/", "/Lease", "/check"] {
            assert!(!is_ours(other, true), "{other}");
        }
        assert!(!is_ours(&format!("{below}s"), true));
    }
}
