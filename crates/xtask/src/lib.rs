//! Shared by the project's chores and its benchmarks: child processes with their cost, and required tools.
//!
//! *Not here*: the chores themselves, which are in the program; Forebay's crates, so that the program builds in seconds.

pub mod child;
pub mod tools;

/// Any error of a chore; it is shown to a person, never matched on.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// What a chore yields.
pub type Result<T> = std::result::Result<T, Error>;
