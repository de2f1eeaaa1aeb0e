//! Times as logs write them: the common log format's, ISO 8601's, and seconds since 1970.
//!
//! Invariant: zones are applied, and a text is read whole or not at all. A text without a zone is
//! UTC. Fractions of nanoseconds are cut off.

use crate::civil::Civil;
use crate::counts::Cause;
use crate::record::Time;

impl Time {
    /// Reads a time as people write it: in the form of any log, or a date alone, which means its
    /// beginning. Without a zone it is UTC. `None` for text that is not a time between 1970 and
    /// 2554.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let whole = [text.to_owned(), format!("{text}T00:00:00"), format!("{text}:00")];
        whole.iter().find_map(|text| any(text.as_bytes()).ok())
    }
}

/// The time in `text`, in any of the three forms.
pub(crate) fn any(text: &[u8]) -> Result<Time, Cause> {
    let text = text.trim_ascii();
    let text = text.strip_prefix(b"[").and_then(|t| t.strip_suffix(b"]")).unwrap_or(text);
    match *text {
        [_, _, b'/', ..] | [_, b'/', ..] => common(text),
        [_, _, _, _, b'-', ..] => iso(text),
        _ => epoch(text),
    }
}

/// `10/Oct/2000:13:55:36 -0700`.
pub(crate) fn common(text: &[u8]) -> Result<Time, Cause> {
    let &[
        d1,
        d2,
        b'/',
        m1,
        m2,
        m3,
        b'/',
        y1,
        y2,
        y3,
        y4,
        b':',
        h1,
        h2,
        b':',
        n1,
        n2,
        b':',
        s1,
        s2,
        ref rest @ ..,
    ] = text
    else {
        return Err(Cause::Time);
    };
    let read = || {
        Some(Civil {
            year: number([y1, y2, y3, y4])?,
            month: month([m1, m2, m3])?,
            day: number([d1, d2])?,
            hour: number([h1, h2])?,
            minute: number([n1, n2])?,
            second: number([s1, s2])?,
            fraction_ns: None,
            zone_seconds: zone(rest.strip_prefix(b" ").unwrap_or(rest))?,
        })
    };
    read().ok_or(Cause::Time)?.time()
}

/// `2000-10-10T13:55:36.123-07:00`; a space instead of the T, a comma instead of the point, and a
/// missing zone are accepted as well.
pub(crate) fn iso(text: &[u8]) -> Result<Time, Cause> {
    let &[
        y1,
        y2,
        y3,
        y4,
        b'-',
        m1,
        m2,
        b'-',
        d1,
        d2,
        b'T' | b't' | b' ',
        h1,
        h2,
        b':',
        n1,
        n2,
        b':',
        s1,
        s2,
        ref rest @ ..,
    ] = text
    else {
        return Err(Cause::Time);
    };
    let read = || {
        let (fraction_ns, rest) = match rest.split_first() {
            Some((b'.' | b',', digits)) => {
                let (fraction_ns, rest) = fraction(digits)?;
                (Some(fraction_ns), rest)
            }
            _ => (None, rest),
        };
        Some(Civil {
            year: number([y1, y2, y3, y4])?,
            month: number([m1, m2])?,
            day: number([d1, d2])?,
            hour: number([h1, h2])?,
            minute: number([n1, n2])?,
            second: number([s1, s2])?,
            fraction_ns,
            zone_seconds: zone(rest.strip_prefix(b" ").unwrap_or(rest))?,
        })
    };
    read().ok_or(Cause::Time)?.time()
}

/// Seconds since 1970, with or without a fraction. A number with 12 to 14 digits before its point
/// is in milliseconds, with 15 to 17 in microseconds, with more in nanoseconds. As seconds they
/// would be after the year 5138, and a number with 11 digits as milliseconds would be before March
/// 1973.
pub(crate) fn epoch(text: &[u8]) -> Result<Time, Cause> {
    let number = Decimal::read(text).ok_or(Cause::Time)?;
    if number.is_negative {
        return Err(Cause::TimeOutOfRange);
    }
    let unit = match number.whole_digits() {
        ..=11 => 9,
        12..=14 => 6,
        15..=17 => 3,
        _ => 0,
    };
    let is_whole_second = unit == 9 && number.exponent == 0 && !number.has_point;
    let unix_ns = number.scaled(unit).ok_or(Cause::TimeOutOfRange)?;
    Ok(Time { unix_ns, is_whole_second })
}

