//! Partition keys: the canonical bytes of what a rule counts by.
//!
//! Invariant: two requests have equal bytes if and only if they agree in every part of the key. Each
//! part is prefixed with its length, so no value can imitate two; a missing part differs from every
//! value. The bytes hold what clients sent: they are hashed by the surface, never stored or logged.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::compile::{Group, Rule};
use crate::document::identity::KeyPart;
use crate::facts::Facts;
use crate::request::{Request, decoded};

/// The length that stands for a part that is not there.
const MISSING: u32 = u32::MAX;
/// Bytes before the first part: the group's identity.
const IDENTITY_LEN: usize = 8;

/// Appends the key of `group` for this request to `out`; true when every part is there.
pub(crate) fn write_key<F: Facts>(
    group: &Group,
    rule: &Rule,
    request: &Request<'_, F>,
    out: &mut Vec<u8>,
) -> bool {
    out.extend(group.identity().to_le_bytes());
    let mut complete = true;
    for part in &group.key {
        complete &= write_part(part, rule, request, out).is_some();
    }
    complete
}

/// Appends the key that all requests share that lack a part of it: nothing that a client did send tells them apart, or
/// whoever leaves one part out could vary another.
pub(crate) fn write_shared_key(group: &Group, out: &mut Vec<u8>) {
    out.extend(group.identity().to_le_bytes());
    group.key.iter().for_each(|_| out.extend(MISSING.to_le_bytes()));
}

/// Appends one part; `None` when it is missing, which is appended too.
pub(crate) fn write_part<F: Facts>(
    part: &KeyPart,
    rule: &Rule,
    request: &Request<'_, F>,
    out: &mut Vec<u8>,
) -> Option<()> {
    let start = out.len();
    out.extend(MISSING.to_le_bytes());
    match part {
        KeyPart::ClientIp => write_address(request.client()?, request, out),
        KeyPart::Method => out.extend_from_slice(request.method()),
        KeyPart::Host => {
            out.extend_from_slice(Some(request.host()).filter(|host| !host.is_empty())?)
        }
        KeyPart::Path => out.extend_from_slice(request.path()),
        KeyPart::Country => out.extend(request.country()?.iter().map(u8::to_ascii_uppercase)),
        KeyPart::Asn => out.extend_from_slice(&request.asn()?),
        KeyPart::Header(name) => out.extend_from_slice(&request.facts.header(&name.0)?),
        KeyPart::Cookie(name) => out.extend_from_slice(&request.cookie(name.as_bytes())?),
        KeyPart::Query(name) => out.extend(decoded(request.query(name.as_bytes()).next()?)),
        KeyPart::PathParam(name) => out.extend_from_slice(rule.capture(name, request.path())?),
        KeyPart::JwtClaim(name) => out.extend_from_slice(&request.facts.claim(name)?),
    }
    let len = out.len().saturating_sub(start).saturating_sub(size_of::<u32>());
    let len = u32::try_from(len).unwrap_or(MISSING.saturating_sub(1));
    let prefix = out.get_mut(start..)?.first_chunk_mut::<4>()?;
    *prefix = len.to_le_bytes();
    Some(())
}

fn write_address<F: Facts>(address: IpAddr, request: &Request<'_, F>, out: &mut Vec<u8>) {
    request.settings.prefixes.group(address, |bytes| out.extend_from_slice(bytes));
}

/// The parts of a key, in their order; `None` for one that is missing.
pub(crate) fn parts(key: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = key.get(IDENTITY_LEN..).unwrap_or_default();
    core::iter::from_fn(move || {
        let (len, after) = rest.split_first_chunk::<4>()?;
        let len = u32::from_le_bytes(*len);
        if len == MISSING {
            rest = after;
            return Some(None);
        }
        let (part, after) = after.split_at_checked(usize::try_from(len).ok()?)?;
        rest = after;
        Some(Some(part))
    })
}
