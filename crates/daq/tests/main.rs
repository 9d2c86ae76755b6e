//! The tests of the demo, of MiniDAQ and of recording, in one program.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod demo;
mod minidaq;
mod record;
