//! Offsets in a text: bytes, as Rust counts, and UTF-16 units, as JavaScript does.
//!
//! Invariant: a returned offset is in the text, at the border of a character.

/// The offset in bytes of the character that holds the UTF-16 unit `offset`; the end beyond it.
pub(crate) fn bytes(text: &str, offset: usize) -> usize {
    let mut units = 0_usize;
    for (at, character) in text.char_indices() {
        units = units.saturating_add(character.len_utf16());
        if units > offset {
            return at;
        }
    }
    text.len()
}

/// Converts offsets in bytes to UTF-16 units. For increasing offsets it walks the text once.
#[derive(Debug)]
pub(crate) struct Units<'t> {
    text: &'t str,
    /// The same position in both units.
    bytes: usize,
    units: usize,
}

impl<'t> Units<'t> {
    pub(crate) const fn new(text: &'t str) -> Self {
        Self { text, bytes: 0, units: 0 }
    }

    /// The UTF-16 units before the byte `offset`, or before the character that holds it.
    pub(crate) fn of(&mut self, offset: usize) -> usize {
        if offset < self.bytes {
            (self.bytes, self.units) = (0, 0);
        }
        for character in self.text.get(self.bytes..).unwrap_or_default().chars() {
            let next = self.bytes.saturating_add(character.len_utf8());
            if next > offset {
                break;
            }
            self.bytes = next;
            self.units = self.units.saturating_add(character.len_utf16());
        }
        self.units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_of_several_bytes_and_one_of_two_units_count_as_in_javascript() {
        let text = "aé😀b";
        let mut units = Units::new(text);
        let all: Vec<usize> = (0..=text.len()).map(|byte| units.of(byte)).collect();
        assert_eq!(all, [0, 1, 1, 2, 2, 2, 2, 4, 5]);
        assert_eq!((units.of(3), units.of(99)), (2, 5));
        let back: Vec<usize> = (0..=6).map(|unit| bytes(text, unit)).collect();
        assert_eq!(back, [0, 1, 3, 3, 7, 8, 8]);
    }
}
