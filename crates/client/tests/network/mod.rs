//! Clients, a server, and a network between them that delays, stalls and cuts; servers and clients that are killed.
//!
//! Seeds are printed where a test fails: `FOREBAY_NETWORK_SEED` repeats one, `FOREBAY_NETWORK_SECONDS` makes tests longer.

#![expect(clippy::print_stdout, reason = "seeds and figures, and what processes of a test say to it")]

mod connect;
mod cuts;
mod kills;
mod lost;
mod proxy;
mod rings;
mod scene;
mod small;
mod unknown;
mod vanish;
mod workload;
