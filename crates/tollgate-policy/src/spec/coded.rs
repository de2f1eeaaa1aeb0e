//! The encoding of values as bytes: one declaration for both directions.
//!
//! Invariant: a value has one encoding. A value that is read is written again byte for byte, so
//! numbers have no leading zeros, flags are 0 or 1, and lists start with their number of items. Any
//! bytes are accepted: after bytes that are not the encoding of a value, everything is read as zero
//! and the reader has failed, which its user checks once, at the end. So no code leaves a value
//! half-way, which would have to drop the fields before at each field. Nothing here panics, and
//! allocations are bounded by the bytes that are present, not by the lengths in them.
//!
//! Numbers are written with seven bits per byte, the lowest first; the highest bit of a byte is set
//! when more bytes follow (LEB128). Texts and lists start with their length, a variant with its
//! number.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Span;

use crate::spec::bounds::MAX_VALUES;
pub(crate) use crate::spec::reader::Reader;

/// A type with an encoding in bytes.
pub(crate) trait Coded: Sized {
    /// The shape of the encoding: a hash of the names of all fields and variants, and of their
    /// shapes.
    const SHAPE: u64;

    /// Appends the value.
    fn write(&self, to: &mut Vec<u8>);

    /// Reads a value from the front; some value, of no meaning, once the reader has failed.
    fn read(from: &mut Reader<'_>) -> Self;
}

/// The hash of names and of the shapes of the named parts, FNV-1a.
pub(crate) const fn shape(mut names: &[&str], mut parts: &[u64]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    while let [name, others @ ..] = names {
        let mut text = name.as_bytes();
        while let [byte, rest @ ..] = text {
            let byte = u64::from_le_bytes([*byte, 0, 0, 0, 0, 0, 0, 0]);
            hash = (hash ^ byte).wrapping_mul(PRIME);
            text = rest;
        }
        hash = (hash ^ 0xff).wrapping_mul(PRIME);
        names = others;
    }
    while let [part, others @ ..] = parts {
        hash = (hash ^ *part).wrapping_mul(PRIME);
        parts = others;
    }
    hash
}

#[inline(never)]
fn number(from: &mut Reader<'_>) -> u64 {
    let mut number = 0_u64;
    for place in 0..10_u32 {
        let byte = from.u8();
        let bits = u64::from(byte & 0x7f);
        let shift = place.saturating_mul(7);
        let placed = bits.wrapping_shl(shift);
        // The tenth byte has one of the 64 bits.
        if placed.wrapping_shr(shift) != bits {
            break;
        }
        number |= placed;
        if byte & 0x80 == 0 {
            from.require(byte != 0 || place == 0);
            return number;
        }
    }
    from.fail();
    0
}

/// A length and as many bytes.
fn bytes<'b>(from: &mut Reader<'b>) -> &'b [u8] {
    let len = usize::read(from);
    from.take(len)
}

fn write_number(mut number: u64, to: &mut Vec<u8>) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number = number.wrapping_shr(7);
        if number == 0 {
            return to.push(low);
        }
        to.push(low | 0x80);
    }
}

fn write_len(len: usize, to: &mut Vec<u8>) {
    write_number(u64::try_from(len).unwrap_or(u64::MAX), to);
}

macro_rules! numbers {
    ($($number:ident),*) => {$(
        impl Coded for $number {
            const SHAPE: u64 = shape(&[stringify!($number)], &[]);

            fn write(&self, to: &mut Vec<u8>) {
                write_number(u64::try_from(*self).unwrap_or(u64::MAX), to);
            }

            fn read(from: &mut Reader<'_>) -> Self {
                let read = Self::try_from(number(from));
                from.require(read.is_ok());
                read.unwrap_or_default()
            }
        }
    )*};
}

numbers!(u16, u32, u64, usize);

impl Coded for bool {
    const SHAPE: u64 = shape(&["bool"], &[]);

    fn write(&self, to: &mut Vec<u8>) {
        to.push((*self).into());
    }

    fn read(from: &mut Reader<'_>) -> Self {
        let byte = from.u8();
        from.require(byte <= 1);
        byte == 1
    }
}

impl Coded for String {
    const SHAPE: u64 = shape(&["text"], &[]);

    fn write(&self, to: &mut Vec<u8>) {
        write_len(self.len(), to);
        to.extend_from_slice(self.as_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Self {
        let text = core::str::from_utf8(bytes(from));
        from.require(text.is_ok());
        text.unwrap_or_default().into()
    }
}

/// Bytes that are not text.
impl Coded for Vec<u8> {
    const SHAPE: u64 = shape(&["bytes"], &[]);

    fn write(&self, to: &mut Vec<u8>) {
        write_len(self.len(), to);
        to.extend_from_slice(self);
    }

    fn read(from: &mut Reader<'_>) -> Self {
        bytes(from).into()
    }
}

/// A secret that keys a hash.
impl Coded for [u8; 16] {
    const SHAPE: u64 = shape(&["key"], &[]);

    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self);
    }

    fn read(from: &mut Reader<'_>) -> Self {
        from.array()
    }
}

impl Coded for Span {
    const SHAPE: u64 = shape(&["span"], &[]);

    fn write(&self, to: &mut Vec<u8>) {
        write_number(self.as_nanos(), to);
    }

    fn read(from: &mut Reader<'_>) -> Self {
        Self::from_nanos(number(from))
    }
}

impl<T: Coded> Coded for Option<T> {
    const SHAPE: u64 = shape(&["optional"], &[T::SHAPE]);

