//! SHA-256, as written in sums, digests and lists of parts.

use sha2::{Digest, Sha256};

/// 64 lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-2, appendix B.1.
    #[test]
    fn the_sum_is_the_standards() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(b"abc"), expected);
    }
}
