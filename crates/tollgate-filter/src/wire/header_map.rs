//! The host's serialisation of a map: the number of pairs, the lengths of every key and value, then
//! every key and value, each with a zero byte after it. All numbers are `u32`, little-endian.
//!
//! Invariant: values are bytes; reading any bytes ends, with the pairs that were whole. Source: the
//! ABI of proxy-wasm 0.2.1, "serialized map".

use std::borrow::Cow;

use crate::host::headers::HeaderLines;

/// A map from the host.
pub struct HeaderMap(Vec<u8>);

impl HeaderMap {
    /// Nothing is read yet.
    pub const fn new(serialised: Vec<u8>) -> Self {
        Self(serialised)
    }

    /// Every pair, in the order of the host. Anything malformed ends the list.
    pub fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (count, rest) = self.0.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
        let count = usize::try_from(u32::from_le_bytes(*count)).unwrap_or(0);
        let split = rest.split_at_checked(count.saturating_mul(8));
        let (lengths, mut bytes) = split.unwrap_or_default();
        let (lengths, _) = lengths.as_chunks::<4>();
        let (lengths, _) = lengths.as_chunks::<2>();
        lengths.iter().map_while(move |[key, value]| {
            let key = take(&mut bytes, u32::from_le_bytes(*key))?;
            let value = take(&mut bytes, u32::from_le_bytes(*value))?;
            Some((key, value))
        })
    }
}

impl HeaderLines for HeaderMap {
    fn joined(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let mut found: Option<Cow<'_, [u8]>> = None;
        for (_, value) in self.pairs().filter(|(key, _)| *key == name.as_bytes()) {
            found = Some(match found {
                None => Cow::Borrowed(value),
                Some(before) => Cow::Owned([&before, &b", "[..], value].concat()),
            });
        }
        found
    }
}

/// The next `len` bytes, without the zero byte after them.
fn take<'a>(bytes: &mut &'a [u8], len: u32) -> Option<&'a [u8]> {
    let (text, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
    let (_, rest) = rest.split_first()?;
    *bytes = rest;
    Some(text)
}

/// The usual length of a denial with all its fields.
const PAIRS: usize = 8;
const BYTES: usize = 384;

/// A map under construction.
#[derive(Default)]
pub struct HeaderMapWriter {
    count: u32,
    lengths: Vec<u8>,
    bytes: Vec<u8>,
}

impl HeaderMapWriter {
    /// Appends one pair.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        if self.count == 0 {
            self.lengths.reserve(PAIRS.saturating_mul(8));
            self.bytes.reserve(BYTES);
        }
        self.count = self.count.saturating_add(1);
        for part in [name.as_bytes(), value] {
            let len = u32::try_from(part.len()).unwrap_or(u32::MAX);
            self.lengths.extend_from_slice(&len.to_le_bytes());
            self.bytes.extend_from_slice(part);
            self.bytes.push(0);
        }
    }

    /// The whole map.
    pub fn finish(self) -> Vec<u8> {
        [&self.count.to_le_bytes()[..], &self.lengths, &self.bytes].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serialised() -> Vec<u8> {
        let mut out = HeaderMapWriter::default();
        out.push("a", b"1");
        out.push("bc", b"");
        out.push("a", b"\xff");
        out.finish()
    }

    #[test]
    fn golden_bytes() {
        let lengths = [1_u32, 1, 2, 0, 1, 1].map(u32::to_le_bytes).concat();
        let expected = [&3_u32.to_le_bytes()[..], &lengths, b"a\x001\0bc\0\0a\0\xff\0"].concat();
        assert_eq!(serialised(), expected);
    }

    #[test]
    fn every_line_is_joined() {
        let pairs = HeaderMap::new(serialised());
        assert_eq!(pairs.joined("a").as_deref(), Some(&b"1, \xff"[..]));
        assert_eq!(pairs.joined("bc").as_deref(), Some(&b""[..]));
        assert_eq!(pairs.joined("b"), None);
    }

    #[test]
    fn no_malformed_map_traps() {
        let whole = serialised();
        for len in 0..whole.len() {
            let _ = HeaderMap::new(whole[..len].to_vec()).joined("a");
        }
        for byte in 0..whole.len() {
            let mut bent = whole.clone();
            bent[byte] = 0xff;
            let _ = HeaderMap::new(bent).joined("a");
        }
    }
}
