//! From quotas as written to limiters.
//!
//! Invariant: an error of the core is reported at the field to correct, in the core's words.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::{Algorithm, Limiter, Quota, QuotaError};

use crate::compile::calendar::{Windows, windows};
use crate::compile::closed;
use crate::compile::identities::TWICE;
use crate::compile::limit_from::limit_from;
use crate::document::rule::QuotaDoc;
use crate::json::place::At;
use crate::json::reader::Lenient;
use tollgate_policy::spec::{MAX_QUOTAS, QuotaSpec, parts_of};

/// The quotas of one rule or tier, reduced to the part of each of `nodes`.
pub(crate) fn quotas(
    docs: &[Lenient<QuotaDoc>],
    rule_name: &str,
    nodes: u32,
    at: &At<'_>,
) -> Vec<QuotaSpec> {
    if docs.is_empty() || docs.len() > MAX_QUOTAS {
        at.problem(format!("has {} quotas; use 1 to {MAX_QUOTAS}", docs.len()));
    }
    let mut quotas: Vec<QuotaSpec> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for (i, doc) in docs.iter().enumerate().take(MAX_QUOTAS) {
        let Some(doc) = &doc.0 else { continue };
        let at = at.item(i);
        let name = match &doc.name {
            Some(Lenient(Some(name))) => name.0.clone(),
            Some(Lenient(None)) => continue, // its problem is noted
            None if docs.len() == 1 => rule_name.into(),
            None => {
                at.field("name")
                    .problem("is missing; every one of several quotas needs a name".into());
                continue;
            }
        };
        if names.contains(&name) {
            at.field("name").problem(TWICE.into());
        }
        if doc.is_closed() && docs.len() > 1 {
            at.field("limit").problem(closed::ALONE.into());
        }
        names.push(name.clone());
        if let Some(limiter) = limiter(doc, &at) {
            if limiter.is_closed() {
                quotas.push(QuotaSpec { name, limiter, limit_from: None });
                continue;
            }
            let penalised = doc.penalty.map(|penalty| limiter.with_penalty(penalty.0));
            if penalised == Some(None) {
                at.field("penalty").problem(QUEUES.into());
            }
            let limiter = penalised.flatten().unwrap_or(limiter);
            let limit_from = limit_from(doc, &at);
            quotas.push(QuotaSpec { name, limiter, limit_from });
        }
    }
    // When one is wrong, the others no longer have the indices of the document's quotas.
    if nodes == 1 || quotas.len() != docs.len() {
        return quotas;
    }
    parts_of(&quotas, nodes, |(i, field, words)| at.item(i).field(field).problem(words))
}

const NO_WINDOW: &str = "is missing";
const QUEUES: &str = "is for requests that are denied, and \"leaky-queue\" makes them wait; use another algorithm, or leave it out";

/// The limiter of one quota; `None` when the core rejects it, or its limit or window could not be
/// read.
fn limiter(doc: &QuotaDoc, at: &At<'_>) -> Option<Limiter> {
    if doc.is_closed() {
        return closed::limiter(doc, at);
    }
    let algorithm = algorithm(doc, at);
    let Some(window) = &doc.window else {
        at.field("window").problem(NO_WINDOW.into());
        return None;
    };
    let windows = window.0.and_then(|window| windows(doc, window, at));
    let (limit, windows) = (doc.limit.0?.0, windows?);
    let limit = match &doc.limit_from {
        Some(Lenient(from)) => from.as_ref()?.max,
        None => limit,
    };
    let window = match windows {
        Windows::Length(window) => window,
        Windows::Calendar(calendar) => {
            let built = Limiter::new_calendar_window(limit, calendar);
            return built.map_err(|error| explain(error, limit, doc, at)).ok();
        }
    };
    let built = Quota::new(limit, window).and_then(|quota| match doc.burst {
        Some(burst) => quota.with_burst(burst.0),
        None => Ok(quota),
    });
    let built = built.map(|quota| if doc.strict == Some(true) { quota.strict() } else { quota });
    built
        .and_then(|quota| Limiter::new(algorithm, quota))
        .map_err(|error| explain(error, limit, doc, at))
        .ok()
}

fn algorithm(doc: &QuotaDoc, at: &At<'_>) -> Algorithm {
    let mut algorithm = doc.algorithm.unwrap_or(Algorithm::Gcra);
    let given = [("buckets", doc.buckets.is_some()), ("weighted", doc.weighted.is_some())];
    for (field, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
        if algorithm.buckets().is_none() {
            at.field(field)
                .problem("is for the algorithm \"sliding-buckets\" only; leave it out".into());
        }
    }
    if let Some(buckets) = doc.buckets {
        algorithm = algorithm.with_buckets(buckets.0);
    }
    if doc.weighted == Some(true) { algorithm.weighted() } else { algorithm }
}

/// Notes the core's error at the field that the author of the document can correct.
fn explain(error: QuotaError, limit: u64, doc: &QuotaDoc, at: &At<'_>) {
    let (field, value) = match error {
        QuotaError::Window => ("window", None),
        QuotaError::NoStrict => ("strict", None),
        QuotaError::Burst { .. } | QuotaError::StrictBurst { .. } | QuotaError::NoBurst => {
            ("burst", doc.burst.map(|burst| burst.0))
        }
        QuotaError::Buckets => ("buckets", doc.buckets.map(|buckets| u64::from(buckets.0))),
        // Their fields have these bounds.
        QuotaError::UtcOffset => ("utc_offset", None),
        QuotaError::AnchorDay => ("anchor_day", None),
        QuotaError::Penalty => ("penalty", None),
        QuotaError::MaxAge => ("max_age", None),
        QuotaError::Limit | QuotaError::TooDense { .. } | QuotaError::LimitOfAlgorithm { .. } => {
            ("limit", Some(limit))
        }
    };
    let message = match value {
        Some(value) => format!("{value} is not valid: {error}"),
        None => format!("{error}"),
    };
    match &doc.limit_from {
        Some(_) if field == "limit" => at.field("limit_from").field("max").problem(message),
        _ => at.field(field).problem(message),
    }
}
