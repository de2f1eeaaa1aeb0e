//! A compiled policy together with a proxy's authority, or with other policies for some routes. In
//! a configuration it is bytes, or the same as text.
//!
//! Invariant: a plugin without any of these is encoded as its policy alone, so each has one
//! encoding. A policy alone never contains the secret of a surface. Deliberately absent:
//! `policy_from`, because a server supplies a document, and a module that reads documents can read
//! its own.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use base64ct::{Base64, Encoding};
use tollgate_core::Span;

use crate::binary::plugin::{Fleet, MAX_TIMEOUT, MIN_TIMEOUT, NamedPolicy, Plugin, is_visible};
use crate::binary::{
    MAGIC, MAX_COMPILED, NotCompiled, Whole, compiled_text, opened, read_last, sealed,
};
use crate::policy::compiled::Policy;
use crate::spec::coded::{Coded, fields, shape};
use crate::spec::policy::PolicySpec;
use crate::spec::surface::Surface;

/// As long as that of a policy, and with the same beginning, so that texts of both begin alike.
const PLUGIN_MAGIC: &[u8; 9] = b"\0tollplug";

/// The same for several policies.
const MANY_MAGIC: &[u8; 9] = b"\0tollmany";

/// The beginning of the base64 of all of them: that of their first five bytes, without two bits.
const TEXT_MAGIC: &[u8] = b"AHRvbGx";

/// The shape of the bytes between the header and the checksum.
const PLUGIN_SHAPE: u64 = shape(
    &["plugin"],
    &[Surface::SHAPE, <Option<[u8; 16]>>::SHAPE, Fleet::SHAPE, PolicySpec::SHAPE],
);

/// The same for several policies.
const MANY_SHAPE: u64 = shape(&["many"], &[Surface::SHAPE, ManyForm::SHAPE]);

fields! {
    struct ManyForm { policy: PolicySpec, named: Vec<NamedForm>, hash_key: Option<[u8; 16]>, }
}

fields! {
    struct NamedForm { name: String, policy: PolicySpec, } if |it| NamedPolicy::is_name(&it.name)
}

impl ManyForm {
    fn of(policy: &Policy, named: &[NamedPolicy]) -> Self {
        let form = |NamedPolicy { name, policy }: &NamedPolicy| NamedForm {
            name: name.clone(),
            policy: policy.to_spec(),
        };
        Self {
            policy: policy.to_spec(),
            named: named.iter().map(form).collect(),
            hash_key: policy.hash_key(),
        }
    }

    fn plugin(self, surface: Surface) -> Option<Plugin> {
        let policy = |spec: PolicySpec| Policy::from_spec(spec, surface);
        let named =
            |NamedForm { name, policy: form }| Some(NamedPolicy { name, policy: policy(form)? });
        let named = self.named.into_iter().map(named).collect::<Option<Vec<_>>>()?;
        let plugin = Plugin { named, ..Plugin::alone(policy(self.policy)?) };
        let is_secret_alone = plugin.named.is_empty() && self.hash_key.is_some();
        (is_secret_alone || NamedPolicy::are_apart(&plugin.named))
            .then(|| plugin.with_hash_key(self.hash_key))
    }
}

fields!(Fleet {
    cluster: String,
    authority: String,
    path: String,
    token: Option<String>,
    secret: [u8; 16],
    timeout: Span,
} if |it| {
    is_visible(&it.cluster, 1, 256)
        && is_visible(&it.authority, 1, 256)
        && is_visible(&it.path, 1, 1024)
        && it.token.as_ref().is_none_or(|token| is_visible(token, 1, 4096))
        && (MIN_TIMEOUT..=MAX_TIMEOUT).contains(&it.timeout)
});

