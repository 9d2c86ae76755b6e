//! Tells what recorded bytes are: the kind of frame, and that every frame follows the one before.
//!
//! A kind is recognised by two neighbouring frames that fit together: same start mark, version and link, timestamp one
//! step further, and for WIBEth the next sequence number. Everything after that is held against that kind.
//!
//! *On failure*: `Invalid` with number and byte offset of the frame that breaks the rule, what is there and what was
//! expected.

use super::{FrameKind, Link, wib1, wibeth};
use crate::limits::INPUT_FRAMES_MIN;
use forebay_core::{Error, Result};
use serde::Serialize;

/// How many frames are looked at to recognise a kind, regardless of the file's length.
const EVIDENCE_FRAMES: usize = 256;

/// What a run of recorded frames is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Recording {
    /// What sort of frames.
    pub kind: FrameKind,
    /// How many.
    pub frames: usize,
    /// Timestamp of the first one, in ticks.
    pub first_timestamp: u64,
    /// The link that all of them came from.
    pub link: Link,
}

/// Recognises recorded frames, checking every one of them. Never panics, for any bytes.
///
/// # Errors
/// `Invalid`, with the byte offset of the offending frame and what was expected there: neither kind, cut short, or
/// frames that do not follow each other.
pub fn detect(bytes: &[u8]) -> Result<Recording> {
    if bytes.is_empty() {
        return Err(Error::invalid("no recorded frames: empty"));
    }
    let recognised = FrameKind::ALL.into_iter().max_by_key(|kind| evidence(*kind, bytes));
    match recognised {
        Some(kind) if evidence(kind, bytes) > 0 => check(kind, bytes),
        _ => Err(neither(bytes)),
    }
}

/// Neighbouring pairs near the start that fit together as frames of this kind.
fn evidence(kind: FrameKind, bytes: &[u8]) -> usize {
    let near = bytes.len().min(EVIDENCE_FRAMES * kind.frame_bytes());
    let frames: Vec<&[u8]> = bytes[..near].chunks_exact(kind.frame_bytes()).collect();
    frames.windows(2).filter(|pair| difference(kind, pair[0], pair[1], true).is_none()).count()
}

fn check(kind: FrameKind, bytes: &[u8]) -> Result<Recording> {
    let size = kind.frame_bytes();
    let frames = bytes.chunks_exact(size);
    let (count, rest) = (frames.len(), frames.remainder().len());
    let mut before: Option<&[u8]> = None;
    for (at, frame) in frames.enumerate() {
        if let Some(difference) = before.and_then(|before| difference(kind, before, frame, true)) {
            return Err(broken(kind, bytes, at, difference));
        }
        before = Some(frame);
    }
    if rest != 0 {
        return Err(Error::invalid(format!(
            "recorded {} frames are cut short: frame {count} at byte offset {} has {rest} bytes, expected {size}",
            kind.name(),
            count * size
        )));
    }
    let first = &bytes[..size];
    Ok(Recording { kind, frames: count, first_timestamp: kind.timestamp(first), link: kind.link(first) })
}

/// The error for a frame that does not follow the one before; where only the first frame fits nothing, it is to blame.
fn broken(kind: FrameKind, bytes: &[u8], at: usize, difference: String) -> Error {
    let frame = |at: usize| bytes.chunks_exact(kind.frame_bytes()).nth(at);
    let (mut at, mut difference) = (at, difference);
    if let (1, Some(first), Some(second), Some(third)) = (at, frame(0), frame(1), frame(2)) {
        let backward = self::difference(kind, second, first, false);
        if let (None, Some(backward)) = (self::difference(kind, second, third, true), backward) {
            (at, difference) = (0, backward);
        }
    }
    Error::invalid(format!(
        "recorded {} frames: frame {at} at byte offset {}: {difference}",
        kind.name(),
        at * kind.frame_bytes()
    ))
}

fn neither(bytes: &[u8]) -> Error {
    let why = |kind: FrameKind| {
        let mut frames = bytes.chunks_exact(kind.frame_bytes());
        let bytes_needed = INPUT_FRAMES_MIN * kind.frame_bytes();
        let why = match (frames.next(), frames.next()) {
            (Some(first), Some(second)) => {
                let difference = difference(kind, first, second, true).unwrap_or_default();
                format!("frame 1 at byte offset {}: {difference}", kind.frame_bytes())
            }
            _ => format!("{} bytes are less than two frames ({bytes_needed} bytes)", bytes.len()),
        };
        format!("as {} ({} bytes a frame): {why}", kind.name(), kind.frame_bytes())
    };
    Error::invalid(format!("neither WIB1 nor WIBEth frames: {}; {}", why(FrameKind::Wib1), why(FrameKind::WibEth)))
}

