//! Whether conditions hold for a request.
//!
//! Invariant: the same code evaluates the conditions of rules, tiers, exemptions and explanations.

use alloc::borrow::Cow;

use crate::facts::Facts;
use crate::policy::index::IndexedBy;
use crate::request::lazy::Request;
use crate::request::matching::{Reading, fact_matches, header_matches, query_matches};
use crate::spec::bounds::MAX_SEARCHED;
use crate::spec::conditions::{Condition, Conditions};
use crate::spec::descriptor::{Entries, EntryMatcher};
use tollgate_http_syntax::malformed::Malformed;
use tollgate_http_syntax::path::{Pattern, all};

impl Conditions {
    /// True when every condition holds in every reading of the request: for exemptions.
    pub(crate) fn surely_hold<F: Facts>(&self, request: &Request<'_, F>) -> bool {
        self.hold(request, IndexedBy::Nothing, Reading::Every) == Ok(true)
    }

    /// True when every condition holds, without those that a look-up already checked: `indexed_by`.
    ///
    /// # Errors
    /// No condition fails, and at least one is unclear.
    pub(crate) fn hold<F: Facts>(
        &self,
        request: &Request<'_, F>,
        indexed_by: IndexedBy,
        reading: Reading,
    ) -> Result<bool, Malformed> {
        let is_known = |condition: &Condition| match condition {
            Condition::Paths(_) => indexed_by == IndexedBy::Path,
            Condition::Hosts(_) => indexed_by == IndexedBy::Host && request.host().is_ok(),
            Condition::Methods(..)
            | Condition::Header(..)
            | Condition::Query(..)
            | Condition::ClientCidrs(..)
            | Condition::Routes(..)
            | Condition::Countries(..)
            | Condition::Asns(..)
            | Condition::Domain(..)
            | Condition::Descriptor(..)
            | Condition::Entries(..)
            | Condition::Beside(..) => false,
        };
        let mut unclear = Ok(true);
        for condition in self.0.iter().filter(|condition| !is_known(condition)) {
            match condition.holds(request, reading) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(malformed) => unclear = Err(malformed),
            }
        }
        unclear
    }
}

impl Condition {
    /// True when it holds.
    ///
    /// # Errors
    /// It is unclear whether the condition holds.
    #[inline(never)] // most rules have no condition left that the look-up did not check
    pub(crate) fn holds<F: Facts>(
        &self,
        request: &Request<'_, F>,
        reading: Reading,
    ) -> Result<bool, Malformed> {
        Ok(match self {
            Self::Methods(list) => {
                list.iter().any(|method| method.is(request.method(), reading != Reading::Every))
            }
            Self::Hosts(list) => {
                let host = request.host()?;
                list.iter().any(|wanted| wanted.matches(host))
            }
            Self::Paths(list) => all(list) || path_matches(list, request, reading),
            Self::Header(name, wanted) => match request.facts.header(&name.0) {
                Some(value) => header_matches(&name.0, &value, wanted, reading)?,
                None => false,
            },
            Self::Query(name, wanted) => query_matches(request, name.as_bytes(), wanted, reading)?,
            Self::ClientCidrs(list) => request.client().is_some_and(|client| list.contain(client)),
            Self::Routes(list) => {
                let route = request.facts.route();
                route.is_some_and(|route| list.iter().any(|r| r.as_bytes() == route.as_ref()))
            }
            Self::Countries(list) => {
                let is_one = |c: &[u8]| list.iter().any(|code| code.0.eq_ignore_ascii_case(c));
                fact_matches(request.country(), is_one, reading)?
            }
            Self::Domain(list) => {
                let domain = request.facts.domain();
                domain.is_some_and(|domain| list.iter().any(|d| d.as_bytes() == domain.as_ref()))
            }
            Self::Descriptor(key, wanted) => descriptor_matches(request, key, wanted, reading)?,
            Self::Entries(list) => entries_match(list, request)?,
            Self::Beside(list) => beside_matches(list, request)?,
            Self::Asns(list) => {
                let is_one = |a: &[u8]| list.iter().any(|asn| asn.0 == a);
                fact_matches(request.asn(), is_one, reading)?
            }
        })
    }
}

/// True when the values of an entry match.
///
/// # Errors
/// One is too long to be searched.
fn descriptor_matches<F: Facts>(
    request: &Request<'_, F>,
    key: &str,
    wanted: &[EntryMatcher],
    reading: Reading,
) -> Result<bool, Malformed> {
    let mut values = request.values_of(key.as_bytes());
    if are_long(request.values_of(key.as_bytes())) && wanted.iter().any(EntryMatcher::has_regex) {
        return Err(Malformed::Long);
    }
    let is_wanted = |value: Cow<'_, [u8]>| wanted.iter().any(|m| m.matches(&value));
    Ok(match reading {
        Reading::Every => values.next().is_some_and(is_wanted) && values.all(is_wanted),
        Reading::Any | Reading::Main(..) => values.any(is_wanted),
    })
}

/// True when the descriptor is one of these.
///
/// # Errors
/// A value of it is too long to be searched.
fn entries_match<F: Facts>(list: &[Entries], request: &Request<'_, F>) -> Result<bool, Malformed> {
    if are_long(request.entries().map(|entry| entry.value)) && list.iter().any(Entries::have_regex)
    {
        return Err(Malformed::Long);
    }
    Ok(list.iter().any(|wanted| wanted.matches(request.entries())))
}

/// True when another descriptor of the request is one of these.
///
/// # Errors
/// A value of one is too long to be searched.
fn beside_matches<F: Facts>(list: &[Entries], request: &Request<'_, F>) -> Result<bool, Malformed> {
    if are_long(request.beside().flatten().map(|entry| entry.value))
        && list.iter().any(Entries::have_regex)
    {
        return Err(Malformed::Long);
    }
    Ok(list.iter().any(|wanted| request.beside().any(|other| wanted.matches(other))))
}

/// True when one of these is too long to be searched.
fn are_long<'v>(mut values: impl Iterator<Item = Cow<'v, [u8]>>) -> bool {
    values.any(|value| value.len() > MAX_SEARCHED)
}

fn path_matches<F: Facts>(list: &[Pattern], request: &Request<'_, F>, reading: Reading) -> bool {
    let paths = request.paths();
    let matches = |path| list.iter().any(|pattern| pattern.matches(path).is_some());
    match reading {
        Reading::Any => paths.all().any(matches),
        Reading::Every => paths.all().all(matches),
        Reading::Main(..) => matches(paths.main()),
    }
}
