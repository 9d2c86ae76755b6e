//! A stand-alone readout and filter: the producer and the consumer, each a process of its own, against a store
//! wherever it is.
//!
//! ```text
//! readout ──put many──▶ store ──get_any──▶ filter ──verdict──▶ store        (EventStore: embedded, or a client)
//! ```
//!
//! `all` starts a server, readouts and filters as processes on one machine; `audit` holds their reports against one ledger.
//!
//! *Not here*: the demo in one process (`demo`).

mod all;
mod audit;
mod filter;
mod readout;

pub use all::{AllConfig, AllSummary, run as run_all};
pub use audit::audit_readouts;
pub use filter::{FilterConfig, FilterReport, run as run_filter};
pub use readout::{ReadoutConfig, ReadoutReport, run as run_readout};
