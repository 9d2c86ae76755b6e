//! What is the matter of a whole cluster: runs, masks, prescales and holds. A server in one hands such calls to its node.
//!
//! *Not here*: who the home of a run is, and how its orders reach the others (`forebay-cluster`).

use forebay_core::{Call, Result};
use forebay_wire::{Control, Member};
use std::pin::Pin;

/// An order under way: the JSON of what the call answers.
pub type Answering = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send>>;

/// The node of a cluster that a server stands on.
pub trait Orders: Send + Sync {
    /// Has the home of a run, and then all nodes, do what was asked of this one; `signed` is the token of who asked. Within a
    /// tokio runtime.
    ///
    /// # Errors
    /// Those of the call; `Unavailable` where the home does not answer.
    fn order(&self, keyspace: &str, signed: &str, control: Control) -> Answering;

    /// Epoch of the map that the node goes by for a keyspace: each answer says it, so that a client hears of nodes that it does not know.
    fn epoch(&self, keyspace: &str) -> u32;

    /// The node that this is.
    fn member(&self) -> Option<Member>;
}

/// Whether a call goes through the home of a run, or is between nodes.
pub(crate) fn is_order(control: &Control) -> bool {
    let of_all = [Call::Run, Call::Mask, Call::Prescale, Call::Hold, Call::ReleaseHold, Call::Order, Call::Misses];
    of_all.contains(&control.call()) || matches!(control, Control::Cluster | Control::Map)
}
