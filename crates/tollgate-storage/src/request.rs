//! A request of format 2: its fixed parts as the sender writes them, and the whole as the process
//! that counts reads it. The format is in `wire`.
//!
//! Invariant: a request is read completely or not at all, before any decision. No two rules of it
//! count in one record. A flag that says that a field follows is set exactly where the field is
//! written.

use alloc::vec::Vec;

use tollgate_core::{Decision, Span, Timestamp, Verdict};

use crate::due::Due;
use crate::stored_set::StoredSet;
use crate::wire::{
    BINDING, LATER, LEASES, LIMITS, MAGIC, PUNISHES, RENEWED, REPORTED, REPORTS, Reader, SETTLE,
    SETTLES, STRICT, UNDER, USED, WAITS, WITH_STATES, WITHOUT_STATES, WireError,
};

/// The beginning of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The version of the policy with which it was planned; 0 when versions are not counted.
    pub version: u64,
    /// The identity of the key's group.
    pub group: u64,
    /// The flags of a request, except for `UNDER`.
    pub flags: u8,
    /// The revision of the tenant's entry with which it was planned, where that matters.
    pub under: Option<u64>,
}

/// The beginning of a rule in a request. The parameters of its quotas follow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleHead {
    /// The flags of a rule, except for `WAITS`.
    pub flags: u8,
    /// The stable identity of the rule.
    pub rule: u64,
    /// Its cost in units.
    pub cost: u64,
    /// The longest wait that is not a denial.
    pub longest: Option<Span>,
}

impl Head {
    /// Appends it to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(USUAL);
        out.extend(MAGIC);
        out.extend(self.version.to_le_bytes());
        out.extend(self.group.to_le_bytes());
        out.push(self.flags | if self.under.is_some() { UNDER } else { 0 });
        if let Some(revision) = self.under {
            out.extend(revision.to_le_bytes());
        }
    }
}

impl RuleHead {
    /// Appends it to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(self.flags | if self.longest.is_some() { WAITS } else { 0 });
        out.extend(self.rule.to_le_bytes());
        out.extend(self.cost.to_le_bytes());
        if let Some(longest) = self.longest {
            out.extend(longest.as_nanos().to_le_bytes());
        }
    }
}

/// A request.
#[derive(Debug)]
pub(crate) struct Request<'b> {
    /// The version of the policy that planned it.
    pub(crate) version: u64,
    /// The identity of the key's group.
    pub(crate) group: u64,
    /// It contains the effects of a response, which apply whatever the policy is by now.
    pub(crate) settles: bool,
    /// The reply contains no states: the sender is a node of a fleet, which does not use them to
    /// remember denials.
    pub(crate) omits_states: bool,
    /// The reply always contains the states.
    pub(crate) includes_states: bool,
    pub(crate) rules: Vec<RequestRule<'b>>,
    /// One per quota of each rule, in their order.
    pub(crate) decisions: Vec<Decision>,
}

/// A rule of the request.
#[derive(Debug)]
pub(crate) struct RequestRule<'b> {
    /// The identity of the rule, the same for all its tiers.
    pub(crate) rule: u64,
    /// An operator blocked its key until this time.
    pub(crate) blocked_until: Option<Timestamp>,
    pub(crate) binding: bool,
    /// Its denial starts the penalties of its quotas.
    pub(crate) punishes: bool,
    pub(crate) due: Due,
    pub(crate) cost: u64,
    /// The longest wait that is not a denial.
    pub(crate) longest: Option<Span>,
    /// Its quotas, as bytes. States are stored under the same quotas if their parameters have the
    /// same bytes.
    pub(crate) parameters: &'b [u8],
    /// The limits of this request, one per quota; empty where it has those of the quotas.
    pub(crate) limits: Vec<u64>,
    /// How many decisions belong to it.
    pub(crate) quotas: usize,
    /// When it was charged. For a refund the request contains it; else the decision sets it.
    pub(crate) charged: Option<Timestamp>,
}

impl RequestRule<'_> {
    /// The cost that is decided on.
    pub(crate) fn decided_cost(&self) -> u64 {
        if self.due == Due::Reported { 1 } else { self.cost }
    }

    /// In a receipt, the most units that it may be settled at.
    pub(crate) const fn most(&self) -> Option<u64> {
        if let Due::Settled(most) = self.due { Some(most) } else { None }
    }

    /// The identity of its rule and tier.
    pub(crate) fn stable_id(&self) -> u64 {
        self.parameters.first_chunk().map_or(0, |id| u64::from_le_bytes(*id))
    }
}

/// True when the charges of `request` must be durable before its reply is sent.
pub(crate) fn is_strict(request: &[u8]) -> bool {
    // A lease must not be lost: its spent units would not be counted.
    if request.starts_with(&LEASES) {
        return true;
    }
    // The flags of a report are those of its receipt.
    let request = match request {
        _ if settles(request) => request.get(RECEIPT..).unwrap_or_default(),
        _ if request.starts_with(&REPORTS) => request.get(REPORTED_RECEIPT..).unwrap_or_default(),
        _ => request,
    };
    request.get(FLAGS).is_none_or(|flags| flags & STRICT != 0)
}

/// True for a request that settles a cost.
pub(crate) fn settles(request: &[u8]) -> bool {
    request.starts_with(&SETTLE)
}

