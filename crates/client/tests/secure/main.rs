//! Both clients over TLS: what moves, what comes back after a restart, and what a refused certificate says.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod certificates;
mod moving;
mod refused;
mod restart;
mod scene;
