//! The home of events: completeness, leases, verdicts, ledger. On one node it shares its locks and tables with the
//! index of locations; in a cluster, arrivals reach it from other nodes as well (`crate::Arrivals`).
//!
//! *Not here*: bytes on the medium (`hot`), the calls that people make (`ops`).

mod event;
mod list;
mod run;
mod shard;
mod verdicts;

pub(crate) use event::{Form, NIL, State, Word};
pub(crate) use list::List;
pub(crate) use run::{DecidedForm, Plan};
pub(crate) use shard::{Cell, Ended, Kept, LeaseState, Shard, shard_of, shard_of_parts};
pub(crate) use verdicts::{Code, Given, Recent, Verdict};
