//! Partition keys: the canonical bytes that a rule counts by.
//!
//! Invariant: two requests have equal bytes if and only if they agree in every part of the key.
//! Each part is prefixed with its length, so no value can imitate two; a missing part differs from
//! every value. The bytes contain values that clients sent: the surface hashes them, and never
//! stores or logs them.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::facts::Facts;
use crate::policy::group::Group;
use crate::policy::rule::Rule;
use crate::request::lazy::Request;
use crate::spec::key::KeyPart;
use tollgate_http_syntax::cookies::write_cookie;
use tollgate_http_syntax::header::write_header;
use tollgate_http_syntax::malformed::Malformed;
use tollgate_http_syntax::query::decoded;
use tollgate_http_syntax::repeated::Repeated;
use tollgate_http_syntax::values::{elements, write_one};
use tollgate_storage::Bytes;

/// The length that marks a missing part.
const MISSING: u32 = u32::MAX;
/// Bytes before the first part: the group's identity.
const IDENTITY_LEN: usize = 8;

/// Appends the key of `group` for this request to `out`; true when every part is present.
///
/// # Errors
/// A part has several values, and the mode selects none of them.
pub(crate) fn write_key<F: Facts>(
    group: &Group,
    rule: &Rule,
    request: &Request<'_, F>,
    out: &mut Vec<u8>,
) -> Result<bool, Malformed> {
    out.extend_from_slice(&group.identity().to_le_bytes());
    let mut complete = true;
    for part in &group.spec.key {
        complete &= write_part(part, rule, request, out)?;
    }
    Ok(complete)
}

/// Appends the key that all requests without one of its parts share. It contains none of the parts
/// that the client did send, or a client could leave one part out and vary another.
pub(crate) fn write_shared_key(group: &Group, out: &mut Vec<u8>) {
    out.extend_from_slice(&group.identity().to_le_bytes());
    group.spec.key.iter().for_each(|_| out.extend_from_slice(&MISSING.to_le_bytes()));
}

/// Appends one part that is present, as `write` writes it.
pub(crate) fn write_given(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&MISSING.to_le_bytes());
    write(out);
    write_len(start, out);
}

/// Appends a fact about the client, as a part.
///
/// # Errors
/// It has several values, and the mode selects none of them.
pub(crate) fn write_given_fact(
    fact: &[u8],
    repeated: Repeated,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let start = out.len();
    out.extend_from_slice(&MISSING.to_le_bytes());
    write_fact(Some(fact.into()), repeated, out)?;
    write_len(start, out);
    Ok(())
}

/// Appends one part; false when it is missing, which is appended too.
///
/// # Errors
/// It has several values, and the mode selects none of them.
pub(crate) fn write_part<F: Facts>(
    part: &KeyPart,
    rule: &Rule,
    request: &Request<'_, F>,
    out: &mut Vec<u8>,
) -> Result<bool, Malformed> {
    let start = out.len();
    out.extend_from_slice(&MISSING.to_le_bytes());
    let is_there = write_value(part, rule, request, out)?;
    if is_there {
        write_len(start, out);
    }
    Ok(is_there)
}

/// Writes the length of the part that begins at `start` before it.
fn write_len(start: usize, out: &mut [u8]) {
    let len = out.len().saturating_sub(start).saturating_sub(size_of::<u32>());
    let len = u32::try_from(len).unwrap_or(MISSING.saturating_sub(1));
    if let Some(prefix) = out.get_mut(start..).and_then(|written| written.first_chunk_mut()) {
        *prefix = len.to_le_bytes();
    }
}

/// Appends `text` as a separate part.
pub(crate) fn write_text(text: &[u8], out: &mut Vec<u8>) {
    let len = u32::try_from(text.len()).unwrap_or(MISSING.saturating_sub(1));
    out.extend(len.to_le_bytes());
    out.extend_from_slice(text);
}

