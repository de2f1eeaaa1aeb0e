//! A key given by its values: the key of a request with these values.
//!
//! Invariant: the bytes are those of a request that has the values, made by the same functions, so
//! every spelling of a client's values gives the same key. Values that clients do not send as text
//! (an address, a country) are read as a person writes them. No value is repeated in an error.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::facts::{CertificateField, CloudflareField, Entry, Facts};
use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::rule::Rule;
use crate::request::key::{
    parts, write_fact, write_given, write_part, write_shared_key, write_text,
};
use crate::request::lazy::{Buffers, Request};
use crate::spec::fact::Fact;
use crate::spec::key::{About, Of, Spelling};
use crate::spec::key_item::{KeyForm, KeyItem, KeyPart, items};
use crate::spec::on_missing::OnMissing;
use crate::spec::problem::Problem;
use tollgate_http_syntax::path::lower;
use tollgate_http_syntax::readings::segment;

/// One client of a rule.
#[derive(Clone, Debug)]
pub struct GivenKey {
    /// The index of the rule in [`Policy::rules`].
    pub rule: usize,
    /// The index of its group in [`Policy::groups`].
    pub group: usize,
    bytes: Vec<u8>,
}

/// The reason why there is no such key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoKey {
    /// The policy has no rule of this name.
    NoRule,
    /// These are not values of the rule's key, or not a tenant of it. The problem names the wrong
    /// one (`key`, `key[1]`, `tenant`) and the reason, for the caller that gave them.
    Wrong(Problem),
}

impl GivenKey {
    /// The key of requests that have `values` under the rule of this name, one value for each part
    /// of its key in the order of the document. For a key with parts, an empty list means the
    /// requests that lack a part, where the rule counts these together.
    ///
    /// # Errors
    /// There is no such rule, or these are not values of its key.
    ///
    /// ```
    /// use tollgate_policy::{GivenKey, Surface};
    /// let policy = tollgate_language::compile(r#"{"version": 1, "rules": [
    ///     {"name": "each", "key": ["client_ip"],
    ///      "quotas": [{"limit": 10, "window": "1m"}]}]}"#, Surface::Library)?;
    /// let key = |address: &str| GivenKey::new(&policy, "each", &[address.into()]);
    /// // One client is a network of 64 bits.
    /// assert_eq!(key("2001:db8::1").unwrap().bytes(), key("2001:DB8:0:0:9::").unwrap().bytes());
    /// assert!(key("here").is_err());
    /// # Ok::<(), tollgate_policy::Problems>(())
    /// ```
    pub fn new(policy: &Policy, rule: &str, values: &[String]) -> Result<Self, NoKey> {
        let found = policy.rules.iter().enumerate().find(|(_, known)| known.terms.name == rule);
        let (index, rule) = found.ok_or(NoKey::NoRule)?;
        let group = policy.groups.get(usize::from(rule.terms.group)).ok_or(NoKey::NoRule)?;
        let mut bytes = Vec::new();
        if values.is_empty()
            && !group.spec.key.is_empty()
            && rule.terms.on_missing == OnMissing::Shared
        {
            write_shared_key(group, &mut bytes);
        } else {
            policy.write_given_key(rule, group, values, &mut bytes).map_err(NoKey::Wrong)?;
        }
        Ok(Self { rule: index, group: rule.terms.group.into(), bytes })
    }

    /// The canonical key: hash it, never store or log it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same client among the requests of `tenant`. Where the tenant has its own quotas in a
    /// rule whose key does not contain the tenant, these requests are counted separately.
    ///
    /// # Errors
    /// The policy has no tenants, no request can have this one, or the key already contains the
    /// tenant.
    pub fn of_tenant(mut self, policy: &Policy, tenant: &str) -> Result<Self, NoKey> {
        let wrong = |why: &str| NoKey::Wrong(Problem::new("tenant", why.into()));
        let Some(tenants) = policy.tenants() else {
            return Err(wrong("the policy does not define tenants; leave it out"));
        };
        if !self.is_apart_of_tenants(policy) {
            return Err(wrong("the key itself names its tenant; leave it out"));
        }
        let id = tenants.id(tenant).ok_or_else(|| wrong("no request is of it"))?;
        write_text(&id, &mut self.bytes);
        Ok(self)
    }

    /// The name of the tenant that the key contains, as its entry is stored; `None` where the
    /// policy has no tenants, or the rule's key does not contain them.
    #[must_use]
    pub fn tenant_name(&self, policy: &Policy) -> Option<String> {
        let (tenants, group) = (policy.tenants()?, policy.groups.get(self.group)?);
        let mut values = items(&group.spec.key).zip(parts(&self.bytes));
        let (_, id) = values.find(|(item, _)| item.is(&tenants.key.part))?;
        tenants.name_of(id?)
    }

    /// True when a tenant may have its own quotas that count the same client separately from this
    /// key: the policy has tenants, and the rule's key does not contain the tenant.
    #[must_use]
    pub fn is_apart_of_tenants(&self, policy: &Policy) -> bool {
        let Some(wanted) = &policy.tenant else { return false };
        let group = policy.groups.get(self.group);
        group.is_some_and(|group| !items(&group.spec.key).any(|item| item.is(&wanted.part)))
    }
}

