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
use core::mem::discriminant;

use crate::document::descriptor::{Entries, EntryMatcher};
use crate::document::fact::Fact;
use crate::document::lists::{NonEmpty, OneOrMore};
use crate::document::scalar::{HeaderName, Method};
use crate::document::wanted::{Asn, Country, Host, Matcher, Named};
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};
use tollgate_http_syntax::address::Cidr;
use tollgate_http_syntax::alternatives::Alternatives;
use tollgate_http_syntax::path::Pattern;

record! {
    /// Conditions that must all hold; the values of one condition are alternatives.
    ConditionsDoc {
        /// Request methods.
        methods: Option<NonEmpty<Method>>,
        /// Hosts without port: an exact name, or `*.suffix` for any subdomain.
        hosts: Option<NonEmpty<Host>>,
        /// Path patterns: an exact path; `*` matches one segment, `{name}` matches and captures one
        /// segment, `**` matches the rest.
        paths: Option<NonEmpty<Pattern>>,
        /// Headers by name: a value, "*" for any value, {"prefix": "..."}, or a list of these.
        headers: Option<Named<HeaderName>>,
        /// Query parameters by name, compared like headers after decoding.
        query: Option<Named<String>>,
        /// Networks that contain the client's address.
        client_cidrs: Option<NonEmpty<Cidr>>,
        /// Envoy: names of routes.
        routes: Option<NonEmpty<String>>,
        /// Two-letter country codes of the client.
        countries: Option<NonEmpty<Country>>,
        /// Autonomous system numbers of the client.
        asns: Option<NonEmpty<Asn>>,
        /// Rate limit service: the domain in the request, or a list of alternatives.
        domain: Option<OneOrMore<String>>,
        /// Rate limit service: entries that the descriptor must have, by key; it may have others.
        descriptor: Option<Named<String, EntryMatcher>>,
        /// Rate limit service: alternatives for the whole descriptor, each with all entries in
        /// order.
        entries: Option<NonEmpty<Entries>>,
        /// Rate limit service: alternatives for another descriptor of the same call, as in
        /// `entries`.
        beside: Option<NonEmpty<Entries>>,
    }
}

/// One condition: the request must have one of its values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    Methods(Vec<Method>),
    Hosts(Vec<Host>),
    Paths(Vec<Pattern>),
    Header(HeaderName, Alternatives<Matcher>),
    Query(String, Alternatives<Matcher>),
    ClientCidrs(Alternatives<Cidr>),
    Routes(Vec<String>),
    Countries(Vec<Country>),
    Asns(Vec<Asn>),
    Domain(Vec<String>),
    Descriptor(String, Vec<EntryMatcher>),
    Entries(Vec<Entries>),
    Beside(Vec<Entries>),
}

/// Conditions that must all hold, in the order in which they are checked, which is not the order of
/// the document. There is one condition per kind, except for headers, parameters and entries by
/// key: one per name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Conditions(pub(crate) Vec<Condition>);

impl FromNode for Conditions {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        ConditionsDoc::read(node, at).map(Self::new)
    }

    schema!(ConditionsDoc::schema());
}

impl Conditions {
    fn new(doc: ConditionsDoc) -> Self {
        let ConditionsDoc {
            methods,
            hosts,
            paths,
            headers,
            query,
            client_cidrs,
            routes,
            countries,
            asns,
            domain,
            descriptor,
            entries,
            beside,
        } = doc;
        let headers = headers.into_iter().flat_map(|named| named.0);
        let query = query.into_iter().flat_map(|named| named.0);
        let descriptor = descriptor.into_iter().flat_map(|named| named.0);
        let mut all = Vec::new();
        all.extend(methods.map(|list| Condition::Methods(list.0)));
        all.extend(hosts.map(|list| Condition::Hosts(list.0)));
        all.extend(paths.map(|list| Condition::Paths(list.0)));
        all.extend(headers.map(|(name, wanted)| Condition::Header(name, wanted.into())));
        all.extend(query.map(|(name, wanted)| Condition::Query(name, wanted.into())));
        all.extend(client_cidrs.map(|list| Condition::ClientCidrs(list.0.into())));
        all.extend(routes.map(|list| Condition::Routes(list.0)));
        all.extend(countries.map(|list| Condition::Countries(list.0)));
        all.extend(asns.map(|list| Condition::Asns(list.0)));
        all.extend(domain.map(|list| Condition::Domain(list.0)));
        all.extend(descriptor.map(|(key, wanted)| Condition::Descriptor(key, wanted)));
        all.extend(entries.map(|list| Condition::Entries(list.0)));
        all.extend(beside.map(|list| Condition::Beside(list.0)));
        Self(all)
    }

