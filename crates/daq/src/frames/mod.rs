//! Detector frames as DUNE records them: two kinds, their headers and ADC values, and files of them.
//!
//! ```text
//! file ─▶ detect ─▶ Recording (kind, frames, link, first timestamp)        wib1, wibeth: the bytes of one frame
//! ```
//!
//! *Invariants*: no function here panics on any bytes; a [`Recording`] exists only for bytes in which every frame follows
//! the one before (test `every_break_is_found_at_its_offset`).
//!
//! *Not here*: the makers of frames (`emulator`, `replay`), how they fill fragments (`FrameSource`).

mod bits;
mod detect;
mod input;
mod recognise;
pub mod wib1;
pub mod wibeth;

pub use detect::{Recording, detect};
pub use input::RecordedFrames;
pub use recognise::recognise;

use serde::Serialize;

/// What sort of frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameKind {
    /// ProtoDUNE WIB1, 464 bytes.
    Wib1,
    /// DUNE WIBEth, 7200 bytes.
    WibEth,
}

/// The detector link that a frame came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Detector number (WIBEth); 0 for WIB1, which has none.
    pub detector: u8,
    /// Crate number.
    pub crate_number: u16,
    /// Slot in the crate.
    pub slot: u8,
    /// Stream (WIBEth) or fiber (WIB1) of the board.
    pub stream: u8,
}

impl std::fmt::Display for Link {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Link { detector, crate_number, slot, stream } = self;
        write!(out, "detector {detector}, crate {crate_number}, slot {slot}, stream or fiber {stream}")
    }
}

impl FrameKind {
    /// Both kinds.
    pub const ALL: [FrameKind; 2] = [FrameKind::Wib1, FrameKind::WibEth];
    /// Bytes at the start of a frame of either kind that hold link, sequence number and timestamp.
    pub const HEADER_BYTES: usize = 16;

    /// Name, as DUNE writes it.
    pub fn name(self) -> &'static str {
        match self {
            FrameKind::Wib1 => "WIB1",
            FrameKind::WibEth => "WIBEth",
        }
    }

    /// Bytes of one frame.
    pub fn frame_bytes(self) -> usize {
        match self {
            FrameKind::Wib1 => wib1::FRAME_BYTES,
            FrameKind::WibEth => wibeth::FRAME_BYTES,
        }
    }

    /// Ticks from one frame of a link to the next (WIB1: 50 MHz, WIBEth: 62.5 MHz).
    pub fn ticks(self) -> u64 {
        match self {
            FrameKind::Wib1 => wib1::TICKS,
            FrameKind::WibEth => wibeth::TICKS,
        }
    }

    /// Timestamp of a frame, in ticks; needs the header only.
    pub fn timestamp(self, frame: &[u8]) -> u64 {
        match self {
            FrameKind::Wib1 => wib1::timestamp(frame),
            FrameKind::WibEth => wibeth::timestamp(frame),
        }
    }

    /// A timestamp cut to the bits that this frame has (WIB1: 63 or 48).
    pub fn cut_timestamp(self, frame: &[u8], ticks: u64) -> u64 {
        match self {
            FrameKind::Wib1 => ticks & (u64::MAX >> (64 - wib1::timestamp_bits(frame))),
            FrameKind::WibEth => ticks,
        }
    }

    /// Replaces the timestamp; needs the header only.
    pub fn set_timestamp(self, frame: &mut [u8], ticks: u64) {
        match self {
            FrameKind::Wib1 => wib1::set_timestamp(frame, ticks),
            FrameKind::WibEth => wibeth::set_timestamp(frame, ticks),
        }
    }

    /// The link of a frame; needs the header only.
    pub fn link(self, frame: &[u8]) -> Link {
        match self {
            FrameKind::Wib1 => wib1::link(frame),
            FrameKind::WibEth => wibeth::link(frame),
        }
    }
}
