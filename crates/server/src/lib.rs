//! The thin server: sessions over stores, and their composition. It holds no policy.
//!
//! ```text
//! config ──▶ stores, rings ──▶ listeners ──▶ threads, each an event loop ──▶ sessions: native, resp; http beside them
//! ```
//!
//! *Not here*: what calls mean (`forebay-store`), bytes of frames (`forebay-core`, `wire/`).

mod access;
mod ahead;
mod audit;
mod config;
mod endpoint;
mod http;
mod keyspaces;
mod limits;
mod listen;
mod locate;
mod mark;
mod metrics;
mod orders;
mod page;
mod peer;
mod resp;
mod served;
mod server;
mod session;
mod shared;
mod slices;
mod tls;
mod transport;
mod units;

pub use access::{AccessToken, Secret};
pub use audit::AuditSettings;
pub use config::{
    ClusterSettings, CreateRingSettings, CreateSettings, KeyspaceSettings, ListenSettings, LogFormat, LogLevel,
    LogSettings, RingSettings, ServerConfig, Settings, TokenSettings, WarmSettings,
};
pub use endpoint::Endpoint;
pub use forebay_core::{Call, Right};
pub use limits::Limits;
pub use mark::{Gone, Marks, Started};
pub use orders::{Answering, Orders};
pub use served::Served;
pub use server::{Protocol, Server};
pub use shared::Phase;
pub use tls::TlsFiles;

/// The decoder of Redis's protocol over bytes that come in two pieces, for the fuzzer: how many commands it found.
#[doc(hidden)]
pub fn decode_resp(bytes: &[u8], split: usize) -> usize {
    resp::decode(bytes, split)
}
#[doc(hidden)]
pub use session::drive::{Step, drive};
#[doc(hidden)]
pub use session::simulated::Sessions;
