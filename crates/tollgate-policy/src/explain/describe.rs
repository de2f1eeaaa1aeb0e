//! A compiled policy in words: the address of the client, when a rule applies, its key and its
//! actions.
//!
//! Invariant: the words are generated from the compiled policy, defaults included, never from the
//! document, so they describe the policy that is enforced. Deliberately absent: quotas and their
//! bounds, which the caller phrases (`words`), and the values that name keys (`key_values`).

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tollgate_core::Span;

use crate::explain::rules::Explain;
use crate::policy::compiled::Policy;
use crate::policy::rule::{Rule, Tier};
use crate::spec::action::{Action, Delay, Reply};
use crate::spec::charging::Charging;
use crate::spec::client_ip::Source;
use crate::spec::client_ip::Trust;
use crate::spec::conditions::Conditions;
use crate::spec::cost::Cost;
use crate::spec::deny::DenyRule;
use crate::spec::json_cost::{JsonCost, WeightedNumber};
use crate::spec::key_item::items;
use crate::spec::limits::Limits;
use crate::spec::mode::{Mode, Share};
use crate::spec::on_failure::OnFailure;
use crate::spec::on_missing::OnMissing;
use crate::spec::quote::quoted_text;
use crate::spec::scope::Scope;
use crate::spec::settled_cost::ActualCost;
use crate::spec::status::{Ending, StatusPattern};
use tollgate_http_syntax::readings::EscapedSlashes;
use tollgate_http_syntax::repeated::Repeated;

/// One rule in words; each is a phrase without a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleInWords {
    /// `requests with method POST and path /login`
    pub applies: String,
    /// `client address and header x-api-key`
    pub key: String,
    /// The effect on a request without a key part; `None` when every request has all parts.
    pub on_missing: Option<&'static str>,
    /// `1 unit per request`
    pub cost: String,
    /// `when a request is allowed`
    pub charge: String,
    /// `enforced for every key`
    pub mode: String,
    /// `deny with 429`
    pub action: String,
    /// `allow the request`
    pub on_failure: &'static str,
    /// `one count for the fleet, leased for at most 2 s`; `None` when each node has its own count.
    pub scope: Option<String>,
    /// The behaviour of a node that reaches no authority:
    /// `count on its own, with a part of 1 in 12 of each limit`; `None` when the rule has no
    /// authority, or `on_failure` decides.
    pub without_authority: Option<String>,
    /// The index of the rule's own quotas in [`Policy::quota_sets`].
    pub quota_set: usize,
    /// The tiers, in the order in which they are tried.
    pub tiers: Vec<TierInWords>,
}

/// One rule that denies, in words; each is a phrase without a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenyRuleInWords {
    /// `clients in 192.0.2.0/24`
    pub applies: String,
    /// `enforced`
    pub mode: &'static str,
    /// `deny with 403, without a count`
    pub action: String,
}

/// One tier in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierInWords {
    /// `requests with header x-plan "gold"` or `2 values of the key`
    pub applies: String,
    /// The index of its quotas in [`Policy::quota_sets`].
    pub quota_set: usize,
}

impl<'p> Explain<'p> {
    /// Rule `i` of [`Policy::rules`] in words.
    #[must_use]
    pub fn rule(&self, i: usize) -> Option<RuleInWords> {
        let rule = self.0.rules.get(i)?;
        let key = self
            .0
            .groups
            .get(usize::from(rule.terms.group))
            .map_or(&[][..], |group| &group.spec.key);
        Some(RuleInWords {
            applies: applies(rule.terms.when.as_ref(), rule.terms.unless.as_ref()),
            key: if key.is_empty() {
                "one count for all requests".to_owned()
            } else {
                joined(items(key).map(|item| item.to_string()), " and ")
            },
            on_missing: (!items(key).all(|item| item.is_always_there())).then_some(
                match rule.terms.on_missing {
                    OnMissing::Skip => "the rule does not apply",
                    OnMissing::Deny => "deny",
                    OnMissing::Shared => "all such requests share one count",
                },
            ),
            cost: cost(&rule.terms.cost),
            charge: match rule.is_reported() {
                true => "when reported, whatever is decided".to_owned(),
                false => charging(&rule.terms.charging),
            },
            mode: mode(rule.terms.mode),
            action: action(self.0, &rule.terms.action),
            on_failure: match rule.terms.on_failure {
                OnFailure::Allow => "allow the request",
                OnFailure::Deny => "deny with 503",
            },
            scope: scope(rule),
            without_authority: rule
                .terms
                .fallback
                .map(|nodes| format!("count on its own{}", part(nodes))),
            quota_set: rule.set.into(),
            tiers: rule.tiers.iter().map(tier).collect(),
        })
    }

