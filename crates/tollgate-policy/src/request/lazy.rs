//! One request as the policy sees it: facts fetched once, in normal form, and conditions on them.
//!
//! Invariant: every fact that costs a host call is fetched at most once and only when it is read.
//! Host and path are compared in normal form only.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::net::IpAddr;

use crate::facts::{Entry, Facts};
use crate::policy::settings::Settings;
use tollgate_http_syntax::authority::write_host;
use tollgate_http_syntax::header::token;
use tollgate_http_syntax::malformed::Malformed;
use tollgate_http_syntax::query::{decoded, split_once};
use tollgate_http_syntax::readings::Paths;

/// The facts of a request, memoised.
pub(crate) struct Request<'a, F> {
    pub(crate) facts: &'a F,
    pub(crate) settings: &'a Settings,
    buffers: &'a Buffers,
    host: Result<(), Malformed>,
    method: OnceCell<Cow<'a, [u8]>>,
    target: OnceCell<Cow<'a, [u8]>>,
    /// Bytes of the target in which no query begins.
    path_len: usize,
    client: OnceCell<Option<IpAddr>>,
}

/// The buffers for a request's normal forms; reused from request to request.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    paths: Paths,
    host: Vec<u8>,
}

impl Buffers {
    /// Bytes that the buffers occupy.
    pub(crate) const fn capacity(&self) -> usize {
        self.paths.capacity().saturating_add(self.host.capacity())
    }

    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Vec<u8>> {
        self.paths.buffers().into_iter().chain([&mut self.host])
    }
}

impl<'a, F: Facts> Request<'a, F> {
    /// Fetches host and path if any rule reads them.
    pub(crate) fn new(facts: &'a F, settings: &'a Settings, buffers: &'a mut Buffers) -> Self {
        let target = OnceCell::new();
        let mut host = Ok(());
        let mut path_len = 0;
        if settings.reads_path {
            let target = target.get_or_init(|| facts.target());
            path_len = settings.spec.read_path(target, &mut buffers.paths);
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
    /// The text that names it is not an authority.
    pub(crate) fn host(&self) -> Result<&[u8], Malformed> {
        self.host.map(|()| self.buffers.host.as_slice())
    }

    pub(crate) fn client(&self) -> Option<IpAddr> {
        *self.client.get_or_init(|| self.settings.spec.client.find(self.facts))
    }

    pub(crate) fn country(&self) -> Option<Cow<'_, [u8]>> {
        match &self.settings.spec.country_header {
            Some(name) => self.facts.header(&name.0),
            None => self.facts.country(),
        }
    }

    pub(crate) fn asn(&self) -> Option<Cow<'_, [u8]>> {
        match &self.settings.spec.asn_header {
            Some(name) => self.facts.header(&name.0),
            None => self.facts.asn(),
        }
    }

    /// The target of the request.
    pub(crate) fn target(&self) -> &[u8] {
        self.target.get_or_init(|| self.facts.target())
    }

    /// The values of the query parameter `name`, still encoded.
    pub(crate) fn query<'q>(&'q self, name: &'q [u8]) -> impl Iterator<Item = &'q [u8]> {
        let target = self.target();
        let after_path = target.get(self.path_len..).unwrap_or_default();
        let query = split_once(after_path, b'?').map_or(&[][..], |(_, query)| query);
        let query = query.split(|b| *b == b'#').next().unwrap_or_default();
        // Empty text between two ampersands is not a parameter (URL standard, form parsing).
        let pairs = query.split(|b| *b == b'&').filter(|pair| !pair.is_empty());
        pairs.filter_map(move |pair| {
            let (key, value) = split_once(pair, b'=').unwrap_or((pair, &[]));
            decoded(key).eq(name.iter().copied()).then_some(value)
        })
    }

    /// The entries of the descriptor, in their order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        (0..).map_while(|index| self.facts.entry(index))
    }

    /// The entries of each other descriptor of the same request.
    pub(crate) fn beside(&self) -> impl Iterator<Item = impl Iterator<Item = Entry<'_>>> {
        let entries = move |other| (0..).map_while(move |index| self.facts.beside(other, index));
        (0..).map_while(move |other| self.facts.beside(other, 0).map(|_| entries(other)))
    }

    /// The values that the descriptor has under `key`, in their order.
    pub(crate) fn values_of<'k>(&'k self, key: &'k [u8]) -> impl Iterator<Item = Cow<'k, [u8]>> {
        self.entries().filter(move |entry| *entry.key == *key).map(|entry| entry.value)
    }

    /// The claim `name` of a verified token.
    ///
    /// # Errors
    /// The request has several tokens that differ, of which the surface verified one.
    pub(crate) fn claim(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, Malformed> {
        if let Some((header, repeated)) = &self.settings.spec.token
            && let Some(value) = self.facts.header(&header.0)
        {
            token(&header.0, &value, *repeated)?;
        }
        Ok(self.facts.claim(name))
    }
}
