//! The real store, sessions and client code under a seeded simulator.
//!
//! ```text
//! seed ─▶ faults, latencies, work ─▶ one thread of tokio, whose time goes on when nothing is left to do
//!                                        ├ node: store on a medium that forgets, sessions of the server
//!                                        ├ producers, workers: the async client over streams in memory
//!                                        └ books: what was offered, answered, granted; what must hold of it
//! ```
//!
//! *Invariants*: the same plan has the same trace (`hash`); what the books check is in `books.rs`.
//!
//! *Not here*: real threads and sockets (chaos in `forebay-testkit`, tests of `forebay-server`), devices of the warm level.

mod books;
mod clock;
mod faults;
mod net;
mod node;
mod shrink;
mod trace;
mod work;
mod world;

pub use shrink::shrink;
pub use world::{Plan, Report, simulate};
