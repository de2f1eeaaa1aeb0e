//! The parts of a policy that do not follow from the rest of it, and the construction of the policy
//! from them.
//!
//! Invariant: derived parts are computed and never read (indices, positions in stored values,
//! hashes of names, look-up), so no bytes result in a policy with inconsistent parts. Only
//! identities, those of groups and records, are taken from the bytes unchecked, because only the
//! document determines them. Each is unique.

use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Span;

use crate::binary::coded::{Bytes, Coded, fields, shape, variants};
use crate::binary::rule_form::{RuleForm, are_unique};
use crate::document::client_ip::Source;
use crate::document::conditions::Conditions;
use crate::document::key::KeyPart;
use crate::document::root::{BodyFormat, HeaderGeneration, MAX_EXEMPT};
use crate::document::rule::MAX_SHARDS;
use crate::document::scalar::{HeaderName, MAX_WAIT};
use crate::json::problem::{Problem, Problems};
use crate::policy::bounds::{MAX_KEY_PARTS, MAX_PATH_SEGMENTS, MAX_RULES, MAX_SETS};
use crate::policy::by_id::ById;
use crate::policy::by_value::ByValue;
use crate::policy::client_address::{ClientAddress, Trust};
use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::index::Index;
use crate::policy::jwt::{Jwk, Jwt};
use crate::policy::limits::Limits;
use crate::policy::settings::{Response, Settings};
use crate::policy::surface::Surface;
use crate::policy::tenant::TenantKey;
use tollgate_http_syntax::address::{Cidr, Prefixes};
use tollgate_http_syntax::alternatives::Alternatives;
use tollgate_http_syntax::readings::EscapedSlashes;
use tollgate_http_syntax::repeated::Repeated;
use tollgate_http_syntax::sort::sort_by;

fields! {
    /// The encoded form of a policy.
    pub(super) struct PolicyForm {
        fingerprint: Fixed,
        public_fingerprint: Fixed,
        settings: SettingsForm,
        response: ResponseForm,
        waiting: Limits,
        jwt: Option<Jwt>,
        tenant: Option<KeyPart>,
        exempt: Vec<Conditions>,
        groups: Vec<GroupForm>,
        rules: Vec<RuleForm>,
        warnings: Vec<Problem>,
    }
}

/// A hash, or an identity: eight bytes, because it may be any `u64`.
struct Fixed(u64);

impl Coded for Fixed {
    const SHAPE: u64 = shape(&["fixed"], &[]);

    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.0.to_le_bytes());
    }

    fn read(from: &mut Bytes<'_>) -> Option<Self> {
        from.array().map(u64::from_le_bytes).map(Self)
    }
}

fields! {
    struct SettingsForm {
        client: ClientAddress,
        prefixes: Prefixes,
        country_header: Option<HeaderName>,
        asn_header: Option<HeaderName>,
        repeated: Repeated,
        token: Option<(HeaderName, Repeated)>,
        escaped_slashes: EscapedSlashes,
    } if |it| !matches!(it.token, Some((_, Repeated::Join)))
}

fields!(ClientAddress { source: Source, trust: Trust });
variants!(Trust { 0 => Nobody, 1 => Proxies(all: Alternatives<Cidr>), 2 => Hops(count: usize), } if |it| {
    match it {
        Self::Nobody => true,
        Self::Proxies(all) => !all.is_empty(),
        Self::Hops(count) => (1..=16).contains(count),
    }
});
fields!(Prefixes { ipv4: u32, ipv6: u32, } if |it| it.ipv4 <= 32 && it.ipv6 <= 128);

