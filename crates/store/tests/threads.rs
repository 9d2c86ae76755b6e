//! The tests of calls beside each other, and nothing else, for a build that ThreadSanitizer watches.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;
mod concurrent;
