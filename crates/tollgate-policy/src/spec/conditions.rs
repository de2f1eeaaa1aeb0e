//! Conditions on a request: `when`, `unless` and `exempt`.
//!
//! Invariant: all conditions that are given must hold; the values of one condition are
//! alternatives. An empty list matches nothing and is therefore an error. `request::conditions`
//! checks whether a condition holds for a request; everything else about conditions is in this
//! file.

use alloc::string::String;
use alloc::vec::Vec;
#[cfg(feature = "explain")]
use core::fmt;

use crate::spec::descriptor::{Entries, EntryMatcher};
use crate::spec::fact::Fact;
use crate::spec::scalar::{HeaderName, Method};
use crate::spec::wanted::{Asn, Country, Host, Matcher};
use tollgate_http_syntax::address::Cidr;
use tollgate_http_syntax::alternatives::Alternatives;
use tollgate_http_syntax::path::Pattern;

/// One condition: the request must have one of its values.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// The method is one of these.
    Methods(Vec<Method>),
    /// The host is one of these.
    Hosts(Vec<Host>),
    /// The path matches one of these.
    Paths(Vec<Pattern>),
    /// The header has one of these values.
    Header(HeaderName, Alternatives<Matcher>),
    /// The query parameter has one of these values.
    Query(String, Alternatives<Matcher>),
    /// The client's address is in one of these networks.
    ClientCidrs(Alternatives<Cidr>),
    /// The route is one of these.
    Routes(Vec<String>),
    /// The client's country is one of these.
    Countries(Vec<Country>),
    /// The client's AS number is one of these.
    Asns(Vec<Asn>),
    /// The domain of the descriptor is one of these.
    Domain(Vec<String>),
    /// The entry of the descriptor has one of these values.
    Descriptor(String, Vec<EntryMatcher>),
    /// The descriptor is one of these.
    Entries(Vec<Entries>),
    /// Another descriptor of the same call is one of these.
    Beside(Vec<Entries>),
}

/// Conditions that must all hold, in the order in which they are checked, which is not the order of
/// the document. There is one condition per kind, except for headers, parameters and entries by
/// key: one per name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions(pub Vec<Condition>);

impl Conditions {
    /// The path patterns, if there is a condition on the path.
    pub fn paths(&self) -> Option<&[Pattern]> {
        self.0.iter().find_map(|condition| {
            let Condition::Paths(list) = condition else { return None };
            Some(list.as_slice())
        })
    }

    /// The hosts, if there is a condition on the host.
    pub fn hosts(&self) -> Option<&[Host]> {
        self.0.iter().find_map(|condition| {
            let Condition::Hosts(list) = condition else { return None };
            Some(list.as_slice())
        })
    }
}

impl Condition {
    /// The field of the document that sets this condition.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Methods(_) => "methods",
            Self::Hosts(_) => "hosts",
            Self::Paths(_) => "paths",
            Self::Header(..) => "headers",
            Self::Query(..) => "query",
            Self::ClientCidrs(_) => "client_cidrs",
            Self::Routes(_) => "routes",
            Self::Countries(_) => "countries",
            Self::Asns(_) => "asns",
            Self::Domain(_) => "domain",
            Self::Descriptor(..) => "descriptor",
            Self::Entries(_) => "entries",
            Self::Beside(_) => "beside",
        }
    }

    /// The fact of a request that this condition reads.
    pub fn reads(&self) -> Fact<'_> {
        match self {
            Self::Methods(_) => Fact::Method,
            Self::Hosts(_) => Fact::Host,
            Self::Paths(_) => Fact::Path,
            Self::Header(name, _) => Fact::Header(&name.0),
            Self::Query(name, _) => Fact::Query(name),
            Self::ClientCidrs(_) => Fact::Client,
            Self::Routes(_) => Fact::Route,
            Self::Countries(_) => Fact::Country,
            Self::Asns(_) => Fact::Asn,
            Self::Domain(_) => Fact::Domain,
            Self::Descriptor(key, _) => Fact::Descriptor(key),
            Self::Entries(_) => Fact::Entries,
            Self::Beside(_) => Fact::Beside,
        }
    }
}

/// In words: `method POST`.
#[cfg(feature = "explain")]
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Methods(list) => alternatives(f, "method", list.iter().map(|method| &method.0)),
            Self::Hosts(list) => alternatives(f, "host", list),
            Self::Paths(list) => alternatives(f, "path", list),
            Self::Header(name, wanted) => values(f, "header", &name.0, wanted),
            Self::Query(name, wanted) => values(f, "query parameter", name, wanted),
            Self::ClientCidrs(list) => alternatives(f, "client in", list.iter()),
            Self::Routes(list) => {
                alternatives(f, "route", list.iter().map(|route| alloc::format!("\"{route}\"")))
            }
            Self::Countries(list) => alternatives(f, "country", list),
            Self::Asns(list) => alternatives(f, "AS number", list),
            Self::Domain(list) => {
                alternatives(f, "domain", list.iter().map(|domain| alloc::format!("\"{domain}\"")))
            }
            Self::Descriptor(key, wanted) => {
                let wanted = if wanted.iter().any(EntryMatcher::is_any) { &[] } else { &**wanted };
                alternatives(f, &alloc::format!("descriptor entry {key}"), wanted)
            }
            Self::Entries(list) => alternatives(f, "descriptor", list),
            Self::Beside(list) => alternatives(f, "next to it the descriptor", list),
        }
    }
}

/// The alternatives that are written; of a longer list the others are counted.
#[cfg(feature = "explain")]
const WRITTEN: usize = 12;

/// `method POST or PUT`, `client in 192.0.2.0/24 or ... or 9988 more`
#[cfg(feature = "explain")]
fn alternatives<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    values: impl IntoIterator<Item = T>,
) -> fmt::Result {
    f.write_str(what)?;
    let mut values = values.into_iter();
    for (i, value) in values.by_ref().take(WRITTEN).enumerate() {
        write!(f, "{}{value}", if i == 0 { " " } else { " or " })?;
    }
    match values.count() {
        0 => Ok(()),
        others => write!(f, " or {others} more"),
    }
}

/// `header x-plan "gold" or "silver"`; only the name when any value matches.
#[cfg(feature = "explain")]
fn values(f: &mut fmt::Formatter<'_>, what: &str, name: &str, wanted: &[Matcher]) -> fmt::Result {
    let wanted = if wanted.contains(&Matcher::Present) { &[] } else { wanted };
    alternatives(f, &alloc::format!("{what} {name}"), wanted)
}

/// In words, joined by "and".
#[cfg(feature = "explain")]
impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, condition) in self.0.iter().enumerate() {
            write!(f, "{}{condition}", if i == 0 { "" } else { " and " })?;
        }
        Ok(())
    }
}
