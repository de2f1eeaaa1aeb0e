//! Unpacks the bytes of a log file: plain, gzip or zstd.
//!
//! Invariant: the first bytes determine the format, never the name. Pieces are passed on as they
//! are unpacked, so a small file that unpacks to a huge one takes time and no memory. A file that
//! breaks off is read up to there. Members one after the other, as `cat` and log rotation make
//! them, are one log.

use std::io::{BufRead, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

/// Bytes per piece.
pub(crate) const PIECE: usize = 128 * 1024;

/// The most bytes that a zstd frame may look back: the default limit of `zstd` itself.
const MOST_WINDOW: u64 = 128 << 20;

/// The receiver of the pieces wants no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiverClosed;

/// How a log ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LogEnd {
    /// At its regular end.
    Whole,
    /// It breaks off, for this reason.
    Broken(String),
    /// The receiver wanted no more.
    Left,
}

/// Unpacks everything in `from`; each piece goes to `take`, which gives a buffer for the next one.
pub(crate) fn unpack(
    from: &mut impl BufRead,
    take: &mut impl FnMut(Vec<u8>) -> Result<Vec<u8>, ReceiverClosed>,
) -> LogEnd {
    let ending = match beginning(from) {
        Ok(Packing::Plain) => pump(from, take),
        Ok(Packing::Gzip) => pump(&mut MultiGzDecoder::new(from), take),
        Ok(Packing::Zstd) => frames(from, take),
        Ok(Packing::Other(name)) => Err(Stop::Broken(format!(
            "is {name}, which this command cannot decompress; decompress it first"
        ))),
        Err(error) => Err(Stop::Broken(error.to_string())),
    };
    match ending {
        Ok(()) => LogEnd::Whole,
        Err(Stop::Enough) => LogEnd::Left,
        Err(Stop::Broken(message)) => LogEnd::Broken(message),
    }
}

/// The format in the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    Zstd,
    Other(&'static str),
}

enum Stop {
    Enough,
    Broken(String),
}

