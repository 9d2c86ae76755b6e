//! Frames between a client and a server, and between servers: `docs/format-wire.md` is the specification.
//!
//! ```text
//! frame:  head 40 bytes │ meta: what is asked or answered, small │ payload: bytes of fragments, back to back
//! ```
//!
//! *Invariants*: nothing is believed before its checksum is; no length is believed beyond what the connection allows, so
//! that a promise of bytes never takes memory; every decoder answers an error for bytes that it does not know.
//!
//! *Not here*: sockets, connections, credit as it is spent.

mod codec;
mod control;
mod event;
mod fragment;
mod frame;
mod hello;
mod outcome;
mod request;
mod ring;
mod sample;

pub use codec::{WireReader, WireWriter};
pub use control::{Control, ObjectOrder, bounds_of};
pub use event::{WireEvent, WireJudgement, WireLease, WireVerdict};
pub use fragment::{WireFragment, WirePut};
pub use frame::{FRAME_HEAD_BYTES, FrameFlags, FrameHead, FrameKind, WIRE_VERSION};
pub use hello::{Hello, Member, Welcome};
pub use outcome::WireOutcome;
pub use request::{WireExtend, WireOpen, WireRange, WireRemove, WireUpdate};
pub use ring::{WireRingFragment, WireWindow, WireWindowPart};
pub use sample::WireSample;
