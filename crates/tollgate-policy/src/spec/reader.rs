//! The reader of encoded values, which fails once for all of them.
//!
//! Invariant: after a failure every byte that is read is zero, and nothing is taken. Deliberately
//! not here: the encodings.

use tollgate_storage::Bytes;

/// The rest of some bytes.
#[derive(Debug)]
pub(crate) struct Reader<'b> {
    rest: Bytes<'b>,
    has_failed: bool,
}

impl<'b> Reader<'b> {
    /// A reader of all of `bytes`.
    pub(crate) const fn new(bytes: &'b [u8]) -> Self {
        Self { rest: Bytes(bytes), has_failed: false }
    }

    /// The bytes are not the encoding of a value. No byte is read after this.
    #[inline(never)]
    pub(crate) const fn fail(&mut self) {
        (self.rest, self.has_failed) = (Bytes(&[]), true);
    }

    /// Fails unless a value `is_one` that may have been written.
    pub(crate) fn require(&mut self, is_one: bool) {
        if !is_one {
            self.fail();
        }
    }

    /// `value`, unless a read has failed.
    pub(crate) fn checked<T>(&self, value: T) -> Option<T> {
        (!self.has_failed).then_some(value)
    }

    /// The same if all bytes were read.
    pub(crate) fn finished<T>(&self, value: T) -> Option<T> {
        self.checked(value).filter(|_| self.rest.0.is_empty())
    }

    /// The result of `read`; fails where there is none.
    pub(crate) fn try_with<T>(
        &mut self,
        read: impl FnOnce(&mut Bytes<'b>) -> Option<T>,
    ) -> Option<T> {
        let value = read(&mut self.rest);
        if value.is_none() {
            self.fail();
        }
        value
    }

    pub(crate) fn u8(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        self.try_with(Bytes::array).unwrap_or([0; N])
    }

    /// The next `len` bytes; none once the reader has failed.
    #[inline(never)]
    pub(crate) fn take(&mut self, len: usize) -> &'b [u8] {
        self.try_with(|rest| rest.take(len)).unwrap_or_default()
    }

    /// True once a read has failed.
    pub(crate) const fn has_failed(&self) -> bool {
        self.has_failed
    }
}
