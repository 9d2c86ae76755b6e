//! Events: completeness, leases, verdicts, ledger. A place is a number that is handed on.
//!
//! *Not here*: where fragments are (`placement`), the bytes on a medium (`forebay-media`), the calls that people make (`calls`).

mod all;
mod event;
mod foreign;
mod incidents;
mod life;
mod list;
mod ready;
mod reason;
mod rule;
mod run;
mod shard;
mod slot;
mod sources;
mod timers;
mod verdicts;
mod waiting;

pub(crate) use all::Events;
pub(crate) use event::{EventSlab, Flag, NIL, State};
pub(crate) use foreign::{DEPARTURES_MAX, Kept as KeptForeign};
pub use foreign::{Departed, Departures};
pub(crate) use incidents::{Incident, IncidentKind};
pub(crate) use list::List;
pub(crate) use reason::Reason;
pub(crate) use rule::{Mask, RunPlan, Until};
pub(crate) use run::{Decided, DecidedForm, Ending, GroupAccount, Run};
pub(crate) use shard::{Ended, LeaseState, Shape, ShardEvents, shard_of, shard_of_parts};
pub(crate) use slot::{Form, PlaceBits, Word};
pub(crate) use sources::SourceCount;
pub(crate) use verdicts::{Code, Given, Recent, Verdict};
