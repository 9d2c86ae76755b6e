//! Samplers that wait for decided events, and where verdicts leave events for them.

use forebay_core::{Attributes, Primary, Sampling, SourceStates};
use forebay_media::hot::Location;
use parking_lot::{Condvar, Mutex};
use std::sync::Weak;
use std::sync::atomic::AtomicU32;

/// An event with its chosen records pinned.
pub(crate) struct Pinned {
    pub(crate) primary: Primary,
    pub(crate) state: &'static str,
    pub(crate) stage: u8,
    pub(crate) attributes: Attributes,
    pub(crate) locations: Vec<Location>,
    pub(crate) sources: SourceStates,
    pub(crate) event_fragments: u32,
    pub(crate) event_bytes: u64,
}

/// Where verdicts leave events for one sampler.
pub(crate) struct Mailbox {
    pub(crate) sampling: Sampling,
    pub(crate) stage: Option<u8>,
    pub(crate) slot: Mutex<Slot>,
    pub(crate) filled: Condvar,
}

#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) wanted: bool,
    pub(crate) event: Option<Pinned>,
}

/// Samplers that wait for decided events.
#[derive(Default)]
pub(crate) struct Samplers {
    /// Mailboxes that want an event now.
    pub(crate) wanting: AtomicU32,
    pub(crate) all: Mutex<Vec<Weak<Mailbox>>>,
}