    fn write(&self, to: &mut Vec<u8>) {
        to.push(self.is_some().into());
        if let Some(value) = self {
            value.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Self {
        bool::read(from).then(|| T::read(from))
    }
}

impl<T: Coded> Coded for Box<T> {
    const SHAPE: u64 = T::SHAPE;

    fn write(&self, to: &mut Vec<u8>) {
        T::write(self, to);
    }

    fn read(from: &mut Reader<'_>) -> Self {
        Self::new(T::read(from))
    }
}

impl<T: Coded, U: Coded> Coded for (T, U) {
    const SHAPE: u64 = shape(&["pair"], &[T::SHAPE, U::SHAPE]);

    fn write(&self, to: &mut Vec<u8>) {
        let (one, other) = self;
        one.write(to);
        other.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Self {
        (T::read(from), U::read(from))
    }
}

/// A list with at most as many items as a condition may have alternatives, the longest list of a
/// document.
impl<T: Coded> Coded for Vec<T> {
    const SHAPE: u64 = shape(&["list"], &[T::SHAPE]);

    fn write(&self, to: &mut Vec<u8>) {
        write_len(self.len(), to);
        self.iter().for_each(|item| item.write(to));
    }

    fn read(from: &mut Reader<'_>) -> Self {
        let len = usize::read(from);
        from.require(len <= MAX_VALUES);
        // The length in the bytes is not trusted: the list grows with the items that are read.
        let mut items = Self::new();
        for _ in 0..len {
            if from.has_failed() {
                break;
            }
            items.push(T::read(from));
        }
        items
    }
}

/// Declares the encoding of a struct: its fields in this order, each named with its type, so that a
/// field that is left out here does not compile. A value that is read must pass the check after
/// `if`. With the word `struct` it declares the struct as well.
macro_rules! fields {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident { $($(#[$doc:meta])* $field:ident: $of:ty),* $(,)? }
        $(if $check:expr)?
    ) => {
        $(#[$meta])*
        $vis struct $name { $($(#[$doc])* pub $field: $of),* }

        $crate::spec::coded::fields!($name { $($field: $of),* } $(if $check)?);
    };
    ($ty:ty { $($field:ident: $of:ty),* $(,)? } $(if $check:expr)?) => {
        impl $crate::spec::coded::Coded for $ty {
            const SHAPE: u64 = $crate::spec::coded::shape(
                &[$(stringify!($field)),*],
                &[$(<$of as $crate::spec::coded::Coded>::SHAPE),*],
            );

            fn write(&self, to: &mut ::alloc::vec::Vec<u8>) {
                let Self { $($field),* } = self;
                $(<$of as $crate::spec::coded::Coded>::write($field, to);)*
            }

            fn read(from: &mut $crate::spec::coded::Reader<'_>) -> Self {
                let read = Self { $($field: <$of as $crate::spec::coded::Coded>::read(from)),* };
                $(let check: fn(&Self) -> bool = $check; from.require(check(&read));)?
                read
            }
        }
    };
}

/// Declares the encoding of an enum: the number of its variant, and its fields in this order. A
/// variant that is left out does not compile. A number is never given to another variant, except
/// with a new `VERSION` of compiled policies.
macro_rules! variants {
    ($ty:ty {
        $($tag:literal => $variant:ident
            $(($($of:ident: $of_ty:ty),*))? $({$($field:ident: $field_ty:ty),*})?,)*
    } $(if $check:expr)?) => {
        impl $crate::spec::coded::Coded for $ty {
            const SHAPE: u64 = $crate::spec::coded::shape(
                &[$(stringify!($variant), stringify!($tag)),*],
                &[$($($(<$of_ty as $crate::spec::coded::Coded>::SHAPE,)*)?
                    $($(<$field_ty as $crate::spec::coded::Coded>::SHAPE,)*)?)*],
            );

            fn write(&self, to: &mut ::alloc::vec::Vec<u8>) {
                match self {
                    $(Self::$variant $(($($of),*))? $({$($field),*})? => {
                        to.push($tag);
                        $($(<$of_ty as $crate::spec::coded::Coded>::write($of, to);)*)?
                        $($(<$field_ty as $crate::spec::coded::Coded>::write($field, to);)*)?
                    })*
                }
            }

            fn read(from: &mut $crate::spec::coded::Reader<'_>) -> Self {
                let read = match from.u8() {
                    $($tag => Self::$variant
                        $(($(<$of_ty as $crate::spec::coded::Coded>::read(from)),*))?
                        $({$($field: <$field_ty as $crate::spec::coded::Coded>::read(from)),*})?,)*
                    _ => {
                        // After a failure the variant 0 is read.
                        from.fail();
                        return <Self as $crate::spec::coded::Coded>::read(from);
                    }
                };
                $(let check: fn(&Self) -> bool = $check; from.require(check(&read));)?
                read
            }
        }
    };
}

/// Declares the encoding of a type that wraps one value: that of the value.
macro_rules! wrapped {
    ($($ty:ident ( $of:ty ) $(if $check:expr)?,)*) => {$(
        impl $crate::spec::coded::Coded for $ty {
            const SHAPE: u64 = $crate::spec::coded::shape(
                &[stringify!($ty)], &[<$of as $crate::spec::coded::Coded>::SHAPE],
            );

            fn write(&self, to: &mut ::alloc::vec::Vec<u8>) {
                let Self(value) = self;
                <$of as $crate::spec::coded::Coded>::write(value, to);
            }

            fn read(from: &mut $crate::spec::coded::Reader<'_>) -> Self {
                let read = <$of as $crate::spec::coded::Coded>::read(from);
                $(let check: fn(&$of) -> bool = $check; from.require(check(&read));)?
                Self(read)
            }
        }
    )*};
}

pub(crate) use {fields, variants, wrapped};
