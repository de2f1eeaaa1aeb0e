//! What is legal in a document, does what it says, and is surely not meant.
//!
//! Invariant: a warning is never a guess about taste; each names what happens to requests.

use alloc::format;
use core::cell::{Cell, RefCell};

use tollgate_core::Algorithm;

use crate::compile::Policy;
use crate::compile::covers::MAX_COMPARED;
use crate::document::conditions::Conditions;
use crate::document::identity::Source;
use crate::document::{Document, RuleDoc};
use crate::problem::Problems;
use crate::read::At;

/// Above this a log takes more than 2 KiB a key.
const LARGE_LOG: u64 = 256;

/// What is legal but surely not meant.
pub(super) fn warnings(document: &Document, policy: &Policy) -> Problems {
    let warnings = RefCell::new(Problems::default());
    let root = At::root(&warnings);
    if policy.settings.client.ignores_its_list() {
        root.field("client_ip").problem(
            "trusts nobody, so the list of addresses is not believed and every client is the connection's other end; \
             give trusted_proxies or trusted_hops"
                .into(),
        );
    }
    let client_ip = document.client_ip.as_ref();
    if let (Source::Header(_), true) =
        (&policy.settings.client.source, client_ip.is_some_and(|c| c.trusted_proxies.is_none()))
    {
        root.field("client_ip")
            .problem("believes a header from anybody; give trusted_proxies".into());
    }
    if document.rules.is_empty() {
        root.field("rules").problem("is empty: nothing is limited".into());
    }
    let rules_at = root.field("rules");
    let left = Cell::new(MAX_COMPARED);
    for (i, rule) in document.rules() {
        rule_warnings(document, rule, &left, &rules_at.item(i));
    }
    for set in &policy.sets {
        for meter in set.meters() {
            if meter.limiter().algorithm() == Algorithm::SlidingLog
                && meter.limiter().limit() > LARGE_LOG
            {
                let at = rules_at.item(set.rule());
                at.field("quotas").problem(format!(
                    "\"{}\" is a sliding-log of {}, which takes {} bytes a key; sliding-buckets takes far less",
                    meter.name(),
                    meter.limiter().limit(),
                    meter.limiter().state_len()
                ));
            }
        }
    }
    warnings.into_inner()
}

fn rule_warnings(document: &Document, rule: &RuleDoc, left: &Cell<usize>, at: &At<'_>) {
    let everything = Conditions::default();
    let when = rule.when.as_ref().unwrap_or(&everything);
    let mut exempts = document.exempt.iter().flatten().take_while(|_| left.get() > 0);
    if let Some(i) = exempts.position(|exempt| exempt.covers(when, left)) {
        at.problem(format!("never applies: every request it is for is exempt by exempt[{i}]"));
    }
}
