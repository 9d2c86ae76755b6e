//! What the project's chores share with its benchmarks: children with what they cost, and the tools that must be there.
//!
//! *Not here*: the chores themselves, which are the program; Forebay's crates, so that the program is built in seconds.

pub mod child;
pub mod tools;

/// Any error of a chore; it is shown to a person, never matched on.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// What a chore yields.
pub type Result<T> = std::result::Result<T, Error>;
