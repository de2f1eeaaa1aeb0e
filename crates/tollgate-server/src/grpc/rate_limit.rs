//! `RateLimitService/ShouldRateLimit`: every descriptor is a request of its own.
//!
//! Invariant: the response is over limit when any descriptor is, whatever the others are. Each
//! descriptor is decided, charged and reported separately, except when the call ends without a
//! response (there is an overload, or its caller leaves): then nothing of it is charged. The
//! protocol has two codes: a denial by `on_failure` is "over limit", too, because an error would
//! open Envoy's filter, which the policy did not ask for. Envoy gives every denial the status of
//! its filter's configuration (429), so a body that contains another status is left out.

use std::sync::Arc;

use crate::messages::rate_limit::{
    self as limits, DescriptorStatus, Nearest, RateLimitRequest, RateLimitResponse,
};
use crate::messages::status::Status;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use tollgate_core::Span;
use tollgate_policy::{
    CompiledQuota, Disposition, NearestQuota, Outcome, ProblemDetails, RuleDecision,
};
use tollgate_service::check::BATCH_AT_ONCE;

use super::answering::overloaded;
use super::facts::{Descriptor, requested};
use crate::check::{self, Decision};
use crate::gate::Gate;

/// The status that Envoy gives denials unless its filter configures another.
const ENVOYS_STATUS: u16 = 429;

/// Returns the response to a message.
pub(super) async fn answer(
    gate: &Arc<Gate>,
    message: &[u8],
    patience: Span,
) -> Result<Vec<u8>, Status> {
    let request = RateLimitRequest::read(message)?;
    let each = (0..request.descriptors.len()).map(|index| one(gate, &request, index, patience));
    let decisions: Vec<Decision> = stream::iter(each).buffered(BATCH_AT_ONCE).collect().await;
    if decisions.iter().any(|decision| decision.is_overload) {
        // The call ends without a response: for its caller none of its descriptors was decided.
        join_all(decisions.into_iter().map(Decision::give_back)).await;
        return Err(overloaded());
    }
    for (descriptor, decision) in request.descriptors.iter().zip(&decisions) {
        note(gate, descriptor, decision);
    }
    let (reply, delay) = reply(&decisions);
    join_all(decisions.into_iter().map(|decision| decision.wait(delay))).await;
    Ok(reply)
}

/// Decides one descriptor.
async fn one(
    gate: &Arc<Gate>,
    request: &RateLimitRequest<'_>,
    index: usize,
    patience: Span,
) -> Decision {
    check::decide_within(gate, &Descriptor { request, index }, patience).await
}

/// The advice about reports that a rule with a count denied.
const REPORT_COST: &str = "none of these hits was charged; where they were used already, give the rule \"cost\": \"reported\"";
/// The same for a rule that denies without a count.
const EXCLUDE_REPORTS: &str = "none of these hits was charged; where they were used already, exclude them from the rule with \"unless\"";

/// Notes features of a descriptor that have no effect: its own limit, and several hits that a rule
/// denied, although a report of past use must not be denied.
fn note(gate: &Gate, descriptor: &limits::Descriptor<'_>, decision: &Decision) {
    let policy = &*decision.active.policy;
    let outcome = decision.decided.plan.outcome(policy);
    if let Some(limit) = &descriptor.limit {
        let requested = requested(limit);
        let takes_it = |quota: &CompiledQuota| requested.is_some_and(|limit| quota.takes(&limit));
        let mut quotas = outcome.decisions().flat_map(|rule| rule.set.quotas());
        if !quotas.any(takes_it) {
            gate.note_limit_ignored(&limit.to_string());
        }
    }
    if descriptor.hits <= 1 {
        return;
    }
    let denies = |rule: &RuleDecision<'_>| rule.is_binding && rule.result.denies();
    if let Some(matched) = outcome.denied_by() {
        return gate.note_report_denied(matched.rule.name(), descriptor.hits, EXCLUDE_REPORTS);
    }
    let rules = outcome.decisions().filter(denies);
    let mut rules = rules.filter_map(|decided| policy.rules().get(decided.rule));
    if let Some(rule) = rules.find(|rule| !rule.is_reported()) {
        gate.note_report_denied(rule.name(), descriptor.hits, REPORT_COST);
    }
}

