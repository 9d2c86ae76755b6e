//! The manifest of a recording, with what it holds and what it does not: per link every missing stretch of ticks with
//! its reason, and totals that add up to what the links produced.
//!
//! *Invariants* ([`GapManifest::check`], made and read manifests alike): produced = recorded + missed, per link and in
//! all; what a link missed is what its gaps say, reason by reason; the gaps of an era lie in it, in order, apart.
//!
//! *Not here*: the bytes of the file (`json.rs`, docs/format-manifest.md).

use super::cause::GapReason;
use super::config::LinkConfig;
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A stretch of ticks of which nothing was recorded. Half-open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestGap {
    /// The link's era that the ticks belong to.
    pub era: u32,
    /// First tick.
    pub begin: u64,
    /// Tick after the last one.
    pub end: u64,
    /// Why.
    pub reason: GapReason,
    /// Frames that are missing; where the link sent none, those that would have fitted.
    pub frames: u64,
    /// How many stretches this represents: more than 1 only where a link had more gaps than are kept one by one. Then
    /// frames may have been recorded between them.
    pub stretches: u64,
}

/// Ticks of one link that go up. A link whose clock steps back begins a new era.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Era {
    /// First tick of its first frame, recorded or missed.
    pub begin: u64,
    /// Tick after its last frame.
    pub end: u64,
}

/// One link's account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkManifest {
    /// What it is.
    #[serde(flatten)]
    pub config: LinkConfig,
    /// Frames that the link produced, as its reader told.
    pub produced: u64,
    /// Frames that are durable in containers.
    pub recorded: u64,
    /// Payload bytes of the recorded frames.
    pub recorded_bytes: u64,
    /// Frames that were produced and not recorded.
    pub missed: u64,
    /// The same by reason.
    pub missed_by: BTreeMap<GapReason, u64>,
    /// Stretches in which its ticks go up: one, unless its clock stepped back.
    pub eras: Vec<Era>,
    /// All that is missing within the eras, in order.
    pub gaps: Vec<ManifestGap>,
    /// In a rebuilt manifest: the tick from which on nothing is known of this link, neither what it produced nor whether
    /// it went on; `None` where its end is known.
    pub unknown_from: Option<u64>,
}

/// One device's part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceManifest {
    /// The directory.
    pub directory: String,
    /// How it was written.
    pub method: String,
    /// Containers made.
    pub containers: u32,
    /// Bytes for them.
    pub bytes: u64,
    /// Frames recorded on it.
    pub recorded: u64,
    /// Payload bytes recorded on it.
    pub recorded_bytes: u64,
    /// What made it refuse frames, where something did.
    pub failure: Option<String>,
}

/// Frames of all links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Produced by the links.
    pub produced: u64,
    /// Durable in containers.
    pub recorded: u64,
    /// Payload bytes of those.
    pub recorded_bytes: u64,
    /// Produced and not recorded.
    pub missed: u64,
    /// Gaps of all links, those included in which nothing was missed.
    pub gaps: u64,
}

/// The account of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapManifest {
    /// The recording's identity.
    #[serde(with = "super::json::hex16")]
    pub recording: [u8; 16],
    /// Its name.
    pub name: String,
    /// Its run.
    pub run: u64,
    /// Made from the containers, because the process that recorded wrote none: what a link produced after its last
    /// recorded frame is not known, and gaps count the frames that would have fitted.
    pub rebuilt: bool,
    /// All links together.
    pub totals: Totals,
    /// Devices in their order.
    pub devices: Vec<DeviceManifest>,
    /// Links in their order.
    pub links: Vec<LinkManifest>,
}

impl GapManifest {
    /// Sums over the links.
    pub(super) fn sum(links: &[LinkManifest]) -> Totals {
        links.iter().fold(Totals::default(), |sum, link| Totals {
            produced: sum.produced + link.produced,
            recorded: sum.recorded + link.recorded,
            recorded_bytes: sum.recorded_bytes + link.recorded_bytes,
            missed: sum.missed + link.missed,
            gaps: sum.gaps + link.gaps.iter().map(|gap| gap.stretches).sum::<u64>(),
        })
    }

    /// Whether every frame that a link produced is recorded.
    pub fn is_complete(&self) -> bool {
        self.totals.missed == 0 && !self.rebuilt
    }

    /// Compares every sum with its parts.
    ///
    /// # Errors
    /// `Corrupt`, naming link, sum and parts.
    pub fn check(&self) -> Result<()> {
        self.links.iter().try_for_each(LinkManifest::check)?;
        let sum = GapManifest::sum(&self.links);
        if sum != self.totals {
            return Err(Error::corrupt(format!("manifest: totals are {:?}, its links make {sum:?}", self.totals)));
        }
        let on_devices = self.devices.iter().fold((0, 0), |sum: (u64, u64), device| {
            (sum.0.saturating_add(device.recorded), sum.1.saturating_add(device.recorded_bytes))
        });
        if on_devices != (sum.recorded, sum.recorded_bytes) {
            return Err(Error::corrupt(format!(
                "manifest: devices hold {} frames of {} bytes, links {} of {}",
                on_devices.0, on_devices.1, sum.recorded, sum.recorded_bytes
            )));
        }
        Ok(())
    }
}

