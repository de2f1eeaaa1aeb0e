//! Whether conditions hold for a request.
//!
//! Invariant: asked by the same code for rules, tiers, exemptions and explanations.

use crate::document::conditions::Conditions;
use crate::document::lists::NonEmpty;
use crate::facts::Facts;
use crate::http::malformed::Malformed;
use crate::policy::index::Known;
use crate::request::lazy::Request;
use crate::request::matching::{Reading, fact_matches, header_matches, query_matches};

impl Conditions {
    /// True when every condition holds, however the request is read: for what lets it off.
    pub(crate) fn surely_hold<F: Facts>(&self, request: &Request<'_, F>) -> bool {
        self.hold(request, Known::Nothing, Reading::Every) == Ok(true)
    }

    /// True when every condition that is given holds, except the one that is `known` to.
    ///
    /// # Errors
    /// None fails, and one cannot be told.
    pub(crate) fn hold<F: Facts>(
        &self,
        request: &Request<'_, F>,
        known: Known,
        reading: Reading,
    ) -> Result<bool, Malformed> {
        let mut unclear = Ok(true);
        let mut holds = |held: Result<bool, Malformed>| {
            held.unwrap_or_else(|malformed| {
                unclear = Err(malformed);
                true
            })
        };
        let hold = self.hold_for_target(request, known, reading)
            && each(&self.hosts, |list| {
                holds(request.host().map(|host| {
                    known == Known::Host || list.iter().any(|wanted| wanted.matches(host))
                }))
            })
            && self.headers.iter().flat_map(|named| &named.0).all(|(name, wanted)| {
                let value = request.facts.header(&name.0);
                value.is_some_and(|value| holds(header_matches(&name.0, &value, wanted, reading)))
            })
            && self.query.iter().flat_map(|named| &named.0).all(|(name, wanted)| {
                holds(query_matches(request, name.as_bytes(), wanted, reading))
            })
            && each(&self.client_cidrs, |list| {
                request.client().is_some_and(|client| list.iter().any(|cidr| cidr.contains(client)))
            })
            && each(&self.routes, |list| {
                let route = request.facts.route();
                route.is_some_and(|route| list.iter().any(|r| r.as_bytes() == route.as_ref()))
            })
            && each(&self.countries, |list| {
                let is_one = |c: &[u8]| list.iter().any(|code| code.0.eq_ignore_ascii_case(c));
                request.country().is_some_and(|c| holds(fact_matches(&c, is_one, reading)))
            })
            && each(&self.asns, |list| {
                let is_one = |a: &[u8]| list.iter().any(|asn| asn.0 == a);
                request.asn().is_some_and(|a| holds(fact_matches(&a, is_one, reading)))
            });
        if hold { unclear } else { Ok(false) }
    }

    fn hold_for_target<F: Facts>(
        &self,
        request: &Request<'_, F>,
        known: Known,
        reading: Reading,
    ) -> bool {
        each(&self.methods, |list| {
            list.iter().any(|method| method.is(request.method(), reading != Reading::Every))
        }) && (known == Known::Path
            || each(&self.paths, |list| {
                let paths = request.paths();
                let matches = |path| list.iter().any(|p| p.matches(path).is_some());
                match reading {
                    Reading::Any => paths.all().any(matches),
                    Reading::Every => paths.all().all(matches),
                    Reading::Main(..) => matches(paths.main()),
                }
            }))
    }
}

/// True when the condition is not given or one of its alternatives holds.
fn each<T>(condition: &Option<NonEmpty<T>>, holds: impl FnOnce(&[T]) -> bool) -> bool {
    condition.as_ref().is_none_or(|list| holds(&list.0))
}
