//! How the host numbers the writes of its map, probed once for each map, before anything counts in
//! it.
//!
//! The specification of proxy-wasm requires neither property that the filter depends on: that the
//! number [`INSERT`] inserts a value and never replaces one, and that all writes have one sequence
//! of numbers. Without the first no count is exact, so the filter refuses to start. Without the
//! second no number can be predicted (`predicted_writes`), so every value is read before it is
//! written.
//!
//! Invariant: a host that has both properties is never rejected, however many workers probe and
//! write at the same time. Every conclusion follows from writes that the host accepted on the
//! condition that no other worker had written; after a lost race the probe begins again, or finds
//! the result of the worker that was faster. The probe takes two names in each map, because the
//! host deletes none.

use tollgate_storage::table::{LAYOUT_VERSION, Seed};

use crate::host::shared_data::{INSERT, SharedData, Stored, Written};

/// How the host numbers writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// All writes of the map have one sequence of numbers.
    OneSequence,
    /// The single sequence was disproved, or not proved.
    Unproved,
}

/// The value that is probed, and later contains the result.
const PROBED: &[u8] = &[LAYOUT_VERSION, b'c', b'a', b's', b'1'];

/// Written between two writes of [`PROBED`].
const BETWEEN: &[u8] = &[LAYOUT_VERSION, b'c', b'a', b's', b'2'];

/// Bytes of both: just inserted; replaced by an insertion; the two results, of [`PROBED`] alone.
/// While a worker probes, its token is there, which is longer.
const FRESH: [u8; 1] = [0];
const REPLACED_ONCE: [u8; 1] = [1];
const ONE_SEQUENCE: [u8; 1] = [2];
const UNPROVED: [u8; 1] = [3];

/// Probes until one attempt is not disturbed: each disturbance means that another worker probes.
const TRIES: u32 = 8;

/// The reason why the filter cannot count on a host that does not respond.
pub const NO_ANSWER: &str = "the host gives no random seed or no shared data";

const NOT_INSERTED: &str = "this host's shared data cannot count exactly: it does not insert a value under the number 4294967295";
const REPLACED: &str = "this host's shared data cannot count exactly: it replaces a value under the number 4294967295, \
    which must only insert one";
const REFUSED: &str =
    "this host's shared data cannot count exactly: it refuses a write under the value's own number";
const STALE: &str = "this host's shared data cannot count exactly: it accepts a write under the number of an earlier write";
const BLIND: &str = "this host's shared data cannot count exactly: it numbers a write 0, which is the number \
    of a write without a condition";

/// How `shared` numbers writes. `token` is random, so a probe recognises the values that it wrote.
///
/// # Errors
/// The reason why the filter cannot count exactly in this map.
pub fn probe(shared: &impl SharedData, token: &Seed) -> Result<Numbering, &'static str> {
    let probe = Probe { shared, token };
    for _ in 0..TRIES {
        if let Some(numbering) = probe.result()? {
            return Ok(numbering);
        }
    }
    Ok(Numbering::Unproved)
}

struct Probe<'a, S> {
    shared: &'a S,
    token: &'a Seed,
}

impl<S: SharedData> Probe<'_, S> {
    /// One attempt; `None` when another worker was faster.
    fn result(&self) -> Result<Option<Numbering>, &'static str> {
        let (bytes, number) = self.read_or_insert(PROBED)?;
        if bytes == ONE_SEQUENCE {
            return Ok(Some(Numbering::OneSequence));
        }
        if bytes == UNPROVED {
            return Ok(Some(Numbering::Unproved));
        }
        // Before any write on another condition, which changes the number that an insertion gave.
        // One value alone proves nothing: its own number is INSERT once in 2^32 writes.
        if self.is_replaced(PROBED)? && self.is_replaced(BETWEEN)? {
            return Err(REPLACED);
        }
        let Some(numbers) = self.numbers(number)? else { return Ok(None) };
        let [first, second, third, last] = numbers;
        if self.shared.set(BETWEEN, self.token, second) == Written::Done {
            return Err(STALE);
        }
        // Numbers of each value alone are disproved: their steps from the first to the last and
        // from the second to the third would be the same.
        let is_later = |(a, b): (u32, u32)| a != b && b.wrapping_sub(a) <= u32::MAX / 2;
        let is_one = [(first, second), (second, third), (third, last)].into_iter().all(is_later);
        let (numbering, result) = if is_one {
            (Numbering::OneSequence, ONE_SEQUENCE)
        } else {
            (Numbering::Unproved, UNPROVED)
        };
        // If this write is lost, the next worker probes again.
        self.shared.set(PROBED, &result, last);
        Ok(Some(numbering))
    }

    /// True if an insertion has replaced the value `name`, in this or in another probe.
    fn is_replaced(&self, name: &[u8]) -> Result<bool, &'static str> {
        self.read_or_insert(name)?;
        self.shared.set(name, &REPLACED_ONCE, INSERT);
        Ok(self.read(name)?.is_some_and(|(bytes, _)| bytes == REPLACED_ONCE))
    }

    fn read_or_insert(&self, name: &[u8]) -> Result<(Vec<u8>, u32), &'static str> {
        if let Some(found) = self.read(name)? {
            return Ok(found);
        }
        self.shared.set(name, &FRESH, INSERT);
        // Any worker may have inserted it: the host deletes nothing while one runs.
        self.read(name)?.ok_or(NOT_INSERTED)
    }

    /// The numbers of four writes, one after the other, of which the first and the last are of
    /// [`PROBED`] and directly follow each other there, as do the two others of [`BETWEEN`].
    fn numbers(&self, number: u32) -> Result<Option<[u32; 4]>, &'static str> {
        let Some(first) = self.write(PROBED, number)? else { return Ok(None) };
        let between = self.read(BETWEEN)?.map_or(INSERT, |(_, number)| number);
        let Some(second) = self.write(BETWEEN, between)? else { return Ok(None) };
        let Some(third) = self.write(BETWEEN, second)? else { return Ok(None) };
        let Some(last) = self.write(PROBED, first)? else { return Ok(None) };
        Ok(Some([first, second, third, last]))
    }

    /// The number of a write on the condition `number`; `None` when another worker has written.
    fn write(&self, name: &[u8], number: u32) -> Result<Option<u32>, &'static str> {
        let written = self.shared.set(name, self.token, number);
        match (written, self.read(name)?) {
            (Written::Done, Some((bytes, number))) => Ok((bytes == self.token).then_some(number)),
            (Written::Lost, Some((_, current))) if current == number && number != INSERT => {
                Err(REFUSED)
            }
            (Written::Unreachable, _) => Err(NO_ANSWER),
            (Written::Done | Written::Lost, _) => Ok(None),
        }
    }

    fn read(&self, name: &[u8]) -> Result<Option<(Vec<u8>, u32)>, &'static str> {
        match self.shared.get(name) {
            Stored::Unreachable => Err(NO_ANSWER),
            Stored::Absent => Ok(None),
            Stored::Value(_, 0) => Err(BLIND),
            Stored::Value(bytes, number) => Ok(Some((bytes, number))),
        }
    }
}
