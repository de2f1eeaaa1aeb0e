//! The content of a policy: everything that does not follow from the rest of it.
//!
//! Invariant: derived parts (indices, positions in stored values, hashes of names, look-up) are not
//! here, so no spec contradicts itself in them. [`Policy::from_spec`](crate::Policy::from_spec)
//! computes them.

use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Span;

use crate::spec::bounds::{MAX_EXEMPT, MAX_PATH_SEGMENTS, MAX_RULES};
use crate::spec::bounds::{MAX_SETS, MAX_SHARDS};
use crate::spec::client_ip::{ClientAddress, Source, Trust};
use crate::spec::coded::{Coded, Reader, fields, shape, variants};
use crate::spec::conditions::Conditions;
use crate::spec::deny::DenyRule;
use crate::spec::jwt::{Jwk, Jwt};
use crate::spec::key_item::{KeyPart, is_key};
use crate::spec::limits::Limits;
use crate::spec::problem::Problem;
use crate::spec::response::{BodyFormat, HeaderGeneration};
use crate::spec::rule::RuleSpec;
use crate::spec::scalar::{HeaderName, MAX_WAIT};
use tollgate_http_syntax::address::{Cidr, Prefixes};
use tollgate_http_syntax::alternatives::Alternatives;
use tollgate_http_syntax::path::Pattern;
use tollgate_http_syntax::readings::{EscapedSlashes, Paths};
use tollgate_http_syntax::repeated::Repeated;

fields! {
    /// A policy as data, with the defaults of the document filled in.
    #[derive(Clone, Debug)]
    pub struct PolicySpec {
        /// The identity of the document, byte for byte.
        fingerprint: Fixed,
        /// The identity of the document's content without the keys of tokens.
        public_fingerprint: Fixed,
        /// How requests are read.
        settings: SettingsSpec,
        /// The response to clients.
        response: ResponseSpec,
        /// The bounds on waiting requests.
        waiting: Limits,
        /// The source of verified claims.
        jwt: Option<Jwt>,
        /// The key part that identifies a tenant.
        tenant: Option<KeyPart>,
        /// Requests that no rule applies to.
        exempt: Vec<Conditions>,
        /// The keys of the rules, numbered in the order in which rules first use them.
        groups: Vec<GroupSpec>,
        /// The rules that count, in the order of the document.
        rules: Vec<RuleSpec>,
        /// The rules that deny, in the order of the document.
        deny: Vec<DenyRule>,
        /// Settings that are valid but hardly intended.
        warnings: Vec<Problem>,
    }
}

/// A hash, or an identity: eight bytes, because it may be any `u64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed(pub u64);

impl Coded for Fixed {
    const SHAPE: u64 = shape(&["fixed"], &[]);

    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.0.to_le_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Self {
        Self(u64::from_le_bytes(from.array()))
    }
}

fields! {
    /// How requests are read.
    #[derive(Clone, Debug)]
    pub struct SettingsSpec {
        /// How the client's address is found.
        client: ClientAddress,
        /// The bits of an address that identify one client.
        prefixes: Prefixes,
        /// The header with the client's country.
        country_header: Option<HeaderName>,
        /// The header with the client's AS number.
        asn_header: Option<HeaderName>,
        /// The default meaning of several values.
        repeated: Repeated,
        /// Worker: the header of the token that is verified, and the meaning of several tokens.
        token: Option<(HeaderName, Repeated)>,
        /// The meaning of `%2F` and `%5C` in a path.
        escaped_slashes: EscapedSlashes,
        /// The case of ASCII letters in a path makes no difference. All patterns are then in lower
        /// case.
        case_insensitive_paths: bool,
    } if |it| !matches!(it.token, Some((_, Repeated::Join)))
}

impl SettingsSpec {
    /// Reads the path of `target`; see [`Paths::read`].
    pub fn read_path(&self, target: &[u8], paths: &mut Paths) -> usize {
        let len = paths.read(target, self.escaped_slashes);
        if self.case_insensitive_paths {
            paths.lower();
        }
        len
    }
}

