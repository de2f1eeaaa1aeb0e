//! Conditions on a request: `when`, `unless` and `exempt`.
//!
//! Invariant: all conditions that are given must hold; the values of one condition are
//! alternatives. An empty list matches nothing and is therefore an error. `request::conditions`
//! checks whether a condition holds for a request; everything else about conditions is in this
//! file.

use alloc::string::String;
use alloc::vec::Vec;

use crate::document::condition_values::Named;
use crate::document::lists::{NonEmpty, OneOrMore};
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};
use tollgate_http_syntax::address::Cidr;
use tollgate_http_syntax::path::Pattern;
use tollgate_policy::spec::{
    Asn, Condition, Conditions, Country, Entries, EntryMatcher, HeaderName, Host, Method,
};

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
        /// Headers by name: a value, "*" for any value, {"prefix": "..."}, {"match": "..."}, or a
        /// list of these.
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

impl FromNode for Conditions {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        ConditionsDoc::read(node, at).map(ConditionsDoc::conditions)
    }

    schema!(ConditionsDoc::schema());
}

impl ConditionsDoc {
    fn conditions(self) -> Conditions {
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
        } = self;
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
        Conditions(all)
    }
}
