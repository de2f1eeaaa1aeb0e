//! A value of the engine: version, tag, and the usage of the key.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | 1, the version of this layout |
//! | 16 | the tag of the commit that wrote it |
//! | n | the row ([`Counts::encode`]) |
//!
//! Invariant: no two commits share a tag, even from different servers, so equal bytes are the same
//! commit. Without the tag they are not: two servers that charge the same in the same nanosecond
//! write equal states. The policy crate defines the other parts.

use std::sync::Arc;

use tollgate_core::{ALLOWED_SKEW, Timestamp};
use tollgate_storage::Counts;

use crate::commit::call::Write;
use crate::commit::mutation::{self, Mutation};

const VERSION: u8 = 1;

/// Bytes of a tag.
pub const TAG_LEN: usize = 16;

/// Identifies one commit.
pub(crate) type Tag = [u8; TAG_LEN];

/// Makes tags: a random start, then increments of one. Two servers with random starts share a tag
/// with a probability of 2^-64 after 2^63 commits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tags(u128);

impl Tags {
    pub(crate) const fn new(seed: [u8; TAG_LEN]) -> Self {
        Self(u128::from_le_bytes(seed))
    }

    pub(crate) fn next(&mut self) -> Tag {
        if mutation::is(Mutation::NoTag) {
            return [0; TAG_LEN];
        }
        self.0 = self.0.wrapping_add(1);
        self.0.to_le_bytes()
    }
}

/// Why a value cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnreadableValue {
    /// It has another version, perhaps of newer code. It stays.
    Foreign,
    /// It is damaged.
    Damaged,
}

/// The tag of `value`.
pub(crate) fn tag_of(value: &[u8]) -> Option<&Tag> {
    let (version, rest) = value.split_first()?;
    if *version == VERSION { rest.first_chunk() } else { None }
}

/// The usage in `value`; empty without a value.
pub(crate) fn read(value: Option<&[u8]>) -> Result<Counts, UnreadableValue> {
    let Some(value) = value else { return Ok(Counts::default()) };
    match value.split_first() {
        Some((version, _)) if *version != VERSION => Err(UnreadableValue::Foreign),
        Some((_, rest)) => {
            let row = rest.get(TAG_LEN..).ok_or(UnreadableValue::Damaged)?;
            Counts::decode(row).ok_or(UnreadableValue::Damaged)
        }
        None => Err(UnreadableValue::Damaged),
    }
}

/// The write that stores `counts` at `now`, and the latest time at which the engine forgets them.
pub(crate) fn write(counts: &Counts, tag: Tag, now: Timestamp) -> (Write, Timestamp) {
    let forgotten_at = counts.idle_at().saturating_add(ALLOWED_SKEW);
    if forgotten_at <= now {
        return (Write::Delete, now);
    }
    let mut value = Vec::with_capacity(256);
    value.push(VERSION);
    value.extend(tag);
    counts.encode(now, &mut value);
    let life_ms = forgotten_at.since(now).as_millis_ceil();
    (Write::Put { value: Arc::from(value), life_ms }, forgotten_at)
}

#[cfg(test)]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]
mod tests {
    use super::*;

    #[test]
    fn tags_differ_and_stand_where_they_are_read() {
        let mut tags = Tags::new([0xff; TAG_LEN]);
        assert_eq!(tags.next(), [0; TAG_LEN], "it goes round");
        let tag = tags.next();
        let value = [&[VERSION][..], &tag, b"row"].concat();
        assert_eq!(tag_of(&value), Some(&tag));
        assert_eq!(tag_of(&value[..16]), None);
        assert_eq!(tag_of(&[]), None);
        assert_eq!(read(Some(&value)), Err(UnreadableValue::Damaged), "no row");
        assert_eq!(read(Some(&[2, 0])), Err(UnreadableValue::Foreign));
        assert_eq!(read(Some(&[])), Err(UnreadableValue::Damaged));
        assert_eq!(read(None), Ok(Counts::default()));
    }
}