    /// The path patterns, if there is a condition on the path.
    pub(crate) fn paths(&self) -> Option<&[Pattern]> {
        self.0.iter().find_map(|condition| match condition {
            Condition::Paths(list) => Some(list.as_slice()),
            _ => None,
        })
    }

    /// The hosts, if there is a condition on the host.
    pub(crate) fn hosts(&self) -> Option<&[Host]> {
        self.0.iter().find_map(|condition| match condition {
            Condition::Hosts(list) => Some(list.as_slice()),
            _ => None,
        })
    }

    /// True when these hold whenever `other` do; false when unsure.
    pub(crate) fn are_implied_by(&self, other: &Self) -> bool {
        self.0.iter().all(|mine| other.0.iter().any(|theirs| mine.is_implied_by(theirs)))
    }

    /// An upper bound on the number of alternatives compared to see whether `other` implies these.
    pub(crate) fn comparisons(&self, other: &Self) -> usize {
        let kinds = |all: &Self| {
            let runs = all.0.chunk_by(|a, b| discriminant(a) == discriminant(b));
            let size =
                |run: &[Condition]| run.iter().map(Condition::size).fold(0, usize::saturating_add);
            runs.filter_map(|run| Some((discriminant(run.first()?), size(run)))).collect::<Vec<_>>()
        };
        let (mine, theirs) = (kinds(self), kinds(other));
        let pairs = mine.iter().flat_map(|mine| theirs.iter().map(move |theirs| (mine, theirs)));
        let same = pairs.filter(|(mine, theirs)| mine.0 == theirs.0);
        same.map(|(mine, theirs)| mine.1.saturating_mul(theirs.1)).fold(1, usize::saturating_add)
    }
}

impl Condition {
    /// The field of the document that sets this condition.
    pub(crate) const fn field(&self) -> &'static str {
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
    pub(crate) fn reads(&self) -> Fact<'_> {
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

    /// True when this holds whenever `other` does; false when unsure, which includes different
    /// kinds.
    fn is_implied_by(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Methods(mine), Self::Methods(theirs)) => {
                each_within(mine, theirs, PartialEq::eq)
            }
            (Self::Hosts(mine), Self::Hosts(theirs)) => each_within(mine, theirs, PartialEq::eq),
            (Self::Paths(mine), Self::Paths(theirs)) => each_within(mine, theirs, Pattern::covers),
            (Self::ClientCidrs(mine), Self::ClientCidrs(theirs)) => {
                each_within(mine, theirs, Cidr::covers)
            }
            (Self::Routes(mine), Self::Routes(theirs)) => each_within(mine, theirs, PartialEq::eq),
            (Self::Countries(mine), Self::Countries(theirs)) => {
                each_within(mine, theirs, PartialEq::eq)
            }
            (Self::Asns(mine), Self::Asns(theirs)) => each_within(mine, theirs, PartialEq::eq),
            (Self::Domain(mine), Self::Domain(theirs)) => each_within(mine, theirs, PartialEq::eq),
            (Self::Entries(mine), Self::Entries(theirs))
            | (Self::Beside(mine), Self::Beside(theirs)) => {
                each_within(mine, theirs, PartialEq::eq)
            }
            (Self::Header(..), Self::Header(..))
            | (Self::Query(..), Self::Query(..))
            | (Self::Descriptor(..), Self::Descriptor(..)) => self == other,
            _ => false,
        }
    }

    /// The number of its alternatives; the values of one header or parameter count as one.
    fn size(&self) -> usize {
        match self {
            Self::Methods(list) => list.len(),
            Self::Hosts(list) => list.len(),
            Self::Paths(list) => list.len(),
            Self::Header(..) | Self::Query(..) | Self::Descriptor(..) => 1,
            Self::ClientCidrs(list) => list.len(),
            Self::Routes(list) => list.len(),
            Self::Countries(list) => list.len(),
            Self::Asns(list) => list.len(),
            Self::Domain(list) => list.len(),
            Self::Entries(list) | Self::Beside(list) => {
                list.iter().map(|entries| entries.0.len()).fold(0, usize::saturating_add)
            }
        }
    }
}

/// True when every one of `theirs` is within one of `mine`.
fn each_within<T>(mine: &[T], theirs: &[T], within: fn(&T, &T) -> bool) -> bool {
    theirs.iter().all(|theirs| mine.iter().any(|mine| within(mine, theirs)))
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
            Self::Beside(list) => alternatives(f, "beside it the descriptor", list),
        }
    }
}

/// `method POST or PUT`
#[cfg(feature = "explain")]
fn alternatives<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    values: impl IntoIterator<Item = T>,
) -> fmt::Result {
    f.write_str(what)?;
    for (i, value) in values.into_iter().enumerate() {
        write!(f, "{}{value}", if i == 0 { " " } else { " or " })?;
    }
    Ok(())
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
