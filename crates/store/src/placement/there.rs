//! The content of the warm level at an opening.

use forebay_media::warm::{Found, LogSlots};

/// The content of the warm level, as its devices have it.
pub(crate) struct There {
    pub(crate) found: Found,
    /// Slots of the devices' decision logs.
    pub(crate) decisions: Vec<LogSlots>,
    /// What was damaged, and the operator accepted.
    pub(crate) losses: Vec<String>,
    /// The store was closed in order: figures of sources include what is there.
    pub(crate) figures_kept: bool,
}
