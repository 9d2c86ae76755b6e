//! One link of a recording: its frames go into an image, whole images go to its device.
//!
//! *Invariants*: every frame that is pushed is written or missed with a reason; ticks between frames that nobody pushed
//! are a gap (test `every_tick_is_covered_or_a_gap`). A push waits at most its deadline, once: while frames are missed,
//! later ones do not wait.

use super::books::Books;
use super::cause::GapReason;
use super::image::Image;
use super::limits::ERAS_MAX;
use super::manifest::ManifestGap;
use super::recorder::Recorder;
use forebay_core::{Error, Result};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Frames missed in a row after which they are added to the account, for watchers.
const REPORT_FRAMES: u64 = 1024;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// Taken: it is written with its image, and recorded once that is durable. Where that fails in the end, the manifest
    /// says so.
    Written,
    /// Not taken; the gap is entered with this reason.
    Missed(GapReason),
}

/// A link of a recording, for the one thread that reads it out. Dropping it hands over what it holds.
pub struct RecordingLink {
    recorder: Arc<Recorder>,
    books: Arc<Books>,
    number: u32,
    /// Its device.
    home: usize,
    era: u32,
    /// The tick after the newest frame.
    next: Option<u64>,
    image: Option<Image>,
    images: u32,
    /// The gap that is still growing.
    gap: Option<ManifestGap>,
    /// What the next frame says of the gap before it.
    gap_code: u16,
    /// The last frame was missed.
    missing: bool,
    /// Every push waits so long, also after one that was missed.
    patience: Option<Duration>,
    payload_max: usize,
}

impl RecordingLink {
    pub(super) fn new(recorder: Arc<Recorder>, books: Arc<Books>, number: u32, home: usize) -> RecordingLink {
        recorder.held.fetch_add(1, Ordering::AcqRel);
        let payload_max = Image::payload_max(recorder.config.extent_bytes);
        RecordingLink {
            recorder,
            books,
            number,
            home,
            era: 0,
            next: None,
            image: None,
            images: 0,
            gap: None,
            gap_code: 0,
            missing: false,
            patience: None,
            payload_max,
        }
    }

    /// Its number in the recording, from 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Each push waits up to this time for a buffer, also after a push that waited in vain. For sources that can wait,
    /// unlike detectors.
    pub fn wait_for_device(&mut self, patience: Duration) {
        self.patience = Some(patience);
    }

    /// Longest payload of a frame, in bytes.
    pub fn payload_bytes_max(&self) -> usize {
        self.payload_max
    }

    /// Records a frame that covers `span_ticks` from `first_tick` on. Where its tick lies past the end of the frame before,
    /// the ticks between them are a gap that the link did not produce; where it lies before that, the link's clock has
    /// stepped back, and an era begins.
    ///
    /// # Errors
    /// `Invalid` for no span, ticks past the end of 64 bits, a payload longer than [`RecordingLink::payload_bytes_max`], or a
    /// clock that stepped back too often; `Closed` where the recording has ended. Nothing is entered then.
    pub fn push(&mut self, first_tick: u64, span_ticks: u32, payload: &[u8]) -> Result<Pushed> {
        self.push_with(first_tick, span_ticks, payload.len(), |bytes| bytes.copy_from_slice(payload))
    }

