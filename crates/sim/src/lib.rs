//! The real store, sessions, nodes of a cluster and clients under a seeded simulator.
//!
//! ```text
//! seed ─▶ faults, latencies, work ─▶ one thread of tokio, whose time goes on when nothing is left to do
//!                                        ├ nodes: each a store on media that forget, sessions, its part in a cluster
//!                                        ├ producers, workers, an operator: blocking clients on stacks of their own, async ones, over streams in memory
//!                                        ├ movers, where stores have a warm level
//!                                        └ books: what was offered, answered, granted; what must hold of it
//! ```
//!
//! *Invariants*: the same plan has the same trace (`hash`); what the books check is in `books.rs` and `verify.rs`.
//!
//! *Not here*: real threads and sockets (chaos in `forebay-testkit`, tests of `forebay-server`).

mod archive;
mod books;
mod budget;
mod clients;
mod clock;
mod counts;
mod faults;
mod net;
mod node;
mod operate;
mod process;
mod route;
mod shrink;
mod trace;
mod verify;
mod wire;
mod work;
mod world;

pub use budget::spent;
pub use shrink::shrink;
pub use world::{NODES_MAX, Plan, Report, simulate};
