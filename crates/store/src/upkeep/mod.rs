//! Work that a store does by itself, beside calls: rounds of maintenance, snapshots of its log, a look at whether it
//! takes more.

mod due;
mod look;
mod maintain;
mod snapshot;

pub use look::InhibitWatch;
pub(crate) use maintain::spawn;