fn beginning(from: &mut impl BufRead) -> std::io::Result<Packing> {
    loop {
        return match from.fill_buf() {
            Ok(bytes) => Ok(packing(bytes)),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
    }
}

/// A pipe may deliver one byte at first. It counts as plain, because the first byte of a packed log
/// never comes alone.
fn packing(bytes: &[u8]) -> Packing {
    match bytes {
        [0x1f, 0x8b, ..] => Packing::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Packing::Zstd,
        [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', b'Y', ..] => Packing::Other("bzip2"),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Packing::Other("xz"),
        [0x04, 0x22, 0x4d, 0x18, ..] => Packing::Other("lz4"),
        [b'P', b'K', 3, 4, ..] => Packing::Other("zip"),
        _ => Packing::Plain,
    }
}

fn pump(
    from: &mut impl Read,
    take: &mut impl FnMut(Vec<u8>) -> Result<Vec<u8>, ReceiverClosed>,
) -> Result<(), Stop> {
    let mut piece = Vec::new();
    loop {
        let (filled, end) = fill(from, &mut piece);
        if filled > 0 {
            piece.truncate(filled);
            piece = take(piece).map_err(|ReceiverClosed| Stop::Enough)?;
        }
        match end {
            None => {}
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) => return Err(Stop::Broken(message(&error))),
        }
    }
}

/// Fills a piece by one read, or to its end where a read returns little. Returns the length, and
/// the result if the piece was the last.
fn fill(from: &mut impl Read, piece: &mut Vec<u8>) -> (usize, Option<std::io::Result<()>>) {
    piece.resize(PIECE, 0);
    let mut filled = 0_usize;
    while filled < PIECE / 2 {
        match from.read(piece.get_mut(filled..).unwrap_or_default()) {
            Ok(0) => return (filled, Some(Ok(()))),
            Ok(more) => filled = filled.saturating_add(more),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (filled, Some(Err(error))),
        }
    }
    (filled, None)
}

/// Every frame of a zstd file.
fn frames(
    from: &mut impl BufRead,
    take: &mut impl FnMut(Vec<u8>) -> Result<Vec<u8>, ReceiverClosed>,
) -> Result<(), Stop> {
    let broken = |error: std::io::Error| Stop::Broken(message(&error));
    while !from.fill_buf().map_err(broken)?.is_empty() {
        match StreamingDecoder::new_with_max_window_size(&mut *from, MOST_WINDOW) {
            Ok(mut frame) => pump(&mut frame, take)?,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => skip(from, length.into())?,
            Err(error) => return Err(Stop::Broken(error.to_string())),
        }
    }
    Ok(())
}

/// Skips a frame that contains no data of the log.
fn skip(from: &mut impl BufRead, length: u64) -> Result<(), Stop> {
    let skipped = std::io::copy(&mut from.take(length), &mut std::io::sink());
    match skipped {
        Ok(skipped) if skipped == length => Ok(()),
        Ok(_) => Err(Stop::Broken("ends too early".to_owned())),
        Err(error) => Err(Stop::Broken(message(&error))),
    }
}

fn message(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof => "ends too early".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn unpacked(mut packed: &[u8]) -> (Vec<u8>, LogEnd) {
        let mut whole = Vec::new();
        let ending = unpack(&mut packed, &mut |piece| {
            whole.extend_from_slice(&piece);
            Ok(piece)
        });
        (whole, ending)
    }

    #[test]
    fn the_first_bytes_say_what_it_is() {
        let text = b"one line\nanother\n".repeat(20_000);
        for packed in [text.clone(), gzip(&text), zstd(&text)] {
            assert_eq!(unpacked(&packed), (text.clone(), LogEnd::Whole));
        }
        assert_eq!(unpacked(b""), (vec![], LogEnd::Whole));
        assert_eq!(unpacked(b"\x1f"), (b"\x1f".to_vec(), LogEnd::Whole));
        let (none, ending) = unpacked(b"BZh91AY&SY");
        assert!(none.is_empty() && matches!(ending, LogEnd::Broken(m) if m.contains("bzip2")));
    }

    #[test]
    fn members_one_after_the_other_are_one_log() {
        let all = b"abc";
        assert_eq!(unpacked(&[gzip(b"a"), gzip(b""), gzip(b"bc")].concat()).0, all);
        let skipped = b"\x50\x2a\x4d\x18\x03\x00\x00\x00xyz".to_vec();
        let frames = [skipped.clone(), zstd(b"a"), skipped, zstd(b"bc")].concat();
        assert_eq!(unpacked(&frames), (all.to_vec(), LogEnd::Whole));
    }

    #[test]
    fn what_breaks_off_is_read_up_to_there() {
        let text: Vec<u8> = (0..300_000_u32).flat_map(|i| format!("{i}\n").into_bytes()).collect();
        for packed in [gzip(&text), zstd(&text)] {
            let half = packed.get(..packed.len() / 2).unwrap();
            let (whole, ending) = unpacked(half);
            assert!(text.starts_with(&whole) && !whole.is_empty(), "{}", whole.len());
            assert!(matches!(ending, LogEnd::Broken(_)), "{ending:?}");
        }
        let (whole, ending) = unpacked(&[gzip(b"a"), b"garbage".to_vec()].concat());
        assert!(whole == b"a" && matches!(ending, LogEnd::Broken(_)), "{ending:?}");
        let (whole, ending) = unpacked(b"\x50\x2a\x4d\x18\x09\x00\x00\x00xyz");
        assert!(whole.is_empty() && ending == LogEnd::Broken("ends too early".to_owned()));
    }

    /// A header that requests a window of 256 MiB is rejected before any memory is reserved for it.
    #[test]
    fn a_frame_that_wants_too_much_memory_is_refused() {
        let (whole, ending) = unpacked(b"\x28\xb5\x2f\xfd\x00\x90\x01\x00\x00");
        assert!(whole.is_empty() && matches!(ending, LogEnd::Broken(_)), "{ending:?}");
        let (whole, ending) = unpacked(b"\x28\xb5\x2f\xfd\x00\x48\x01\x00\x00");
        assert_eq!((whole, ending), (vec![], LogEnd::Whole), "512 KiB");
    }

    /// A thousandth of its size when packed: never more than one piece is held.
    #[test]
    fn a_bomb_is_handed_on_piece_by_piece() {
        let packed = gzip(&vec![b'a'; 50_000_000]);
        let (mut total, mut longest) = (0, 0);
        let ending = unpack(&mut packed.as_slice(), &mut |piece| {
            total += piece.len();
            longest = longest.max(piece.capacity());
            Ok(piece)
        });
        assert_eq!((total, ending), (50_000_000, LogEnd::Whole));
        assert!(longest <= PIECE, "{longest}");
        let ending = unpack(&mut packed.as_slice(), &mut |_| Err(ReceiverClosed));
        assert_eq!(ending, LogEnd::Left);
    }
}