/// The revision of the tenant's entry with which `request` was planned; `None` when it contains
/// none.
pub(crate) fn entry_of(request: &[u8]) -> Option<u64> {
    let (flags, rest) = request.get(FLAGS..)?.split_first()?;
    let is_said = request.starts_with(&MAGIC) && flags & UNDER != 0;
    rest.first_chunk().filter(|_| is_said).map(|revision| u64::from_le_bytes(*revision))
}

/// `request` with every rule only checked; `None` when none of them starts penalties.
pub(crate) fn look_of(request: &[u8]) -> Option<Vec<u8>> {
    let asked = Request::read(request).ok()?;
    if !asked.rules.iter().any(|rule| rule.punishes) {
        return None;
    }
    let mut look = request.to_vec();
    let under = if request.get(FLAGS)? & UNDER == 0 { 0 } else { REVISION };
    let mut offset = FLAGS.checked_add(1)?.checked_add(under)?;
    for rule in &asked.rules {
        let flags = look.get_mut(offset)?;
        *flags = *flags & (BINDING | WAITS | LIMITS) | LATER;
        let wait = if rule.longest.is_some() { 8 } else { 0 };
        let len = RULE_HEAD.checked_add(wait)?.checked_add(rule.parameters.len())?;
        let len = len.checked_add(rule.limits.len().checked_mul(8)?)?;
        offset = offset.checked_add(len)?;
    }
    // The effects of a response are not checked.
    (offset == look.len()).then_some(look)
}

/// Bytes of the revision of an entry, and of a rule before its longest wait.
const REVISION: usize = 8;
const RULE_HEAD: usize = 17;

/// Bytes of a request with one rule of one quota.
const USUAL: usize = 128;

/// The offset of the flags of a request, and of the receipt in a request that settles a cost.
const FLAGS: usize = 24;
const RECEIPT: usize = 24;
const REPORTED_RECEIPT: usize = 17;

impl<'b> Request<'b> {
    /// Reads a request of format 2.
    pub(crate) fn read(request: &'b [u8]) -> Result<Self, WireError> {
        let mut bytes = Reader(request);
        if bytes.bytes(MAGIC.len())? != MAGIC {
            return Err(WireError::OtherPolicy);
        }
        let (version, group, flags) = (bytes.u64()?, bytes.u64()?, bytes.u8()?);
        if flags & !(STRICT | SETTLES | UNDER | WITH_STATES | WITHOUT_STATES) != 0 {
            return Err(WireError::Malformed);
        }
        if flags & UNDER != 0 {
            bytes.u64()?; // already compared by the store of the entry
        }
        let is_set = |flag: u8| flags & flag != 0;
        let (settles, includes_states) = (is_set(SETTLES), is_set(WITH_STATES));
        let (rules, decisions) = (Vec::new(), Vec::new());
        let omits_states = is_set(WITHOUT_STATES);
        let mut asked =
            Self { version, group, settles, omits_states, includes_states, rules, decisions };
        while !bytes.0.is_empty() {
            let rule = asked.read_rule(&mut bytes)?;
            let is_same = |other: &RequestRule<'_>| other.stable_id() == rule.stable_id();
            if asked.rules.iter().any(is_same) {
                return Err(WireError::Malformed);
            }
            asked.rules.push(rule);
        }
        Ok(asked)
    }

    fn read_rule(&mut self, bytes: &mut Reader<'b>) -> Result<RequestRule<'b>, WireError> {
        let (flags, rule, cost) = (bytes.u8()?, bytes.u64()?, bytes.u64()?);
        let longest = match flags & WAITS {
            0 => None,
            _ => Some(Span::from_nanos(bytes.u64()?)),
        };
        let (len, quotas) = StoredSet::extent(bytes.0).ok_or(WireError::Malformed)?;
        let parameters = bytes.bytes(len)?;
        let mut limits = Vec::new();
        if flags & LIMITS != 0 {
            for _ in 0..quotas {
                limits.push(bytes.u64()?);
            }
        }
        let (due, charged) = match flags & !(BINDING | WAITS | PUNISHES | LIMITS) {
            0 => (Due::Now, None),
            LATER => (Due::Later, None),
            REPORTED => (Due::Reported, None),
            USED => (Due::Settled(bytes.u64()?), Some(Timestamp::from_nanos(bytes.u64()?))),
            RENEWED => (Due::Renewed, Some(Timestamp::from_nanos(bytes.u64()?))),
            _ => return Err(WireError::Malformed),
        };
        for _ in 0..quotas {
            let delay = if flags & USED != 0 { bytes.u64()? } else { 0 };
            self.decisions.push(undecided(delay));
        }
        let (binding, punishes) = (flags & BINDING != 0, flags & PUNISHES != 0);
        let blocked_until = None;
        Ok(RequestRule {
            rule,
            blocked_until,
            binding,
            punishes,
            due,
            cost,
            longest,
            parameters,
            limits,
            quotas,
            charged,
        })
    }
}

/// A decision that is not made yet, or one that delayed a request for this time.
const fn undecided(delay_ns: u64) -> Decision {
    let verdict = match delay_ns {
        0 => Verdict::Allow,
        _ => Verdict::Delay(Span::from_nanos(delay_ns)),
    };
    Decision { verdict, limit: 0, remaining: 0, retry_after: None, reset_after: Span::ZERO }
}