    /// Each rule of [`Policy::deny_rules`] in words.
    #[must_use]
    pub fn deny_rules(&self) -> Vec<DenyRuleInWords> {
        let in_words = |rule: &DenyRule| DenyRuleInWords {
            applies: applies(rule.when.as_ref(), rule.unless.as_ref()),
            mode: match rule.is_enforced {
                true => "enforced",
                false => "shadow: counted, never denied",
            },
            action: format!("deny with {}, without a count", answer(&rule.reply)),
        };
        self.0.deny.rules.iter().map(in_words).collect()
    }

    /// The requests that no rule applies to, one phrase per item of `exempt`.
    #[must_use]
    pub fn exempt(&self) -> Vec<String> {
        self.0.exempt.iter().map(requests_with).collect()
    }

    /// The key part that identifies a tenant, in words: `verified claim org`; `None` without
    /// tenants.
    #[must_use]
    pub fn tenant(&self) -> Option<String> {
        self.0.tenant.as_ref().map(|tenant| tenant.part.to_string())
    }

    /// The meaning of an escaped slash in a path, in words; `None` for the default.
    #[must_use]
    pub fn escaped_slashes(&self) -> Option<&'static str> {
        match self.0.settings.spec.escaped_slashes {
            EscapedSlashes::Separator => None,
            EscapedSlashes::Literal => {
                Some("%2F and %5C in a path are ordinary characters of the segment")
            }
        }
    }

    /// The meaning of the case of letters in a path, in words; `None` for the default.
    #[must_use]
    pub fn path_case(&self) -> Option<&'static str> {
        let is_ignored = self.0.settings.spec.case_insensitive_paths;
        is_ignored.then_some("ASCII letters of a path count in lower case")
    }

    /// The source of the client's address, in words.
    #[must_use]
    pub fn client(&self) -> String {
        let client = &self.0.settings.spec.client;
        let whose = |name: &str| match &client.trust {
            Trust::NoProxy => {
                format!("the peer address; no proxy is trusted to write {name}")
            }
            Trust::Proxies(networks) => format!(
                "{name}, read from the right, skipping proxies in {}",
                joined(networks.iter().map(ToString::to_string), " or ")
            ),
            Trust::Hops(1) => format!("the last address of {name}"),
            Trust::Hops(hops) => format!("{name}, the address number {hops} from the right"),
        };
        let from = match (&client.source, &client.trust) {
            (Source::Connection, _) => "the peer address".to_owned(),
            (Source::CfConnectingIp, _) => "CF-Connecting-IP".to_owned(),
            (Source::XForwardedFor, _) => whose("X-Forwarded-For"),
            (Source::Forwarded, _) => whose("Forwarded"),
            (Source::Header(name), Trust::Proxies(networks)) => format!(
                "header {}, if the connection comes from {}",
                name.0,
                joined(networks.iter().map(ToString::to_string), " or ")
            ),
            (Source::Header(name), Trust::NoProxy) => whose(&name.0),
            (Source::Header(name), Trust::Hops(_)) => format!("header {}, from any sender", name.0),
        };
        let prefixes = self.0.settings.spec.prefixes;
        format!("{from}; one client is an IPv4 /{} or an IPv6 /{}", prefixes.ipv4, prefixes.ipv6)
    }
}

fn applies(when: Option<&Conditions>, unless: Option<&Conditions>) -> String {
    let mut text = match when {
        Some(when) => requests_with(when),
        None => "every request".to_owned(),
    };
    if let Some(unless) = unless {
        text.push_str(&format!(", but not with {}", unless));
    }
    text
}

fn tier(tier: &Tier) -> TierInWords {
    let values = match tier.key_values.len() {
        0 => None,
        1 => Some("one value of the key".to_owned()),
        n => Some(format!("{n} values of the key")),
    };
    let when = tier.when.as_ref().map(requests_with);
    let applies = joined(when.into_iter().chain(values), ", for ");
    TierInWords { applies, quota_set: tier.set.into() }
}

fn requests_with(when: &Conditions) -> String {
    match when.to_string() {
        text if text.is_empty() => "every request".to_owned(),
        text => format!("requests with {text}"),
    }
}

fn cost(cost: &Cost) -> String {
    match cost {
        Cost::Fixed(1) => "1 unit per request".to_owned(),
        Cost::Fixed(n) => format!("{n} units per request"),
        Cost::Header { name, default, max, repeated } => {
            let which = repeated.map_or("", Repeated::in_words);
            format!("header {}{which}, at most {max}; without it {default}", name.0)
        }
        Cost::Reported => "the hits of a descriptor".to_owned(),
        Cost::ContentLengthPer(bytes) => {
            format!("1 unit for every {bytes} bytes of content-length, at least 1")
        }
    }
}

