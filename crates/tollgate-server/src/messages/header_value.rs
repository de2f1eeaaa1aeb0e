//! `envoy.config.core.v3.HeaderValue` and `HeaderValueOption`.

use super::wire::{Fields, Malformed, Writer};

/// Reads a header line: its name and its value. The value is bytes if it was sent as bytes.
///
/// # Errors
/// It is malformed.
pub fn read(message: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (mut key, mut value, mut raw) = (&[][..], &[][..], &[][..]);
    for field in Fields::of(message) {
        match field? {
            (1, it) => key = it.bytes()?,
            (2, it) => value = it.bytes()?,
            (3, it) => raw = it.bytes()?,
            _ => {}
        }
    }
    Ok((key, if raw.is_empty() { value } else { raw }))
}

/// Writes a header line into `field`.
pub fn write(out: &mut Writer, field: u32, name: &str, value: &str) {
    out.message(field, |line| {
        line.bytes(1, name.as_bytes());
        line.bytes(2, value.as_bytes());
    });
}

/// How a line affects other lines of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Append {
    /// It is added to them.
    Add,
    /// It replaces them.
    Overwrite,
}

/// Writes a header line, and how it affects other lines of the same name.
pub fn write_option(out: &mut Writer, field: u32, (name, value): (&str, &str), append: Append) {
    out.message(field, |option| {
        write(option, 1, name, value);
        // Earlier versions read `append`; `append_action` counts where it is known.
        option.message(2, |it| it.number(1, u64::from(append == Append::Add)));
        match append {
            Append::Add => {}
            Append::Overwrite => option.number(3, 2),
        }
    });
}