impl LinkManifest {
    fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::corrupt(format!("manifest, link `{}`: {what}", self.config.name)));
        if self.recorded.checked_add(self.missed) != Some(self.produced) {
            return wrong(format!(
                "produced {} is not recorded {} and missed {}",
                self.produced, self.recorded, self.missed
            ));
        }
        let mut by: BTreeMap<GapReason, u64> = BTreeMap::new();
        for gap in self.gaps.iter().filter(|gap| gap.reason.is_missed()) {
            let sum = by.entry(gap.reason).or_default();
            *sum = sum.saturating_add(gap.frames);
        }
        if by != self.missed_by || by.values().fold(0, |sum: u64, &frames| sum.saturating_add(frames)) != self.missed {
            return wrong(format!("missed {} by {:?}, its gaps say {by:?}", self.missed, self.missed_by));
        }
        for gap in &self.gaps {
            let Some(era) = self.eras.get(gap.era as usize) else { return wrong(format!("{gap:?} is of no era")) };
            if gap.begin >= gap.end || gap.begin < era.begin || gap.end > era.end || gap.stretches == 0 {
                return wrong(format!("{gap:?} does not lie in {era:?}"));
            }
        }
        // A gap that replaces several may reach over others: it is left out of the order, not of the sums.
        let mut last: Option<&ManifestGap> = None;
        for gap in self.gaps.iter().filter(|gap| gap.stretches == 1) {
            match last {
                Some(last) if (last.era, last.end) > (gap.era, gap.begin) => {
                    return wrong(format!("{last:?} and {gap:?} overlap or are out of order"));
                }
                _ => last = Some(gap),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A manifest of one link that missed 3 of 10 frames of 100 ticks in two gaps, and sent nothing in a third.
    pub(crate) fn example() -> GapManifest {
        let gap = |begin, end, reason, frames| ManifestGap { era: 0, begin, end, reason, frames, stretches: 1 };
        let link = LinkManifest {
            config: LinkConfig {
                source: vec![0, 7],
                name: "link 7".into(),
                format: "WIBEth".into(),
                ticks_per_frame: 100,
                ticks_per_second: 62_500_000,
                device: Some(0),
            },
            produced: 10,
            recorded: 7,
            recorded_bytes: 700,
            missed: 3,
            missed_by: BTreeMap::from([(GapReason::DeviceSlow, 2), (GapReason::NotTaken, 1)]),
            eras: vec![Era { begin: 1000, end: 2500 }],
            gaps: vec![
                gap(1200, 1400, GapReason::DeviceSlow, 2),
                gap(1500, 2000, GapReason::NotProduced, 5),
                gap(2000, 2100, GapReason::NotTaken, 1),
            ],
            unknown_from: None,
        };
        let device = DeviceManifest {
            directory: "/data/a".into(),
            method: "io_uring, direct".into(),
            containers: 4,
            bytes: 4 << 30,
            recorded: 7,
            recorded_bytes: 700,
            failure: None,
        };
        GapManifest {
            recording: [0xAB; 16],
            name: "test".into(),
            run: 5,
            rebuilt: false,
            totals: GapManifest::sum(std::slice::from_ref(&link)),
            devices: vec![device],
            links: vec![link],
        }
    }

    #[test]
    fn sums_that_do_not_add_up_are_named() {
        let good = example();
        good.check().unwrap();
        assert!(!good.is_complete());
        type Change = fn(&mut GapManifest);
        let changes: [(Change, &str); 8] = [
            (|m| m.links[0].produced += 1, "produced 11 is not recorded 7 and missed 3"),
            (|m| m.links[0].gaps[0].frames = 1, "its gaps say"),
            (|m| m.links[0].missed_by.clear(), "its gaps say"),
            (|m| m.totals.recorded_bytes += 1, "totals are"),
            (|m| m.devices[0].recorded -= 1, "devices hold 6 frames"),
            (|m| m.links[0].gaps[0].end = 1501, "overlap or are out of order"),
            (|m| m.links[0].gaps[2].era = 1, "is of no era"),
            (|m| m.links[0].gaps[2].end = 2501, "does not lie in"),
        ];
        for (change, expected) in changes {
            let mut manifest = example();
            change(&mut manifest);
            let error = manifest.check().unwrap_err();
            assert!(error.message().contains(expected), "{error}");
        }
    }
}
