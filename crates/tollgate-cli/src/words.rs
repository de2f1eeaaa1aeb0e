//! Lists and sizes in words.
//!
//! Invariant: a size is rounded up. The texts of quotas and times are in
//! `tollgate_policy::explain::words`.

/// `envoy`, `envoy and worker`, `envoy, worker and server`.
pub(crate) fn list(items: &[&str]) -> String {
    match items {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `512 bytes`, `1.4 MiB`: rounded up to a tenth.
pub(crate) fn bytes(count: u64) -> String {
    const KIB: u64 = 1024;
    let units = [("GiB", KIB.pow(3)), ("MiB", KIB.pow(2)), ("KiB", KIB)];
    let Some((unit, size)) = units.into_iter().find(|(_, size)| count >= *size) else {
        return format!("{count} bytes");
    };
    let tenths = count.saturating_mul(10).div_ceil(size);
    format!("{}.{} {unit}", tenths.div_euclid(10), tenths.rem_euclid(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_up() {
        for (count, expected) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1025, "1.1 KiB"),
            (1_048_576, "1.0 MiB"),
            (u64::from(u32::MAX), "4.0 GiB"),
        ] {
            assert_eq!(bytes(count), expected);
        }
    }
}