/// A number as JSON writes it: `mantissa` times ten to the power of `exponent`.
struct Decimal {
    is_negative: bool,
    has_point: bool,
    mantissa: u64,
    exponent: i32,
    digits: i32,
}

impl Decimal {
    fn read(text: &[u8]) -> Option<Self> {
        let (is_negative, mut rest) = match text.split_first()? {
            (b'-', rest) => (true, rest),
            _ => (false, text),
        };
        let (mut has_point, mut has_digit) = (false, false);
        let (mut mantissa, mut exponent, mut digits) = (0_u64, 0_i32, 0_i32);
        while let Some((byte, after)) = rest.split_first() {
            match byte {
                b'0'..=b'9' => {
                    has_digit = true;
                    let digit = u64::from(byte.wrapping_sub(b'0'));
                    let next = mantissa.checked_mul(10).and_then(|m| m.checked_add(digit));
                    // Digits that do not fit are finer than a nanosecond, or beyond every time.
                    match next {
                        Some(next) => {
                            mantissa = next;
                            digits = digits.saturating_add(i32::from(next > 0));
                            exponent = exponent.saturating_sub(i32::from(has_point));
                        }
                        None => exponent = exponent.saturating_add(i32::from(!has_point)),
                    }
                }
                b'.' if !has_point && has_digit => has_point = true,
                b'e' | b'E' if has_digit => {
                    let power: i32 = std::str::from_utf8(after).ok()?.parse().ok()?;
                    let exponent = exponent.saturating_add(power);
                    return Some(Self { is_negative, has_point, mantissa, exponent, digits });
                }
                _ => return None,
            }
            rest = after;
        }
        has_digit.then_some(Self { is_negative, has_point, mantissa, exponent, digits })
    }

    /// How many digits are before the point, without leading zeros.
    const fn whole_digits(&self) -> i32 {
        self.digits.saturating_add(self.exponent)
    }

    /// The number times ten to the power of `unit`, rounded down.
    fn scaled(&self, unit: i32) -> Option<u64> {
        if self.mantissa == 0 {
            return Some(0);
        }
        let power = self.exponent.saturating_add(unit);
        let factor = 10_u64.checked_pow(power.unsigned_abs());
        match (power >= 0, factor) {
            (true, factor) => self.mantissa.checked_mul(factor?),
            (false, Some(divisor)) => self.mantissa.checked_div(divisor),
            (false, None) => Some(0),
        }
    }
}

/// The digits of a fraction as nanoseconds, and the rest after them. Needs at least one.
pub(crate) fn fraction(text: &[u8]) -> Option<(u32, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    let (mut ns, mut unit) = (0_u32, 100_000_000_u32);
    for digit in digits {
        ns = ns.wrapping_add(unit.wrapping_mul(u32::from(digit.wrapping_sub(b'0'))));
        unit /= 10;
    }
    (!digits.is_empty()).then_some((ns, rest))
}

/// The value of these digits.
pub(crate) fn number<const N: usize>(digits: [u8; N]) -> Option<u32> {
    let mut number = 0_u32;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.wrapping_mul(10).wrapping_add(u32::from(digit));
    }
    Some(number)
}

pub(crate) fn month(name: [u8; 3]) -> Option<u32> {
    Some(match &name {
        b"Jan" => 1,
        b"Feb" => 2,
        b"Mar" => 3,
        b"Apr" => 4,
        b"May" => 5,
        b"Jun" => 6,
        b"Jul" => 7,
        b"Aug" => 8,
        b"Sep" => 9,
        b"Oct" => 10,
        b"Nov" => 11,
        b"Dec" => 12,
        _ => return None,
    })
}

