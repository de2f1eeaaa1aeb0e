//! Times in a form with percent signs that a user defined: Envoy's `START_TIME(...)`.
//!
//! Invariant: a form is rejected when it is read, if it has unknown parts or leaves the day or the
//! time of day open. A time is read whole or not at all. The specifiers are those of strftime and
//! of Abseil's `FormatTime` that stand for numbers, and English names of months.

use crate::civil::Civil;
use crate::counts::Cause;
use crate::record::Time;
use crate::time::{epoch, fraction, month, number, zone};

/// A form of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strftime(Vec<Part>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Literal(u8),
    Year,
    Month,
    MonthName,
    Day,
    /// With a space before a single digit.
    PaddedDay,
    Hour,
    Minute,
    Second,
    /// A point and digits after a second; nothing where the second is whole.
    OptionalFraction,
    /// This many digits of a fraction, without their point.
    Fraction(usize),
    /// Seconds since 1970.
    Epoch,
    Zone,
    /// Letters: the name of a day or a zone that is UTC.
    Letters,
}

impl Strftime {
    /// Reads a form; the error names the part that is not known.
    pub(crate) fn parse(form: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = form.as_bytes();
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            if *byte != b'%' {
                parts.push(Part::Literal(*byte));
                continue;
            }
            let (known, length) = specifier(rest).ok_or_else(|| {
                let shown = String::from_utf8_lossy(rest.get(..3).unwrap_or(rest)).into_owned();
                format!("has the time \"%{shown}\", which is not known")
            })?;
            parts.extend_from_slice(&known);
            rest = rest.get(length..).unwrap_or_default();
        }
        let has = |part| parts.contains(&part);
        let has_day = has(Part::Year)
            && (has(Part::Month) || has(Part::MonthName))
            && (has(Part::Day) || has(Part::PaddedDay));
        let has_time = has(Part::Hour) && has(Part::Minute) && has(Part::Second);
        if !(has(Part::Epoch) || has_day && has_time) {
            return Err(format!("has the time {form:?}, which lacks the day or the second"));
        }
        Ok(Self(parts))
    }

    /// Reads the time in `text`, which has this form.
    pub(crate) fn read(&self, text: &[u8]) -> Result<Time, Cause> {
        let mut civil = Civil::default();
        let mut seconds = None;
        let rest = self.fill(text, &mut civil, &mut seconds).ok_or(Cause::Time)?;
        if !rest.is_empty() {
            return Err(Cause::Time);
        }
        let Some(seconds) = seconds else { return civil.time() };
        let time = epoch(seconds)?;
        let Some(fraction_ns) = civil.fraction_ns else { return Ok(time) };
        let unix_ns = time.unix_ns.checked_add(u64::from(fraction_ns));
        let unix_ns = unix_ns.ok_or(Cause::TimeOutOfRange)?;
        Ok(Time { unix_ns, is_whole_second: false })
    }

    /// The digits of the seconds, which are at this position of the form; those of a fraction may
    /// follow directly.
    fn seconds<'t>(&self, at: usize, text: &'t [u8]) -> Option<(&'t [u8], &'t [u8])> {
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let fraction = match self.0.get(at.wrapping_add(1)) {
            Some(Part::Fraction(length)) => *length,
            _ => 0,
        };
        text.split_at_checked(digits.checked_sub(fraction)?)
    }

    fn fill<'t>(
        &self,
        mut rest: &'t [u8],
        civil: &mut Civil,
        seconds: &mut Option<&'t [u8]>,
    ) -> Option<&'t [u8]> {
        for (at, part) in self.0.iter().enumerate() {
            rest = match part {
                Part::Literal(byte) => rest.strip_prefix(&[*byte])?,
                Part::Year => digits::<4>(rest, &mut civil.year)?,
                Part::Month => digits::<2>(rest, &mut civil.month)?,
                Part::Day => digits::<2>(rest, &mut civil.day)?,
                Part::Hour => digits::<2>(rest, &mut civil.hour)?,
                Part::Minute => digits::<2>(rest, &mut civil.minute)?,
                Part::Second => digits::<2>(rest, &mut civil.second)?,
                Part::PaddedDay => match rest.strip_prefix(b" ") {
                    Some(rest) => digits::<1>(rest, &mut civil.day)?,
                    None => digits::<2>(rest, &mut civil.day)?,
                },
                Part::MonthName => {
                    let (name, rest) = rest.split_first_chunk()?;
                    civil.month = month(*name)?;
                    rest
                }
                Part::OptionalFraction => match rest.strip_prefix(b".") {
                    Some(digits) => {
                        let (fraction_ns, rest) = fraction(digits)?;
                        civil.fraction_ns = Some(fraction_ns);
                        rest
                    }
                    None => rest,
                },
                Part::Fraction(length) => {
                    let (digits, after) = rest.split_at_checked(*length)?;
                    let (fraction_ns, left) = fraction(digits)?;
                    civil.fraction_ns = Some(fraction_ns).filter(|_| left.is_empty());
                    civil.fraction_ns.map(|_| after)?
                }
                Part::Epoch => {
                    let (number, rest) = self.seconds(at, rest)?;
                    *seconds = Some(number);
                    rest
                }
                Part::Zone => {
                    let is_zone = |b: &&u8| b.is_ascii_digit() || b"+-:Z".contains(b);
                    let length = rest.iter().take_while(is_zone).count();
                    let (text, rest) = rest.split_at_checked(length)?;
                    civil.zone_seconds = zone(text).filter(|_| length > 0)?;
                    rest
                }
                Part::Letters => {
                    let length = rest.iter().take_while(|b| b.is_ascii_alphabetic()).count();
                    rest.get(length..).filter(|_| length > 0)?
                }
            };
        }
        Some(rest)
    }
}

