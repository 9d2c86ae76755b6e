//! Events: completeness, leases, verdicts, ledger. What is here works on any node: an event may exist without a fragment in
//! reach, and a place is a number that is handed on.
//!
//! *Not here*: where fragments are (`placement`), the bytes on a medium (`forebay-media`), the calls that people make (`calls`).

mod all;
mod event;
mod foreign;
mod incidents;
mod life;
mod list;
#[cfg_attr(not(test), expect(dead_code, reason = "the home of a cluster is its user; until then `tests.rs` is"))]
mod outside;
mod ready;
mod reason;
mod rule;
mod run;
mod shard;
mod slot;
mod sources;
#[cfg(test)]
mod tests;
mod timers;
mod verdicts;
mod waiting;

pub(crate) use all::Events;
pub(crate) use event::{EventSlab, Flag, NIL, State};
pub(crate) use foreign::Kept as KeptForeign;
pub(crate) use incidents::{Incident, IncidentKind};
pub(crate) use list::List;
pub(crate) use reason::Reason;
pub(crate) use rule::{Mask, RunPlan, Until};
pub(crate) use run::{Decided, DecidedForm, Ending, GroupAccount, Run};
pub(crate) use shard::{Ended, LeaseState, Shape, ShardEvents, shard_of, shard_of_parts};
pub(crate) use slot::{Form, PlaceBits, Word};
pub(crate) use sources::SourceCount;
pub(crate) use verdicts::{Code, Given, Recent, Verdict};
