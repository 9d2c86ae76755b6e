//! The tests of the server over sockets, in one program.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod resp;
mod resp_memory;
mod secure;
mod seen;
mod session;
mod wrapped;
