//! One series: a family and the values of its labels, as bytes that order and store it.
//!
//! Invariant: a `Series` has as many values as its family has labels, of printable ASCII, each at
//! most 64 characters, like the names of rules, quotas and tiers. Deliberately absent: escaping,
//! which the text does.

use alloc::vec;
use alloc::vec::Vec;

use tollgate_policy::Surface;
use tollgate_policy::metrics::{Description, FAMILIES, Family};

/// The most series that are kept.
pub const MAX_SERIES: usize = 10_000;

/// The rule of series for which there is no room.
pub const OTHER: &str = "(other)";

/// The tier of quotas from a tenant's own entry: the number of tenants is unbounded, so their names
/// are not labels.
pub const TENANT: &str = "(tenant)";

/// Ends a value: no value contains it.
const END: u8 = 0;

/// The longest value, in bytes.
const MAX_VALUE: usize = 64;

/// The families that every service with sums has; the others are those of one surface.
pub fn is_summed(row: &Description) -> bool {
    row.surfaces.contains(&Surface::Worker)
}

/// A family and the values of its labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series(Vec<u8>);

impl Series {
    /// The series of `family` with these values. A value that is not allowed (a name is at most 64
    /// printable characters) is cut and corrected, so that there is always a series.
    #[must_use]
    pub fn new(family: Family, values: &[&str]) -> Self {
        let row = family.describe();
        debug_assert_eq!(values.len(), row.labels.len(), "{}", row.name);
        let mut bytes = vec![family.number()];
        for i in 0..row.labels.len() {
            let value = values.get(i).copied().unwrap_or_default();
            let printable = |c: char| if matches!(c, ' '..='~') { c } else { '_' };
            let plain = value.chars().take(MAX_VALUE).map(printable);
            bytes.extend(plain.filter_map(|c| u8::try_from(c).ok()));
            bytes.push(END);
        }
        Self(bytes)
    }

    /// The series in these bytes, if they are one.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (code, mut rest) = bytes.split_first()?;
        for _ in family_of(*code)?.describe().labels {
            let end = rest.iter().position(|byte| *byte == END)?;
            let (value, after) = rest.split_at_checked(end)?;
            if value.len() > MAX_VALUE || !value.iter().all(|byte| matches!(byte, b' '..=b'~')) {
                return None;
            }
            rest = after.get(1..)?;
        }
        rest.is_empty().then(|| Self(bytes.to_vec()))
    }

    /// The bytes, which order series by family and value.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its family.
    #[must_use]
    pub fn family(&self) -> Option<Family> {
        family_of(*self.0.first()?)
    }

    /// The values of its labels.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        let values = self.0.get(1..).unwrap_or_default().split(|byte| *byte == END);
        let count = self.family().map_or(0, |family| family.describe().labels.len());
        values.take(count).map(|value| str::from_utf8(value).unwrap_or_default())
    }

    /// The series that counts instead of this one when there is no room: of rule [`OTHER`], with
    /// the same result.
    #[must_use]
    pub fn other(&self) -> Self {
        let Some(family) = self.family() else { return self.clone() };
        let values: Vec<&str> = (family.describe().labels.iter().zip(self.values()))
            .map(|(label, value)| match *label {
                "rule" => OTHER,
                "quota" | "tier" => "",
                _ => value,
            })
            .collect();
        Self::new(family, &values)
    }
}

/// The family with this number, if it is in the sums.
fn family_of(number: u8) -> Option<Family> {
    let row = FAMILIES.get(usize::from(number).checked_sub(1)?)?;
    is_summed(row).then_some(row.family)
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned;
    use alloc::string::String;

    use super::*;

    #[test]
    fn a_series_comes_back_from_its_bytes() {
        let values = ["api v1 \\\"", "per minute", "", "denied"];
        let series = Series::new(Family::Decisions, &values);
        assert_eq!(Series::parse(series.as_bytes()).as_ref(), Some(&series));
        assert_eq!(series.values().collect::<Vec<_>>(), values);
        let other: Vec<String> = series.other().values().map(str::to_owned).collect();
        assert_eq!(other, ["(other)", "", "", "denied"]);
        assert_eq!(series.other().other(), series.other());
    }

    #[test]
    fn bytes_that_are_none_are_refused() {
        let good = Series::new(Family::Requests, &["passed"]);
        let with = |bytes: &[u8]| Series::parse(bytes).is_some();
        assert!(with(good.as_bytes()));
        let long = [&[1][..], &[b'a'; 65], &[0]].concat();
        for wrong in [&b""[..], &[1], &[0, 0], &[99, 0], b"\x01a", b"\x01a\0b\0", b"\x01\n\0"] {
            assert!(!with(wrong), "{wrong:?}");
        }
        assert!(!with(&long));
        // A value that is not a name is corrected, not rejected: there is always a series to count
        // in.
        let odd = Series::new(Family::Requests, &["a\nb\u{e9}"]);
        assert_eq!(odd.values().collect::<Vec<_>>(), ["a_b_"]);
        assert!(with(odd.as_bytes()));
    }
}
