//! Partition keys: the canonical bytes that a rule counts by.
//!
//! Invariant: two requests have equal bytes if and only if they agree in every part of the key.
//! Each part is prefixed with its length, so no value can imitate two; a missing part differs from
//! every value. The bytes contain values that clients sent: the surface hashes them, and never
//! stores or logs them.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::facts::Facts;
use crate::policy::group::Group;
use crate::policy::rule::Rule;
use crate::request::lazy::Request;
use crate::spec::bounds::MAX_SEARCHED;
use crate::spec::key::KeySource;
use crate::spec::key_item::{KeyForm, KeyItem, KeyPart, items};
use crate::spec::regex::Regex;
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
    if !group.is_plain {
        return write_items(&group.spec.key, rule, request, out);
    }
    let mut complete = true;
    for part in &group.spec.key {
        complete &= write_framed(out, |out| write_value(&part.source, rule, request, out))?;
    }
    Ok(complete)
}

/// Appends the key that all requests without one of its parts share. It contains none of the parts
/// that the client did send, or a client could leave one part out and vary another.
pub(crate) fn write_shared_key(group: &Group, out: &mut Vec<u8>) {
    out.extend_from_slice(&group.identity().to_le_bytes());
    (0..group.items).for_each(|_| out.extend_from_slice(&MISSING.to_le_bytes()));
}

/// Appends one part that is present, as `write` writes it.
pub(crate) fn write_given(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&MISSING.to_le_bytes());
    write(out);
    write_len(start, out);
}

/// Appends the items of a key; true when every item is present.
///
/// # Errors
/// A part has several values, and the mode selects none of them.
fn write_items<F: Facts>(
    key: &[KeyPart],
    rule: &Rule,
    request: &Request<'_, F>,
    out: &mut Vec<u8>,
) -> Result<bool, Malformed> {
    let mut complete = true;
    for item in items(key) {
        complete &= write_item(item, rule, request, out)?;
    }
    Ok(complete)
}

/// Appends one item; false when it is missing, which is appended too.
///
/// # Errors
/// A part before the first one that is there has several values, and the mode selects none of them.
pub(crate) fn write_item<F: Facts>(
    item: KeyItem<'_>,
    rule: &Rule,
    request: &Request<'_, F>,
    out: &mut Vec<u8>,
) -> Result<bool, Malformed> {
    write_framed(out, |out| {
        for (part, index) in item.parts.iter().zip(0_u8..) {
            let start = out.len();
            // A client that writes the value of one part cannot be counted as another part.
            out.extend(item.is_choice().then_some(index));
            if write_part(part, rule, request, out)? {
                return Ok(true);
            }
            out.truncate(start);
        }
        Ok(false)
    })
}

/// The part of `item` that is counted, and its value, from the bytes of the item in a key.
#[cfg(feature = "explain")]
pub(crate) fn counted<'k, 'v>(
    item: KeyItem<'k>,
    value: &'v [u8],
) -> Option<(&'k KeyPart, &'v [u8])> {
    if let [part] = item.parts {
        return Some((part, value));
    }
    let (index, value) = value.split_first()?;
    Some((item.parts.get(usize::from(*index))?, value))
}

