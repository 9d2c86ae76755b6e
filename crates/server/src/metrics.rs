//! What the sessions count.

use crate::call::Call;
use forebay_core::Kind;
use std::time::Duration;

/// Counters of a server, beside those of its stores.
#[derive(Debug, Default)]
pub(crate) struct Metrics {}

impl Metrics {
    /// A call was answered: so many things asked for in it, an error's kind where it failed as a whole, its time.
    pub(crate) fn answered(&self, _call: Call, _things: u64, _failed: Option<Kind>, _took: Duration) {}

    /// One thing of a call failed.
    pub(crate) fn failed(&self, _call: Call, _kind: Kind) {}

    /// Payload that came in or went out.
    pub(crate) fn bytes(&self, _received: u64, _sent: u64) {}

    /// A connection was taken by a listener of this name (`native`, `resp`, `http`), or refused for a reason.
    pub(crate) fn connected(&self, _listener: &'static str) {}

    /// A connection ended, for this reason (`goodbye`, `closed`, `error`, `deadline`, `stopping`).
    pub(crate) fn disconnected(&self, _listener: &'static str, _reason: &'static str) {}

    /// A connection or a login was refused, for this reason (`limit`, `token`, `certificate`, `right`, `handshake`).
    pub(crate) fn refused(&self, _listener: &'static str, _reason: &'static str) {}
}
