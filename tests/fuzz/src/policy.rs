//! Any text as a policy: it is rejected with messages, or decides any request.
//!
//! A corpus file is the document and, after a line `---`, a request: as it would be sent, or
//! described in JSON for the Worker's service; after another such line, the response. Invariant
//! checked: the same document gives the same policy; a problem is one line that a terminal can
//! show; a denial charges nothing; a response costs at most the maximum, and nothing is left to
//! be done after its end; texts for clients fit into header fields; a partition decided
//! elsewhere, over the wire, is decided in the same way; written and read it is the same policy;
//! and the result of `explain` for a rule agrees with the plan.

use std::collections::BTreeMap;

use tollgate_core::{Span, Timestamp};
use tollgate_language::DescribedRequest;
use tollgate_policy::explain::Applicability;
use tollgate_policy::{
    Disposition, Ending, Facts, Partition, Plan, Policy, Problems, ResponseFacts, Surface,
};

use super::request::Request;
use super::response::Response;

/// Between the document and the request, and between that and the response.
const SEPARATOR: &[u8] = b"\n---\n";
/// A problem's path and message are made for a line of a terminal.
const LONGEST_PROBLEM: usize = 1000;

/// Compiles for several surfaces, and decides with the compiled policies.
pub fn check(bytes: &[u8]) {
    let (document, rest) = separated(bytes).unwrap_or((bytes, b"GET / 192.0.2.1"));
    let (request, response) = separated(rest).unwrap_or((rest, b""));
    let response = Response::read(response);
    let document = String::from_utf8_lossy(document); // surfaces reject other bytes
    let described = DescribedRequest::parse(request);
    if let Err(problems) = &described {
        told(problems);
    }
    for surface in [Surface::Envoy, Surface::Worker, Surface::Server] {
        match tollgate_language::compile(&document, surface) {
            Ok(policy) => {
                let again =
                    tollgate_language::compile(&document, surface).expect("it was a policy");
                assert_eq!(identity(&policy), identity(&again), "{surface:?}");
                told(policy.warnings());
                let policy = reread(&policy, surface);
                match &described {
                    Ok(request) => decided(&policy, request, &response),
                    Err(_) => decided(&policy, &Request::read(request), &response),
                }
            }
            Err(problems) => {
                assert!(!problems.0.is_empty(), "refused without a word");
                told(&problems);
                let again = tollgate_language::compile(&document, surface);
                assert_eq!(again.err(), Some(problems), "{surface:?}");
            }
        }
    }
}

/// The bytes before and after the first separator.
fn separated(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.windows(SEPARATOR.len()).position(|window| window == SEPARATOR)?;
    Some((&bytes[..at], &bytes[at + SEPARATOR.len()..]))
}

/// The same policy, written and read: from here on it decides.
fn reread(policy: &Policy, surface: Surface) -> Policy {
    let (mut bytes, mut again) = (Vec::new(), Vec::new());
    policy.write_compiled(&mut bytes);
    let read = Policy::read_compiled(&bytes, surface).expect("it was written so");
    assert_eq!(identity(policy), identity(&read));
    read.write_compiled(&mut again);
    assert!(bytes == again, "it is written otherwise");
    read
}

/// The policy's identity for stores, and its visible parts.
fn identity(policy: &Policy) -> impl PartialEq + std::fmt::Debug {
    let groups = policy.groups().iter().map(|g| (g.identity(), g.capacity(), g.value_len()));
    let sets = policy.quota_sets().iter().map(|s| (s.rule(), s.record_len(), s.quotas().len()));
    let names = policy.rules().iter().map(|rule| (rule.name().to_owned(), rule.group()));
    let lists = (groups.collect::<Vec<_>>(), sets.collect::<Vec<_>>(), names.collect::<Vec<_>>());
    (policy.fingerprint(), lists, policy.warnings().clone())
}

/// The records of a value that contain any use.
fn used(mut value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let records = std::iter::from_fn(move || {
        let len = u32::from_le_bytes(*value.get(4..)?.first_chunk()?);
        let (record, rest) = value.split_at(usize::try_from(len).unwrap() + 8);
        value = rest;
        Some(record)
    });
    records.filter(|record| record[8..].iter().any(|byte| *byte != 0))
}

