//! Fills fragments with frames, and knows afterwards what must be in them.
//!
//! ```text
//! pool   [frame 0][frame 1] … [frame n-1]           prepared once, by the emulator or from a recording
//! fragment of (event e, source s)
//!        [frame][frame] … [beginning of a frame]    copied from the pool; timestamp, sequence number, link rewritten
//! number  e·k    e·k+1      e·k+k-1                  k = frames per fragment, the last one possibly cut
//! ```
//!
//! *Invariants*: timestamps of a source step evenly from event to event (test `timestamps_step_evenly`); a fragment is a
//! function of (pool, event, source, length), so that a reader can tell what it must be.

use crate::frames::{FrameKind, Link, wib1, wibeth};
use forebay_core::{Error, Result};

/// Pool frames between the starts of neighbouring sources: coprime to powers of two.
const SOURCE_STRIDE: u64 = 17;
/// Time samples of a fragment that the signal search looks at.
const SEARCH_SAMPLES: usize = 8;
/// Lowest excursion, in ADC counts, that counts as a signal: 8 times the noise of a difference of two samples.
const SIGNAL_ADC: u16 = 118;

/// Where links come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Links {
    /// As recorded: every source replays the same link.
    Recorded(Link),
    /// Crate, slot and stream of the header are the source number.
    PerSource,
}

/// What a reader found in a fragment's ADC values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Largest excursion of any channel from its first sample, in ADC counts, over the samples looked at.
    pub excursion: u16,
    /// Whether that is more than noise does.
    pub signal: bool,
}

/// A stream of frames per source, cut into fragments.
pub struct FrameSource {
    kind: FrameKind,
    pool: Vec<u8>,
    frames: u64,
    first_timestamp: u64,
    links: Links,
}

impl std::fmt::Debug for FrameSource {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FrameSource { kind, frames, .. } = self;
        write!(out, "FrameSource({} × {frames})", kind.name())
    }
}

impl FrameSource {
    /// From whole frames; an empty pool is a bug of the caller.
    pub(crate) fn new(kind: FrameKind, pool: Vec<u8>, first_timestamp: u64, links: Links) -> FrameSource {
        let frames = (pool.len() / kind.frame_bytes()) as u64;
        assert!(frames > 0, "a frame source needs frames");
        FrameSource { kind, pool, frames, first_timestamp, links }
    }

    /// What sort of frames.
    pub fn kind(&self) -> FrameKind {
        self.kind
    }

    /// Frames that are prepared and repeated.
    pub fn pool_frames(&self) -> u64 {
        self.frames
    }

    /// Frames that a fragment of this many bytes holds, the last one possibly cut.
    pub fn frames_per_fragment(&self, fragment_bytes: usize) -> u64 {
        fragment_bytes.div_ceil(self.kind.frame_bytes()) as u64
    }

    /// Timestamp of a source's frame by its number in the source's stream, in ticks.
    pub fn timestamp(&self, number: u64) -> u64 {
        self.first_timestamp.wrapping_add(number.wrapping_mul(self.kind.ticks()))
    }

    /// The link that frames of this source name.
    pub fn link(&self, source: u32) -> Link {
        match self.links {
            Links::Recorded(link) => link,
            Links::PerSource => Link {
                detector: 3,
                crate_number: (source >> 12 & 0x3FF) as u16,
                slot: (source >> 8 & 0xF) as u8,
                stream: source as u8,
            },
        }
    }

    /// Fills a fragment of any length: whole frames, and the beginning of one for what is left.
    pub fn fill(&self, event: u64, source: u32, fragment: &mut [u8]) {
        let first = event.wrapping_mul(self.frames_per_fragment(fragment.len()));
        let shift = u64::from(source) * SOURCE_STRIDE;
        let size = self.kind.frame_bytes();
        for (at, frame) in fragment.chunks_mut(size).enumerate() {
            let number = first.wrapping_add(at as u64);
            let from = (number.wrapping_add(shift) % self.frames) as usize * size;
            frame.copy_from_slice(&self.pool[from..from + frame.len()]);
            if frame.len() >= FrameKind::HEADER_BYTES {
                self.stamp(number, source, frame);
            }
        }
    }

    fn stamp(&self, number: u64, source: u32, frame: &mut [u8]) {
        self.kind.set_timestamp(frame, self.timestamp(number));
        if self.kind == FrameKind::WibEth {
            wibeth::set_sequence(frame, number);
            if let Links::PerSource = self.links {
                wibeth::set_link(frame, self.link(source));
            }
        }
    }

