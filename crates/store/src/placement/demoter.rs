//! Moves between levels in progress: planned events, writers, and what is not durable yet.

use super::Level;
use crate::placement::WarmRecord;
use forebay_core::Primary;
use forebay_media::bytes::{Entry, ImageMarks, Stream};
use forebay_media::hot::Location;
use forebay_media::warm::{Placed, ReadImage, Target, Ticket, Writer};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// One fragment on its way.
pub(crate) struct Part {
    pub(crate) from: Location,
    pub(crate) entry: Entry,
    /// What it was read from, if it is on the warm level already.
    pub(crate) image: Option<Arc<ReadImage>>,
}

/// An event, or some fragments of it, on its way.
pub(crate) struct Moving {
    pub(crate) primary: Primary,
    pub(crate) run: u64,
    pub(crate) stream: Stream,
    pub(crate) marks: ImageMarks,
    pub(crate) parts: Vec<Part>,
    pub(crate) record: Option<WarmRecord>,
    /// Position up to which a device must know what was decided before its image there counts.
    pub(crate) needs: u64,
    /// Payload bytes of its parts, once they are read.
    pub(crate) bytes: u64,
    /// Payload bytes of the whole event.
    pub(crate) event_bytes: u64,
}

/// A moving event with the places of its images, each with the first of its parts.
pub(crate) struct Written {
    pub(crate) moving: Moving,
    pub(crate) places: Vec<(usize, usize, Placed)>,
}

impl Written {
    /// Devices on which its images are.
    pub(crate) fn devices<'a>(&'a self, level: &'a Level) -> impl Iterator<Item = u32> + 'a {
        let placed = self.places.iter().filter_map(|(_, _, placed)| match placed {
            Placed::At(place) => Some(place.container),
            Placed::Rotten(_) | Placed::TooLarge => None,
        });
        placed.map(|container| level.warm.device_of(container))
    }
}

pub(crate) struct Open {
    pub(crate) target: Target,
    pub(crate) writer: Writer,
    pub(crate) pending: VecDeque<(Ticket, u64, Vec<Written>)>,
}

/// The state of demotion: writers to devices, and what they have not made durable yet.
#[derive(Default)]
pub(crate) struct Demoter {
    pub(crate) open: Vec<Open>,
    pub(crate) in_flight: u64,
    pub(crate) compacting: Compacting,
}

impl Demoter {
    /// Whether anything written is not carried out yet.
    pub(crate) fn is_pending(&self) -> bool {
        self.open.iter().any(|open| !open.pending.is_empty())
    }

    /// Payload bytes that are not durable yet.
    pub(crate) fn in_flight(&self) -> u64 {
        // What is forgotten here keeps the demoter waiting for nothing; what is counted twice lets it run too far ahead.
        debug_assert_eq!(
            self.open.iter().flat_map(|open| &open.pending).map(|pending| pending.1).sum::<u64>(),
            self.in_flight,
            "bytes under way are those of pending commits"
        );
        self.in_flight
    }
}

/// State that emptying keeps between rounds.
#[derive(Default)]
pub(crate) struct Compacting {
    /// When a container that could not be read may be emptied again.
    pub(crate) again: Option<Instant>,
    /// Containers that have only copies of what the hot level has, with the number of those: nothing can be moved.
    pub(crate) spared: BTreeMap<u32, u32>,
    /// When those of devices that leave are tried again.
    pub(crate) retried: Option<Instant>,
}
