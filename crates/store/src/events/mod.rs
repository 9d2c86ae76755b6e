//! Events: completeness, leases, verdicts, ledger. On one node they share their locks and tables with the
//! index of locations; in a cluster, arrivals reach it from other nodes as well (`crate::Arrivals`).
//!
//! *Not here*: bytes on the medium (`hot`), the calls that people make (`ops`).

mod all;
mod event;
mod incidents;
mod life;
mod list;
mod ready;
mod reason;
mod rule;
mod run;
mod shard;
mod sources;
mod timers;
mod verdicts;
mod waiting;

pub(crate) use all::Events;
pub(crate) use event::{Flag, Form, NIL, State, Word};
pub(crate) use incidents::{Incident, IncidentKind};
pub(crate) use list::List;
pub(crate) use reason::Reason;
pub(crate) use rule::{Mask, Plan, Until};
pub(crate) use run::{Decided, DecidedForm, Ending, GroupAccount, Run};
pub(crate) use shard::{
    Cell, Ended, Kept, LeaseState, Shard, ShardGuard, Superseded, WarmRecord, shard_of, shard_of_parts,
};
pub(crate) use sources::SourceCount;
pub(crate) use verdicts::{Code, Given, Recent, Verdict};
