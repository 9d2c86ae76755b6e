//! A hold: which events are kept back from delivery.

use forebay_core::Filter;

/// One hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hold {
    pub(crate) id: u32,
    pub(crate) run: Option<u64>,
    pub(crate) conditions: Vec<String>,
    pub(crate) filter: Filter,
}