fields!(ClientAddress { source: Source, trust: Trust });
variants!(Trust { 0 => NoProxy, 1 => Proxies(all: Alternatives<Cidr>), 2 => Hops(count: usize), } if |it| {
    match it {
        Self::NoProxy => true,
        Self::Proxies(all) => !all.is_empty(),
        Self::Hops(count) => (1..=16).contains(count),
    }
});
fields!(Prefixes { ipv4: u32, ipv6: u32, } if |it| it.ipv4 <= 32 && it.ipv6 <= 128);

fields! {
    /// The response to clients.
    #[derive(Clone, Debug)]
    pub struct ResponseSpec {
        /// The generation of header fields.
        headers: HeaderGeneration,
        /// `RateLimit-Policy` is sent with the fields of the drafts.
        policy: bool,
        /// The fields are sent on responses to allowed requests, too.
        on_allow: bool,
        /// The body of a denial.
        body: BodyFormat,
        /// The most time that is added to Retry-After and `t`.
        jitter: Span,
        /// The hash of the partition key is sent.
        partition_key: bool,
    } if |it| it.jitter <= MAX_WAIT
}

fields!(Limits { per_key: usize, total: usize, bytes: usize, } if |it| {
    (1..=1_000_000).contains(&it.per_key)
        && (1..=1_000_000).contains(&it.total)
        && (65_536..=1_073_741_824).contains(&it.bytes)
});

fields!(Jwt {
    metadata: Option<String>,
    header: String,
    issuer: Option<String>,
    audiences: Vec<String>,
    keys: Vec<Jwk>,
} if |it| HeaderName::is_one(&it.header));
fields!(Jwk { alg: String, kid: Option<String>, json: String, } if |it| {
    matches!(&*it.alg, "HS256" | "RS256" | "ES256")
});

fields! {
    /// The key of some rules.
    #[derive(Clone, Debug)]
    pub struct GroupSpec {
        /// Its parts; with none there is one count for all requests.
        key: Vec<KeyPart>,
        /// The identity of the definition, unique in the policy.
        identity: Fixed,
        /// Envoy: the keys that are stored.
        capacity: u32,
        /// Worker: a count is durable before the response is sent.
        strict: bool,
        /// All nodes share one count, which an authority keeps.
        is_fleet: bool,
        /// Worker: the objects over which the requests of one key are spread.
        shards: Option<u32>,
    } if |it| {
        is_key(&it.key)
            && (4..=16_777_216).contains(&it.capacity)
            && it.shards.is_none_or(|shards| !it.is_fleet && (2..=MAX_SHARDS).contains(&shards))
    }
}

impl PolicySpec {
    /// The index in the document's `rules` of the rule with this index in `rules`.
    #[must_use]
    pub fn place_of(&self, rule: usize) -> usize {
        self.rules.get(rule).map_or(rule, |rule| rule.terms.place.into())
    }

    /// True when it contains no more than a document may. This is checked before anything is built:
    /// with hostile bytes a table per segment would be many times as large as the bytes.
    pub(crate) fn is_within_bounds(&self) -> bool {
        let total = |sizes: &mut dyn Iterator<Item = usize>| sizes.fold(0, usize::saturating_add);
        self.rules.len().saturating_add(self.deny.len()) <= MAX_RULES
            && self.exempt.len() <= MAX_EXEMPT
            && self.groups.len() <= MAX_RULES
            && total(&mut self.rules.iter().map(RuleSpec::sets)) <= MAX_SETS
            && total(&mut self.path_segments()) <= MAX_PATH_SEGMENTS
    }

    /// The number of segments in the paths by which each rule is looked up.
    fn path_segments(&self) -> impl Iterator<Item = usize> {
        let of_deny = self.deny.iter().map(|rule| segments(rule.paths()));
        self.rules.iter().map(|rule| segments(rule.paths())).chain(of_deny)
    }
}

fn segments(paths: &[Pattern]) -> usize {
    paths.iter().fold(0, |sum, path| sum.saturating_add(path.segments.len()))
}
