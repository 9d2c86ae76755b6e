//! A window of a recording: frames of chosen links, each verified, one read per extent.

use super::image::FrameEntry;
use super::index::ImageEntry;
use super::playback::Playback;
use forebay_core::{Error, Result};
use forebay_media::warm::ReadImage;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// One frame of a recording. Its bytes stay while it lives.
pub struct RecordedFrame {
    /// Number of its link.
    pub link: u32,
    /// The link's era.
    pub era: u32,
    /// First tick.
    pub tick: u64,
    /// Ticks covered.
    pub span: u32,
    image: Arc<ReadImage>,
    range: Range<usize>,
}

impl RecordedFrame {
    /// The payload; it has been compared with its checksum.
    pub fn bytes(&self) -> &[u8] {
        self.image.bytes().get(self.range.clone()).unwrap_or_default()
    }
}

impl fmt::Debug for RecordedFrame {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RecordedFrame(link {}, {} + {}, {} bytes)", self.link, self.tick, self.span, self.range.len())
    }
}

/// Frames that overlap a window, link after link, each link in its order.
pub struct RecordedFrames<'a> {
    playback: &'a Playback,
    begin: u64,
    end: u64,
    links: VecDeque<u32>,
    /// The next image of the first link.
    next: usize,
    frames: VecDeque<Result<RecordedFrame>>,
}

impl<'a> RecordedFrames<'a> {
    pub(super) fn new(playback: &'a Playback, begin: u64, end: u64, links: &[u32]) -> RecordedFrames<'a> {
        // Nothing overlaps a window of no ticks; searched for, every image of every link would be looked at.
        let links = if begin < end { links.iter().copied().collect() } else { VecDeque::new() };
        RecordedFrames { playback, begin, end, links, next: 0, frames: VecDeque::new() }
    }

    /// Reads the next image that overlaps; `false` if none is left.
    fn read(&mut self) -> bool {
        while let Some(&number) = self.links.front() {
            let images = self.playback.index.links.get(number as usize).map_or(&[][..], |link| &link.images);
            let of_link = images.iter().enumerate().skip(self.next);
            let Some((at, image)) = of_link.into_iter().find(|(_, image)| image.overlaps(self.begin, self.end)) else {
                self.links.pop_front();
                self.next = 0;
                continue;
            };
            // One image at a time: a window of hours must not need the memory of hours.
            self.next = at + 1;
            self.take(number, image);
            return true;
        }
        false
    }

    /// Takes the frames of an image, from the first place where all of them verify.
    fn take(&mut self, number: u32, entry: &ImageEntry) {
        // Both copies of an image that was written twice are the same frames: one that verifies is enough.
        let mut found = VecDeque::new();
        for place in &entry.places {
            found = match self.playback.warm.read(*place, entry.bytes) {
                Ok(image) => frames(number, entry.era, &image, self.begin, self.end),
                Err(error) => VecDeque::from([Err(error)]),
            };
            if found.iter().all(Result::is_ok) {
                break;
            }
        }
        self.frames = found;
    }
}

/// Frames of an image that overlap the window, each with its bytes verified.
fn frames(link: u32, era: u32, image: &Arc<ReadImage>, begin: u64, end: u64) -> VecDeque<Result<RecordedFrame>> {
    let Some(table) = image.table() else {
        return VecDeque::from([Err(Error::corrupt(format!("link {link}: an image without a table")))]);
    };
    let one = |(entry, offset): (forebay_media::bytes::EntryMeta<'_>, u64)| {
        // The index has read the same table: an entry that is no frame would have been refused by the opening.
        let FrameEntry { tick, span, .. } = FrameEntry::of(&entry)?;
        let overlaps = tick < end && begin < tick.saturating_add(u64::from(span));
        overlaps.then(|| {
            image.payload(&entry, offset)?;
            let range = offset as usize..offset as usize + entry.length as usize;
            Ok(RecordedFrame { link, era, tick, span, image: image.clone(), range })
        })
    };
    table.filter_map(one).collect()
}

impl Iterator for RecordedFrames<'_> {
    type Item = Result<RecordedFrame>;

    fn next(&mut self) -> Option<Result<RecordedFrame>> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Some(frame);
            }
            if !self.read() {
                return None;
            }
        }
    }
}
