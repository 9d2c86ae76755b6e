//! Recorded frames, cycled forever, with timestamps that go on stepping evenly, as real readout emulators do.
//!
//! *Invariants*: regardless of the number of turns, what comes out is one link without a gap (test
//! `turns_of_the_file_join_without_a_gap`).
//!
//! *Not here*: reading and checking the file (`frames`).

use crate::frames::RecordedFrames;
use crate::source::{FrameSource, Links};

/// A stream of recorded frames per source. All sources replay the same link, each from another frame on; timestamps and
/// sequence numbers are rewritten, everything else stays as recorded.
pub fn frames(recorded: RecordedFrames) -> FrameSource {
    let (recording, bytes) = recorded.into_parts();
    FrameSource::new(recording.kind, bytes, recording.first_timestamp, Links::Recorded(recording.link))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{FrameKind, Link, detect, wib1};

    fn recorded(n: usize) -> RecordedFrames {
        let mut bytes = vec![0; n * wib1::FRAME_BYTES];
        for (at, frame) in bytes.chunks_exact_mut(wib1::FRAME_BYTES).enumerate() {
            wib1::set_header(frame, 1, Link { detector: 0, crate_number: 4, slot: 4, stream: 1 }, 500 + at as u64 * 25);
            assert!(wib1::pack(frame, &[at as u16; wib1::CHANNELS]));
        }
        RecordedFrames::from_bytes(bytes).unwrap()
    }

    #[test]
    fn turns_of_the_file_join_without_a_gap() {
        let source = frames(recorded(5));
        let mut stream = Vec::new();
        for event in 0..7 {
            let mut fragment = vec![0; 3 * wib1::FRAME_BYTES];
            source.fill(event, 2, &mut fragment);
            source.check(event, 2, &fragment).unwrap();
            stream.extend(fragment);
        }
        let recording = detect(&stream).unwrap();
        assert_eq!((recording.kind, recording.frames, recording.first_timestamp), (FrameKind::Wib1, 21, 500));
        for (at, frame) in stream.chunks_exact(wib1::FRAME_BYTES).enumerate() {
            // Source 2 begins 2 × 17 frames on, modulo 5.
            assert_eq!(wib1::adc(frame, 200), Some(((at + 34) % 5) as u16));
        }
    }
}
