//! A double as decimal text: the shortest digits that read back as the same double, without an
//! exponent.
//!
//! Invariant: every finite double has exactly one text, on every surface: the output of JavaScript,
//! with an exponent written out, and `0` for both zeros. So a claim that is a number counts under
//! one key wherever it is read.
//!
//! Deliberately not here: the standard library's printing, which is 20 KB of wasm, and float
//! arithmetic. The digits are found on whole numbers by Steele and White's method ("How to Print
//! Floating-Point Numbers Accurately", 1990; Dragon4), in some microseconds. Numbers below 2^53
//! without a fraction, which claims nearly always are, are printed directly.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Ordering;

const FRACTION_BITS: u32 = 52;
/// The bias of the exponent, for a whole mantissa.
const BIAS: i32 = 1075;

/// The text of `number`; `None` for infinities and NaN.
///
/// ```
/// use tollgate_policy::decimal;
/// assert_eq!(decimal(1e21).as_deref(), Some("1000000000000000000000"));
/// assert_eq!(decimal(0.1).as_deref(), Some("0.1"));
/// ```
#[must_use]
pub fn decimal(number: f64) -> Option<String> {
    if !number.is_finite() {
        return None;
    }
    let (mantissa, exponent) = parts(number);
    Some(whole_number(number).unwrap_or_else(|| {
        let (digits, point) = shortest(mantissa, exponent);
        [sign(number), &placed(&digits, point)].concat()
    }))
}

/// The text of `number` if it is whole and from -(2^53 - 1) to 2^53 - 1, where no other whole
/// number is the same double; else `None`.
///
/// ```
/// use tollgate_policy::whole_number;
/// assert_eq!(whole_number(-7.0).as_deref(), Some("-7"));
/// assert_eq!(whole_number(0.5), None);
/// assert_eq!(whole_number(9_007_199_254_740_992.0), None, "as is 9007199254740993");
/// ```
#[must_use]
pub fn whole_number(number: f64) -> Option<String> {
    let (mantissa, exponent) = parts(number);
    let whole = small(mantissa, exponent).filter(|_| number.is_finite())?;
    Some([sign(number), &whole.to_string()].concat())
}

/// The sign before the digits of `number`; none for a zero.
fn sign(number: f64) -> &'static str {
    if number.is_sign_negative() && number != 0.0 { "-" } else { "" }
}

/// The absolute value as `mantissa * 2^exponent`.
fn parts(number: f64) -> (u64, i32) {
    let bits = number.to_bits();
    let exponent = i32::try_from((bits >> FRACTION_BITS) & 0x7ff).unwrap_or(0);
    let fraction = bits & ((1 << FRACTION_BITS) - 1);
    let mantissa = if exponent == 0 { fraction } else { fraction | (1 << FRACTION_BITS) };
    (mantissa, exponent.max(1).saturating_sub(BIAS))
}

/// A whole number below 2^53: all of its digits are needed.
fn small(mantissa: u64, exponent: i32) -> Option<u64> {
    let shift = if mantissa == 0 { 0 } else { u32::try_from(exponent.checked_neg()?).ok()? };
    let whole = mantissa.checked_shr(shift)?;
    (whole.checked_shl(shift) == Some(mantissa)).then_some(whole)
}

/// The fewest digits of a number between the two halfway points to the neighbours, the nearest if
/// there are several, and the position of the point: the value is `0.digits * 10^point`.
fn shortest(mantissa: u64, exponent: i32) -> (Vec<u8>, i32) {
    let (up, down) = (u32::try_from(exponent), u32::try_from(exponent.saturating_neg()));
    let (up, down) = (up.unwrap_or(0), down.unwrap_or(0));
    // The neighbour below a power of two is only half as far away, except at the smallest exponent.
    let is_uneven = mantissa == 1 << FRACTION_BITS && exponent > 1_i32.saturating_sub(BIAS);
    let extra = if is_uneven { 2 } else { 1 };
    // All of them in units of 1 / scale.
    let mut rest = Natural::shifted(mantissa, up.saturating_add(extra));
    let mut scale = Natural::shifted(1, down.saturating_add(extra));
    let mut above = Natural::shifted(1, up.saturating_add(extra).saturating_sub(1));
    let mut below = Natural::shifted(1, up);
    // A halfway point reads back as its even neighbour.
    let includes_ends = mantissa.is_multiple_of(2);
    let reaches = |rest: &Natural, above: &Natural, scale: &Natural| {
        let order = rest.plus(above).compare(scale);
        order == Ordering::Greater || (includes_ends && order == Ordering::Equal)
    };
    let mut point = 0_i32;
    while reaches(&rest, &above, &scale) {
        scale.multiply(10);
        point = point.saturating_add(1);
    }
    let mut digits = Vec::new();
    loop {
        [&mut rest, &mut above, &mut below].into_iter().for_each(|natural| natural.multiply(10));
        if digits.is_empty() && !reaches(&rest, &above, &scale) {
            point = point.saturating_sub(1);
            continue; // a zero after the point
        }
        let digit = rest.divide(&scale);
        let order = rest.compare(&below);
        let is_low = order == Ordering::Less || (includes_ends && order == Ordering::Equal);
        let is_high = reaches(&rest, &above, &scale);
        if !is_low && !is_high {
            digits.push(digit);
            continue;
        }
        let is_nearer_above = rest.plus(&rest).compare(&scale) != Ordering::Less;
        let rounds_up = is_high && (!is_low || is_nearer_above);
        digits.push(digit.saturating_add(u8::from(rounds_up)));
        return (digits, point);
    }
}

