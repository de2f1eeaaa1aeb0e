//! Numbers in words: thousands, percent, lengths of time, points in time, sizes.
//!
//! Invariant: integers only, so that a figure is the same on every target. A share above zero is
//! never written as zero, and one below the whole never as the whole; lengths of time and sizes are
//! rounded up. Numbers for programs (`raw_...`) are exact, or have a documented number of digits.

/// Nanoseconds per second.
const SECOND_NS: u64 = 1_000_000_000;

/// `1,027`
pub(crate) fn count(number: u64) -> String {
    grouped(&number.to_string())
}

/// `+12`, `-1,027`, `0`: a difference.
pub(crate) fn change(number: i64) -> String {
    let digits = grouped(&number.unsigned_abs().to_string());
    match number {
        0 => digits,
        1.. => format!("+{digits}"),
        _ => format!("-{digits}"),
    }
}

/// `49.50`, rounded to nearest; `-` for NaN and infinity.
pub(crate) fn number(number: f64, decimals: usize) -> String {
    if !number.is_finite() {
        return "-".to_owned();
    }
    let text = format!("{number:.decimals$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    let point = if rest.is_empty() { "" } else { "." };
    // No minus before a number that rounds to zero.
    let is_zero = digits.bytes().all(|digit| matches!(digit, b'0' | b'.'));
    format!("{}{}{point}{rest}", if is_zero { "" } else { sign }, grouped(whole))
}

/// `0.29 %` with two decimals, rounded to nearest; `<0.01 %` and `>99.99 %` for a share that would
/// wrongly be rounded to zero or to the whole; `-` where `whole` is 0.
pub(crate) fn share(part: u64, whole: u64, decimals: usize) -> String {
    let unit = ten_to(decimals);
    let all = unit.saturating_mul(100);
    let half = u128::from(whole).div_euclid(2);
    let scaled = u128::from(part).saturating_mul(all).saturating_add(half);
    let Some(scaled) = scaled.checked_div(u128::from(whole)) else { return "-".to_owned() };
    let (sign, shown) = match scaled {
        0 if part > 0 => ("<", 1),
        shown if shown >= all && part < whole => (">", all.saturating_sub(1)),
        shown => ("", shown),
    };
    format!("{sign}{} %", fraction(shown, unit, decimals))
}

/// A share for programs, 0 to 1 with at most nine decimals, rounded to nearest; empty where
/// `whole` is 0.
pub(crate) fn raw_share(part: u64, whole: u64) -> String {
    let unit = ten_to(9);
    let half = u128::from(whole).div_euclid(2);
    let scaled = u128::from(part).saturating_mul(unit).saturating_add(half);
    let scaled = scaled.checked_div(u128::from(whole));
    scaled.map(|scaled| trimmed(&fraction(scaled, unit, 9))).unwrap_or_default()
}

/// `0 s`, `250 us`, `1.5 ms`, `59.4 s`, `2 min 5 s`, `3 h 5 min`, `2 d 3 h`: at most three decimals
/// below two minutes, the two greatest units above; rounded up.
pub(crate) fn duration(nanos: u64) -> String {
    let decimal = |unit_ns: u64, name: &str| {
        let thousandths = u128::from(nanos).saturating_mul(1_000).div_ceil(u128::from(unit_ns));
        format!("{} {name}", trimmed(&fraction(thousandths, 1_000, 3)))
    };
    match nanos {
        0 => "0 s".to_owned(),
        1..=999_999 => decimal(1_000, "us"),
        1_000_000..=999_999_000 => decimal(1_000_000, "ms"),
        999_999_001..=119_999_000_000 => decimal(SECOND_NS, "s"),
        _ => long_duration(nanos.div_ceil(SECOND_NS)),
    }
}

/// Seconds for programs, exact.
pub(crate) fn raw_duration(nanos: u64) -> String {
    trimmed(&fraction(u128::from(nanos), u128::from(SECOND_NS), 9))
}

/// `512 bytes`, `1.4 MiB`: rounded up to a tenth.
pub(crate) fn bytes(count: u64) -> String {
    const KIB: u64 = 1024;
    let units = [("GiB", KIB.pow(3)), ("MiB", KIB.pow(2)), ("KiB", KIB)];
    let Some((unit, size)) = units.into_iter().find(|(_, size)| count >= *size) else {
        return format!("{count} bytes");
    };
    let tenths = u128::from(count).saturating_mul(10).div_ceil(u128::from(size));
    format!("{} {unit}", fraction(tenths, 10, 1))
}

/// `1995-08-01 00:00:07`, with `.250` where there are milliseconds. In UTC; years as they are, with
/// a sign before 0 and beyond 9999.
pub(crate) fn time(unix_ms: i64) -> String {
    let (date, clock) = date_and_clock(unix_ms);
    format!("{date} {clock}")
}

/// `1995-08-01 00:00:07.000`: the same, always with milliseconds.
pub(crate) fn time_ms(unix_ms: i64) -> String {
    let time = time(unix_ms);
    if time.contains('.') { time } else { time + ".000" }
}

/// A time for programs, `1995-08-01T00:00:07.000Z` (RFC 3339): from milliseconds since
/// 1970-01-01T00:00:00Z, in UTC. Years before 0 and beyond 9999 have a sign.
#[must_use]
pub fn rfc3339(unix_ms: i64) -> String {
    let (date, clock) = date_and_clock(unix_ms);
    let millis = if clock.contains('.') { "" } else { ".000" };
    format!("{date}T{clock}{millis}Z")
}

fn date_and_clock(unix_ms: i64) -> (String, String) {
    const DAY_MS: i64 = 86_400_000;
    let (year, month, day) = civil(unix_ms.div_euclid(DAY_MS));
    let of_day = unix_ms.rem_euclid(DAY_MS);
    let (seconds, millis) = (of_day.div_euclid(1_000), of_day.rem_euclid(1_000));
    let (hour, minute) = (seconds.div_euclid(3_600), seconds.div_euclid(60).rem_euclid(60));
    let second = seconds.rem_euclid(60);
    let sign = match year {
        0..=9999 => "",
        ..0 => "-",
        _ => "+",
    };
    let rest = if millis == 0 { String::new() } else { format!(".{millis:03}") };
    let date = format!("{sign}{:04}-{month:02}-{day:02}", year.unsigned_abs());
    (date, format!("{hour:02}:{minute:02}:{second:02}{rest}"))
}

/// Year, month and day of a count of days since 1970-01-01, in the proleptic Gregorian calendar:
/// the year begins in March, so that the leap day is its last (H. Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms", `civil_from_days`).
#[expect(clippy::arithmetic_side_effects, reason = "days of an i64 of milliseconds are < 2^37")]
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

fn long_duration(seconds: u64) -> String {
    let pairs = [("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)];
    for (name, length, lesser, lesser_length) in pairs {
        // Rounded up first, so that no remainder is a whole of the greater unit.
        let lessers = seconds.div_ceil(lesser_length);
        let each = u64::div_euclid(length, lesser_length);
        let (wholes, rest) = (lessers.div_euclid(each), lessers.rem_euclid(each));
        // A time within a minute of a day is written as a day, never as `24 h`.
        let is_its =
            seconds >= length || length > 60 && seconds.div_ceil(60) >= length.div_euclid(60);
        match (is_its, rest) {
            (false, _) => {}
            (true, 0) => return format!("{wholes} {name}"),
            (true, rest) => return format!("{wholes} {name} {rest} {lesser}"),
        }
    }
    format!("{seconds} s")
}

fn ten_to(decimals: usize) -> u128 {
    10_u128.saturating_pow(u32::try_from(decimals.min(9)).unwrap_or(9))
}

/// `scaled / unit` with `decimals` digits after the point.
fn fraction(scaled: u128, unit: u128, decimals: usize) -> String {
    let (whole, rest) = (scaled.div_euclid(unit), scaled.rem_euclid(unit));
    if decimals == 0 { whole.to_string() } else { format!("{whole}.{rest:0decimals$}") }
}

fn trimmed(decimal: &str) -> String {
    decimal.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn grouped(digits: &str) -> String {
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digits.len().saturating_sub(index).checked_rem(3) == Some(0) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_changes() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!([0, 12, -1_027].map(change), ["0", "+12", "-1,027"]);
        assert_eq!(change(i64::MIN), "-9,223,372,036,854,775,808");
    }

    #[test]
    fn numbers_round_to_nearest() {
        assert_eq!(number(49.5, 1), "49.5");
        assert_eq!(number(-1234.567, 2), "-1,234.57");
        assert_eq!(number(-0.001, 2), "0.00");
        assert_eq!((number(f64::NAN, 1), number(1e6, 0)), ("-".to_owned(), "1,000,000".to_owned()));
    }

    #[test]
    fn a_share_never_says_none_or_all_wrongly() {
        for (part, whole, expected) in [
            (0, 61_000, "0.00 %"),
            (178, 61_000, "0.29 %"),
            (1, 61_000, "<0.01 %"),
            (60_999, 61_000, ">99.99 %"),
            (61_000, 61_000, "100.00 %"),
            (0, 0, "-"),
            (3, 2, "150.00 %"),
            (u64::MAX, u64::MAX, "100.00 %"),
        ] {
            assert_eq!(share(part, whole, 2), expected, "{part}/{whole}");
        }
        assert_eq!(share(126, 100_000, 3), "0.126 %");
        assert_eq!(share(1, 3, 0), "33 %");
        assert_eq!(raw_share(126, 100_000), "0.00126");
        assert_eq!(
            (raw_share(1, 1), raw_share(0, 5), raw_share(0, 0)),
            ("1".into(), "0".into(), String::new())
        );
    }

    #[test]
    fn lengths_of_time_round_up() {
        for (nanos, expected) in [
            (0, "0 s"),
            (1, "0.001 us"),
            (250_000, "250 us"),
            (1_500_001, "1.501 ms"),
            (999_999_999, "1 s"),
            (59_400_000_000, "59.4 s"),
            (119_999_999_999, "2 min"),
            (125_000_000_000, "2 min 5 s"),
            (3_600_000_000_000, "1 h"),
            (3_599_999_000_001, "1 h"),
            (11_100_000_000_000, "3 h 5 min"),
            (86_399_000_000_000, "1 d"),
            (183_600_000_000_000, "2 d 3 h"),
        ] {
            assert_eq!(duration(nanos), expected, "{nanos}");
        }
        assert_eq!(
            (raw_duration(1), raw_duration(1_500_000_000)),
            ("0.000000001".into(), "1.5".into())
        );
    }

    #[test]
    fn points_in_time() {
        for (unix_ms, expected) in [
            (0, "1970-01-01 00:00:00"),
            (-1, "1969-12-31 23:59:59.999"),
            (807_235_207_000, "1995-08-01 00:00:07"),
            (951_782_400_250, "2000-02-29 00:00:00.250"),
            (253_402_300_800_000, "+10000-01-01 00:00:00"),
            (-62_167_219_200_001, "-0001-12-31 23:59:59.999"),
        ] {
            assert_eq!(time(unix_ms), expected);
        }
        assert_eq!(rfc3339(7_000), "1970-01-01T00:00:07.000Z");
        // The edges of the type do not overflow.
        assert!(time(i64::MAX).starts_with("+292278994-08-17"), "{}", time(i64::MAX));
        assert!(time(i64::MIN).starts_with("-292275055-05-16"), "{}", time(i64::MIN));
    }

    #[test]
    fn sizes_round_up() {
        assert_eq!(
            [0, 1023, 1024, 1025].map(bytes),
            ["0 bytes", "1023 bytes", "1.0 KiB", "1.1 KiB"]
        );
        assert_eq!(bytes(u64::MAX), "17179869184.0 GiB");
    }

    /// Every day after the one before, over two cycles of the calendar.
    #[test]
    fn no_day_is_left_out() {
        let mut last = civil(0);
        for day in 1..213_000 {
            let next = civil(day);
            let (y, m, d) = last;
            let leap = y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
            let length = match m {
                2 => 28 + i64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            let wanted = match (d < length, m < 12) {
                (true, _) => (y, m, d + 1),
                (false, true) => (y, m + 1, 1),
                (false, false) => (y + 1, 1, 1),
            };
            assert_eq!(next, wanted);
            last = next;
        }
    }
}