    /// As [`RecordingLink::push`], where `fill` writes the frame's bytes to where the device takes them from. It is not called
    /// for a frame that is missed.
    ///
    /// # Errors
    /// As [`RecordingLink::push`].
    #[inline]
    pub fn push_with(
        &mut self,
        first_tick: u64,
        span_ticks: u32,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Pushed> {
        if length > self.payload_max {
            let message = format!("a frame of {length} bytes: at most {} fit an extent", self.payload_max);
            return Err(self.named(Error::invalid(message)));
        }
        // The clock moves also for a frame that is missed: its ticks are entered, and none is a gap twice.
        let end = self.advance(first_tick, first_tick.checked_add(u64::from(span_ticks)))?;
        // A detector does not wait: without a buffer by the deadline the frame is missed, and the next one does not wait at all,
        // or the link would fall behind by a deadline for each frame.
        if let Err(reason) = self.place(length) {
            self.missing = true;
            self.enter(first_tick, end, 1, reason);
            return Ok(Pushed::Missed(reason));
        }
        self.missing = false;
        self.flush_gap();
        if let Some(image) = &mut self.image {
            image.add(first_tick, span_ticks, std::mem::take(&mut self.gap_code), length, fill);
        }
        Ok(Pushed::Written)
    }

    /// Enters frames that the link produced and its reader did not get: `[begin, end)` in ticks.
    ///
    /// # Errors
    /// As [`RecordingLink::push`]; `Invalid` also for a reason that misses nothing, or no frames.
    pub fn missed(&mut self, begin: u64, end: u64, frames: u64, reason: GapReason) -> Result<()> {
        if !reason.is_missed() || frames == 0 {
            return Err(self.named(Error::invalid(format!("{frames} frames missed, reason `{reason}`"))));
        }
        let end = self.advance(begin, Some(end))?;
        self.enter(begin, end, frames, reason);
        Ok(())
    }

    /// Enters ticks in which the link sent nothing, where its next frame will not tell: at its end, or in a source that
    /// knows.
    ///
    /// # Errors
    /// As [`RecordingLink::push`].
    pub fn silent(&mut self, begin: u64, end: u64) -> Result<()> {
        self.absent(begin, end, GapReason::NotProduced)
    }

    /// Enters ticks without frames that are known of, for a reason that misses nothing.
    ///
    /// # Errors
    /// As [`RecordingLink::push`].
    pub fn absent(&mut self, begin: u64, end: u64, reason: GapReason) -> Result<()> {
        let end = self.advance(begin, Some(end))?;
        let frames = self.frames_in(begin, end);
        self.enter(begin, end, frames, reason);
        Ok(())
    }

    /// Hands what is held to the device, even if it is little.
    pub fn flush(&mut self) {
        self.hand_over();
        self.flush_gap();
    }

    /// Moves the link's clock; `[begin, end)` comes next. Answers the end.
    fn advance(&mut self, begin: u64, end: Option<u64>) -> Result<u64> {
        if self.recorder.is_closing() {
            return Err(self.named(Error::closed("the recording has ended")));
        }
        // A frame without ticks could be neither found by a window nor missed by a gap.
        let Some(end) = end.filter(|&end| end > begin) else {
            return Err(self.named(Error::invalid(format!("no ticks from {begin} on, or past the end of 64 bits"))));
        };
        match self.next {
            Some(next) if begin > next => {
                // Entered although nobody said so: every tick between two frames is covered or a gap.
                let frames = self.frames_in(next, begin);
                self.enter(next, begin, frames, GapReason::NotProduced);
            }
            Some(next) if begin < next => {
                if self.era as usize + 1 >= ERAS_MAX {
                    let message = format!("its clock stepped back from {next} to {begin}, the {ERAS_MAX}th time");
                    return Err(self.named(Error::invalid(message)));
                }
                // Frames of an image are of one era: within it ticks only go up, so that an image can be searched.
                self.flush();
                self.gap_code = 0;
                self.era = self.books.begin_era(begin);
            }
            Some(_) => {}
            None => self.era = self.books.begin_era(begin),
        }
        // Before the frame is taken or missed: whichever it is, its ticks are spoken for.
        self.next = Some(end);
        Ok(end)
    }

    /// The tick after the newest frame or gap; `None` before the first.
    pub fn next_tick(&self) -> Option<u64> {
        self.next
    }

    /// Frames that fit, at least one.
    pub fn frames_in(&self, begin: u64, end: u64) -> u64 {
        debug_assert!(begin <= end, "ticks from {begin} to {end}");
        ((end - begin) / u64::from(self.books.config.ticks_per_frame)).max(1)
    }

    fn enter(&mut self, begin: u64, end: u64, frames: u64, reason: GapReason) {
        // The frame after a gap carries its reason, so that a manifest can be rebuilt without the process that recorded. One
        // code has room for one reason: of several, none would be true.
        self.gap_code = match self.gap_code {
            0 => reason.code(),
            code if code == reason.code() => code,
            _ => GapReason::Unknown.code(),
        };
        // Kept here while it grows: the account's lock is not taken for each frame that is missed in a row.
        match &mut self.gap {
            Some(gap) if gap.reason == reason && gap.end == begin => {
                gap.end = end;
                gap.frames += frames;
            }
            _ => {
                self.flush_gap();
                self.gap = Some(ManifestGap { era: self.era, begin, end, reason, frames, stretches: 1 });
            }
        }
        if self.gap.is_some_and(|gap| gap.frames >= REPORT_FRAMES) {
            self.flush_gap();
        }
    }

    #[inline]
    fn flush_gap(&mut self) {
        if let Some(gap) = self.gap.take() {
            self.books.gap(gap);
        }
    }

    /// Makes room for a frame in the image.
    #[inline]
    fn place(&mut self, length: usize) -> std::result::Result<(), GapReason> {
        let age_max = self.recorder.config.commit_every / 2;
        match &self.image {
            Some(image) if image.has_room(length) && image.began.elapsed() < age_max => Ok(()),
            _ => self.next_image(),
        }
    }

    fn next_image(&mut self) -> std::result::Result<(), GapReason> {
        self.hand_over();
        let config = &self.recorder.config;
        let lane = self.recorder.lane_for(self.home)?;
        let wait = self.patience.or((!self.missing).then_some(config.push_deadline));
        let deadline = wait.map(|wait| Instant::now() + wait);
        let buffer = lane.pool.take(deadline).ok_or_else(|| lane.reason(self.recorder.now_ns(), config.stall))?;
        self.image = Some(Image::new(self.number, &self.books.config.source, self.era, self.images, buffer));
        Ok(())
    }

    fn hand_over(&mut self) {
        let Some(mut image) = self.image.take() else { return };
        if image.frames.is_empty() {
            return;
        }
        debug_assert_eq!(image.number, self.images, "images are handed over in the order of their numbers");
        self.images += 1;
        // Booked before the lane has it: it may be durable before this thread goes on.
        self.books.handed_over(image.number, std::mem::take(&mut image.contents));
        self.recorder.outstanding.fetch_add(1, Ordering::AcqRel);
        // Counted before the lane has it, or the lane could end on a count of zero. A device that failed meanwhile passes it on, or enters why it is missed.
        let lane = self.recorder.lane_for(self.home).ok().or_else(|| self.recorder.lanes.get(self.home));
        match lane {
            Some(lane) => lane.take(image, self.recorder.now_ns()),
            None => {
                self.books.failed(image.number, GapReason::DeviceError);
                self.recorder.outstanding.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    fn named(&self, error: Error) -> Error {
        Error::new(error.kind(), format!("link `{}`: {}", self.books.config.name, error.message()))
    }
}

impl Drop for RecordingLink {
    fn drop(&mut self) {
        self.flush();
        // Last: `finish` ends the lanes once nobody holds a link, and everything must have been handed over by then.
        self.recorder.held.fetch_sub(1, Ordering::AcqRel);
    }
}

impl fmt::Debug for RecordingLink {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RecordingLink({}, `{}`, next tick {:?})", self.number, self.books.config.name, self.next)
    }
}
