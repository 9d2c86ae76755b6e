//! What people and programs do with a store; one file per operation, named as the call.

mod attributes;
mod conflict;
mod get;
mod inspect;
mod maintain;
mod put;
mod range;
mod remove;
mod runs;
mod seal;
mod select;
mod snapshot;
mod update;

pub(crate) use maintain::spawn;
pub use put::Reservation;
pub use range::Range;
pub use runs::Watch;
pub use select::Lease;
pub(crate) use snapshot::{Folded, FoldedRun, decode_run};
