//! Networks of addresses.
//!
//! Invariant: an IPv4 address that came over an IPv6 socket is the IPv4 address.

use std::net::IpAddr;

/// A network: an address and the number of its bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    bits: u128,
    prefix: u32,
    is_v4: bool,
}

impl Network {
    /// Reads `10.0.0.0/8`, `::1/128`, or an address alone.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let (bits, most, is_v4) = bits(address);
        let prefix = match prefix {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok()?
            }
            Some(_) => return None,
            None => most,
        };
        (prefix <= most).then_some(Self { bits, prefix, is_v4 })
    }

    /// True when the address is in the network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let (bits, most, is_v4) = bits(address.to_canonical());
        let rest = most.saturating_sub(self.prefix);
        let cut = |bits: u128| bits.checked_shr(rest).unwrap_or(0);
        self.is_v4 == is_v4 && cut(bits) == cut(self.bits)
    }
}

/// The warning about `networks` that are certainly too wide where callers need no token.
pub(crate) fn warning(networks: &[Network]) -> Option<String> {
    let message = "trusted_callers has every address, and no check_token is set: every program that reaches \
                   the server can spend the quota of every client";
    networks.iter().any(|network| network.prefix == 0).then(|| message.to_owned())
}

fn bits(address: IpAddr) -> (u128, u32, bool) {
    match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32, true),
        IpAddr::V6(v6) => (v6.to_bits(), 128, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_its_addresses() {
        let rows = [
            ("127.0.0.0/8", "127.9.9.9", true),
            ("127.0.0.0/8", "128.0.0.1", false),
            ("127.0.0.0/8", "::ffff:127.0.0.1", true),
            ("127.0.0.0/8", "::1", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::", false),
            ("::/0", "1.2.3.4", false),
            ("::1", "::1", true),
            ("::1", "::2", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1/31", "10.0.0.0", true),
        ];
        for (network, address, expected) in rows {
            let network = Network::parse(network).expect(network);
            assert_eq!(network.contains(address.parse().expect(address)), expected, "{address}");
        }
        for wrong in ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "::/129", "localhost", "10/8"]
        {
            assert!(Network::parse(wrong).is_none(), "{wrong}");
        }
    }
}