impl Plugin {
    /// Appends the plugin to `out` as bytes for [`Plugin::read_compiled`], without `policy_from`.
    /// They are as secret as the document: they contain the token and the secret for keys.
    pub fn write_compiled(&self, out: &mut Vec<u8>) {
        let Self { policy, named, fleet, policy_from: _ } = self;
        match fleet {
            Some(fleet) => sealed(PLUGIN_MAGIC, PLUGIN_SHAPE, policy.surface, out, |out| {
                debug_assert!(named.is_empty(), "no document has both");
                policy.hash_key().write(out);
                fleet.write(out);
                policy.to_spec().write(out);
            }),
            None if !named.is_empty() || policy.hash_key().is_some() => {
                sealed(MANY_MAGIC, MANY_SHAPE, policy.surface, out, |out| {
                    ManyForm::of(policy, named).write(out);
                });
            }
            None => policy.write_compiled(out),
        }
    }

    /// The same bytes as text, in base64 with padding, for configurations that are text.
    #[must_use]
    pub fn to_compiled_text(&self) -> String {
        compiled_text(|out| self.write_compiled(out))
    }

    /// True for bytes or text that is meant to be a compiled policy or plugin, whether or not it is
    /// valid: no document begins like this.
    #[must_use]
    pub fn is_compiled(given: &[u8]) -> bool {
        given.starts_with(MAGIC)
            || given.starts_with(PLUGIN_MAGIC)
            || given.starts_with(MANY_MAGIC)
            || given.trim_ascii_start().starts_with(TEXT_MAGIC)
    }

    /// Reads the output of [`Plugin::write_compiled`] or [`Policy::write_compiled`] for `surface`:
    /// the bytes, or their text, with white space anywhere in it. Anything is accepted as input; a
    /// change of any byte is an error.
    ///
    /// # Errors
    /// Why it is not a policy for `surface`; a sentence without its subject.
    ///
    /// ```
    /// use tollgate_policy::{Plugin, Surface};
    ///
    /// let document = r#"{"fleet": {"cluster": "authority", "secret": "0123456789abcdef"},
    ///     "policy": {"version": 1, "rules": [{"name": "each", "key": ["client_ip"], "scope":
    /// "fleet",
    ///         "quotas": [{"limit": 10, "window": "1m"}]}]}}"#;
    /// let plugin = tollgate_language::compile_plugin(document, Surface::Envoy)?;
    /// let text = plugin.to_compiled_text();
    /// let read = Plugin::read_compiled(text.as_bytes(), Surface::Envoy).unwrap();
    /// assert_eq!(read.fleet.map(|fleet| fleet.cluster), Some("authority".into()));
    /// # Ok::<(), tollgate_policy::Problems>(())
    /// ```
    pub fn read_compiled(given: &[u8], surface: Surface) -> Result<Self, NotCompiled> {
        if !given.starts_with(b"\0") && Self::is_compiled(given) {
            return Self::read_bytes(&bytes_of(given).ok_or(NotCompiled::Damaged)?, surface);
        }
        Self::read_bytes(given, surface)
    }

    fn read_bytes(bytes: &[u8], surface: Surface) -> Result<Self, NotCompiled> {
        if bytes.starts_with(MANY_MAGIC) {
            let Whole(mut rest) = opened(MANY_MAGIC, MANY_SHAPE, bytes, surface)?;
            let form = ManyForm::read(&mut rest);
            let form = rest.finished(form);
            return form.and_then(|form| form.plugin(surface)).ok_or(NotCompiled::Impossible);
        }
        if !bytes.starts_with(PLUGIN_MAGIC) {
            return Policy::read_compiled(bytes, surface).map(Self::alone);
        }
        let Whole(mut rest) = opened(PLUGIN_MAGIC, PLUGIN_SHAPE, bytes, surface)?;
        let hash_key = Option::read(&mut rest);
        let fleet = Fleet::read(&mut rest);
        let policy = read_last(rest, surface).ok_or(NotCompiled::Impossible)?;
        Ok(Self { fleet: Some(fleet), ..Self::alone(policy) }.with_hash_key(hash_key))
    }
}

/// The bytes of a text; `None` when it is not base64, or too long.
fn bytes_of(text: &[u8]) -> Option<Vec<u8>> {
    let text: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let len = text.len().checked_div(4)?.checked_mul(3)?;
    let mut bytes = vec![0; Some(len).filter(|len| *len <= MAX_COMPILED.saturating_add(3))?];
    let len = Base64::decode(&text, &mut bytes).ok()?.len();
    bytes.truncate(len);
    Some(bytes)
}
