//! Movers between real stores and real places: what arrives, what is proved, what survives which fault.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod ceph;
mod faults;
mod format;
mod full;
mod identity;
mod moving;
mod scene;
