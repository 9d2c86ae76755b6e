//! The warm level as it stands: what is known of it, and what is under way. Nothing here decides or moves (`levels`).

mod demoter;
mod flushing;
mod gauge;
mod keeper;
mod level;
mod location;
mod persisting;
mod there;
mod unsettled;

pub(crate) use demoter::{Compacting, Demoter, Moving, Open, Part, Written};
pub(crate) use flushing::{Flushing, Turn};
pub(crate) use keeper::Keeper;
pub(crate) use level::Level;
pub(crate) use location::{at, place_of, too_large};
pub(crate) use persisting::{Answer, Persisting, Waiting};
pub(crate) use there::There;
pub(crate) use unsettled::{Awaited, Ticket, Unsettled};
