//! Scenarios around the store: detector frames, a readout emulator, a replay of recorded frames, the demo, the MiniDAQ.
//!
//! ```text
//! emulator ─┐
//!           ├─▶ FrameSource ─fill─▶ readout threads ─▶ store ─▶ filter threads ─▶ verdict, ledger, summary
//! replay ───┘
//!
//! choices ─▶ run(choices, stop, told) ─▶ Summary ─▶ Verdict        every scenario: `scenario`, `progress`
//! ```
//!
//! *Not here*: the engine (`forebay-store`), the command line (`forebay`), anything that prints, texts for people.

mod account;
mod archive;
pub mod demo;
mod directory;
pub mod display;
pub mod dune;
pub mod emulator;
pub mod figures;
pub mod frames;
pub mod limits;
mod meter;
pub mod minidaq;
pub mod plan;
pub mod processes;
mod progress;
pub mod record;
pub mod replay;
mod scenario;
mod source;
mod threads;

pub use archive::ArchiveSummary;
pub use meter::LatencySummary;
pub use progress::{Figure, Phase, Progress, Told};
pub use scenario::{Summary, Verdict};
pub use source::{Activity, FrameSource};