/// Why `frame` cannot be next to `near`: after it (`forward`) or before it. `None` if it fits.
fn difference(kind: FrameKind, near: &[u8], frame: &[u8], forward: bool) -> Option<String> {
    let side = if forward { "before" } else { "after" };
    let same = |what: &str, found: u64, expected: u64| {
        (found != expected).then(|| format!("{what} {found}, expected {expected} as in the frame {side}"))
    };
    let marks = match kind {
        FrameKind::Wib1 => same("sof", wib1::sof(frame).into(), wib1::sof(near).into())
            .or_else(|| same("version", wib1::version(frame).into(), wib1::version(near).into()))
            .or_else(|| same("z bit", wib1::z(frame).into(), wib1::z(near).into())),
        FrameKind::WibEth => same("version", wibeth::version(frame).into(), wibeth::version(near).into())
            .or_else(|| same("block length", wibeth::block_words(frame).into(), wibeth::block_words(near).into())),
    };
    marks
        .or_else(|| other_link(kind.link(frame), kind.link(near), side))
        .or_else(|| out_of_step(kind, near, frame, forward))
}

fn other_link(found: Link, expected: Link, side: &str) -> Option<String> {
    (found != expected).then(|| format!("link {found}; expected {expected} as in the frame {side}"))
}

fn out_of_step(kind: FrameKind, near: &[u8], frame: &[u8], forward: bool) -> Option<String> {
    let (found, start) = (kind.timestamp(frame), kind.timestamp(near));
    let next = if forward { start.wrapping_add(kind.ticks()) } else { start.wrapping_sub(kind.ticks()) };
    let next = kind.cut_timestamp(near, next);
    if found != next {
        return Some(format!("timestamp {found}, expected {next}: {} ticks a frame", kind.ticks()));
    }
    if kind == FrameKind::WibEth {
        let step = if forward { 1 } else { wibeth::SEQUENCES - 1 };
        let (found, start) = (wibeth::sequence(frame), wibeth::sequence(near));
        let next = (u64::from(start) + step) % wibeth::SEQUENCES;
        if u64::from(found) != next {
            return Some(format!("sequence number {found}, expected {next}: one more a frame, modulo 4096"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Link = Link { detector: 0, crate_number: 4, slot: 4, stream: 1 };

    fn wib1_frames(n: usize, first: u64) -> Vec<u8> {
        let mut bytes = vec![7; n * wib1::FRAME_BYTES];
        for (at, frame) in bytes.chunks_exact_mut(wib1::FRAME_BYTES).enumerate() {
            wib1::set_header(frame, 1, LINK, first + at as u64 * wib1::TICKS);
        }
        bytes
    }

    fn wibeth_frames(n: usize, sequence: u64) -> Vec<u8> {
        let mut bytes = vec![7; n * wibeth::FRAME_BYTES];
        for (at, frame) in bytes.chunks_exact_mut(wibeth::FRAME_BYTES).enumerate() {
            let at = at as u64;
            wibeth::set_header(frame, 0, Link { detector: 3, ..LINK }, sequence + at, 1000 + at * wibeth::TICKS);
        }
        bytes
    }

    fn message(bytes: &[u8]) -> String {
        let error = detect(bytes).unwrap_err();
        assert_eq!(error.kind(), forebay_core::Kind::Invalid);
        error.message().to_owned()
    }

    #[test]
    fn both_kinds_are_recognised() {
        let found = detect(&wib1_frames(7, 100)).unwrap();
        assert_eq!(found, Recording { kind: FrameKind::Wib1, frames: 7, first_timestamp: 100, link: LINK });
        let found = detect(&wibeth_frames(3, 4094)).unwrap();
        assert_eq!((found.kind, found.frames, found.first_timestamp), (FrameKind::WibEth, 3, 1000));
        // A length that is a multiple of both frame sizes.
        assert_eq!(detect(&wib1_frames(450, 0)).unwrap().kind, FrameKind::Wib1);
        assert_eq!(detect(&wibeth_frames(29, 0)).unwrap().kind, FrameKind::WibEth);
    }

    #[test]
    fn timestamps_may_wrap() {
        let mut bytes = wib1_frames(2, (1 << 63) - 25);
        wib1::set_timestamp(&mut bytes[464..], 0);
        assert_eq!(detect(&bytes).unwrap().frames, 2);
    }

    #[test]
    fn every_break_is_found_at_its_offset() {
        type Break = (&'static str, fn(&mut [u8]));
        let breaks: [Break; 5] = [
            ("sof 9, expected 0", |frame| frame[0] = 9),
            ("version 2, expected 1", |frame| frame[1] = frame[1] & 0xE0 | 2),
            ("z bit 1, expected 0", |frame| frame[15] |= 0x80),
            ("crate 5, slot 4, stream or fiber 1; expected detector 0, crate 4", |frame| {
                frame[2] = frame[2] & 0xE0 | 5
            }),
            ("timestamp 0, expected", |frame| wib1::set_timestamp(frame, 0)),
        ];
        for (expected, spoil) in breaks {
            for at in [0, 1, 2, 5, 9] {
                let mut bytes = wib1_frames(10, 1000);
                spoil(&mut bytes[at * 464..][..464]);
                let found = message(&bytes);
                assert!(found.contains(&format!("frame {at} at byte offset {}: ", at * 464)), "{found}");
                assert!(found.contains(expected), "{found}");
            }
        }
        let breaks: [Break; 5] = [
            ("version 3, expected 0", |frame| frame[0] |= 3),
            ("block length 0, expected 898", |frame| (frame[6], frame[7]) = (frame[6] & 0xF, 0)),
            ("detector 1,", |frame| wibeth::set_link(frame, Link { detector: 1, ..LINK })),
            ("timestamp 5, expected", |frame| wibeth::set_timestamp(frame, 5)),
            ("sequence number 99, expected", |frame| wibeth::set_sequence(frame, 99)),
        ];
        for (expected, spoil) in breaks {
            for at in [0, 1, 4] {
                let mut bytes = wibeth_frames(5, 10);
                spoil(&mut bytes[at * 7200..][..7200]);
                let found = message(&bytes);
                assert!(found.contains(&format!("frame {at} at byte offset {}: ", at * 7200)), "{found}");
                assert!(found.contains(expected), "{found}");
            }
        }
    }

    #[test]
    fn a_lost_frame_is_a_break() {
        let mut bytes = wib1_frames(10, 0);
        bytes.drain(6 * 464..7 * 464);
        assert!(message(&bytes).contains("frame 6 at byte offset 2784: timestamp 175, expected 150"));
    }

    #[test]
    fn cut_files_say_where() {
        let bytes = wib1_frames(5, 0);
        let found = message(&bytes[..bytes.len() - 3]);
        assert!(found.contains("frame 4 at byte offset 1856 has 461 bytes, expected 464"), "{found}");
        let bytes = wibeth_frames(3, 0);
        assert!(message(&bytes[..2 * 7200 + 1]).contains("frame 2 at byte offset 14400 has 1 bytes, expected 7200"));
    }

    #[test]
    fn what_is_neither_says_why_for_both() {
        for bytes in [vec![0; 20_000], vec![0xFF; 464 * 50], b"# not frames\n".repeat(2000)] {
            let found = message(&bytes);
            assert!(found.starts_with("neither WIB1 nor WIBEth frames: as WIB1"), "{found}");
            assert!(found.contains("byte offset 464") && found.contains("byte offset 7200"), "{found}");
        }
        assert!(message(&wib1_frames(1, 0)).contains("464 bytes are less than two frames (928 bytes)"));
        assert_eq!(message(&[]), "no recorded frames: empty");
    }

    #[test]
    fn any_prefix_is_a_recording_or_an_error() {
        let bytes = wibeth_frames(3, 0);
        for len in (0..bytes.len()).step_by(97) {
            assert!(detect(&bytes[..len]).is_err());
        }
    }
    #[test]
    fn any_bytes_are_a_recording_or_an_error() {
        use rand::{RngExt, SeedableRng};
        let mut random = rand::rngs::StdRng::seed_from_u64(4);
        for round in 0..2000 {
            let mut bytes = if round % 2 == 0 { wib1_frames(12, 1 << 40) } else { wibeth_frames(3, 4095) };
            for _ in 0..random.random_range(0..4) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
            bytes.truncate(random.random_range(0..=bytes.len()));
            match detect(&bytes) {
                Ok(found) => assert_eq!(found.frames * found.kind.frame_bytes(), bytes.len()),
                Err(error) => assert_eq!(error.kind(), forebay_core::Kind::Invalid),
            }
        }
    }
}
