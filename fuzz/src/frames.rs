//! Fuzzes the recognition of recorded detector frames: any bytes, and proper recordings with some bytes damaged.

use forebay_daq::frames::{FrameKind, detect};

/// What a packet or file is made of: its kind, frames, ticks between them, a head, damage as (place, byte), and raw bytes.
type Input<'a> = (bool, u8, u64, [u8; 16], Vec<(u16, u8)>, &'a [u8]);

pub(crate) fn target(data: Input<'_>) {
    let (ethernet, frames, ticks, head, damage, bytes) = data;
    check(bytes);

    // Frames with a common header, in step: with any header, they are a recording.
    let kind = if ethernet { FrameKind::WibEth } else { FrameKind::Wib1 };
    let frames = 2 + frames as usize % 4;
    let mut recording = vec![0; frames * kind.frame_bytes()];
    for (at, frame) in recording.chunks_exact_mut(kind.frame_bytes()).enumerate() {
        frame[..16].copy_from_slice(&head);
        let ticks = kind.cut_timestamp(frame, ticks.wrapping_add(at as u64 * kind.ticks()));
        kind.set_timestamp(frame, ticks);
        if ethernet {
            forebay_daq::frames::wibeth::set_sequence(frame, at as u64);
        }
    }
    let found = detect(&recording).unwrap();
    assert_eq!((found.kind, found.frames), (kind, frames));
    assert_eq!(found.first_timestamp, kind.timestamp(&recording));
    for (at, with) in damage {
        let at = at as usize % recording.len();
        recording[at] ^= with;
    }
    check(&recording);
    check(&recording[..recording.len() - 1]);
}

/// A recording covers all of its bytes.
fn check(bytes: &[u8]) {
    if let Ok(found) = detect(bytes) {
        assert_eq!(found.frames * found.kind.frame_bytes(), bytes.len());
    }
}