fields! {
    struct ResponseForm {
        headers: HeaderGeneration,
        policy: bool,
        on_allow: bool,
        body: BodyFormat,
        jitter: Span,
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
    struct GroupForm {
        key: Vec<KeyPart>,
        identity: Fixed,
        capacity: u32,
        strict: bool,
        is_fleet: bool,
        shards: Option<u32>,
    } if |it| {
        it.key.len() <= MAX_KEY_PARTS
            && (4..=16_777_216).contains(&it.capacity)
            && it.shards.is_none_or(|shards| !it.is_fleet && (2..=MAX_SHARDS).contains(&shards))
    }
}

impl PolicyForm {
    /// The encoded form of `policy`. All other fields are named here, so that a new field must be
    /// one or the other.
    pub(super) fn of(policy: &Policy) -> Self {
        let Policy {
            rules,
            groups,
            sets,
            exempt,
            exempt_by_value: _,
            index: _,
            settings,
            response,
            waiting,
            jwt,
            tenant,
            warnings,
            surface: _, // written before it
            fingerprint,
            public_fingerprint,
            keyed_fingerprint: _, // the secret and the version belong to the surface
            version: _,
        } = policy;
        // The groups after these are the local ones of nodes, which follow from these.
        let used = rules.iter().map(|rule| usize::from(rule.group).saturating_add(1)).max();
        let of_rules = groups.iter().take(used.unwrap_or(0));
        Self {
            fingerprint: Fixed(*fingerprint),
            public_fingerprint: Fixed(*public_fingerprint),
            settings: SettingsForm::of(settings),
            response: ResponseForm::of(response),
            waiting: *waiting,
            jwt: jwt.clone(),
            tenant: tenant.as_ref().map(|TenantKey { part }| part.clone()),
            exempt: exempt.clone(),
            groups: of_rules.map(GroupForm::of).collect(),
            rules: rules.iter().map(|rule| RuleForm::of(rule, sets)).collect(),
            warnings: warnings.0.clone(),
        }
    }

    /// The policy in `rest`, which must end with it.
    pub(super) fn read_last(mut rest: Bytes<'_>, surface: Surface) -> Option<Policy> {
        let form = Self::read(&mut rest).filter(|_| rest.0.is_empty());
        form.filter(Self::is_within_bounds)?.policy(surface)
    }

    /// The policy of this form, which is [within bounds](Self::is_within_bounds); `None` when its
    /// rules or groups are inconsistent.
    pub(super) fn policy(self, surface: Surface) -> Option<Policy> {
        let Self {
            fingerprint,
            public_fingerprint,
            settings,
            response,
            waiting,
            jwt,
            tenant,
            exempt,
            groups,
            rules,
            warnings,
        } = self;
        let mut policy = Policy {
            rules: Vec::new(),
            groups: groups.into_iter().map(GroupForm::group).collect(),
            sets: Vec::new(),
            exempt,
            exempt_by_value: ByValue::default(),
            index: Index::new(),
            settings: settings.settings(),
            response: response.response(),
            waiting,
            jwt,
            tenant: tenant.map(|part| TenantKey { part }),
            warnings: Problems(warnings),
            surface,
            fingerprint: fingerprint.0,
            public_fingerprint: public_fingerprint.0,
            keyed_fingerprint: None,
            version: 0,
        };
        let (mut groups_used, mut fallbacks) = (0, Vec::new());
        for form in rules {
            // Groups are numbered in the order in which rules first use them.
            if form.group() > groups_used || !form.fits(&policy) {
                return None;
            }
            groups_used = groups_used.max(form.group().checked_add(1)?);
            form.add_to(&mut policy, &mut fallbacks)?;
        }
        if groups_used != policy.groups.len() {
            return None;
        }
        for fallback in fallbacks {
            fallback.add_to(&mut policy)?;
        }
        if !has_each_once(&policy) {
            return None;
        }
        policy.complete();
        let longest = policy.groups.iter().map(Group::value_len).max().unwrap_or(0);
        if longest > surface.longest_value() {
            return None;
        }
        debug_assert!(policy.is_whole(), "an index of a policy is out of range");
        Some(policy)
    }

    /// True when it contains no more than a document may. This is checked before anything is built:
    /// with hostile bytes a table per segment would be many times as large as the bytes.
    pub(super) fn is_within_bounds(&self) -> bool {
        let total = |sizes: &mut dyn Iterator<Item = usize>| sizes.fold(0, usize::saturating_add);
        self.rules.len() <= MAX_RULES
            && self.exempt.len() <= MAX_EXEMPT
            && self.groups.len() <= MAX_RULES
            && total(&mut self.rules.iter().map(RuleForm::sets)) <= MAX_SETS
            && total(&mut self.rules.iter().map(RuleForm::path_segments)) <= MAX_PATH_SEGMENTS
    }
}

/// True when every name of a rule, and every identity of a group or a record, is unique.
fn has_each_once(policy: &Policy) -> bool {
    let mut groups: Vec<u64> = policy.groups.iter().map(|group| group.identity).collect();
    let ids = |set: &QuotaSet| (1..=set.version).map(|v| u64::from(set.id_in(v))).collect();
    let mut records: Vec<u64> = policy.sets.iter().flat_map::<Vec<u64>, _>(ids).collect();
    let are_apart = |ids: &mut Vec<u64>| {
        sort_by(ids, Ord::cmp);
        ids.is_sorted_by(|one, next| one < next)
    };
    are_apart(&mut groups)
        && are_apart(&mut records)
        && are_unique(policy.rules.iter().map(|rule| &*rule.name))
}

impl SettingsForm {
    fn of(settings: &Settings) -> Self {
        let Settings {
            client,
            prefixes,
            country_header,
            asn_header,
            repeated,
            token,
            escaped_slashes,
            reads_path: _,
            reads_host: _,
        } = settings.clone();
        Self { client, prefixes, country_header, asn_header, repeated, token, escaped_slashes }
    }

    fn settings(self) -> Settings {
        let Self { client, prefixes, country_header, asn_header, repeated, token, escaped_slashes } =
            self;
        Settings {
            client,
            prefixes,
            country_header,
            asn_header,
            repeated,
            token,
            escaped_slashes,
            reads_path: false, // `Policy::complete` sets both
            reads_host: false,
        }
    }
}

impl ResponseForm {
    fn of(response: &Response) -> Self {
        let Response { headers, policy, on_allow, body, jitter, partition_key, hash_key: _ } =
            *response;
        Self { headers, policy, on_allow, body, jitter, partition_key }
    }

    fn response(self) -> Response {
        let Self { headers, policy, on_allow, body, jitter, partition_key } = self;
        Response { headers, policy, on_allow, body, jitter, partition_key, hash_key: None }
    }
}

impl GroupForm {
    fn of(group: &Group) -> Self {
        let Group {
            key,
            identity,
            capacity,
            strict,
            is_fleet,
            shards,
            sets: _,
            is_sparse: _,
            by_id: _,
            by_name: _,
            blank: _,
            value_len: _,
            quotas: _,
            fallback: _, // follows from that of its sets
        } = group.clone();
        Self { key, identity: Fixed(identity), capacity, strict, is_fleet, shards }
    }

    fn group(self) -> Group {
        let Self { key, identity, capacity, strict, is_fleet, shards } = self;
        Group {
            key,
            identity: identity.0,
            capacity,
            strict,
            is_fleet,
            shards,
            sets: Vec::new(),
            is_sparse: false,
            by_id: ById::default(),
            by_name: ById::default(),
            blank: Vec::new(),
            value_len: 0,
            quotas: 0,
            fallback: None,
        }
    }
}
