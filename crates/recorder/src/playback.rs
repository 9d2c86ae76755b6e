//! A recording that is read back: its account, its frames by window, and whether the two fit.
//!
//! *On failure*: opening fails closed where a device or committed data is missing. Where the process that recorded wrote no
//! manifest, one is made from the containers: what was durable is there, and `unknown_from` says from which tick on a
//! link's end is unknown.

use super::files;
use super::index::Index;
use super::manifest::{DeviceManifest, GapManifest, LinkManifest};
use super::verify::Continuity;
use super::window::RecordedFrames;
use forebay_core::{Error, Result};
use forebay_media::warm::Warm;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A recording, open for reading.
pub struct Playback {
    pub(super) warm: Arc<Warm>,
    pub(super) index: Index,
    manifest: GapManifest,
    losses: Vec<String>,
}

impl Playback {
    pub(super) fn new(warm: Arc<Warm>, index: Index, manifest: GapManifest, losses: Vec<String>) -> Playback {
        Playback { warm, index, manifest, losses }
    }

    /// What was durable and is not there, by name; empty unless the loss was accepted.
    pub fn losses(&self) -> &[String] {
        &self.losses
    }

    /// The account: as it was written, or rebuilt.
    pub fn manifest(&self) -> &GapManifest {
        &self.manifest
    }

    /// Number of the link with this source.
    pub fn link_of(&self, source: &[u8]) -> Option<u32> {
        self.manifest.links.iter().position(|link| link.config.source == source).map(|at| at as u32)
    }

    /// The first tick that is recorded of these links, and the one after the last.
    ///
    /// # Errors
    /// `Invalid` for a link that is not there.
    pub fn ticks(&self, links: &[u32]) -> Result<Option<(u64, u64)>> {
        self.check(links)?;
        let of_links = links.iter().filter_map(|&link| self.index.links.get(link as usize));
        let stretches = of_links.flat_map(|link| link.covered().map(|(_, covered)| (covered.begin, covered.end)));
        Ok(stretches.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1))))
    }

    /// Frames that overlap `[begin, end)`, link after link in the order given, each link in time order (of several eras:
    /// one after the other). Each frame's bytes are compared with their checksum; one that does not verify is an error in
    /// its place, and those after it come nevertheless.
    ///
    /// # Errors
    /// `Invalid` for a link that is not there or a window that ends before it begins. Frames: `Corrupt`, and `Unavailable`
    /// where a device does not give the bytes.
    pub fn window(&self, begin: u64, end: u64, links: &[u32]) -> Result<RecordedFrames<'_>> {
        self.check(links)?;
        if begin > end {
            return Err(Error::invalid(format!("a window from {begin} to {end} ends before it begins")));
        }
        Ok(RecordedFrames::new(self, begin, end, links))
    }

    /// Compares the ticks that containers cover with what the manifest says is missing, and the numbers of frames and
    /// bytes. Reads no payload: a [`Playback::window`] over everything does.
    pub fn continuity(&self) -> Continuity {
        let mut continuity = Continuity::default();
        for (found, told) in self.index.links.iter().zip(&self.manifest.links) {
            continuity.compare(found, told);
        }
        continuity
    }

    fn check(&self, links: &[u32]) -> Result<()> {
        let count = self.index.links.len();
        match links.iter().find(|&&link| link as usize >= count) {
            Some(link) => {
                Err(Error::invalid(format!("no link {link}: the recording has links 0 to {}", count.max(1) - 1)))
            }
            None => Ok(()),
        }
    }
}

/// The manifest of what is there: as written where it is, made from the images otherwise.
pub(super) fn manifest(
    written: Option<GapManifest>,
    description: &files::Description,
    warm: &Warm,
    index: &Index,
) -> Result<GapManifest> {
    if let Some(manifest) = written {
        // Directories of two recordings that were mixed up: played together they would give frames under wrong links.
        let same = manifest.recording == description.recording
            && manifest.links.iter().map(|link| &link.config).eq(&description.links);
        if !same {
            return Err(Error::corrupt("the manifest is that of another recording, or of other links"));
        }
        return Ok(manifest);
    }
    let links: Vec<LinkManifest> = index.links.iter().map(super::index::LinkIndex::rebuilt).collect();
    Ok(GapManifest {
        recording: description.recording,
        name: description.name.clone(),
        run: description.run,
        rebuilt: true,
        totals: GapManifest::sum(&links),
        devices: devices(warm, index),
        links,
    })
}

fn devices(warm: &Warm, index: &Index) -> Vec<DeviceManifest> {
    let mut on_device: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let of_container: BTreeMap<u32, u32> =
        warm.containers().iter().map(|container| (container.header.container, container.header.device)).collect();
    for image in index.links.iter().flat_map(|link| &link.images) {
        // An image that was written twice counts once, where it was written first.
        let device = image.places.first().and_then(|place| of_container.get(&place.container));
        let sum = on_device.entry(device.copied().unwrap_or_default()).or_default();
        *sum = (sum.0 + image.frames(), sum.1 + image.payload_bytes);
    }
    let device = |(at, device): (usize, forebay_media::warm::DeviceInfo)| {
        let (recorded, recorded_bytes) = on_device.get(&(at as u32)).copied().unwrap_or_default();
        let containers = of_container.values().filter(|&&of| of as usize == at).count() as u32;
        DeviceManifest {
            directory: device.name,
            method: device.method,
            containers,
            bytes: u64::from(containers) * warm.shape().container_bytes,
            recorded,
            recorded_bytes,
            failure: None,
        }
    };
    warm.devices().into_iter().enumerate().map(device).collect()
}

impl fmt::Debug for Playback {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Playback(`{}`, {:?})", self.manifest.name, self.manifest.totals)
    }
}
