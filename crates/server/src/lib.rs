//! The thin server: sessions over stores, and their composition. It holds no policy.
//!
//! ```text
//! config ──▶ stores ──▶ listeners ──▶ threads, each an event loop ──▶ sessions: native, resp; http beside them
//! ```
//!
//! *Not here*: what calls mean (`forebay-store`), bytes of frames (`forebay-core`, `wire/`).
#![allow(dead_code, reason = "being built")]

mod access;
mod call;
mod config;
mod endpoint;
mod http;
mod limits;
mod metrics;
mod resp;
mod server;
mod session;
mod shared;
mod transport;

pub use call::{Call, Right};
pub use config::ServerConfig;
pub use endpoint::Endpoint;
pub use limits::Limits;
pub use server::{Protocol, Server};
#[doc(hidden)]
pub use session::drive::{Step, drive};
