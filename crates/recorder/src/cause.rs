//! Why ticks of a link are missing from a recording.

use forebay_core::GapCause;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why nothing was recorded for a stretch of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
// Numbers are on the medium, names are in the manifest: neither changes, new ones are added.
#[repr(u16)]
pub enum GapReason {
    /// The link itself sent nothing: the next frame's timestamp lies further on. No frame was missed.
    NotProduced = 1,
    /// The frames were there and the reader of the link did not come for them in time.
    NotTaken = 2,
    /// All buffers were waiting for the device to the push's deadline: it is slower than the links.
    DeviceSlow = 3,
    /// The device answered nothing for longer than its stall limit.
    DeviceStalled = 4,
    /// A write or sync failed, and no other container or device took the frames.
    DeviceError = 5,
    /// No empty container was left on any device that the link may use.
    DiskFull = 6,
    /// The ring that was recorded had refused the frames: it had no space.
    RingNoSpace = 7,
    /// The ring had refused them: their timestamps could not be right.
    RingSkew = 8,
    /// The ring had refused them: their ticks had been evicted.
    RingTooLate = 9,
    /// The process with the ring was away.
    RingRestart = 10,
    /// The ring had acknowledged them, and they did not survive.
    RingLost = 11,
    /// The ring had given their space away before they were recorded.
    RingGone = 12,
    /// Their bytes did not verify before they were written.
    Corrupt = 13,
    /// They lie before the first that the ring ever had of this source: whether the link sent any is not known.
    RingBefore = 14,
    /// Nothing had come to the ring when they were overdue: whether it came later is not known.
    RingNotYet = 15,
    /// Not known: a rebuilt manifest, and the frame after the gap does not say.
    Unknown = 16,
}

impl GapReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [GapReason; 16] = [
        GapReason::NotProduced,
        GapReason::NotTaken,
        GapReason::DeviceSlow,
        GapReason::DeviceStalled,
        GapReason::DeviceError,
        GapReason::DiskFull,
        GapReason::RingNoSpace,
        GapReason::RingSkew,
        GapReason::RingTooLate,
        GapReason::RingRestart,
        GapReason::RingLost,
        GapReason::RingGone,
        GapReason::Corrupt,
        GapReason::RingBefore,
        GapReason::RingNotYet,
        GapReason::Unknown,
    ];

    /// The reason as people read it.
    pub fn name(self) -> &'static str {
        match self {
            GapReason::NotProduced => "not produced by the link",
            GapReason::NotTaken => "not taken from the link in time",
            GapReason::DeviceSlow => "device too slow",
            GapReason::DeviceStalled => "device stalled",
            GapReason::DeviceError => "device error",
            GapReason::DiskFull => "disk full",
            GapReason::RingNoSpace => "no space in the ring",
            GapReason::RingSkew => "refused by the ring for skew",
            GapReason::RingTooLate => "too late for the ring",
            GapReason::RingRestart => "restart of the ring",
            GapReason::RingLost => "lost by the ring",
            GapReason::RingGone => "gone from the ring",
            GapReason::Corrupt => "bytes did not verify",
            GapReason::RingBefore => "before the ring begins",
            GapReason::RingNotYet => "not in the ring in time",
            GapReason::Unknown => "unknown",
        }
    }

    /// What a ring says of ticks that nothing covers.
    pub fn of_ring(cause: GapCause) -> GapReason {
        match cause {
            // A ring calls it a gap only once later data has come: then the link is known to have gone on without it.
            GapCause::NeverArrived => GapReason::NotProduced,
            GapCause::NoSpace => GapReason::RingNoSpace,
            GapCause::Skew => GapReason::RingSkew,
            GapCause::TooLate => GapReason::RingTooLate,
            GapCause::Restart => GapReason::RingRestart,
            GapCause::Lost => GapReason::RingLost,
        }
    }

    /// Whether frames existed that were not recorded: they count as missed.
    pub fn is_missed(self) -> bool {
        !matches!(self, GapReason::NotProduced | GapReason::RingBefore | GapReason::RingNotYet)
    }

    /// Its number, as the frame after the gap has it on the medium.
    pub(super) fn code(self) -> u16 {
        self as u16
    }

    /// The reason with this number; `Unknown` for numbers that have none.
    pub(super) fn of_code(code: u16) -> GapReason {
        GapReason::ALL.into_iter().find(|reason| reason.code() == code).unwrap_or(GapReason::Unknown)
    }
}

impl fmt::Display for GapReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_their_own() {
        for (at, reason) in GapReason::ALL.into_iter().enumerate() {
            assert_eq!((reason.code() as usize, GapReason::of_code(reason.code())), (at + 1, reason));
            assert_eq!(GapReason::ALL.iter().filter(|other| other.name() == reason.name()).count(), 1);
        }
        assert_eq!([0, 99].map(GapReason::of_code), [GapReason::Unknown; 2]);
    }
}
