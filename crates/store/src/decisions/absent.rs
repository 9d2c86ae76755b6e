//! Decisions about events of devices that are absent.

use super::Superseded;

/// What a log says of events that nothing was found of while a device is not there: every snapshot repeats it, so that the
/// device finds it when it comes back. All are sorted but the marks.
#[derive(Default)]
pub(crate) struct Absent {
    pub(crate) accepted: Vec<(Vec<u8>, u64)>,
    pub(crate) debug: Vec<(Vec<u8>, u64)>,
    pub(crate) marks: Vec<(Vec<u8>, u64)>,
    pub(crate) removed: Vec<(Vec<u8>, bool)>,
    pub(crate) superseded: Vec<(Vec<u8>, Superseded)>,
}

impl Absent {
    /// Whether an event is accepted or in the debug stream.
    pub(crate) fn is_decided(&self, primary: &[u8]) -> bool {
        // Such an event is not in memory, and its late fragments must not make another one.
        has(&self.accepted, primary) || has(&self.debug, primary)
    }

    /// The version of a fragment that is put now: above all that a missing device may have of it.
    pub(crate) fn first_version(&self, key: &[u8], known: u16) -> u16 {
        // One above what the missing device may have: when it comes back, the version put now wins.
        let at = self.superseded.binary_search_by(|(superseded, _)| superseded.as_slice().cmp(key));
        let above = at.map_or(0, |at| self.superseded[at].1.version.saturating_add(1));
        known.max(above).saturating_add(1)
    }

    /// Whether this key of an event was removed.
    pub(crate) fn is_removed(&self, key: &[u8]) -> bool {
        has(&self.removed, key)
    }
}

fn has<T>(sorted: &[(Vec<u8>, T)], wanted: &[u8]) -> bool {
    sorted.binary_search_by(|(known, _)| known.as_slice().cmp(wanted)).is_ok()
}
