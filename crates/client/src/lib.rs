//! The API of a store over the network: the same calls, the same answers, on a server.
//!
//! ```text
//! Client ──▶ a pool of connections ──▶ frames (docs/format-wire.md) ──▶ server
//!    └ leases are extended by a thread of the client while they are held
//! ```
//!
//! Start with [`Client::connect`], then the calls of `forebay-store`: [`Client::put`], [`Client::get_any`], [`Lease::accept`].
//!
//! [`ClusterClient`] is the same over the nodes of a cluster.
//!
//! *Not here*: how nodes agree (`forebay-cluster`).

// See `clippy.toml`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod address;
mod ahead;
mod asynchronous;
mod buffer;
mod client;
mod cluster;
mod connected;
mod connection;
mod control;
mod edit;
mod elsewhere;
mod fragment;
mod get;
mod heartbeat;
mod machine;
mod objects;
mod options;
mod pool;
mod put;
mod retry;
mod ring;
mod ring_api;
mod select;
mod socket;
mod tls;

pub use address::{Address, PORT};
pub use asynchronous::{AsyncClient, Connector, Reader, Writer};
pub use client::Client;
pub use cluster::{ClusterClient, ClusterPin, ClusterRange, ClusterRing, ClusterSampler, ClusterWatch, Contact};
pub use connected::Connected;
pub use forebay_core as core;
pub use forebay_wire::Member;
pub use forebay_wire::WireJudgement;
pub use fragment::{Event, Fragment, Sample};
pub use get::Range;
pub use machine::{Machine, Part, Stream};
pub use objects::{Producer, Sampler, Watch};
pub use options::{Expected, Options, Tls};
pub use put::Reservation;
pub use ring::{RingClient, RingFragment, RingFrame, RingPin, SourceWindow, Window};
pub use select::{Kept, Lease, PlainLease, Verdict};

forebay_core::implement_event_store!(
    Client,
    Fragment,
    forebay_core::Held<Kept>,
    Producer,
    Range,
    |client| client.runs(),
    client.stats()
);
forebay_core::implement_operated_store!(Client, Watch, Sampler, |answer| answer);
