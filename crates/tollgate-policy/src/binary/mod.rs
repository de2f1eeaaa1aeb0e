//! A compiled policy as bytes, so that a process that enforces it need not read the document.
//!
//! [`Policy::write_compiled`] writes it and [`Policy::read_compiled`] reads it. The result decides
//! exactly as the policy that was written, to the byte. Reading it needs neither the parser nor the
//! compiler of documents, which are several times as large as the code here.
//!
//! | bytes | content |
//! |---|---|
//! | 9 | `\0tollgate`: neither a document nor any other text |
//! | 1 | [`VERSION`] |
//! | 8 | the shape: a hash of the names and kinds of everything that follows |
//! | 1 | the surface |
//! | | the policy: `spec/coded.rs`; first, for a proxy, its authority: `plugin_form.rs` |
//! | 8 | the checksum of everything before it, SipHash-1-3 |
//!
//! Numbers of eight bytes are little-endian.
//!
//! Invariant: bytes are one policy or an error. The bytes are checked as if they were hostile, so
//! the result is a policy that some document could have been compiled to. A policy has one
//! encoding, so reading and writing gives the same bytes. Time and memory grow with the bytes that
//! are present. The checksum detects accidents and proves nothing: a party that may replace the
//! file may replace the policy. The file is as secret as the document, because it contains the keys
//! of tokens and the salts.
//!
//! **A new field** of a policy does not compile until it is added to one of these files. It changes
//! the shape, so that older and newer code reject each other's bytes: keep the document with the
//! bytes. [`VERSION`] is raised by hand when the same bytes get another meaning.

mod plugin_form;
pub mod plugin;

#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::hash::Hasher;

use base64ct::{Base64, Encoding};
use siphasher::sip::SipHasher13;

use crate::policy::compiled::Policy;
use crate::spec::bounds::NO_REGEXES;
use crate::spec::coded::{Coded, Reader, shape, variants};
use crate::spec::policy::PolicySpec;
use crate::spec::surface::Surface;
use tollgate_storage::Bytes;

/// The meaning of the bytes, beyond their shape. Raise it when bytes of the same shape result in
/// other decisions: when the derived parts change, or the meaning of a field.
const VERSION: u8 = 1;

const MAGIC: &[u8; 9] = b"\0tollgate";

/// The longest compiled policy: the longest document results in a shorter one.
pub(crate) const MAX_COMPILED: usize = 4 << 20;

variants!(Surface { 0 => Envoy, 1 => Worker, 2 => Library, 3 => Server, });

/// The shape of the bytes between the header and the checksum.
const SHAPE: u64 = shape(&["policy"], &[Surface::SHAPE, PolicySpec::SHAPE]);

/// Why bytes are not a compiled policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCompiled {
    /// They do not begin like one, so they may be a document.
    Other,
    /// They were written by another version of this code.
    OtherVersion,
    /// They were cut or changed, or are longer than any policy (4 MiB).
    Damaged,
    /// They are a policy for another surface.
    OtherSurface {
        /// The surface of the policy.
        compiled_for: Surface,
        /// The requested surface.
        wanted: Surface,
    },
    /// They are intact, but no document has this content. In a build without the feature `regex`,
    /// which reads no regular expression, they are rather a policy that has one.
    Impossible,
}

impl fmt::Display for NotCompiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => {
                f.write_str("is not a compiled policy; make one with \"tollgate compile\"")
            }
            Self::OtherVersion => f.write_str(
                "was compiled by another version of Tollgate; compile the policy with this one",
            ),
            Self::Damaged => {
                f.write_str("is damaged: it was cut or changed; compile the policy again")
            }
            Self::OtherSurface { compiled_for, wanted } => {
                let (compiled_for, wanted) = (compiled_for.name(), wanted.name());
                write!(
                    f,
                    "was compiled for the surface \"{compiled_for}\"; compile the policy with --surface {wanted}"
                )
            }
            Self::Impossible if cfg!(not(feature = "regex")) => f.write_str(NO_REGEXES),
            Self::Impossible => {
                f.write_str("contains values that no policy can have; compile the policy again")
            }
        }
    }
}

impl core::error::Error for NotCompiled {}

impl Policy {
    /// Appends the policy to `out` as bytes for [`Policy::read_compiled`], without the secret and
    /// the version that its surface may have set.
    ///
    /// They contain everything in the document, including the keys of tokens and the salts, so they
    /// are as secret as the document.
    pub fn write_compiled(&self, out: &mut Vec<u8>) {
        sealed(MAGIC, SHAPE, self.surface, out, |out| self.to_spec().write(out));
    }