/// The response, and how long to wait before it.
fn reply(decisions: &[Decision]) -> (Vec<u8>, Span) {
    let outcomes: Vec<Outcome<'_>> = decisions
        .iter()
        .map(|decision| decision.decided.plan.outcome(&decision.active.policy))
        .collect();
    let lead = lead(&outcomes);
    let is_list = decisions
        .first()
        .is_some_and(|decision| decision.active.policy.response().headers.lists_quotas());
    let (mut body, mut fields, mut request_fields) = (String::new(), Vec::new(), Vec::new());
    for (index, outcome) in outcomes.iter().enumerate() {
        if index == lead {
            body = message_of(outcome);
        }
        outcome.headers(&mut |name, value| {
            let is_sent = match name {
                "content-type" => index == lead && !body.is_empty(),
                "ratelimit" | "ratelimit-policy" => index == lead || is_list,
                _ => index == lead,
            };
            if is_sent {
                fields.push((name, value.to_owned()));
            }
        });
        outcome.marks(&mut |name, value| request_fields.push((name, value)));
    }
    let statuses = outcomes.iter().map(|outcome| DescriptorStatus {
        is_over: is_over(outcome),
        nearest: outcome.nearest().map(nearest),
    });
    let response = RateLimitResponse {
        statuses: statuses.collect(),
        response_fields: fields.iter().map(|(name, value)| (*name, value.as_str())).collect(),
        request_fields,
        body: &body,
    };
    let delay = match response.is_over() {
        true => Span::ZERO,
        false => outcomes.iter().map(delay).max().unwrap_or(Span::ZERO),
    };
    (response.write(), delay)
}

/// The descriptor that the response is about: of those that are over their limit the one that stays
/// over it the longest, else the one that is nearest to its limit.
fn lead(outcomes: &[Outcome<'_>]) -> usize {
    let nearness = |outcome: &Outcome<'_>| match is_over(outcome) {
        // No wait helps at all: that counts as the longest.
        true => (0, u64::MAX.saturating_sub(outcome.retry_after().unwrap_or(Span::MAX).as_nanos())),
        false => (1, outcome.nearest().map_or(u64::MAX, |nearest| nearest.remaining)),
    };
    let lead = outcomes.iter().enumerate().min_by_key(|(_, outcome)| nearness(outcome));
    lead.map_or(0, |(index, _)| index)
}

/// The body, if it does not contradict Envoy's response.
fn message_of(outcome: &Outcome<'_>) -> String {
    let mut is_problem = false;
    outcome.headers(&mut |name, value| {
        is_problem |= (name, value) == ("content-type", ProblemDetails::MEDIA_TYPE)
    });
    match outcome.final_disposition() {
        Disposition::Deny { status } if status == ENVOYS_STATUS || !is_problem => outcome.body(),
        Disposition::Deny { .. }
        | Disposition::Allow
        | Disposition::Delay(_)
        | Disposition::Retry(_) => String::new(),
    }
}

fn is_over(outcome: &Outcome<'_>) -> bool {
    matches!(outcome.final_disposition(), Disposition::Deny { .. })
}

fn delay(outcome: &Outcome<'_>) -> Span {
    match outcome.final_disposition() {
        Disposition::Delay(delay) => delay,
        Disposition::Allow | Disposition::Retry(_) | Disposition::Deny { .. } => Span::ZERO,
    }
}

fn nearest(quota: NearestQuota<'_>) -> Nearest<'_> {
    Nearest {
        name: quota.name,
        limit: quota.limit,
        window: std::time::Duration::from_nanos(quota.window.as_nanos()),
        remaining: quota.remaining,
        reset_seconds: quota.reset_seconds,
    }
}

#[cfg(test)]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests"
)]
mod tests {
    use std::collections::HashMap;

    use crate::messages::status::Code;
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    use tokio::net::{TcpListener, TcpStream};
    use tollgate_core::Timestamp;
    use tollgate_redis::{Address, Engine, Options};
    use tollgate_service::log::Share;

    use super::*;
    use crate::clock::Clock;
    use crate::gate::Parts;
    use crate::log::Log;
    use crate::policy::active::{ProtocolRestrictions, compile};
    use crate::policy::following::{File, Following};
    use crate::store::Store;
    use crate::store::redis::Redis;