/// Appends the value of one part; false when it is missing, and nothing is appended.
///
/// # Errors
/// It has several values, and the mode selects none of them.
pub(crate) fn write_value<F: Facts>(
    part: &KeyPart,
    rule: &Rule,
    request: &Request<'_, F>,
    out: &mut Vec<u8>,
) -> Result<bool, Malformed> {
    let default = request.settings.spec.repeated;
    let mut put = |value: Option<&[u8]>| {
        out.extend_from_slice(value.unwrap_or_default());
        Ok(value.is_some())
    };
    match part {
        KeyPart::ClientIp => match request.client() {
            Some(address) => write_address(address, request, out),
            None => return Ok(false),
        },
        // As some origins read it; see `Method::is`.
        KeyPart::Method => out.extend(request.method().iter().map(u8::to_ascii_uppercase)),
        KeyPart::Host => return put(Some(request.host()?).filter(|host| !host.is_empty())),
        KeyPart::Path => return put(Some(request.paths().main())),
        KeyPart::PathParam(name) => return put(rule.capture(name, request.paths()).as_deref()),
        KeyPart::JwtClaim(name) => return put(request.claim(name)?.as_deref()),
        KeyPart::Descriptor(key) => return Ok(write_entries(request, key.as_bytes(), out)),
        KeyPart::Country => return write_fact(request.country(), default, out),
        KeyPart::Asn => return write_fact(request.asn(), default, out),
        // A route without a name cannot be distinguished from others.
        KeyPart::Route => {
            return put(request.facts.route().filter(|name| !name.is_empty()).as_deref());
        }
        KeyPart::Header(name, repeated) => match request.facts.header(&name.0) {
            Some(value) => write_header(&name.0, &value, repeated.unwrap_or(default), out)?,
            None => return Ok(false),
        },
        KeyPart::Cookie(name, repeated) => match request.facts.header("cookie") {
            Some(header) => {
                let repeated = repeated.unwrap_or(default);
                return write_cookie(&header, name.as_bytes(), repeated, out);
            }
            None => return Ok(false),
        },
        KeyPart::Query(name, repeated) => {
            let values = request.query(name.as_bytes());
            return write_one(values, repeated.unwrap_or(default), out, |value, out| {
                out.extend(decoded(value));
                Ok(())
            });
        }
    }
    Ok(true)
}

/// Appends the values that the descriptor has under `key`, in their order; false when it has none.
///
/// Two zero bytes separate values, and a zero byte within a value becomes a zero and a one. So
/// several values differ from every single value, and from other lists with the same concatenation.
fn write_entries<F: Facts>(request: &Request<'_, F>, key: &[u8], out: &mut Vec<u8>) -> bool {
    let mut is_there = false;
    for value in request.values_of(key) {
        if is_there {
            out.extend([0, 0]);
        }
        is_there = true;
        for byte in &*value {
            out.push(*byte);
            if *byte == 0 {
                out.push(1);
            }
        }
    }
    is_there
}

/// Appends the fact that a proxy or the platform sets about the client, in upper case.
fn write_fact(
    fact: Option<Cow<'_, [u8]>>,
    repeated: Repeated,
    out: &mut Vec<u8>,
) -> Result<bool, Malformed> {
    let Some(fact) = fact else { return Ok(false) };
    write_one(elements(&fact), repeated, out, |value, out| {
        out.extend(value.iter().map(u8::to_ascii_uppercase));
        Ok(())
    })?;
    Ok(true)
}

fn write_address<F: Facts>(address: IpAddr, request: &Request<'_, F>, out: &mut Vec<u8>) {
    request.settings.spec.prefixes.group(address, |bytes| out.extend_from_slice(bytes));
}

/// The parts of a key, in their order; `None` for a missing one.
pub(crate) fn parts(key: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = Bytes(key.get(IDENTITY_LEN..).unwrap_or_default());
    core::iter::from_fn(move || match rest.u32()? {
        MISSING => Some(None),
        len => Some(Some(rest.take(usize::try_from(len).ok()?)?)),
    })
}
