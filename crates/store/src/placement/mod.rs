//! The warm level as it is now: what is known of it, and what is under way. Nothing here decides or moves (`levels`).

mod claims;
mod demoter;
mod flushing;
mod gauge;
mod keeper;
mod level;
mod location;
mod persisting;
mod places;
mod record;
mod there;
mod unsettled;

pub(crate) use claims::{CLAIMS_MAX, Claimed, Claims, Custody};
pub(crate) use demoter::{Compacting, Demoter, Moving, Open, Part, Written};
pub(crate) use flushing::{Flushing, Turn};
pub(crate) use keeper::Keeper;
pub(crate) use level::{Added, Level};
pub(crate) use location::{at, place_of, too_large};
pub(crate) use persisting::{Answer, Persisting, Waiting};
pub(crate) use places::{At, Kept, Places, WarmRecord};
pub(crate) use record::RecordHead;
pub(crate) use there::There;
pub(crate) use unsettled::{Awaited, Ticket, Unsettled};

use forebay_media::hot::Hot;
use std::sync::atomic::AtomicU64;

/// Where a store's fragments are: memory, and devices if it has any.
pub(crate) struct Placement {
    pub(crate) hot: Hot,
    /// The warm level, if the store has one.
    pub(crate) level: Option<Level>,
    /// Records that were moved to another segment.
    pub(crate) evacuated: AtomicU64,
}

impl Placement {
    pub(crate) fn new(hot: Hot) -> Placement {
        Placement { hot, level: None, evacuated: AtomicU64::new(0) }
    }
}