    /// Checks every header of a fragment that [`FrameSource::fill`] made.
    ///
    /// # Errors
    /// `Corrupt`, naming the frame, its byte offset, what is there and what was expected.
    pub fn check(&self, event: u64, source: u32, fragment: &[u8]) -> Result<()> {
        let first = event.wrapping_mul(self.frames_per_fragment(fragment.len()));
        let link = self.link(source);
        for (at, frame) in fragment.chunks(self.kind.frame_bytes()).enumerate() {
            if frame.len() < FrameKind::HEADER_BYTES {
                break;
            }
            let number = first.wrapping_add(at as u64);
            let expected = self.kind.cut_timestamp(frame, self.timestamp(number));
            let found = self.kind.timestamp(frame);
            if found != expected {
                return Err(self.wrong(event, source, at, format!("timestamp {found}, expected {expected}")));
            }
            if self.kind.link(frame) != link {
                let text = format!("link {}; expected {link}", self.kind.link(frame));
                return Err(self.wrong(event, source, at, text));
            }
            let sequence = u64::from(wibeth::sequence(frame));
            if self.kind == FrameKind::WibEth && sequence != number % wibeth::SEQUENCES {
                let expected = number % wibeth::SEQUENCES;
                let text = format!("sequence number {sequence}, expected {expected}");
                return Err(self.wrong(event, source, at, text));
            }
        }
        Ok(())
    }

    #[cold]
    fn wrong(&self, event: u64, source: u32, at: usize, what: String) -> Error {
        let offset = at * self.kind.frame_bytes();
        Error::corrupt(format!("event {event}, source {source}: frame {at} at byte offset {offset}: {what}"))
    }

    /// Searches the ADC values of a fragment for a signal: the largest excursion of any channel over a few time samples,
    /// of the first frame (WIBEth) or of the first frames (WIB1). Nothing is found where there are fewer than two samples.
    pub fn search(&self, fragment: &[u8]) -> Activity {
        let mut excursion = 0;
        let mut compare = |first: &[u16], now: &[u16]| {
            let apart = first.iter().zip(now).map(|(first, now)| first.abs_diff(*now)).max();
            excursion = excursion.max(apart.unwrap_or(0));
        };
        match self.kind {
            FrameKind::Wib1 => {
                let mut frames = fragment.chunks_exact(wib1::FRAME_BYTES).filter_map(wib1::unpack);
                if let Some(first) = frames.next() {
                    frames.take(SEARCH_SAMPLES - 1).for_each(|now| compare(&first, &now));
                }
            }
            FrameKind::WibEth => {
                let frame = fragment.get(..wibeth::FRAME_BYTES).unwrap_or_default();
                let step = wibeth::SAMPLES / SEARCH_SAMPLES;
                if let Some(first) = wibeth::sample(frame, 0) {
                    let samples = (step..wibeth::SAMPLES).step_by(step).filter_map(|at| wibeth::sample(frame, at));
                    samples.for_each(|now| compare(&first, &now));
                }
            }
        }
        Activity { excursion, signal: excursion >= SIGNAL_ADC }
    }
}

#[cfg(test)]
mod tests {
    use crate::emulator;
    use crate::frames::{FrameKind, wibeth};

    #[test]
    fn timestamps_step_evenly_across_fragments_of_any_length() {
        let source = emulator::frames(5);
        for (bytes, per_fragment) in [(7200, 1), (10_240, 2), (1000, 1), (21_600, 3)] {
            assert_eq!(source.frames_per_fragment(bytes), per_fragment);
            let mut expected = source.timestamp(per_fragment);
            for event in 1..70 {
                let mut fragment = vec![0; bytes];
                source.fill(event, 4099, &mut fragment);
                for frame in fragment.chunks(7200) {
                    assert_eq!(wibeth::timestamp(frame), expected);
                    expected += wibeth::TICKS;
                }
                source.check(event, 4099, &fragment).unwrap();
            }
        }
    }

    #[test]
    fn a_fragment_of_another_event_or_source_does_not_pass() {
        let source = emulator::frames(5);
        let mut fragment = vec![0; 14_400];
        source.fill(9, 300, &mut fragment);
        for (event, number, expected) in
            [(8, 300, "frame 0 at byte offset 0: timestamp"), (9, 301, "stream or fiber 44")]
        {
            let error = source.check(event, number, &fragment).unwrap_err();
            assert_eq!(error.kind(), forebay_core::Kind::Corrupt);
            assert!(error.message().contains(expected), "{error}");
        }
        wibeth::set_sequence(&mut fragment[7200..], 0);
        let error = source.check(9, 300, &fragment).unwrap_err();
        assert!(error.message().contains("frame 1 at byte offset 7200: sequence number 0, expected 19"), "{error}");
    }

    #[test]
    fn every_length_is_filled() {
        let source = emulator::frames(5);
        for len in [0, 1, 15, 16, 17, 7199, 7201, 7216] {
            let mut fragment = vec![0; len];
            source.fill(1, 1, &mut fragment);
            source.check(1, 1, &fragment).unwrap();
            // The second half of a first header word may be zero, frames are not.
            assert!(len < 100 || fragment.chunks(64).filter(|part| part.len() == 64).all(|part| part != [0; 64]));
        }
        assert_eq!(source.kind(), FrameKind::WibEth);
    }
}
