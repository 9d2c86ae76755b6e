//! Event shapes under names that people know.
//!
//! Totals are published ones; how a total is split into sources is named with it. A profile is what one machine of the
//! experiment would see where an experiment's whole event does not fit into one machine.

use forebay_core::{Error, Result};
use serde::Serialize;

/// A named event shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// ATLAS Phase II: 500 sources of 10 KiB, 5.12 MB an event.
    Atlas,
    /// CMS Phase II: 51 Tb/s at 750 kHz are 8.5 MB an event, here from 500 sources of 17 kB.
    Cms,
    /// ALICE proton–proton: 2.5 MB an event, here from 500 sources of 5 kB.
    AlicePp,
    /// ALICE lead–lead: 86.5 MB an event, 500 sources of 173 kB.
    AlicePbpb,
    /// ALICE time frames: 900 GB/s in frames of 2.8 ms from 250 nodes are 10 MB per node and frame; here 16 of the nodes.
    AliceTf,
    /// DUNE trigger records of one readout unit: 48 links, 3 ms or 92 WIBEth frames each, 31.8 MB a record.
    DuneTr,
    /// DUNE supernova recording of one readout unit: 48 links in slices of 10 ms or 305 WIBEth frames; all is accepted.
    DuneSnb,
}

/// The numbers of a profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shape {
    pub(crate) sources: u32,
    pub(crate) fragment_bytes: usize,
    pub(crate) hot_bytes: u64,
    pub(crate) accept: f64,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Profile; 7] = [
        Profile::Atlas,
        Profile::Cms,
        Profile::AlicePp,
        Profile::AlicePbpb,
        Profile::AliceTf,
        Profile::DuneTr,
        Profile::DuneSnb,
    ];

    /// Name, as the command line takes it.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Atlas => "atlas",
            Profile::Cms => "cms",
            Profile::AlicePp => "alice-pp",
            Profile::AlicePbpb => "alice-pbpb",
            Profile::AliceTf => "alice-tf",
            Profile::DuneTr => "dune-tr",
            Profile::DuneSnb => "dune-snb",
        }
    }

    /// One line for people: sources, bytes and where they come from.
    pub fn describe(self) -> &'static str {
        match self {
            Profile::Atlas => "500 sources of 10 KiB: a Phase II event of 5.12 MB",
            Profile::Cms => "500 sources of 17 kB: a Phase II event of 8.5 MB",
            Profile::AlicePp => "500 sources of 5 kB: a proton–proton event of 2.5 MB",
            Profile::AlicePbpb => "500 sources of 173 kB: a lead–lead event of 86.5 MB",
            Profile::AliceTf => "16 sources of 10 MB: 16 of 250 nodes' parts of a time frame of 2.8 ms",
            Profile::DuneTr => "48 sources of 92 WIBEth frames: a trigger record of 3 ms of one readout unit, 31.8 MB",
            Profile::DuneSnb => "48 sources of 305 WIBEth frames: 10 ms of a supernova recording, 105 MB, all accepted",
        }
    }

    pub(crate) fn shape(self) -> Shape {
        let shape = |sources, fragment_bytes, hot_mib: u64, accept| Shape {
            sources,
            fragment_bytes,
            hot_bytes: hot_mib << 20,
            accept,
        };
        match self {
            Profile::Atlas => shape(500, 10 << 10, 1024, 0.1),
            Profile::Cms => shape(500, 17_000, 1024, 0.1),
            Profile::AlicePp => shape(500, 5_000, 1024, 0.1),
            Profile::AlicePbpb => shape(500, 173_000, 2048, 0.1),
            Profile::AliceTf => shape(16, 10_000_000, 4096, 0.1),
            Profile::DuneTr => shape(48, 92 * 7200, 1024, 0.1),
            Profile::DuneSnb => shape(48, 305 * 7200, 2048, 1.0),
        }
    }
}

impl std::fmt::Display for Profile {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.pad(self.name())
    }
}

impl std::str::FromStr for Profile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.name() == text).ok_or_else(|| {
            let known = Profile::ALL.map(Profile::name).join(", ");
            Error::invalid(format!("no profile `{text}`; known: {known}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{DemoConfig, Plan};

    #[test]
    fn names_lead_back_to_profiles() {
        for profile in Profile::ALL {
            assert_eq!(profile.name().parse::<Profile>().unwrap(), profile);
            assert!(!profile.describe().is_empty());
        }
        let error = "altas".parse::<Profile>().unwrap_err();
        assert!(error.message().contains("atlas, cms, alice-pp"), "{error}");
    }

    #[test]
    fn events_have_the_published_sizes() {
        let event = |profile: Profile| u64::from(profile.shape().sources) * profile.shape().fragment_bytes as u64;
        assert_eq!(event(Profile::Atlas), 500 * 10_240);
        assert_eq!(event(Profile::Cms), 8_500_000);
        assert_eq!(event(Profile::AlicePp), 2_500_000);
        assert_eq!(event(Profile::AlicePbpb), 86_500_000);
        assert_eq!(event(Profile::DuneTr), 31_795_200);
        // 48 links at 219.7 MB/s for 10 ms.
        assert!((event(Profile::DuneSnb) as f64 / (48.0 * 219.7e6 * 0.01) - 1.0).abs() < 0.01);
        // 900 GB/s for 2.8 ms, 16 of 250 nodes.
        assert!((event(Profile::AliceTf) as f64 / (900e9 * 0.0028 * 16.0 / 250.0) - 1.0).abs() < 0.01);
    }

    #[test]
    fn every_profile_fits_its_own_hot_level() {
        for profile in Profile::ALL {
            let plan = Plan::new(&DemoConfig::for_profile(profile)).unwrap();
            assert!(plan.window >= 1 && plan.batch >= 1, "{profile}");
            assert!(plan.segment_bytes as usize > plan.fragment_bytes, "{profile}");
        }
    }
}
