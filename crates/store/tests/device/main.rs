//! Devices of the warm level: the real one in all its ways, and those that tests are made of.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod conformance;
mod directory;
mod faults;
mod simulated;
