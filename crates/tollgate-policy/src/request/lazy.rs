//! One request as the policy sees it: facts fetched once, in normal form, and conditions on them.
//!
//! Invariant: every fact that costs a host call is fetched at most once and only when something
//! reads it. Host and path are compared in normal form only.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::net::IpAddr;

use crate::compile::Settings;
use crate::document::conditions::{Conditions, Host, Matcher, NonEmpty};
use crate::facts::Facts;
use crate::http::authority::write_host;
use crate::http::malformed::Malformed;
use crate::http::readings::Paths;
use crate::http::values::{Reading, elements, header_matches, the_one, token, write_one};

/// The facts of a request, memoised.
pub(crate) struct Request<'a, F> {
    pub(crate) facts: &'a F,
    pub(crate) settings: &'a Settings,
    buffers: Buffers,
    host: Result<(), Malformed>,
    method: OnceCell<Cow<'a, [u8]>>,
    target: OnceCell<Cow<'a, [u8]>>,
    /// Bytes of the target in which no query begins.
    path_len: usize,
    client: OnceCell<Option<IpAddr>>,
}

/// What a request's normal forms are written into; reused from request to request.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    paths: Paths,
    host: Vec<u8>,
}

impl Buffers {
    /// Bytes that they hold.
    pub(crate) const fn capacity(&self) -> usize {
        self.paths.capacity().saturating_add(self.host.capacity())
    }

    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Vec<u8>> {
        self.paths.buffers().into_iter().chain([&mut self.host])
    }
}

impl<'a, F: Facts> Request<'a, F> {
    /// Fetches host and path if any rule reads them.
    pub(crate) fn new(facts: &'a F, settings: &'a Settings, mut buffers: Buffers) -> Self {
        let target = OnceCell::new();
        let mut host = Ok(());
        let mut path_len = 0;
        if settings.reads_path {
            let target = target.get_or_init(|| facts.target());
            path_len = buffers.paths.read(target, settings.escaped_slashes);
        }
        if settings.reads_host {
            host = write_host(&facts.host(), &mut buffers.host);
        }
        Self {
            facts,
            settings,
            buffers,
            host,
            method: OnceCell::new(),
            target,
            path_len,
            client: OnceCell::new(),
        }
    }

    /// Gives the buffers back.
    pub(crate) fn into_buffers(self) -> Buffers {
        self.buffers
    }

    pub(crate) fn method(&self) -> &[u8] {
        self.method.get_or_init(|| self.facts.method())
    }

    /// The path in every reading.
    pub(crate) const fn paths(&self) -> &Paths {
        &self.buffers.paths
    }

    /// The host in normal form; empty when there is none.
    ///
    /// # Errors
    /// What names it is no authority.
    pub(crate) fn host(&self) -> Result<&[u8], Malformed> {
        self.host.map(|()| self.buffers.host.as_slice())
    }

    pub(crate) fn client(&self) -> Option<IpAddr> {
        *self.client.get_or_init(|| self.settings.client.find(self.facts))
    }

    pub(crate) fn country(&self) -> Option<Cow<'_, [u8]>> {
        match &self.settings.country_header {
            Some(name) => self.facts.header(&name.0),
            None => self.facts.country(),
        }
    }

    pub(crate) fn asn(&self) -> Option<Cow<'_, [u8]>> {
        match &self.settings.asn_header {
            Some(name) => self.facts.header(&name.0),
            None => self.facts.asn(),
        }
    }

    /// The values of the query parameter `name`, still encoded.
    pub(crate) fn query<'q>(&'q self, name: &'q [u8]) -> impl Iterator<Item = &'q [u8]> {
        let target = self.target.get_or_init(|| self.facts.target());
        let after_path = target.get(self.path_len..).unwrap_or_default();
        let query = split_once(after_path, b'?').map_or(&[][..], |(_, query)| query);
        let query = query.split(|b| *b == b'#').next().unwrap_or_default();
        // Nothing between two ampersands is no parameter (URL standard, form parsing).
        let pairs = query.split(|b| *b == b'&').filter(|pair| !pair.is_empty());
        pairs.filter_map(move |pair| {
            let (key, value) = split_once(pair, b'=').unwrap_or((pair, &[]));
            decoded(key).eq(name.iter().copied()).then_some(value)
        })
    }

    /// True when the values of the query parameter `name` are what one of `wanted` is.
    fn query_matches(
        &self,
        name: &[u8],
        wanted: &[Matcher],
        reading: Reading,
    ) -> Result<bool, Malformed> {
        let is_wanted = |value: &[u8]| wanted.iter().any(|m| m.matches_encoded(value));
        Ok(match reading {
            Reading::Any => self.query(name).any(is_wanted),
            Reading::Every => self.query(name).next().is_some() && self.query(name).all(is_wanted),
            Reading::Main(default, own) => {
                let mut value = Vec::new();
                let repeated = own.unwrap_or(default);
                let is_there = write_one(self.query(name), repeated, &mut value, |value, out| {
                    out.extend(decoded(value));
                    Ok(())
                })?;
                is_there && wanted.iter().any(|matcher| matcher.matches(&value))
            }
        })
    }

    /// The claim `name` of a verified token.
    ///
    /// # Errors
    /// The request has several tokens that differ, of which the surface verified one.
    pub(crate) fn claim(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, Malformed> {
        if let Some((header, repeated)) = &self.settings.token
            && let Some(value) = self.facts.header(&header.0)
        {
            token(&header.0, &value, *repeated)?;
        }
        Ok(self.facts.claim(name))
    }
}

/// Which condition a look-up has already found to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Nothing,
    Path,
    Host,
}

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
                holds(request.query_matches(name.as_bytes(), wanted, reading))
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

/// True when what a proxy says about the client `is_one` of those that are wanted.
fn fact_matches(
    fact: &[u8],
    is_one: impl Fn(&[u8]) -> bool,
    reading: Reading,
) -> Result<bool, Malformed> {
    Ok(match reading {
        Reading::Any => elements(fact).any(is_one),
        Reading::Every => elements(fact).next().is_some() && elements(fact).all(is_one),
        Reading::Main(repeated, _) => the_one(elements(fact), repeated)?.is_some_and(is_one),
    })
}

/// True when the condition is not given or one of its alternatives holds.
fn each<T>(condition: &Option<NonEmpty<T>>, holds: impl FnOnce(&[T]) -> bool) -> bool {
    condition.as_ref().is_none_or(|list| holds(&list.0))
}

impl Host {
    /// True when `host`, in normal form, is this one.
    pub(crate) fn matches(&self, host: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => host == exact,
            Self::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        }
    }
}

impl Matcher {
    /// True when `value`, decoded, is what this wants.
    fn matches_encoded(&self, value: &[u8]) -> bool {
        match self {
            Self::Present => true,
            Self::Exact(exact) => decoded(value).eq(exact.iter().copied()),
            Self::Prefix(prefix) => {
                let mut bytes = decoded(value);
                prefix.iter().all(|b| bytes.next() == Some(*b))
            }
        }
    }
}

/// The bytes of a query key or value: `+` is a space, `%41` is `A` (URL standard, form decoding).
pub(crate) fn decoded(bytes: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let (byte, escaped, after) = crate::http::path::next_byte(rest)?;
        rest = after;
        Some(if byte == b'+' && !escaped { b' ' } else { byte })
    })
}

pub(crate) fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|b| *b == separator)?;
    Some((bytes.get(..at)?, bytes.get(at.saturating_add(1)..)?))
}
