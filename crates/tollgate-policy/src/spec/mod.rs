//! The content of a policy, as data: the values of the language with their bounds, and the
//! [`PolicySpec`] with its encoding as bytes.
//!
//! Invariant: a value of these types means something on its own, and knows when it is valid; what
//! depends on several values is checked where a spec is made or read.

pub(crate) mod policy;
pub(crate) mod deny;
pub(crate) mod rule;
pub(crate) mod values;
pub(crate) mod coded;
pub(crate) mod reader;
pub(crate) mod tenant;
pub(crate) mod quota;
pub(crate) mod penalty;
pub(crate) mod limited_rule;
pub(crate) mod limit_from;
pub(crate) mod surface;
pub(crate) mod response;
pub(crate) mod jwt;
pub(crate) mod client_ip;
pub(crate) mod action;
pub(crate) mod mark_header;
pub(crate) mod mode;
pub(crate) mod charging;
pub(crate) mod settled_cost;
pub(crate) mod json_cost;
pub(crate) mod status;
pub(crate) mod cost;
pub(crate) mod key;
pub(crate) mod key_item;
pub(crate) mod implication;
pub(crate) mod conditions;
pub(crate) mod descriptor;
pub(crate) mod wanted;
#[cfg(feature = "regex")]
mod regexes;
#[cfg_attr(not(feature = "regex"), path = "no_regex.rs")]
pub(crate) mod regex;
pub(crate) mod fact;
pub(crate) mod scope;
pub(crate) mod on_failure;
pub(crate) mod on_missing;
pub(crate) mod metadata;
pub(crate) mod scalar;
pub(crate) mod limits;
pub(crate) mod problem;
pub(crate) mod quote;
pub(crate) mod bounds;

pub use crate::facts::{CertificateField, CloudflareField};
pub use crate::stable_hash::stable_hash;
pub use action::{Action, Delay, MAX_PRIORITIES, Mark, Reply, Text};
pub use bounds::{
    MAX_ANY_OF, MAX_EXEMPT, MAX_FLEET_RULES, MAX_KEY_PARTS, MAX_PATH_SEGMENTS, MAX_QUOTAS,
    MAX_REGEX, MAX_REGEXES, MAX_RULES, MAX_SEARCHED, MAX_SETS, MAX_SHARDS, MAX_TIERS,
    MAX_VALUE_LEN, MAX_VALUES, NO_REGEXES,
};
pub use charging::{Charging, OnAbort, ResponseCharge, Statuses};
pub use client_ip::{ClientAddress, Source, Trust};
pub use conditions::{Condition, Conditions};
pub use cost::{Cost, MAX_COST};
pub use deny::{DENY_STATUS, DenyRule};
pub use descriptor::{Entries, EntryMatcher, Form, Like, MAX_ENTRIES, WantedEntry};
pub use fact::{Fact, Need};
pub use json_cost::{JsonCost, MAX_POINTER_LEN, MAX_POINTERS, MAX_WEIGHT, WeightedNumber};
pub use jwt::{Jwk, Jwt};
pub use key::{About, Breadth, KeySource, Of, Origin, Spelling};
pub use key_item::{KeyForm, KeyItem, KeyPart, OwnPrefixes, items};
pub use limit_from::{LimitFrom, LimitSource};
pub use limited_rule::no_limit_from;
pub use limits::Limits;
pub use mark_header::MarkHeader;
pub use metadata::{MAX_METADATA, MetadataPath};
pub use mode::{Mode, Share};
pub use on_failure::OnFailure;
pub use on_missing::OnMissing;
pub use penalty::no_penalty;
pub use policy::{Fixed, GroupSpec, PolicySpec, ResponseSpec, SettingsSpec};
pub use problem::{Problem, Problems};
pub use quota::{QuotaProblem, QuotaSpec, parts_of, with_holds};
pub use quote::{MAX_QUOTED, quoted_text};
pub use regex::Regex;
pub use response::{BodyFormat, HeaderGeneration};
pub use rule::{FALLBACK, RecordSpec, RuleSpec, RuleTerms, SetSpec, TierSpec};
pub use scalar::{Bounded, CookieName, HeaderName, MAX_NAME, MAX_WAIT, Method, Name, is_visible};
pub use scope::{DEFAULT_LEASE, MAX_LEASE, MAX_NODES, Scope, is_lease};
pub use settled_cost::{
    ActualCost, ActualUnits, ResponseFacts, SettledCost, StatusCost, UnknownCost,
};
pub use status::{Ending, StatusPattern};
pub use surface::Surface;
pub use tenant::{MAX_TENANT_ENTRY, MAX_TENANT_ID, TenantEntry};
pub use wanted::{Asn, Country, Host, Matcher};
