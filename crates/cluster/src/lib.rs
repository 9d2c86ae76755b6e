//! A node of a cluster: what the home of a run decides is done by every node.
//!
//! ```text
//! client ─▶ any node ── AsHome ──▶ home of the run ── its own store first ──▶ Order to every other node ──▶ answer
//!                                        └ a node that does not answer is behind: it catches up before its next order
//! ```
//!
//! *Invariants*: the home of a run changes it in one order, and every node does the same in that order: each order has a
//! number, and an earlier one that comes later is refused (`orders.rs`); a run is closed only when no node has anything of
//! it left to decide, and takes nothing on any node from before that is asked until it is answered.
//!
//! Under a look-up table a node also tells the homes of events what it holds for them, and holders what ended (`held.rs`).
//!
//! Rings of a node take what the map gives it (`rings.rs`).
//!
//! Redis's clients of a node see the whole cluster (`gateway`).
//!
//! *On failure*: a node that is away keeps no run from starting; it learns of it when it is back. A close wants every node.
//!
//! *Not here*: whose events are whose (`core::map`, and the store that adopted it); several copies, etcd.

// See `clippy.toml`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod catch_up;
mod close;
mod gateway;
mod held;
mod keyspace;
mod node;
mod orders;
mod policy;
mod rings;

pub use gateway::{FORWARD, Gateway, GatewayReservation, serve};
pub use node::{Node, NodeOptions, PeerStatus, Status};
