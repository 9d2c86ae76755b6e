//! Tests that take several crates, in one program.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod chaos;
#[path = "../../store/tests/common/mod.rs"]
mod common;
mod formats;