    /// Reads the bytes of [`Policy::write_compiled`] for `surface`. Any bytes are accepted as
    /// input; a change of any byte is an error.
    ///
    /// # Errors
    /// Why they are not a policy for `surface`; a sentence without its subject.
    ///
    /// ```
    /// use tollgate_policy::{NotCompiled, Policy, Surface};
    ///
    /// let document = r#"{"version": 1, "rules": [
    ///     {"name": "each", "key": ["client_ip"], "quotas": [{"limit": 10, "window": "1m"}]}
    /// ]}"#;
    /// let policy = tollgate_language::compile(document, Surface::Worker)?;
    /// let mut bytes = Vec::new();
    /// policy.write_compiled(&mut bytes);
    /// let read = Policy::read_compiled(&bytes, Surface::Worker).unwrap();
    /// assert_eq!(read.fingerprint(), policy.fingerprint());
    ///
    /// let for_another = Policy::read_compiled(&bytes, Surface::Envoy).unwrap_err();
    /// assert_eq!(
    ///     for_another.to_string(),
    ///     "was compiled for the surface \"worker\"; compile the policy with --surface envoy"
    /// );
    /// bytes[40] ^= 1;
    /// let changed = Policy::read_compiled(&bytes, Surface::Worker).unwrap_err();
    /// assert_eq!(changed, NotCompiled::Damaged);
    /// # Ok::<(), tollgate_policy::Problems>(())
    /// ```
    pub fn read_compiled(bytes: &[u8], surface: Surface) -> Result<Self, NotCompiled> {
        let Whole(rest) = opened(MAGIC, SHAPE, bytes, surface)?;
        read_last(rest, surface).ok_or(NotCompiled::Impossible)
    }
}

/// The bytes that `write` appends, such as those of [`Policy::write_compiled`], as text in base64
/// with padding, for configurations that are text.
#[must_use]
pub fn compiled_text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut bytes = Vec::new();
    write(&mut bytes);
    let mut text = vec![0; Base64::encoded_len(&bytes)];
    Base64::encode(&bytes, &mut text).map(Into::into).unwrap_or_default()
}

/// The policy in `rest`, which must end with it.
fn read_last(mut rest: Reader<'_>, surface: Surface) -> Option<Policy> {
    let spec = PolicySpec::read(&mut rest);
    Policy::from_spec(rest.finished(spec)?, surface)
}

/// Appends a header, the output of `body`, and the checksum of both.
fn sealed(
    magic: &[u8; 9],
    shape: u64,
    surface: Surface,
    out: &mut Vec<u8>,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(magic);
    out.push(VERSION);
    out.extend(shape.to_le_bytes());
    surface.write(out);
    body(out);
    let sum = checksum(out.get(start..).unwrap_or_default());
    out.extend(sum.to_le_bytes());
}

/// The bytes between a valid header and a valid checksum.
struct Whole<'a>(Reader<'a>);

/// Checks the header and the checksum of bytes that [`sealed`] wrote for `surface`.
fn opened<'a>(
    magic: &[u8; 9],
    shape: u64,
    bytes: &'a [u8],
    surface: Surface,
) -> Result<Whole<'a>, NotCompiled> {
    let mut rest = Bytes(bytes.strip_prefix(magic).ok_or(NotCompiled::Other)?);
    let version = rest.u8().ok_or(NotCompiled::Damaged)?;
    let written = rest.array().ok_or(NotCompiled::Damaged)?;
    if version != VERSION || u64::from_le_bytes(written) != shape {
        return Err(NotCompiled::OtherVersion);
    }
    let (checked, sum) = bytes.split_last_chunk().ok_or(NotCompiled::Damaged)?;
    let body = rest.0.split_last_chunk::<8>().map(|(body, _)| body);
    let is_whole = bytes.len() <= MAX_COMPILED && checksum(checked) == u64::from_le_bytes(*sum);
    let mut rest = Reader::new(body.filter(|_| is_whole).ok_or(NotCompiled::Damaged)?);
    let compiled_for = Surface::read(&mut rest);
    let compiled_for = rest.checked(compiled_for).ok_or(NotCompiled::Impossible)?;
    if compiled_for != surface {
        return Err(NotCompiled::OtherSurface { compiled_for, wanted: surface });
    }
    Ok(Whole(rest))
}

/// The checksum of a compiled policy: its key differs from that of every other hash here.
fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0, 2);
    hasher.write(bytes);
    hasher.finish()
}
