//! Places for objects: what they all do, and what each of them survives.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bucket;
mod conformance;
mod credentials;
mod directory;
mod faults;
mod setting;
