//! The tests of the client, in one program; `semantics` and `model` are those of the store, over the network.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod asynchronous;
#[path = "../../store/tests/common/mod.rs"]
mod common;
mod either;
#[path = "../../store/tests/model.rs"]
mod model;
mod network;
mod secure;
#[path = "../../store/tests/semantics/mod.rs"]
mod semantics;
