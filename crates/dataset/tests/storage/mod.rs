//! Places for objects: what they all do, and what each of them survives.

mod bucket;
pub(crate) mod conformance;
mod credentials;
mod directory;
mod faults;
mod setting;
