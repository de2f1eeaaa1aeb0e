//! The tenants of a policy, and their names: the bytes that identify one in a request, and how
//! people write them.
//!
//! Invariant: a tenant has one spelling, under which its entry is kept and listed.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::policy::compiled::Policy;
use crate::policy::tenant::TenantKey;
use crate::spec::key::{KeySource, Spelling};
use crate::spec::tenant::MAX_TENANT_ID;
use tollgate_http_syntax::address::Prefixes;
use tollgate_http_syntax::authority::write_host;
use tollgate_http_syntax::readings::Paths;

/// The tenants that requests have under a policy: [`Policy::tenants`].
#[derive(Clone, Copy, Debug)]
pub struct Tenants<'p> {
    pub(crate) policy: &'p Policy,
    pub(crate) key: &'p TenantKey,
}

impl Policy {
    /// Its tenants; `None` when the document defines no tenant key.
    #[must_use]
    pub const fn tenants(&self) -> Option<Tenants<'_>> {
        match &self.tenant {
            Some(key) => Some(Tenants { policy: self, key }),
            None => None,
        }
    }
}

impl Tenants<'_> {
    /// The bytes that identify the tenant called `text`, as
    /// [`RequestTenant::id`](crate::RequestTenant::id) returns them for a request. `None` for a
    /// tenant that no request can have.
    #[must_use]
    pub fn id(&self, text: &str) -> Option<Vec<u8>> {
        let spelling = self.key.part.source.about().spelling;
        let mut id = match spelling {
            // An operator names the part that is found.
            _ if self.key.part.regex.is_some() => text.into(),
            Spelling::Address => {
                let mut id = Vec::new();
                let address = text.parse().ok()?;
                self.prefixes()?.group(address, |bytes| id.extend_from_slice(bytes));
                id
            }
            Spelling::Upper => text.to_ascii_uppercase().into(),
            Spelling::Host => {
                let mut id = Vec::new();
                write_host(text.as_bytes(), &mut id).ok()?;
                id
            }
            Spelling::Path => self.normal_path(text)?,
            Spelling::Segment => {
                let path = self.normal_path(&format!("/{text}"))?;
                path.strip_prefix(b"/")?.into()
            }
            Spelling::Text => text.into(),
        };
        self.key.part.form.apply(&mut id);
        (!id.is_empty() && id.len() <= MAX_TENANT_ID).then_some(id)
    }

    /// The one spelling of the tenant called `text`, under which its entry is kept and listed:
    /// `SHOP.example` is `shop.example`, and an address is the first one of its network. `None` as
    /// for [`Tenants::id`].
    #[must_use]
    pub fn name(&self, text: &str) -> Option<String> {
        let id = self.id(text)?;
        match self.prefixes() {
            Some(prefixes) => Some(prefixes.network(text.parse().ok()?).to_string()),
            None => String::from_utf8(id).ok(),
        }
    }

    /// The name ([`Tenants::name`]) of the tenant of a request, from its
    /// [`RequestTenant::id`](crate::RequestTenant::id); `None` for a tenant that is not text: it
    /// cannot be named and so has no entry.
    #[must_use]
    pub fn name_of(&self, id: &[u8]) -> Option<String> {
        match self.key.part.source {
            KeySource::ClientIp => match id.len() {
                4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(id).ok()?).to_string()),
                _ => Some(Ipv6Addr::from(<[u8; 16]>::try_from(id).ok()?).to_string()),
            },
            KeySource::Method
            | KeySource::Host
            | KeySource::Path
            | KeySource::Country
            | KeySource::Asn
            | KeySource::Route
            | KeySource::Header(..)
            | KeySource::Cookie(..)
            | KeySource::Query(..)
            | KeySource::PathParam(_)
            | KeySource::JwtClaim(_)
            | KeySource::Descriptor(_)
            | KeySource::Metadata(_)
            | KeySource::ClientCertificate(_)
            | KeySource::Cloudflare(_) => str::from_utf8(id).ok().map(ToString::to_string),
        }
    }

    /// The prefixes by which addresses are one tenant, if tenants are addresses.
    fn prefixes(&self) -> Option<Prefixes> {
        self.key.part.prefixes(self.policy.settings.spec.prefixes)
    }

    /// The path `text` as a key contains it; `None` when a query begins in it.
    fn normal_path(&self, text: &str) -> Option<Vec<u8>> {
        let mut paths = Paths::default();
        let len = self.policy.settings.spec.read_path(text.as_bytes(), &mut paths);
        (len == text.len()).then(|| paths.main().into())
    }
}
