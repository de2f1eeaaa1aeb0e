//! Records as compact bytes, for code that must store some of them.
//!
//! Invariant: records are read back unchanged. Bytes of another origin are never passed in here;
//! they would end the reading early, never with a panic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::field::{Field, Wanted, fixed_place};
use crate::record::{Client, Place, Record, Texts, Time};

/// The flags in the first byte of a record.
mod has {
    pub(super) const WHOLE_SECOND: u8 = 1;
    pub(super) const STATUS: u8 = 2;
    pub(super) const CLIENT_V4: u8 = 4;
    pub(super) const CLIENT_V6: u8 = 8;
    pub(super) const CLIENT_NAME: u8 = 16;
    pub(super) const PEER_V4: u8 = 32;
    pub(super) const PEER_V6: u8 = 64;
}

/// Flags, the time, and which of the first texts are present.
const HEAD: usize = 1 + 8 + 8;
/// Texts whose presence is a bit of the head; others are listed by their number.
const BITS: usize = 63;
/// There are others.
const OTHERS: u64 = 1 << BITS;
/// The places of the client and the peer, which come before the texts.
const ADDRESSES: u64 = bit(&Field::Client) | bit(&Field::Peer);

const fn bit(field: &Field) -> u64 {
    match fixed_place(field) {
        Some(place) => 1 << place,
        None => 0,
    }
}

/// Appends `record` to `out`: some 20 bytes, and its texts.
pub(crate) fn write(record: &Record<'_>, out: &mut Vec<u8>) {
    let (client_flag, peer_flag) = flags(record);
    let whole = if record.time.is_whole_second { has::WHOLE_SECOND } else { 0 };
    let status = if record.status.is_some() { has::STATUS } else { 0 };
    let present = present(record);
    let mut head = [0; HEAD];
    let (first, rest) = head.split_at_mut(1);
    let (time, mask) = rest.split_at_mut(8);
    first.fill(whole | status | client_flag | peer_flag);
    time.copy_from_slice(&record.time.unix_ns.to_le_bytes());
    mask.copy_from_slice(&present.to_le_bytes());
    out.extend_from_slice(&head);
    if let Some(status) = record.status {
        out.extend_from_slice(&status.to_le_bytes());
    }
    match record.client {
        Some(Client::Address(address)) => write_address(address, out),
        Some(Client::Name(name)) => write_text(name, out),
        None => {}
    }
    if let Some(peer) = record.peer {
        write_address(peer, out);
    }
    let mut left = present & !OTHERS;
    while let Some((place, others)) = lowest(left) {
        write_text(record.texts.get(place).unwrap_or_default(), out);
        left = others;
    }
    if present & OTHERS != 0 {
        for place in BITS..record.texts.places.len() {
            let text = record.texts.get(place);
            write_number(text.map_or(0, |text| text.len().saturating_add(1)), out);
            out.extend_from_slice(text.unwrap_or_default());
        }
    }
}

/// The texts that a record has in addition to the client and the peer, one bit for each.
fn present(record: &Record<'_>) -> u64 {
    let places = record.texts.places;
    let (first, others) = places.split_at_checked(BITS).unwrap_or((places, &[]));
    let (mut mask, mut bit) = (0_u64, 1_u64);
    for place in first {
        mask |= if *place == Place::Absent { 0 } else { bit };
        bit = bit.wrapping_shl(1);
    }
    if others.iter().any(|place| *place != Place::Absent) {
        mask |= OTHERS;
    }
    mask & !ADDRESSES
}

/// The number of the lowest bit, and the others.
fn lowest(mask: u64) -> Option<(usize, u64)> {
    let bit = usize::try_from(mask.trailing_zeros()).ok().filter(|_| mask != 0)?;
    Some((bit, mask & mask.wrapping_sub(1)))
}

/// The first record of `bytes`, and the rest after it.
pub(crate) fn read<'a, 'b: 'a>(
    bytes: &'b [u8],
    places: &'a mut Vec<Place>,
    wanted: &'a Wanted,
) -> Option<(Record<'a>, &'b [u8])> {
    let (&[flags, ref numbers @ ..], mut rest) = bytes.split_first_chunk::<HEAD>()?;
    let (unix_ns, mask) = numbers.split_first_chunk()?;
    let present = u64::from_le_bytes(*mask.first_chunk()?);
    let has = |flag: u8| flags & flag != 0;
    let time =
        Time { unix_ns: u64::from_le_bytes(*unix_ns), is_whole_second: has(has::WHOLE_SECOND) };
    let mut status = None;
    if has(has::STATUS) {
        let (number, after) = rest.split_first_chunk()?;
        (status, rest) = (Some(u16::from_le_bytes(*number)), after);
    }
    let (address, mut rest) = read_address(rest, has(has::CLIENT_V4), has(has::CLIENT_V6))?;
    let mut client = address.map(Client::Address);
    if has(has::CLIENT_NAME) {
        let (name, after) = read_text(rest)?;
        (client, rest) = (Some(Client::Name(name)), after);
    }
    let (peer, mut rest) = read_address(rest, has(has::PEER_V4), has(has::PEER_V6))?;
    if present == 0 {
        // Most policies read the client alone: no places have the same effect as places without a
        // text.
        let texts = Texts { wanted, line: bytes, unescaped: &[], places: &[] };
        return Some((Record { time, client, peer, status, texts }, rest));
    }
    places.clear();
    places.resize(wanted.values(), Place::Absent);
    let mut left = present & !OTHERS;
    while let Some((at, others)) = lowest(left) {
        let (length, after) = read_number(rest)?;
        let from = bytes.len().wrapping_sub(after.len());
        *places.get_mut(at)? = Place::Line(from, from.wrapping_add(length));
        (rest, left) = (after.get(length..)?, others);
    }
    if present & OTHERS != 0 {
        for place in places.get_mut(BITS..)? {
            let (length, after) = read_number(rest)?;
            let from = bytes.len().wrapping_sub(after.len());
            rest = after;
            if let Some(length) = length.checked_sub(1) {
                *place = Place::Line(from, from.wrapping_add(length));
                rest = after.get(length..)?;
            }
        }
    }
    let texts = Texts { wanted, line: bytes, unescaped: &[], places };
    Some((Record { time, client, peer, status, texts }, rest))
}