impl Rule {
    /// Its key, part by part, in words of the document: `client_ip`, `header x-key`, `client_ip
    /// ipv6_prefix 48`, `any_of 0=header x-user 1=client_ip`. Empty under another policy than its
    /// own.
    #[must_use]
    pub fn key_parts(&self, policy: &Policy) -> Vec<String> {
        let group = policy.groups.get(usize::from(self.terms.group));
        let of_part = |part: &KeyPart| {
            let About { name, of, .. } = part.source.about();
            let words = match part.form {
                KeyForm::Network(own) => {
                    let written = |prefix: u32, of: &str| format!(" {of}_prefix {prefix}");
                    let ipv4 = own.ipv4_prefix.map(|own| written(own.0, "ipv4"));
                    let ipv6 = own.ipv6_prefix.map(|own| written(own.0, "ipv6"));
                    [Some(name.into()), ipv4, ipv6].into_iter().flatten().collect()
                }
                KeyForm::Lower => format!("{name} {of} lower"),
                KeyForm::AsSent if of == Of::Only => name.into(),
                KeyForm::AsSent => format!("{name} {of}"),
            };
            match &part.regex {
                Some(regex) => format!("{words} match {:?}", regex.text()),
                None => words,
            }
        };
        let words = |item: KeyItem<'_>| match item.parts {
            [part] => of_part(part),
            parts => {
                let numbered =
                    parts.iter().enumerate().map(|(i, it)| format!(" {i}={}", of_part(it)));
                [item.name().into()].into_iter().chain(numbered).collect()
            }
        };
        group.map_or_else(Vec::new, |group| items(&group.spec.key).map(words).collect())
    }

    /// The quotas that it may count a client in: its own first, then its tiers'.
    pub fn quota_sets<'p>(&self, policy: &'p Policy) -> impl Iterator<Item = &'p QuotaSet> {
        let sets = [self.set].into_iter().chain(self.tiers.iter().map(|tier| tier.set));
        sets.filter_map(|set| policy.sets.get(usize::from(set)))
    }
}

impl Policy {
    fn write_given_key(
        &self,
        rule: &Rule,
        group: &Group,
        values: &[String],
        out: &mut Vec<u8>,
    ) -> Result<(), Problem> {
        let (wanted, given) = (group.items, values.len());
        if wanted != given {
            let parts: Vec<_> = items(&group.spec.key).map(|item| item.name()).collect();
            let parts = parts.join(", ");
            let s = if wanted == 1 { "" } else { "s" };
            let why = format!("has {wanted} part{s} ({parts}), and {given} values are given");
            return Err(Problem::new("key", why));
        }
        out.extend_from_slice(&group.identity().to_le_bytes());
        for (i, (item, value)) in items(&group.spec.key).zip(values).enumerate() {
            let wrong =
                |why: &str| Problem::new(&format!("key[{i}]"), format!("{}: {why}", item.name()));
            let mut is_given = Ok(false);
            write_given(out, |out| is_given = self.write_given_item(rule, item, value, out));
            let is_given = is_given.map_err(wrong)?;
            if !is_given {
                return Err(wrong("no request has this value"));
            }
        }
        Ok(())
    }

