//! Tells whether a fragment holds detector frames: what a monitor asks of bytes of which it knows nothing.

use super::{FrameKind, detect, wib1, wibeth};

/// The kind of frames that a fragment begins with: whole frames that follow each other, the last one possibly cut; a
/// single one by what its header says of itself. `None` for anything else. Never panics, for any bytes.
pub fn recognise(fragment: &[u8]) -> Option<FrameKind> {
    FrameKind::ALL.into_iter().find(|kind| {
        let whole = fragment.len() / kind.frame_bytes() * kind.frame_bytes();
        match whole / kind.frame_bytes() {
            0 => false,
            1 => fragment.len() == whole && is_one(*kind, fragment),
            _ => detect(&fragment[..whole]).is_ok_and(|found| found.kind == *kind),
        }
    })
}

fn is_one(kind: FrameKind, frame: &[u8]) -> bool {
    let marked = match kind {
        FrameKind::Wib1 => wib1::sof(frame) == 0 && wib1::version(frame) > 0,
        FrameKind::WibEth => u64::from(wibeth::block_words(frame)) == wibeth::BLOCK_WORDS,
    };
    marked && kind.timestamp(frame) > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator;

    #[test]
    fn frames_are_known_and_other_bytes_are_not() {
        let source = emulator::frames(1);
        for bytes in [7200, 14_400, 92 * 7200, 3 * 7200 + 50] {
            let mut fragment = vec![0; bytes];
            source.fill(4, 9, &mut fragment);
            assert_eq!(recognise(&fragment), Some(FrameKind::WibEth), "{bytes}");
        }
        let mut wib1_frame = vec![5; wib1::FRAME_BYTES];
        let link = super::super::Link { detector: 0, crate_number: 1, slot: 2, stream: 3 };
        wib1::set_header(&mut wib1_frame, 1, link, 77);
        assert_eq!(recognise(&wib1_frame), Some(FrameKind::Wib1));
        for bytes in [0, 1, 464, 7199, 7200, 7201, 14_400] {
            assert_eq!(recognise(&vec![0; bytes]), None, "{bytes}");
            assert_eq!(recognise(&vec![0xA5; bytes]), None, "{bytes}");
        }
    }
}