/// The digits with the point at its position.
fn placed(digits: &[u8], point: i32) -> String {
    let text = digits.iter().map(|digit| char::from(b'0'.saturating_add(*digit)));
    let whole = usize::try_from(point).unwrap_or(0);
    let mut out = String::new();
    if whole == 0 {
        let zeros = usize::try_from(point.unsigned_abs()).unwrap_or(0);
        out.push_str("0.");
        out.extend(core::iter::repeat_n('0', zeros));
    }
    for (index, digit) in text.enumerate() {
        if index == whole && whole > 0 {
            out.push('.');
        }
        out.push(digit);
    }
    out.extend(core::iter::repeat_n('0', whole.saturating_sub(digits.len())));
    out
}

/// A natural number of any size, the lowest 32 bits first.
struct Natural(Vec<u32>);

impl Natural {
    /// `value * 2^shift`.
    fn shifted(value: u64, shift: u32) -> Self {
        let mut limbs = alloc::vec![0; usize::try_from(shift >> 5).unwrap_or(0)];
        let wide = u128::from(value) << (shift & 31);
        limbs.extend([0, 32, 64].map(|by| low(wide >> by)));
        Self(limbs)
    }

    fn multiply(&mut self, by: u32) {
        let mut carry = 0;
        for limb in &mut self.0 {
            let product = u64::from(*limb).saturating_mul(u64::from(by)).saturating_add(carry);
            *limb = low(product.into());
            carry = product >> 32;
        }
        if carry > 0 {
            self.0.push(low(carry.into()));
        }
    }

    fn plus(&self, other: &Self) -> Self {
        let limb = |natural: &Self, i: usize| natural.0.get(i).copied().unwrap_or(0);
        let mut carry = 0;
        let len = self.0.len().max(other.0.len()).saturating_add(1);
        let sum = (0..len).map(|i| {
            let sum = u64::from(limb(self, i)).saturating_add(limb(other, i).into());
            let sum = sum.saturating_add(carry);
            carry = sum >> 32;
            low(sum.into())
        });
        Self(sum.collect())
    }

    fn compare(&self, other: &Self) -> Ordering {
        let len = self.0.len().max(other.0.len());
        let limb = |natural: &Self, i: usize| natural.0.get(i).copied().unwrap_or(0);
        let orders = (0..len).rev().map(|i| limb(self, i).cmp(&limb(other, i)));
        orders.fold(Ordering::Equal, Ordering::then)
    }

    /// Leaves the remainder; for a quotient of at most 9.
    fn divide(&mut self, by: &Self) -> u8 {
        let mut quotient = 0_u8;
        while self.compare(by) != Ordering::Less {
            self.subtract(by);
            quotient = quotient.saturating_add(1);
        }
        quotient
    }

    /// Subtracts `other`, which is not greater.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (i, limb) in self.0.iter_mut().enumerate() {
            let (less, first) = limb.overflowing_sub(other.0.get(i).copied().unwrap_or(0));
            let (less, second) = less.overflowing_sub(u32::from(borrow));
            (*limb, borrow) = (less, first || second);
        }
    }
}

/// The lowest 32 bits.
fn low(wide: u128) -> u32 {
    u32::try_from(wide & u128::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use proptest::prelude::*;

    fn text(number: f64) -> String {
        decimal(number).expect("finite")
    }

    #[test]
    fn numbers_are_printed_without_an_exponent() {
        let rows = [
            (0.0, "0"),
            (-0.0, "0"),
            (7.0, "7"),
            (-1.0, "-1"),
            (0.1, "0.1"),
            (-0.5, "-0.5"),
            (100.25, "100.25"),
            (9_007_199_254_740_991.0, "9007199254740991"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (18_446_744_073_709_551_616.0, "18446744073709552000"),
            (1e21, "1000000000000000000000"),
            (1e23, "100000000000000000000000"),
            (1e-7, "0.0000001"),
            (0.3, "0.3"),
            (0.1 + 0.2, "0.30000000000000004"),
        ];
        for (number, expected) in rows {
            assert_eq!(text(number), expected);
        }
        assert_eq!(text(f64::MAX), format!("17976931348623157{}", "0".repeat(292)));
        assert_eq!(text(5e-324), format!("0.{}5", "0".repeat(323)));
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(decimal(number), None);
        }
    }

    /// The standard library prints the same digits.
    fn agrees(number: f64) {
        let theirs = format!("{number}");
        assert_eq!(text(number), if number == 0.0 { "0".into() } else { theirs }, "{number:e}");
    }

    #[test]
    fn ends_of_every_binade_are_printed_as_by_the_standard_library() {
        for exponent in 0..0x7ff_u64 {
            for fraction in [0, 1, 2, (1 << 51), (1 << 52) - 2, (1 << 52) - 1] {
                agrees(f64::from_bits((exponent << 52) | fraction));
            }
        }
        (0..=308).for_each(|power| agrees(format!("1e{power}").parse().expect("a number")));
        (1..=323).for_each(|power| agrees(format!("1e-{power}").parse().expect("a number")));
    }

    proptest! {
        #[test]
        fn any_double_is_printed_as_by_the_standard_library(bits: u64) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            agrees(number);
        }

        #[test]
        fn any_short_decimal_is_printed_as_it_is_read(whole in 0..10_u64.pow(12), decimals in 0..1000_u16) {
            agrees(format!("{whole}.{decimals}").parse().expect("a number"));
        }

        #[test]
        fn any_whole_number_is_printed_as_by_the_standard_library(number: u64) {
            agrees(format!("{number}").parse().expect("a number"));
        }
    }
}
