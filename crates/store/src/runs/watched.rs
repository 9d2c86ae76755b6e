//! The sources of a run that maintenance watches.

use std::collections::BTreeMap;

/// One source as maintenance sees it, over all shards.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watching {
    pub(crate) fragments: u64,
    pub(crate) rate_hz: f64,
    pub(crate) last_ns: Option<u64>,
}

/// What maintenance knows of the sources of one run.
#[derive(Default)]
pub(crate) struct Watched {
    pub(crate) looked_ns: Option<u64>,
    pub(crate) sources: BTreeMap<Vec<u8>, Watching>,
    /// Misses in a row, with the fragments there were at the last of them.
    pub(crate) misses: BTreeMap<Vec<u8>, (u32, u64)>,
    /// Fragments that there were when a source was masked by the policy.
    pub(crate) masked_at: BTreeMap<Vec<u8>, u64>,
}
