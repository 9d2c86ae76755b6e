//! The tests of the store that use only what it shows, in one program: each module is a subject.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bad_input;
mod check;
mod close;
mod cluster;
mod common;
mod concurrent;
mod crash;
mod decisions;
mod device;
mod due;
mod embedded;
mod fork;
mod full;
mod holder;
mod levels;
mod manual_time;
mod marks;
mod model;
mod named;
mod policies;
mod power_loss;
mod regressions;
mod restart;
mod semantics;
mod summary;