/// How many seconds a zone is ahead of UTC: `-0700`, `-07:00`, `-07`, `Z`, or an empty text for
/// UTC.
pub(crate) fn zone(text: &[u8]) -> Option<i64> {
    let (sign, hours, minutes) = match *text {
        [] | [b'Z' | b'z'] | [b'U', b'T', b'C'] | [b'G', b'M', b'T'] => return Some(0),
        [sign, h1, h2] => (sign, [h1, h2], *b"00"),
        [sign, h1, h2, m1, m2] | [sign, h1, h2, b':', m1, m2] => (sign, [h1, h2], [m1, m2]),
        _ => return None,
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let seconds = i64::from(hours.wrapping_mul(60).wrapping_add(minutes)).wrapping_mul(60);
    match sign {
        b'+' => Some(seconds),
        b'-' => Some(seconds.wrapping_neg()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::as_conversions)]

    use super::*;

    #[test]
    fn people_write_dates_and_times() {
        let seconds = |text: &str| Time::parse(text).map(|time| time.unix_ns / 1_000_000_000);
        for text in [
            "1995-08-01",
            "1995-08-01T00:00",
            " 1995-08-01 00:00:00 ",
            "1995-08-01T02:00:00+02:00",
            "01/Aug/1995:00:00:00 +0000",
            "807235200",
            "807235200.000",
        ] {
            assert_eq!(seconds(text), Some(807_235_200), "{text}");
        }
        for text in ["", "yesterday", "1995-08", "1995-13-01", "1969-01-01", "-5"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    /// The time as `seconds.nanoseconds`, without fraction for a whole second; or the cause.
    fn read(text: &str) -> String {
        match any(text.as_bytes()) {
            Err(cause) => cause.name().to_owned(),
            Ok(time) => {
                let (seconds, ns) = (time.unix_ns / 1_000_000_000, time.unix_ns % 1_000_000_000);
                let is_whole = time.is_whole_second;
                assert!(!is_whole || ns == 0);
                if is_whole { seconds.to_string() } else { format!("{seconds}.{ns:09}") }
            }
        }
    }

    #[test]
    fn times_are_read_with_their_zones_and_fractions() {
        // Whole seconds by `date -u -d ... +%s`.
        let rows = [
            ("10/Oct/2000:13:55:36 -0700", "971211336"),
            ("[10/Oct/2000:13:55:36 -0700]", "971211336"),
            ("29/Feb/2000:23:59:60 +0000", "951868800"),
            ("01/Jan/1970:00:00:00 +0000", "0"),
            ("01/Jan/1970:05:30:00 +0530", "0"),
            ("2000-10-10T13:55:36-07:00", "971211336"),
            ("2000-10-10T20:55:36Z", "971211336"),
            ("2000-10-10 20:55:36", "971211336"),
            ("2000-10-10 22:55:36 +0200", "971211336"),
            ("2000-10-10T20:55:36.5Z", "971211336.500000000"),
            ("2000-10-10T20:55:36,000Z", "971211336.000000000"),
            ("2000-10-10T20:55:36.1234567899999Z", "971211336.123456789"),
            ("971211336", "971211336"),
            ("971211336.5", "971211336.500000000"),
            ("971211336123", "971211336.123000000"),
            ("971211336123.4567", "971211336.123456700"),
            ("971211336123456", "971211336.123456000"),
            ("971211336123456789", "971211336.123456789"),
            ("9.712113365e8", "971211336.500000000"),
            ("971211336.12345678987654321098765", "971211336.123456789"),
            ("0", "0"),
            ("00000000000000000000000971211336", "971211336"),
            ("2554-07-21T23:34:33Z", "18446744073"),
        ];
        for (text, expected) in rows {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let rows = [
            ("", "time"),
            ("-", "time"),
            ("x", "time"),
            (".5", "time"),
            ("1.2.3", "time"),
            ("1e", "time"),
            ("1e99999999999", "time"),
            ("10/Oct/2000:13:55:36 -0700x", "time"),
            ("10/oct/2000:13:55:36 -0700", "time"),
            ("32/Oct/2000:13:55:36 -0700", "time"),
            ("00/Oct/2000:13:55:36 -0700", "time"),
            ("10/Oct/2000:24:00:00 -0700", "time"),
            ("10/Oct/2000:13:55:36 -2400", "time"),
            ("10/Oct/2000:13:55:36 *0700", "time"),
            ("2000-13-10T13:55:36Z", "time"),
            ("2001-02-29T13:55:36Z", "time"),
            ("2000-10-10T13:55:61Z", "time"),
            ("2000-10-10T13:55:36.Z", "time"),
            ("2000-10-10T13:55:36 Europe/Berlin", "time"),
            ("2000-10-10", "time"),
            ("-1", "time-out-of-range"),
            ("31/Dec/1969:23:59:59 +0000", "time-out-of-range"),
            ("01/Jan/1970:00:00:00 +0001", "time-out-of-range"),
            ("2554-07-21T23:34:34Z", "time-out-of-range"),
            ("9999-12-31T23:59:59Z", "time-out-of-range"),
            ("99999999999", "time-out-of-range"),
            ("99999999999999999999999999", "time-out-of-range"),
            ("1e2147483647", "time-out-of-range"),
        ];
        for (text, expected) in rows {
            assert_eq!(read(text), expected, "{text}");
        }
        assert_eq!(read("1e-2147483648"), "0.000000000");
    }
}
