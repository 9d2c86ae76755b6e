//! Scenarios around the store: detector frames, a readout emulator, a replay of recorded frames, and the demo.
//!
//! ```text
//! emulator ─┐
//!           ├─▶ FrameSource ─fill─▶ readout threads ─▶ store ─▶ filter threads ─▶ verdict, ledger, summary
//! replay ───┘
//! ```
//!
//! `display` shows one event as a person reads it.
//!
//! *Not here*: the engine (`forebay-store`), the command line (`forebay`), anything that prints.

pub mod demo;
pub mod display;
pub mod dune;
pub mod emulator;
mod ends;
pub mod frames;
pub mod limits;
pub mod minidaq;
pub mod plan;
pub mod processes;
pub mod record;
pub mod replay;
mod source;

pub use source::{Activity, FrameSource};