    /// One per year of each user.
    const POLICY: &str = r#"{"version": 1, "rules": [{"name": "user", "when": {"domain": "web"},
        "key": [{"descriptor": "user"}],
        "quotas": [{"algorithm": "fixed-window", "limit": 1, "window": "366d"}]}]}"#;

    /// The words of a command; `None` at the end.
    async fn command(read: &mut BufReader<TcpStream>) -> Option<Vec<Vec<u8>>> {
        async fn number(read: &mut BufReader<TcpStream>) -> Option<usize> {
            let mut line = String::new();
            read.read_line(&mut line).await.ok()?;
            line.get(1..)?.trim().parse().ok()
        }
        let mut words = Vec::new();
        for _ in 0..number(read).await? {
            let mut word = vec![0; number(read).await? + 2];
            read.read_exact(&mut word).await.ok()?;
            word.truncate(word.len() - 2);
            words.push(word);
        }
        Some(words)
    }

    /// An engine of one connection that has the script and knows no clock but this one.
    async fn engine(listener: TcpListener) {
        const NOW_MS: u64 = 1_780_000_000_000;
        let (stream, _) = listener.accept().await.expect("a connection");
        let (mut read, mut values) = (BufReader::new(stream), HashMap::new());
        while let Some(words) = command(&mut read).await {
            let mut reply = match &*words[0] {
                b"SCRIPT" => format!("$40\r\n{}\r\n", "a".repeat(40)).into_bytes(),
                _ => {
                    let [key, expected, new, life, at, number] =
                        [3, 4, 5, 6, 7, 9].map(|i| words[i].clone());
                    let stands: Vec<u8> = values.get(&key).cloned().unwrap_or_default();
                    let at: u64 = String::from_utf8(at).unwrap().parse().unwrap();
                    let what = match (at == 0, stands == expected) {
                        (true, _) => 2,
                        (_, false) => 1,
                        _ => 0,
                    };
                    match &*life {
                        _ if what != 0 => {}
                        b"-1" => {}
                        b"0" => _ = values.remove(&key),
                        _ => _ = values.insert(key, new),
                    }
                    let seconds = NOW_MS / 1_000;
                    let count = if what == 0 { 4 } else { 5 };
                    let mut reply =
                        format!("*{count}\r\n:{what}\r\n$10\r\n{seconds}\r\n$1\r\n0\r\n")
                            .into_bytes();
                    if what != 0 {
                        reply.extend(format!("${}\r\n", stands.len()).bytes());
                        reply.extend([&stands[..], b"\r\n"].concat());
                    }
                    reply.extend(format!("${}\r\n", number.len()).bytes());
                    reply.extend([&number[..], b"\r\n"].concat());
                    reply
                }
            };
            if read.get_mut().write_all(&std::mem::take(&mut reply)).await.is_err() {
                return;
            }
        }
    }

    /// A server whose store takes one request at a time.
    async fn gate() -> Arc<Gate> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("redis://{}", listener.local_addr().expect("bound"));
        tokio::spawn(engine(listener));
        let mut options = Options::new(Address::parse(&address).expect("an address"));
        // However slow the machine is.
        let timeout = std::time::Duration::from_secs(60);
        options.timeout = timeout;
        options.settings.tolerance_ms = 1 << 40;
        (options.shards, options.settings.max_asks) = (1, 1);
        let clock = Clock::showing(Timestamp::from_millis(1_780_000_000_000));
        let policy = compile(POLICY, b"", ProtocolRestrictions::default()).expect("a policy");
        let file = File::new(POLICY.to_owned(), policy);
        let engine = Engine::new(options).expect("random bytes");
        Gate::new(Parts {
            store: Store::Redis(Redis::new(engine, timeout, b"")),
            clock,
            log: Log::nowhere(clock),
            following: Following::new(file, false, false, ProtocolRestrictions::default()),
            hash_key: Vec::new(),
            fleet_secret: None,
            log_share: Share::DEFAULT,
            is_uncounted: false,
            seed: [9; 16],
        })
    }

    /// A message about these users, each a descriptor of its own.
    fn message(users: &[&str]) -> Vec<u8> {
        let field = |number: u8, bytes: &[u8]| {
            [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
        };
        let entry = |user: &str| [field(1, b"user"), field(2, user.as_bytes())].concat();
        let each = users.iter().flat_map(|user| field(2, &field(1, &entry(user))));
        field(1, b"web").into_iter().chain(each).collect()
    }

    // Guards: a client that is charged by a call that ended without a response, because another
    // part of it met an overload. One thread: both requests are sent before the store replies to
    // either.
    #[tokio::test]
    async fn what_was_charged_beside_an_overload_is_given_back() {
        let gate = gate().await;
        let ask = async |users: &[&str]| {
            let answered = answer(&gate, &message(users), check::FOREVER).await;
            answered.map(|bytes| bytes[..2].to_vec()).map_err(|status| status.code)
        };
        assert_eq!(ask(&["a", "b"]).await, Err(Code::Unavailable));
        let engine = gate.store.engine().expect("an engine");
        assert!(engine.tally().commits >= 2, "charged, and given back: {:?}", engine.tally());
        for user in ["a", "b"] {
            assert_eq!(ask(&[user]).await, Ok(vec![8, 1]), "{user} was charged nothing");
            assert_eq!(ask(&[user]).await, Ok(vec![8, 2]), "{user} has had one");
        }
    }
}
