//! Finds an event by its primary key: a radix tree whose leaves are events, and compact storage for both.
//!
//! *Not here*: what an event is (`events`), where its fragments lie (`hot`).

mod arena;
mod art;
mod node;
mod prefetch;
mod slab;

pub(crate) use arena::{Arena, BLOCK_BYTES_MAX, Block};
pub(crate) use art::{Art, Leaves};
pub(crate) use prefetch::{Path, Reached};
pub(crate) use slab::Slab;