/// The meaning of the text after a percent sign, and its length.
fn specifier(text: &[u8]) -> Option<(Vec<Part>, usize)> {
    const COLON: Part = Part::Literal(b':');
    const DASH: Part = Part::Literal(b'-');
    let one = |part| Some((vec![part], 1));
    let digit = |digit: u8| usize::from(digit.wrapping_sub(b'0'));
    match *text {
        [b'Y', ..] => one(Part::Year),
        [b'm', ..] => one(Part::Month),
        [b'b' | b'h', ..] => one(Part::MonthName),
        [b'd', ..] => one(Part::Day),
        [b'e', ..] => one(Part::PaddedDay),
        [b'H', ..] => one(Part::Hour),
        [b'M', ..] => one(Part::Minute),
        [b'S', ..] => one(Part::Second),
        [b's', ..] => one(Part::Epoch),
        [b'f', ..] => one(Part::Fraction(9)),
        [b'z', ..] => one(Part::Zone),
        [b'Z' | b'a' | b'A', ..] => one(Part::Letters),
        [b'n', ..] => one(Part::Literal(b'\n')),
        [b't', ..] => one(Part::Literal(b'\t')),
        [b'%', ..] => one(Part::Literal(b'%')),
        [b'T', ..] => Some((vec![Part::Hour, COLON, Part::Minute, COLON, Part::Second], 1)),
        [b'R', ..] => Some((vec![Part::Hour, COLON, Part::Minute], 1)),
        [b'F', ..] => Some((vec![Part::Year, DASH, Part::Month, DASH, Part::Day], 1)),
        [b'E', b'z', ..] => Some((vec![Part::Zone], 2)),
        [b'E', b'4', b'Y', ..] => Some((vec![Part::Year], 3)),
        [b'E', b'*', b'S', ..] => Some((vec![Part::Second, Part::OptionalFraction], 3)),
        [b'E', b'0', b'S', ..] => Some((vec![Part::Second], 3)),
        [b'E', n @ b'1'..=b'9', b'S', ..] => {
            Some((vec![Part::Second, Part::Literal(b'.'), Part::Fraction(digit(n))], 3))
        }
        [b'E', n @ b'1'..=b'9', b'f', ..] => Some((vec![Part::Fraction(digit(n))], 3)),
        [n @ b'1'..=b'9', b'f', ..] => Some((vec![Part::Fraction(digit(n))], 2)),
        _ => None,
    }
}

fn digits<'t, const N: usize>(text: &'t [u8], to: &mut u32) -> Option<&'t [u8]> {
    let (digits, rest) = text.split_first_chunk::<N>()?;
    *to = number(*digits)?;
    Some(rest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::as_conversions)]

    use super::*;

    fn read(form: &str, text: &str) -> Option<(u64, bool)> {
        let time = Strftime::parse(form).unwrap().read(text.as_bytes()).ok()?;
        Some((time.unix_ns, time.is_whole_second))
    }

    #[test]
    fn times_are_read_in_their_form() {
        const WHOLE: u64 = 971_211_336_000_000_000;
        let rows = [
            ("%Y-%m-%dT%H:%M:%E3SZ", "2000-10-10T20:55:36.123Z", WHOLE + 123_000_000, false),
            ("%Y-%m-%dT%H:%M:%E*S%Ez", "2000-10-10T13:55:36.5-07:00", WHOLE + 500_000_000, false),
            ("%Y-%m-%dT%H:%M:%E*SZ", "2000-10-10T20:55:36Z", WHOLE, true),
            ("%d/%b/%Y:%H:%M:%S %z", "10/Oct/2000:13:55:36 -0700", WHOLE, true),
            ("%F %T", "2000-10-10 20:55:36", WHOLE, true),
            ("%a %b %e %R:%S %Z %Y", "Tue Oct 10 20:55:36 UTC 2000", WHOLE, true),
            ("%s", "971211336", WHOLE, true),
            ("%s.%3f", "971211336.012", WHOLE + 12_000_000, false),
            ("%s%6f", "971211336000012", WHOLE + 12_000, false),
            ("%s%9f", "971211336000000012", WHOLE + 12, false),
            ("%s.%f", "971211336.000000012", WHOLE + 12, false),
            ("%Y%m%d %H%M%S%%", "20001010 205536%", WHOLE, true),
        ];
        for (form, text, unix_ns, is_whole) in rows {
            assert_eq!(read(form, text), Some((unix_ns, is_whole)), "{form} {text}");
            for end in 0..text.len() {
                let cut = read(form, &text[..end]);
                let may_be_cut = form.starts_with("%s") || form.ends_with('z');
                assert!(cut.is_none() || may_be_cut, "{form} {}", &text[..end]);
            }
            assert_eq!(read(form, &format!("{text}x")), None, "{form}");
        }
        assert_eq!(read("%s.%3f", "971211336.0x2"), None);
    }

    #[test]
    fn forms_that_leave_the_time_open_are_refused() {
        for form in ["", "%Y", "%H:%M:%S", "%F", "%F %R", "%Y-%m-%d %I:%M:%S", "%Q", "%", "%E"] {
            assert!(Strftime::parse(form).is_err(), "{form}");
        }
        let why = Strftime::parse("%Y-%m-%d %I:%M").unwrap_err();
        assert_eq!(why, "has the time \"%I:%\", which is not known");
    }
}
