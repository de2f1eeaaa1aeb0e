//! A document that is to be put in force, beside the one that is.
//!
//! Invariant: what comes out was compiled as it will be enforced, with its keys in it; what is said
//! about it has nothing of the keys.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;
use tollgate_policy::{Policy, Problems};

use crate::admin::json_body::{self, invalids};
use crate::answer::Answer;
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
    /// The answer when the text is not there.
    pub(crate) fn kept(version: &'a Current) -> Result<Self, Answer> {
        let lost = || Wrong::StoreUnavailable.answer("the store has lost the text");
        let text = version.text.as_deref().ok_or_else(lost)?;
        Ok(Self { version: version.version, source: version.source, text })
    }

    /// What the store answered; the text of the deployed file is known here.
    ///
    /// # Errors
    /// The answer when the text is not there.
    pub(crate) fn new(service: &Service<'a>, current: &'a Current) -> Result<Self, Answer> {
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

    /// The document as it may be seen; nothing when it is none.
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
pub(crate) struct Ready {
    /// As it is put in force.
    text: String,
    /// As it may be seen.
    shown: String,
    changes: Changes,
    warnings: Problems,
    /// What a dry run says of the entries of tenants, where there may be some.
    entries: Option<&'static str>,
}

/// Entries are as many as tenants, and stay whatever becomes of the policy: a dry run looks at none
/// of them, and says so.
const ENTRIES: &str = "entries of tenants are not looked at: one that names a tier or a rule that goes away stays, without \
                       that effect; \"without_effect\" of GET admin/tenants says so once this is in force";
const NO_TENANTS: &str = "entries of tenants are not looked at: all that there are stay, and have no effect, because this \
                          policy does not say who a tenant is";

/// What is answered about a change.
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

impl Ready {
    /// A document as it was sent, to be put in place of `current`.
    ///
    /// # Errors
    /// The answer: it is not JSON, or no policy.
    pub(crate) fn sent(
        service: &Service<'_>,
        current: &InForce<'_>,
        text: &str,
    ) -> Result<Self, Answer> {
        if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(without_mark(text)) {
            return Err(json_body::not_json(&error, text));
        }
        let text = unmasked(text, current.text).map_err(|problems| invalids(&problems))?;
        Self::new(service, current, text)
    }

    /// A whole document, to be put in place of `current`.
    ///
    /// # Errors
    /// The answer: it is no policy.
    pub(crate) fn new(
        service: &Service<'_>,
        current: &InForce<'_>,
        text: String,
    ) -> Result<Self, Answer> {
        let compiled = Policy::compile(&text, service.surface).and_then(|policy| {
            let problems = (service.objections)(&policy);
            if problems.0.is_empty() { Ok(policy) } else { Err(problems) }
        });
        let policy = compiled.map_err(|problems| invalids(&discreet(problems)))?;
        let before = Policy::compile(current.text, service.surface).ok();
        let changes = Changes::between(
            Compiled { text: current.text, policy: before.as_ref() },
            Compiled { text: &text, policy: Some(&policy) },
        );
        let warnings = discreet(policy.warnings().clone());
        let had_tenants = before.as_ref().is_some_and(Policy::has_tenants);
        let entries = match (policy.has_tenants(), had_tenants) {
            (true, _) => Some(ENTRIES),
            (false, true) => Some(NO_TENANTS),
            (false, false) => None,
        };
        let shown = masked(&text).unwrap_or_default();
        Ok(Self { text, shown, changes, warnings, entries })
    }

    /// What the history says.
    pub(crate) fn summary(&self) -> Summary {
        self.changes.summary()
    }

    /// True when it is `text`, byte for byte.
    pub(crate) fn is_text(&self, text: &str) -> bool {
        self.text == text
    }

    /// The document, to be put in force; it is not here any more.
    pub(crate) fn take_text(&mut self) -> String {
        core::mem::take(&mut self.text)
    }

    /// What is answered: this is in force as `version`.
    pub(crate) fn answer(&self, version: u64) -> Answer {
        self.report(version, false).with("etag", &strong(version, &self.shown))
    }

    /// What is answered to a dry run: `current` is still in force.
    pub(crate) fn dry_answer(&self, current: &InForce<'_>) -> Answer {
        self.report(current.version, true).with("etag", &current.tag())
    }

    fn report(&self, version: u64, dry_run: bool) -> Answer {
        let warnings = self.warnings.0.iter();
        let warnings = warnings.map(|it| Warning { path: &it.path, detail: &it.message });
        let entries = self.entries.filter(|_| dry_run);
        let entries = entries.map(|detail| Warning { path: "tenant", detail });
        let warnings = warnings.chain(entries).collect();
        let report = Report { version, dry_run, changes: &self.changes, warnings };
        Answer::json(serde_json::to_string(&report).unwrap_or_default())
    }
}