const fn flags(record: &Record<'_>) -> (u8, u8) {
    let client = match record.client {
        None => 0,
        Some(Client::Address(IpAddr::V4(_))) => has::CLIENT_V4,
        Some(Client::Address(IpAddr::V6(_))) => has::CLIENT_V6,
        Some(Client::Name(_)) => has::CLIENT_NAME,
    };
    let peer = match record.peer {
        None => 0,
        Some(IpAddr::V4(_)) => has::PEER_V4,
        Some(IpAddr::V6(_)) => has::PEER_V6,
    };
    (client, peer)
}

fn write_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
        IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
    }
}

fn read_address(bytes: &[u8], is_v4: bool, is_v6: bool) -> Option<(Option<IpAddr>, &[u8])> {
    if is_v4 {
        let (octets, rest) = bytes.split_first_chunk::<4>()?;
        return Some((Some(IpAddr::V4(Ipv4Addr::from(*octets))), rest));
    }
    if is_v6 {
        let (octets, rest) = bytes.split_first_chunk::<16>()?;
        return Some((Some(IpAddr::V6(Ipv6Addr::from(*octets))), rest));
    }
    Some((None, bytes))
}

fn write_text(text: &[u8], out: &mut Vec<u8>) {
    write_number(text.len(), out);
    out.extend_from_slice(text);
}

fn read_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = read_number(bytes)?;
    rest.split_at_checked(length)
}

/// Seven bits per byte, the low ones first; the high bit means that more follow.
fn write_number(mut number: usize, out: &mut Vec<u8>) {
    while let Err(_) | Ok(0x80..) = u8::try_from(number) {
        let low = u8::try_from(number & 0x7F).unwrap_or_default();
        out.push(low | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap_or_default());
}

fn read_number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (mut number, mut shift, mut rest) = (0_usize, 0_u32, bytes);
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        number |= usize::from(byte & 0x7F).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some((number, rest));
        }
        shift = shift.wrapping_add(7);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_back() {
        for number in (0..300).chain([16_383, 16_384, 65_536, usize::MAX]) {
            let mut out = vec![];
            write_number(number, &mut out);
            out.push(7);
            assert_eq!(read_number(&out), Some((number, &[7][..])));
            assert_eq!(read_number(&out[..out.len() - 2]), None);
        }
    }

    #[test]
    fn records_are_read_back_and_cut_ones_are_not() {
        let line = [b'x'; 300];
        let clients = [
            None,
            Some(Client::Address("192.0.2.1".parse().unwrap())),
            Some(Client::Address("2001:db8::1".parse().unwrap())),
            Some(Client::Name(b"host.example")),
        ];
        // More than the number of bits.
        let headers = (0..70).map(|number| Field::Header(number.to_string()));
        let plain = ["method", "target", "header.a"].map(|w| Field::parse(w).unwrap());
        let wanted = Wanted::new(plain.into_iter().chain(headers));
        let mut places = vec![Place::Absent; wanted.values()];
        places[81] = Place::Line(0, 2);
        // The text from which the client was read is not stored in addition to it.
        places[7] = Place::Line(0, 300);
        places[1] = Place::Line(0, 300);
        places[11] = Place::Line(3, 3);
        let texts = Texts { wanted: &wanted, line: &line, unescaped: &[], places: &places };
        for client in clients {
            for peer in [None, Some("::1".parse().unwrap()), Some("10.0.0.1".parse().unwrap())] {
                for (status, is_whole_second) in [(None, true), (Some(429), false)] {
                    let time = Time { unix_ns: u64::MAX - 5, is_whole_second };
                    let record = Record { time, client, peer, status, texts };
                    let mut bytes = vec![];
                    write(&record, &mut bytes);
                    assert!(bytes.len() < 300 + 150, "{}", bytes.len());
                    let mut places = vec![];
                    for end in 0..bytes.len() {
                        assert!(read(&bytes[..end], &mut places, &wanted).is_none());
                    }
                    bytes.push(9);
                    let (back, rest) = read(&bytes, &mut places, &wanted).unwrap();
                    assert_eq!((back.time, back.client, back.peer), (time, client, peer));
                    assert_eq!((back.status, back.method(), rest), (status, None, &[9][..]));
                    assert_eq!(back.target(), Some(&line[..]));
                    assert_eq!((back.header("a"), back.header("0")), (Some(&b""[..]), None));
                    assert_eq!((back.header("69"), back.header("68")), (Some(&b"xx"[..]), None));
                }
            }
        }
    }
}
