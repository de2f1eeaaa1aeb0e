//! A document that is to be put in force, and the one that is in force.
//!
//! Invariant: a `CheckedDocument` was compiled as it will be enforced, with its keys in it; reports
//! about it contain nothing of the keys.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;
use tollgate_policy::Problems;

use crate::admin::json_body::{self, invalids};
use crate::api_response::ApiResponse;
use crate::changes::{Changes, Compiled};
use crate::document::without_mark;
use crate::entity_tag::strong;
use crate::mask::{discreet, masked, unmasked};
use crate::problem::Wrong;
use crate::service::Service;
use crate::store::policy::{Current, Source, Summary};

/// The policy in force, or a version of it, as it is known here.
#[derive(Debug)]
pub(crate) struct InForce<'a> {
    pub(crate) version: u64,
    pub(crate) source: Source,
    pub(crate) text: &'a str,
}

impl<'a> InForce<'a> {
    /// A version of the history, whose text the store always sends.
    ///
    /// # Errors
    /// The response when the text is not there.
    pub(crate) fn kept(version: &'a Current) -> Result<Self, ApiResponse> {
        let lost = || Wrong::StoreUnavailable.answer("the store has lost the text");
        let text = version.text.as_deref().ok_or_else(lost)?;
        Ok(Self { version: version.version, source: version.source, text })
    }

    /// The store's reply; the text of the deployed file is known here.
    ///
    /// # Errors
    /// The response when the text is not there.
    pub(crate) fn new(service: &Service<'a>, current: &'a Current) -> Result<Self, ApiResponse> {
        let Current { version, source, text, generation: _, relieved: _ } = current;
        let (version, source) = (*version, *source);
        let text: &'a str = match (text, source) {
            (Some(text), _) => text,
            (None, Source::Deployed) => service.deployed.text,
            (None, Source::Written) => {
                return Err(Wrong::StoreUnavailable.answer("the store has lost the text"));
            }
        };
        Ok(Self { version, source, text })
    }

    /// The masked document; `None` when it is not a document.
    pub(crate) fn shown(&self) -> Option<String> {
        masked(self.text)
    }

    /// The tag of the document.
    pub(crate) fn tag(&self) -> String {
        strong(self.version, &self.shown().unwrap_or_default())
    }
}

/// A document that may be put in force.
#[derive(Debug)]
pub(crate) struct CheckedDocument {
    /// The text that is put in force.
    text: String,
    /// The masked text.
    shown: String,
    changes: Changes,
    warnings: Problems,
    /// A note in a dry run about the entries of tenants, where there may be some.
    entries: Option<&'static str>,
}

/// There are as many entries as tenants, and they stay whatever policy is in force: a dry run
/// checks none of them, and reports that.
const ENTRIES: &str = "entries of tenants are not checked: one that names a removed tier or rule stays, without that \
                       effect; \"without_effect\" of GET admin/tenants shows it once this is in force";
const NO_TENANTS: &str = "entries of tenants are not checked: all of them stay, without effect, because this policy does \
                          not define tenants";

/// The report about a change.
#[derive(Serialize)]
struct Report<'a> {
    /// The version that is in force now.
    version: u64,
    dry_run: bool,
    changes: &'a Changes,
    warnings: Vec<Warning<'a>>,
}

#[derive(Serialize)]
struct Warning<'a> {
    path: &'a str,
    detail: &'a str,
}

impl CheckedDocument {
    /// A document as it was sent, to replace `current`.
    ///
    /// # Errors
    /// The response: it is not JSON, or not a policy.
    pub(crate) fn sent(
        service: &Service<'_>,
        current: &InForce<'_>,
        text: &str,
    ) -> Result<Self, ApiResponse> {
        if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(without_mark(text)) {
            return Err(json_body::not_json(&error, text));
        }
        let text = unmasked(text, current.text).map_err(|problems| invalids(&problems))?;
        Self::new(service, current, text)
    }

    /// A whole document, to replace `current`.
    ///
    /// # Errors
    /// The response: it is not a policy.
    pub(crate) fn new(
        service: &Service<'_>,
        current: &InForce<'_>,
        text: String,
    ) -> Result<Self, ApiResponse> {
        let compiled = tollgate_language::compile(&text, service.surface).and_then(|policy| {
            let problems = (service.objections)(&policy);
            if problems.0.is_empty() { Ok(policy) } else { Err(problems) }
        });
        let policy = compiled.map_err(|problems| invalids(&discreet(problems)))?;
        let before = tollgate_language::compile(current.text, service.surface).ok();
        let changes = Changes::between(
            Compiled { text: current.text, policy: before.as_ref() },
            Compiled { text: &text, policy: Some(&policy) },
        );
        let warnings = discreet(policy.warnings().clone());
        let had_tenants = before.as_ref().is_some_and(|policy| policy.tenants().is_some());
        let entries = match (policy.tenants().is_some(), had_tenants) {
            (true, _) => Some(ENTRIES),
            (false, true) => Some(NO_TENANTS),
            (false, false) => None,
        };
        let shown = masked(&text).unwrap_or_default();
        Ok(Self { text, shown, changes, warnings, entries })
    }

    /// The summary for the history.
    pub(crate) fn summary(&self) -> Summary {
        self.changes.summary()
    }

    /// True when it is `text`, byte for byte.
    pub(crate) fn is_text(&self, text: &str) -> bool {
        self.text == text
    }

    /// Takes the document, to put it in force.
    pub(crate) fn take_text(&mut self) -> String {
        core::mem::take(&mut self.text)
    }

    /// The response: this is in force as `version`.
    pub(crate) fn answer(&self, version: u64) -> ApiResponse {
        self.report(version, false).with("etag", &strong(version, &self.shown))
    }

    /// The response to a dry run: `current` is still in force.
    pub(crate) fn dry_answer(&self, current: &InForce<'_>) -> ApiResponse {
        self.report(current.version, true).with("etag", &current.tag())
    }

    fn report(&self, version: u64, dry_run: bool) -> ApiResponse {
        let warnings = self.warnings.0.iter();
        let warnings = warnings.map(|it| Warning { path: &it.path, detail: &it.message });
        let entries = self.entries.filter(|_| dry_run);
        let entries = entries.map(|detail| Warning { path: "tenant", detail });
        let warnings = warnings.chain(entries).collect();
        let report = Report { version, dry_run, changes: &self.changes, warnings };
        ApiResponse::json(serde_json::to_string(&report).unwrap_or_default())
    }
}