    /// Appends the value of one item. For one of several parts, its index is before the text:
    /// `1=192.0.2.1`.
    ///
    /// # Errors
    /// The reason why it is not a value of this item.
    fn write_given_item(
        &self,
        rule: &Rule,
        item: KeyItem<'_>,
        value: &str,
        out: &mut Vec<u8>,
    ) -> Result<bool, &'static str> {
        let parts = match item.parts {
            [part] => return self.write_given_part(rule, part, value, out),
            parts => parts,
        };
        let (number, value) = value.split_once('=').ok_or(NO_NUMBER)?;
        let mut numbered = parts.iter().zip(0_u8..);
        let found = numbered.find(|(_, index)| index.to_string() == number);
        let (part, index) = found.ok_or(NO_NUMBER)?;
        out.push(index);
        self.write_given_part(rule, part, value, out)
    }

    /// Appends the value of one part; false when no request can have it. With a regular expression
    /// it is what the expression finds, not a value of a request.
    ///
    /// # Errors
    /// The reason why it is not a value of this part.
    fn write_given_part(
        &self,
        rule: &Rule,
        part: &KeyPart,
        value: &str,
        out: &mut Vec<u8>,
    ) -> Result<bool, &'static str> {
        if part.regex.is_none() {
            return self.write_given_value(rule, part, value, out);
        }
        let start = out.len();
        out.extend_from_slice(value.as_bytes());
        part.form.apply(out.get_mut(start..).unwrap_or_default());
        Ok(true)
    }

    /// Appends the value of one part as in a request with it; false when no request can have the
    /// value.
    ///
    /// # Errors
    /// The reason why it is not a value of this part.
    fn write_given_value(
        &self,
        rule: &Rule,
        part: &KeyPart,
        value: &str,
        out: &mut Vec<u8>,
    ) -> Result<bool, &'static str> {
        let mut request = |facts: OnePartRequest<'_>| {
            let mut buffers = Buffers::default();
            let request = Request::new(&facts, &self.settings, &mut buffers);
            if rule.reads_in_dispute(part, request.paths()) {
                return Err(UNREADABLE);
            }
            write_part(part, rule, &request, out).map_err(|_| UNREADABLE)
        };
        let (none, text) = (OnePartRequest::default(), Some(value.as_bytes()));
        let About { reads, spelling, .. } = part.source.about();
        match reads {
            Fact::Path if spelling == Spelling::Segment => {
                let settings = &self.settings.spec;
                let mut segment = segment(value.as_bytes(), settings.escaped_slashes);
                if settings.case_insensitive_paths {
                    lower(&mut segment);
                }
                part.form.apply(&mut segment);
                out.extend_from_slice(&segment);
                Ok(!segment.is_empty())
            }
            Fact::Method => request(OnePartRequest { method: text, ..none }),
            Fact::Path => request(OnePartRequest { target: Some(value.into()), ..none }),
            Fact::Query(name) => {
                let target = format!("/?{}={}", escaped(name), escaped(value));
                request(OnePartRequest { target: Some(target), ..none })
            }
            Fact::Host => request(OnePartRequest { host: text, ..none }),
            Fact::Header(name) => request(OnePartRequest::of_header(name, value.into())),
            Fact::Cookie(name) => {
                request(OnePartRequest::of_header("cookie", cookie(name, value).into()))
            }
            Fact::Route
            | Fact::Claim(_)
            | Fact::Descriptor(_)
            | Fact::Metadata(_)
            | Fact::Certificate(_)
            | Fact::Cloudflare(_) => request(OnePartRequest { fact: Some((reads, value)), ..none }),
            Fact::Client => {
                let address: IpAddr = value.parse().map_err(|_| "is not an address")?;
                let prefixes = part.prefixes(self.settings.spec.prefixes);
                prefixes.into_iter().for_each(|of| of.group(address, |it| out.extend(it)));
                Ok(true)
            }
            // The value from a header and that from the platform are read alike.
            Fact::Country | Fact::Asn => {
                let repeated = self.settings.spec.repeated;
                write_fact(Some(value.as_bytes().into()), repeated, out).map_err(|_| UNREADABLE)
            }
            Fact::Domain | Fact::Entries | Fact::Beside => Ok(false), // not read by any key part
            Fact::Status | Fact::Actual | Fact::Duration => Ok(false),
        }
    }
}

const UNREADABLE: &str = "a request with it cannot be read";
const NO_NUMBER: &str = "begin with the number of the part and \"=\", such as 0= for the first";

/// `text` in a form that any query may contain.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// A cookie as in a request: a separator within its value is escaped, or the value would end there
/// and be that of another client.
fn cookie(name: &str, value: &str) -> String {
    format!("{name}={}", value.replace(';', "%3B").replace(',', "%2C"))
}

/// A request with only one part of a key.
#[derive(Default)]
struct OnePartRequest<'a> {
    method: Option<&'a [u8]>,
    target: Option<String>,
    host: Option<&'a [u8]>,
    header: Option<(&'a str, Cow<'a, str>)>,
    /// One that every surface reads as it is.
    fact: Option<(Fact<'a>, &'a str)>,
}

impl<'a> OnePartRequest<'a> {
    fn of_header(name: &'a str, value: Cow<'a, str>) -> Self {
        Self { header: Some((name, value)), ..Self::default() }
    }

    fn fact(&self, is: impl FnOnce(&Fact<'_>) -> bool) -> Option<Cow<'_, [u8]>> {
        let (_, value) = self.fact.filter(|(fact, _)| is(fact))?;
        Some(value.as_bytes().into())
    }
}

impl Facts for OnePartRequest<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        self.method.unwrap_or(b"GET").into()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        self.target.as_deref().unwrap_or("/").as_bytes().into()
    }

    fn host(&self) -> Cow<'_, [u8]> {
        self.host.unwrap_or_default().into()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let (_, value) = self.header.as_ref().filter(|(known, _)| *known == name)?;
        Some(value.as_bytes().into())
    }

    fn peer(&self) -> Option<IpAddr> {
        None
    }

    fn route(&self) -> Option<Cow<'_, [u8]>> {
        self.fact(|fact| *fact == Fact::Route)
    }

    fn entry(&self, index: usize) -> Option<Entry<'_>> {
        let (Fact::Descriptor(key), value) = self.fact.filter(|_| index == 0)? else { return None };
        Some(Entry::new(key.as_bytes(), value.as_bytes()))
    }

    fn claim(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.fact(|fact| *fact == Fact::Claim(name))
    }

    fn metadata(&self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        self.fact(|fact| matches!(fact, Fact::Metadata(known) if known.0 == path))
    }

    fn cloudflare(&self, field: CloudflareField) -> Option<Cow<'_, [u8]>> {
        self.fact(|fact| *fact == Fact::Cloudflare(field))
    }

    fn client_certificate(&self, field: CertificateField) -> Option<Cow<'_, [u8]>> {
        self.fact(|fact| *fact == Fact::Certificate(field))
    }
}
