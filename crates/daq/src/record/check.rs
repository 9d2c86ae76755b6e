//! Holds recorded frames against what they say of themselves: timestamp, link, sequence number.
//!
//! *Not here*: gaps (the recording's own verification).

use crate::frames::{FrameKind, Link, wibeth};
use forebay_core::{Error, Result};

/// Looks at one link's frames as they come out of a recording, in order.
#[derive(Clone, Debug)]
pub struct FrameChecker {
    kind: Option<FrameKind>,
    last: Option<Last>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    end: u64,
    sequence: u16,
    link: Link,
}

impl FrameChecker {
    /// For frames of this format, as a link's description has it; frames of other formats pass unseen.
    pub fn new(format: &str) -> FrameChecker {
        FrameChecker { kind: FrameKind::ALL.into_iter().find(|kind| kind.name() == format), last: None }
    }

    /// Whether it knows the format.
    pub fn knows_format(&self) -> bool {
        self.kind.is_some()
    }

    /// The link's clock has stepped back: what comes next follows nothing.
    pub fn begin_era(&mut self) {
        self.last = None;
    }

    /// Checks what one push recorded: whole frames, each a step after the one before, beginning at `tick`.
    ///
    /// # Errors
    /// `Corrupt`, naming the frame, what it says and what was expected.
    pub fn check(&mut self, tick: u64, span: u32, bytes: &[u8]) -> Result<()> {
        let Some(kind) = self.kind else { return Ok(()) };
        let frames = bytes.chunks_exact(kind.frame_bytes());
        if !frames.remainder().is_empty() || frames.len() as u64 * kind.ticks() != u64::from(span) {
            let (length, name) = (bytes.len(), kind.name());
            return Err(Error::corrupt(format!("tick {tick}: {length} bytes for {span} ticks are no {name} frames")));
        }
        for (at, frame) in frames.enumerate() {
            let begin = tick.wrapping_add(at as u64 * kind.ticks());
            self.check_one(kind, begin, frame)?;
        }
        Ok(())
    }

    fn check_one(&mut self, kind: FrameKind, tick: u64, frame: &[u8]) -> Result<()> {
        let wrong = |what: String| Err(Error::corrupt(format!("frame at tick {tick}: {what}")));
        let (found, expected) = (kind.timestamp(frame), kind.cut_timestamp(frame, tick));
        if found != expected {
            return wrong(format!("its timestamp is {found}, recorded is {expected}"));
        }
        let now =
            Last { end: tick.wrapping_add(kind.ticks()), sequence: wibeth::sequence(frame), link: kind.link(frame) };
        if let Some(last) = self.last {
            if now.link != last.link {
                return wrong(format!("its link is {}, the frame before had {}", now.link, last.link));
            }
            let next = (u64::from(last.sequence) + 1) % wibeth::SEQUENCES;
            if kind == FrameKind::WibEth && last.end == tick && u64::from(now.sequence) != next {
                return wrong(format!("its sequence number is {}, expected {next}", now.sequence));
            }
        }
        self.last = Some(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator;

    #[test]
    fn frames_that_follow_each_other_pass_and_others_are_named() {
        let source = emulator::frames(1);
        let frame = |number: u64, link: u32| {
            let mut bytes = vec![0; 7200];
            source.fill(number, link, &mut bytes);
            (source.timestamp(number), bytes)
        };
        let mut checker = FrameChecker::new("WIBEth");
        assert!(checker.knows_format());
        for number in [0, 1, 2, 9, 10] {
            let (tick, bytes) = frame(number, 3);
            checker.check(tick, 2048, &bytes).unwrap();
        }
        let refused = |checker: &FrameChecker, tick: u64, span: u32, bytes: &[u8], expected: &str| {
            let error = checker.clone().check(tick, span, bytes).unwrap_err();
            assert!(error.message().contains(expected), "{error}");
        };
        let (tick, bytes) = frame(11, 3);
        refused(&checker, tick + 1, 2048, &bytes, "its timestamp is");
        refused(&checker, tick, 2047, &bytes, "are no WIBEth frames");
        refused(&checker, tick, 2048, &bytes[1..], "are no WIBEth frames");
        refused(&checker, tick, 2048, &frame(11, 4).1, "its link is");
        let mut other = bytes.clone();
        wibeth::set_sequence(&mut other, 77);
        refused(&checker, tick, 2048, &other, "its sequence number is 77, expected 11");
        FrameChecker::new("something else").check(1, 1, b"any").unwrap();
    }

    #[test]
    fn superchunks_are_checked_frame_by_frame() {
        let source = emulator::wib1_frames(1);
        let mut bytes = vec![0; 12 * 464];
        source.fill(5, 0, &mut bytes);
        let mut checker = FrameChecker::new("WIB1");
        checker.check(source.timestamp(60), 300, &bytes).unwrap();
        crate::frames::wib1::set_timestamp(&mut bytes[464..], 9);
        assert!(checker.check(source.timestamp(60), 300, &bytes).is_err());
    }
}