fn told(problems: &Problems) {
    for problem in &problems.0 {
        let line = problem.to_string();
        assert!(!problem.message.is_empty(), "nothing is said about {line:?}");
        assert!(line.len() < LONGEST_PROBLEM, "{} bytes: {line:.100}", line.len());
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}

/// Decides `request` three times, settles it with this response, and calls every other function on
/// it.
pub fn decided(policy: &Policy, request: &impl Facts, response: &Response<'_>) {
    let now = Timestamp::from_millis(1_780_000_000_000);
    let mut plan = Plan::new();
    policy.plan(request, &mut plan);
    agrees_with_applicability(policy, request, &plan);
    let mut stored: Vec<Vec<u8>> = vec![Vec::new(); plan.len()];
    for round in 0..3 {
        for (i, value) in stored.iter().enumerate() {
            plan.partition_mut(i).unwrap().load(policy, Some(value));
        }
        plan.decide(policy, now);
        let outcome = plan.outcome(policy);
        let refused =
            matches!(outcome.disposition(), Disposition::Deny { .. } | Disposition::Retry(_));
        shown(policy, &plan);
        for (i, value) in stored.iter_mut().enumerate() {
            let partition = plan.partition(i).unwrap();
            let charged = partition.changed() && !partition.is_only_punished();
            assert!(!(refused && charged), "charged for a refusal");
            let (group, before) =
                (&policy.groups()[plan.partition(i).unwrap().group()], value.clone());
            value.clear();
            value.extend_from_slice(plan.partition(i).unwrap().value());
            assert!(value.len() == group.value_len() || group.is_sparse());
            assert!(value.len() <= group.value_len());
            assert!(
                plan.partition(i).unwrap().changed() || round == 0 || used(value).eq(used(&before)),
                "changed uncharged"
            );
        }
        if let [value] = stored.as_slice() {
            decided_elsewhere(policy, request, value, now);
        }
        if round == 0 {
            let [ok, denied, failed] = [200, 401, 503].map(Ending::Response);
            for ending in [ok, denied, failed, Ending::Disconnect, Ending::NotSent] {
                settled(policy, request, response, ending, now);
            }
        }
    }
}

/// Decides `request`, settles it at the head and the end of its response, and releases it.
fn settled(
    policy: &Policy,
    request: &impl Facts,
    response: &Response<'_>,
    ending: Ending,
    now: Timestamp,
) {
    let (mut plan, mut store) = (Plan::new(), BTreeMap::new());
    policy.plan(request, &mut plan);
    committed(policy, &mut plan, &mut store, now);
    let mut in_flight = plan.in_flight(policy);
    settle(policy, &mut plan, ending, response, &mut store, now);
    if plan.settlement(policy).awaits_end() {
        let scan = plan.settlement(policy).body_scan(response);
        settle(policy, &mut plan, ending, &response.end(scan), &mut store, now);
        assert!(!plan.settlement(policy).awaits_end(), "it has ended");
    }
    if let Some(request) = &mut in_flight
        && request.release()
    {
        committed(policy, request.plan_mut(), &mut store, now);
    }
}

fn settle(
    policy: &Policy,
    plan: &mut Plan,
    ending: Ending,
    response: &dyn ResponseFacts,
    store: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    now: Timestamp,
) {
    if plan.settle(policy, ending, response) {
        committed(policy, plan, store, now);
    }
    for charge in plan.settlement(policy).costs() {
        let cost = policy.rules()[charge.rule].settled_cost().expect("a rule with such a cost");
        assert!(charge.actual.ok().is_none_or(|units| units <= cost.max), "{charge:?} of {cost:?}");
    }
    shown(policy, plan);
}

/// Decides the plan, and stores what it changes.
fn committed(
    policy: &Policy,
    plan: &mut Plan,
    store: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    now: Timestamp,
) {
    plan.each_partition(|partition| {
        partition.load(policy, store.get(partition.key()).map(Vec::as_slice));
    });
    plan.decide(policy, now);
    for partition in plan.partitions().filter(Partition::changed) {
        store.insert(partition.key().to_vec(), partition.value().to_vec());
    }
}

/// A rule is in the plan exactly when `explain` reports that it applies; of a request that is
/// denied because a rule cannot read it, or has no key of it, only such rules are.
fn agrees_with_applicability(policy: &Policy, request: &impl Facts, plan: &Plan) {
    let each = policy.explain().applicability(request).into_iter().enumerate();
    let applies = each.filter(|(_, applies_how)| *applies_how == Applicability::Applies);
    let said: Vec<usize> = applies.map(|(i, _)| i).collect();
    let planned: Vec<usize> = plan.outcome(policy).rules().map(|(i, _)| i).collect();
    let is_refused = matches!(plan.outcome(policy).disposition(), Disposition::Deny { .. });
    if plan.partitions().next().is_none() && is_refused {
        assert!(planned.iter().all(|rule| said.contains(rule)), "{planned:?} of {said:?}");
    } else {
        assert_eq!(said, planned, "explain and plan disagree");
    }
}

/// A plan's one partition, decided by an object: the same result as here.
fn decided_elsewhere(policy: &Policy, request: &impl Facts, stored: &[u8], now: Timestamp) {
    let (mut here, mut front) = (Plan::new(), Plan::new());
    policy.plan(request, &mut here);
    here.partition_mut(0).unwrap().load(policy, Some(stored));
    here.decide(policy, now);
    policy.plan(request, &mut front);
    // A part of a key is missing: the front denies it without a call to the object.
    if front.outcome(policy).verdicts().iter().any(|verdict| verdict.partition.is_none()) {
        return;
    }
    let kept = |value: &[u8]| policy.groups()[0].counts_of(policy, value);
    let mut counts = kept(stored).unwrap_or_default();
    let mut asked = Vec::new();
    front.partition(0).unwrap().request(policy, &mut asked);
    let answered = counts.answer(&asked, now).expect("a request");
    let mut here_kept = kept(here.partition(0).unwrap().value()).unwrap_or_default();
    let mut look = Vec::new();
    front.partition(0).unwrap().peek_request(policy, &mut look);
    for after in [0, 1, 1_000_000_000, 3_600_000_000_000] {
        let at = now.saturating_add(Span::from_nanos(after));
        let [elsewhere, here] = [&mut counts, &mut here_kept].map(|kept| kept.answer(&look, at));
        assert_eq!(elsewhere, here, "charged otherwise");
    }
    front.partition_mut(0).unwrap().accept(policy, &answered.reply).expect("a reply");
    assert_eq!(answered.is_changed, here.partition(0).unwrap().changed());
    assert_eq!(front.outcome(policy).verdicts(), here.outcome(policy).verdicts());
    assert_eq!(front.outcome(policy).disposition(), here.outcome(policy).disposition());
}

/// Every text for a client fits into a header field, and is the same when it is requested again.
pub fn shown(policy: &Policy, plan: &Plan) {
    let outcome = plan.outcome(policy);
    let mut fields = Vec::new();
    outcome.headers(&mut |name, value| fields.push((name.to_owned(), value.to_owned())));
    outcome.marks(&mut |name, value| fields.push((name.to_owned(), value.to_owned())));
    let printable = |text: &str| text.bytes().all(|b| (0x20..=0x7e).contains(&b));
    for (name, value) in &fields {
        assert!(!name.is_empty() && printable(name) && !name.contains([' ', ':']), "{name:?}");
        assert!(printable(value), "{name}: {value:?}");
    }
    let told = outcome.grpc();
    assert!(told.code <= 16 && printable(&told.message), "{told:?}");
    outcome.grpc_headers("application/grpc", &mut |name, value| {
        assert!(printable(value), "{name}: {value:?}");
    });
    let body = outcome.body();
    assert!(printable(body.trim_end_matches('\n')), "{body:?}");
    if let Disposition::Deny { status } = outcome.disposition_after(Span::from_secs(1)) {
        assert!((200..600).contains(&status), "{status}");
    }
    for (rule, _) in outcome.rules() {
        assert!(rule < policy.rules().len());
    }
    let mut again = Vec::new();
    outcome.headers(&mut |name, value| again.push((name.to_owned(), value.to_owned())));
    assert!(fields.starts_with(&again), "{fields:?} and then {again:?}");
}