/// Appends the value that `write` writes, after its length, or the mark of a missing one; false
/// when it is missing.
fn write_framed(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<bool, Malformed>,
) -> Result<bool, Malformed> {
    let start = out.len();
    out.extend_from_slice(&MISSING.to_le_bytes());
    let is_there = write(out)?;
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

/// Appends the value of one part, in its form; false when it is missing, and nothing is appended.
///
/// # Errors
/// It has several values, and the mode selects none of them; or it is too long to be searched.
pub(crate) fn write_part<F: Facts>(
    part: &KeyPart,
    rule: &Rule,
    request: &Request<'_, F>,
    out: &mut Vec<u8>,
) -> Result<bool, Malformed> {
    if let KeyForm::Network(own) = part.form {
        let Some(address) = request.client() else { return Ok(false) };
        let prefixes = own.or(request.settings.spec.prefixes);
        prefixes.group(address, |bytes| out.extend_from_slice(bytes));
        return Ok(true);
    }
    let start = out.len();
    let is_there = write_value(&part.source, rule, request, out)?;
    if let (Some(regex), true) = (&part.regex, is_there)
        && !keep_match(regex, start, out)?
    {
        return Ok(false);
    }
    part.form.apply(out.get_mut(start..).unwrap_or_default());
    Ok(is_there)
}

/// Keeps only what `regex` finds of the value from `start` on; false, and nothing of it is left,
/// when it finds nothing.
///
/// # Errors
/// The value is too long to be searched.
#[inline(never)] // few keys have one
fn keep_match(regex: &Regex, start: usize, out: &mut Vec<u8>) -> Result<bool, Malformed> {
    let value = out.get(start..).unwrap_or_default();
    if value.len() > MAX_SEARCHED {
        return Err(Malformed::Long);
    }
    let found = regex.part(value);
    let (from, to) = found.as_ref().map_or((0, 0), |found| (found.start, found.end));
    out.truncate(start.saturating_add(to));
    out.drain(start..start.saturating_add(from));
    Ok(found.is_some())
}

/// Appends a value in the form in which the request has it; false when it is missing, and nothing
/// is appended.
///
/// # Errors
/// It has several values, and the mode selects none of them.
fn write_value<F: Facts>(
    source: &KeySource,
    rule: &Rule,
    request: &Request<'_, F>,
    out: &mut Vec<u8>,
) -> Result<bool, Malformed> {
    let default = request.settings.spec.repeated;
    let mut put = |value: Option<&[u8]>| {
        out.extend_from_slice(value.unwrap_or_default());
        Ok(value.is_some())
    };
    match source {
        KeySource::ClientIp => match request.client() {
            Some(address) => {
                // Twice in this file, because a call costs each request more than the copy.
                let prefixes = request.settings.spec.prefixes;
                prefixes.group(address, |bytes| out.extend_from_slice(bytes));
            }
            None => return Ok(false),
        },
        // As some origins read it; see `Method::is`.
        KeySource::Method => out.extend(request.method().iter().map(u8::to_ascii_uppercase)),
        KeySource::Host => return put(Some(request.host()?).filter(|host| !host.is_empty())),
        KeySource::Path => return put(Some(request.paths().main())),
        KeySource::PathParam(name) => return put(rule.capture(name, request.paths()).as_deref()),
        KeySource::JwtClaim(name) => return put(request.claim(name)?.as_deref()),
        KeySource::Metadata(path) => return put(request.facts.metadata(&path.0).as_deref()),
        KeySource::Cloudflare(field) => return put(request.facts.cloudflare(*field).as_deref()),
        KeySource::ClientCertificate(field) => {
            return put(request.facts.client_certificate(*field).as_deref());
        }
        KeySource::Descriptor(key) => return Ok(write_entries(request, key.as_bytes(), out)),
        KeySource::Country => return write_fact(request.country(), default, out),
        KeySource::Asn => return write_fact(request.asn(), default, out),
        // A route without a name cannot be distinguished from others.
        KeySource::Route => {
            return put(request.facts.route().filter(|name| !name.is_empty()).as_deref());
        }
        KeySource::Header(name, repeated) => {
            let repeated = repeated.unwrap_or(default);
            let write = |value: &[u8]| write_header(&name.0, value, repeated, out).map(|()| true);
            return request.facts.read_header(&name.0, write).unwrap_or(Ok(false));
        }
        KeySource::Cookie(name, repeated) => {
            let repeated = repeated.unwrap_or(default);
            let write = |header: &[u8]| write_cookie(header, name.as_bytes(), repeated, out);
            return request.facts.read_header("cookie", write).unwrap_or(Ok(false));
        }
        KeySource::Query(name, repeated) => {
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

/// Appends the fact that a proxy or the platform sets about the client, in upper case; false when
/// it is missing.
///
/// # Errors
/// It has several values, and the mode selects none of them.
pub(crate) fn write_fact(
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

/// The parts of a key, in their order; `None` for a missing one.
pub(crate) fn parts(key: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = Bytes(key.get(IDENTITY_LEN..).unwrap_or_default());
    core::iter::from_fn(move || match rest.u32()? {
        MISSING => Some(None),
        len => Some(Some(rest.take(usize::try_from(len).ok()?)?)),
    })
}
