//! Partition keys: the canonical bytes of what a rule counts by.
//!
//! Invariant: two requests have equal bytes if and only if they agree in every part of the key. Each
//! part is prefixed with its length, so no value can imitate two; a missing part differs from every
//! value. The bytes hold what clients sent: they are hashed by the surface, never stored or logged.

use alloc::vec::Vec;

use crate::address::Prefixes;
use crate::compile::Group;
use crate::document::KeyPart;
use crate::facts::Facts;

/// The length that stands for a part that is not there.
const MISSING: u32 = u32::MAX;

/// Appends the key of `group` for these facts to `out`; true when every part is there. An IPv6 and
/// an IPv4 address never collide: their lengths differ.
pub(crate) fn write_key(
    group: &Group,
    prefixes: Prefixes,
    facts: &impl Facts,
    out: &mut Vec<u8>,
) -> bool {
    out.extend(group.identity().to_le_bytes());
    let mut complete = true;
    for part in &group.key {
        complete &= write_part(part, prefixes, facts, out);
    }
    complete
}

fn write_part(part: &KeyPart, prefixes: Prefixes, facts: &impl Facts, out: &mut Vec<u8>) -> bool {
    match part {
        KeyPart::ClientIp => match facts.peer() {
            Some(address) => prefixes.group(address, |bytes| push(out, bytes)),
            None => return missing(out),
        },
        KeyPart::Header(name) => match facts.header(&name.0) {
            Some(value) => push(out, &value),
            None => return missing(out),
        },
    }
    true
}

fn push(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).unwrap_or(MISSING.saturating_sub(1));
    out.extend(len.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn missing(out: &mut Vec<u8>) -> bool {
    out.extend(MISSING.to_le_bytes());
    false
}