fn scope(rule: &Rule) -> Option<String> {
    Some(match rule.terms.scope {
        Scope::Local => return None,
        Scope::Share(nodes) => format!("each node counts on its own{}", part(nodes)),
        Scope::Fleet if rule.terms.lease == Span::ZERO => {
            "one count for the fleet, asked for each request".to_owned()
        }
        Scope::Fleet => format!(
            "one count for the fleet; a node may hold units of it for at most {}",
            span(rule.terms.lease)
        ),
    })
}

/// The part of each limit that one of several nodes has.
fn part(nodes: u32) -> String {
    if nodes == 1 { String::new() } else { format!(", with limits divided by {nodes}") }
}

fn charging(charging: &Charging) -> String {
    match charging {
        Charging::Request => "when a request is allowed".to_owned(),
        Charging::InFlight => "while the request is in flight".to_owned(),
        Charging::Response(charge) => {
            let statuses = joined(charge.response_status.0.iter().map(status), " or ");
            let never = if charge.charges(Ending::Disconnect) { ", or never comes" } else { "" };
            let when = if charge.reserves() {
                "when a request is allowed, and given back unless"
            } else {
                "when"
            };
            format!("{when} the response has status {statuses}{never}")
        }
        Charging::Settled(settled) => {
            let shown = match &settled.actual {
                ActualCost::Header(name) => format!("the response's header {}", name.0),
                ActualCost::Metadata(path) => {
                    format!("the metadata {path} at the response's end")
                }
                ActualCost::BytesPer(1) => "the bytes of the response's body".to_owned(),
                ActualCost::BytesPer(bytes) => {
                    format!("the bytes of the response's body, 1 for each {bytes}")
                }
                ActualCost::Duration => "the milliseconds until the response's end".to_owned(),
                ActualCost::Json(cost) => json_cost(cost),
            };
            let of_status = settled
                .on_status
                .iter()
                .map(|cost| format!("; {} for status {}", cost.cost, status(&cost.statuses)));
            format!(
                "as an estimate when a request is allowed, and settled by {shown}: at most \
                 {}{}",
                settled.max,
                of_status.collect::<String>()
            )
        }
    }
}

fn json_cost(cost: &JsonCost) -> String {
    let number = |WeightedNumber { pointer, weight }: &WeightedNumber| match weight {
        1 => quoted_text(pointer),
        weight => format!("{weight} x {}", quoted_text(pointer)),
    };
    let numbers = joined(cost.numbers.iter().map(number), " + ");
    let asked = if cost.identity { ", which the origin is asked not to compress" } else { "" };
    format!("{numbers} in the response's JSON{asked}")
}

fn status(pattern: &StatusPattern) -> String {
    let (from, to) = pattern.range();
    if from == to { from.to_string() } else { format!("{from} to {to}") }
}

fn mode(mode: Mode) -> String {
    match mode {
        Mode::Enforce => "enforced for every key".to_owned(),
        Mode::Shadow => "shadow: decided and counted, never denied".to_owned(),
        Mode::EnforcePercent(Share { percent, hash_key }) => {
            let by = if hash_key.is_some() { "the salt" } else { "a secret of the surface" };
            format!("enforced for {percent} % of the keys, which {by} chooses")
        }
    }
}

fn action(policy: &Policy, action: &Action) -> String {
    match action {
        Action::Deny(None) => "deny with 429".to_owned(),
        Action::Deny(Some(reply)) => format!("deny with {}", answer(reply)),
        Action::Delay(Delay { max, priority }) => {
            let Limits { per_key, total, bytes } = policy.waiting();
            format!(
                "wait in line at most {}, then deny with 429; {}a worker holds {per_key} requests of a key, \
                 {total} in all, {bytes} bytes",
                span(*max),
                first_go(priority),
            )
        }
        Action::Mark(mark) => format!("forward with header {}: {}", mark.header.0, mark.value.0),
        Action::Respond(reply) => {
            format!("respond with {} without the reason; do not forward", answer(reply))
        }
    }
}

/// `requests with header x-plan "gold" first, then all others; `
fn first_go(priority: &[Conditions]) -> String {
    if priority.is_empty() {
        return String::new();
    }
    let those = joined(priority.iter().map(requests_with), ", then ");
    format!("{those} first, then all others; ")
}

fn answer(reply: &Reply) -> String {
    match &reply.body {
        Some(_) => format!("{} and a body of its own", reply.status.0),
        None => reply.status.0.to_string(),
    }
}

/// A wait as the document contains it: `500 ms` or `2 s`.
fn span(span: Span) -> String {
    let secs = span.as_secs_ceil();
    if Span::from_secs(secs) == span {
        format!("{secs} s")
    } else {
        format!("{} ms", span.as_millis_ceil())
    }
}

pub(super) fn joined(texts: impl Iterator<Item = String>, separator: &str) -> String {
    texts.collect::<Vec<_>>().join(separator)
}
