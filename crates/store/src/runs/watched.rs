//! The sources of a run that maintenance watches.

use super::policy::Policy;
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
    pub(crate) policy: Policy,
}
