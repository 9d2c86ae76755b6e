//! The index of a recording, read from its containers: every image by link, era and number, and which ticks it covers.
//!
//! Made from directories and tables alone; no payload is read.
//!
//! *Invariants*: the images of a link are in the order in which the link made them; one that was written twice, because
//! it was not known whether the first time counted, is one image with two places.

use super::books::{in_order, missed_by};
use super::cause::GapReason;
use super::config::LinkConfig;
use super::image::{FrameEntry, names};
use super::limits::SOURCE_BYTES_MAX;
use super::manifest::{Era, LinkManifest, ManifestGap};
use forebay_core::{Error, Result};
use forebay_media::bytes::{ImageHead, TableIter};
use forebay_media::warm::ImagePlace;
use std::collections::HashMap;

/// Frames of one image that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Covered {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) frames: u64,
    /// What the first frame says of the gap before it; 0 for nothing.
    pub(super) gap_code: u16,
}

/// One image.
#[derive(Clone, Debug)]
pub(super) struct ImageEntry {
    pub(super) era: u32,
    pub(super) number: u32,
    pub(super) places: Vec<ImagePlace>,
    /// Of the whole image on the medium.
    pub(super) bytes: u64,
    pub(super) payload_bytes: u64,
    pub(super) covered: Vec<Covered>,
}

impl ImageEntry {
    pub(super) fn frames(&self) -> u64 {
        self.covered.iter().map(|covered| covered.frames).sum()
    }

    pub(super) fn overlaps(&self, begin: u64, end: u64) -> bool {
        self.covered.iter().any(|covered| covered.begin < end && begin < covered.end)
    }
}

/// All images of one link.
#[derive(Debug)]
pub(super) struct LinkIndex {
    pub(super) config: LinkConfig,
    pub(super) images: Vec<ImageEntry>,
}

/// All images of a recording.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) links: Vec<LinkIndex>,
    by_source: HashMap<[u8; SOURCE_BYTES_MAX], usize>,
}

impl Index {
    pub(super) fn new(configs: &[LinkConfig]) -> Index {
        let by_source = configs.iter().enumerate().map(|(at, config)| (config.padded_source(), at)).collect();
        let links = configs.iter().map(|config| LinkIndex { config: config.clone(), images: Vec::new() }).collect();
        Index { links, by_source }
    }

    /// Enters an image as a container has it.
    ///
    /// # Errors
    /// `Corrupt` for one that no recording of these links made.
    pub(super) fn add(
        &mut self,
        place: ImagePlace,
        head: &ImageHead,
        primary: &[u8],
        table: TableIter<'_>,
    ) -> Result<()> {
        if head.void {
            return Ok(());
        }
        let wrong = |what: &str| {
            Error::corrupt(format!("image at {} of container {}: {what}", place.position, place.container))
        };
        let (source, era, number) = names(primary).ok_or_else(|| wrong("its key is not that of a recording"))?;
        let link = self.by_source.get(&source).and_then(|&at| self.links.get_mut(at));
        let link = link.ok_or_else(|| wrong("its source is that of no link"))?;
        let mut covered: Vec<Covered> = Vec::new();
        for (entry, _) in table {
            let frame = FrameEntry::of(&entry).ok_or_else(|| wrong("a tick is not 8 bytes"))?;
            let end = frame.end().ok_or_else(|| wrong("a span past the end of ticks"))?;
            let tick = frame.tick;
            // Tables are in the order of frames; one that goes back would hide frames from every search by ticks.
            match covered.last_mut() {
                Some(last) if tick < last.end => return Err(wrong("its ticks do not go up")),
                Some(last) if last.end == tick => (last.end, last.frames) = (end, last.frames + 1),
                _ => covered.push(Covered { begin: tick, end, frames: 1, gap_code: frame.gap_code }),
            }
        }
        // Containers are told in the order in which they began to be filled, images of one link may come from several of them.
        let at = link.images.partition_point(|known| (known.era, known.number) < (era, number));
        if let Some(known) = link.images.get_mut(at)
            && (known.era, known.number) == (era, number)
        {
            // Written twice, because the first commit failed without word of whether it counted: either copy may be whole.
            known.places.push(place);
            return Ok(());
        }
        let (bytes, payload_bytes) = (head.bytes, head.payload_bytes);
        debug_assert!(payload_bytes <= bytes, "an image with more payload than bytes");
        link.images.insert(at, ImageEntry { era, number, places: vec![place], bytes, payload_bytes, covered });
        Ok(())
    }
}

impl LinkIndex {
    /// Frames and payload bytes.
    pub(super) fn recorded(&self) -> (u64, u64) {
        self.images.iter().fold((0, 0), |sum, image| (sum.0 + image.frames(), sum.1 + image.payload_bytes))
    }

    /// All stretches, with their era, in the order in which the link made them.
    pub(super) fn covered(&self) -> impl Iterator<Item = (u32, Covered)> + '_ {
        self.images.iter().flat_map(|image| image.covered.iter().map(|covered| (image.era, *covered)))
    }

    /// What can be said of the link without a manifest.
    pub(super) fn rebuilt(&self) -> LinkManifest {
        let mut eras: Vec<Era> = Vec::new();
        let mut gaps = Vec::new();
        let step = u64::from(self.config.ticks_per_frame.max(1));
        for (era, covered) in self.covered() {
            // Eras of which nothing was recorded are empty; they keep their numbers, which are in the keys of later images.
            while eras.len() <= era as usize {
                eras.push(Era { begin: covered.begin, end: covered.begin });
            }
            let Some(known) = eras.get_mut(era as usize) else { continue };
            // The frame after a gap says why; at the end of a link nothing follows, so its end is unknown.
            if covered.begin > known.end {
                let (begin, end) = (known.end, covered.begin);
                let frames = ((end - begin) / step).max(1);
                let reason = GapReason::of_code(covered.gap_code);
                gaps.push(ManifestGap { era, begin, end, reason, frames, stretches: 1 });
            }
            known.end = known.end.max(covered.end);
        }
        let gaps = in_order(gaps);
        let (recorded, recorded_bytes) = self.recorded();
        let missed_by = missed_by(&gaps);
        let missed = missed_by.values().sum();
        let unknown_from = Some(eras.last().map_or(0, |era| era.end));
        LinkManifest {
            config: self.config.clone(),
            produced: recorded + missed,
            recorded,
            recorded_bytes,
            missed,
            missed_by,
            eras,
            gaps,
            unknown_from,
        }
    }
}
