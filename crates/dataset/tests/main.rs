//! The tests of datasets and of places, in one program.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod catalogue;
mod ceph;
mod dataset;
mod fork;
mod process;
mod storage;
