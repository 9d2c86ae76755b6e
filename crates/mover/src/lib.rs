//! Movers and archives: accepted events go to objects in a directory or in S3, are read back and compared, and only then may the
//! store let them go; and back.
//!
//! ```text
//! store ──claim──▶ Mover ──object──▶ place        read back, compare ─▶ manifest of the run ─▶ prove ─▶ custody
//! Archive ──▶ ls, show, get, verify, audit, gc, restore
//! ```
//!
//! *Not here*: claims and custody (`forebay-store`); how places are spoken with (`forebay_dataset::storage`).

mod archive;
mod audit;
mod framed;
#[doc(hidden)]
pub mod fuzz;
mod identity;
mod limits;
mod manifest;
mod mover;
mod object;
mod restore;

pub use archive::{Archive, Fault, Inventory, WholeEvent};
pub use audit::{Audit, audit};
pub use identity::Identity;
pub use manifest::{Manifest, ManifestObject, folder_of, manifest_of};
pub use mover::{Moved, Mover, MoverOptions, News};
pub use object::{ArchivedEvent, Contents, EventPlace, Fragment, Head, Object, ReadPiece, piece_of};
pub use restore::{Restore, restore};
