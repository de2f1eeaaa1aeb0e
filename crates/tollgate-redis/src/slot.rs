//! Which of a cluster's 16,384 slots a key is in.
//!
//! Source: the cluster specification of Redis, "Key distribution model" and "Hash tags": CRC16
//! (XMODEM: polynomial 0x1021, from 0) modulo 16,384, of the text in the first braces, if it is not
//! empty.

/// Slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    crc16(tagged(key)) & 0x3fff
}

fn tagged(key: &[u8]) -> &[u8] {
    let tag = || {
        let (_, rest) = key.split_at_checked(key.iter().position(|byte| *byte == b'{')?)?;
        let (_, rest) = rest.split_first()?;
        let (tag, _) = rest.split_at_checked(rest.iter().position(|byte| *byte == b'}')?)?;
        (!tag.is_empty()).then_some(tag)
    };
    tag().unwrap_or(key)
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let crc = crc ^ (u16::from(*byte) << 8);
        (0..8).fold(crc, |crc, _| {
            let is_carried = crc & 0x8000 != 0;
            let shifted = crc << 1;
            if is_carried { shifted ^ 0x1021 } else { shifted }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3, "its own example");
        // CLUSTER KEYSLOT of a real server.
        for (key, slot) in [("foo", 12_182), ("{foo}bar", 12_182), ("foo{}{bar}", 8_363)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
    }
}
