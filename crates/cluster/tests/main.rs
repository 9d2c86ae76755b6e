//! The tests of nodes and of clients of several nodes, in one program.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod client;
mod common;
mod orders;
mod redis;
mod restarts;
mod rings;
mod strangers;
mod tables;
