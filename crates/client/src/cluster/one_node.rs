//! Calls that are about one node: its devices, its segments, what its mover takes.

use super::{ClusterClient, ClusterSampler, ClusterWatch};
use forebay_core::{
    Claim, ClaimRequest, ClaimedEvent, ContainerStatus, Error, Marks, MovedStore, Result, SegmentInfo, Token,
};
use std::path::Path;
use std::time::Duration;

macro_rules! of_one_node {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        impl ClusterClient {
            $(
                /// About one node: [`ClusterClient::node`] has it.
                ///
                /// # Errors
                /// `Invalid` always.
                pub fn $name(&self, $($argument: $type),*) -> Result<$answer> {
                    $(let _ = $argument;)*
                    Err(one_node(stringify!($name)))
                }
            )*
        }
    };
}

of_one_node! {
    drain_device(device: u32) -> ();
    undo_drain(device: u32) -> ();
    exchange_device(device: u32, to: &Path) -> ();
    add_device(to: &Path, bytes: Option<u64>) -> ();
    segments() -> Vec<SegmentInfo>;
    containers() -> Vec<ContainerStatus>;
    marks() -> Marks;
}

fn one_node(call: &str) -> Error {
    Error::invalid(format!("`{call}` is about one node of the cluster: give the address of that node alone"))
}

/// Movers work at the node that has the events.
impl MovedStore for ClusterClient {
    fn claim(&self, _: &ClaimRequest) -> Result<Option<Claim>> {
        Err(one_node("claim"))
    }
    fn claimed(&self, _: &Token, _: u64) -> Result<Vec<ClaimedEvent>> {
        Err(one_node("claimed"))
    }
    fn extend_claim(&self, _: &Token, _: Duration) -> Result<()> {
        Err(one_node("extend_claim"))
    }
    fn prove(&self, _: &Token) -> Result<u64> {
        Err(one_node("prove"))
    }
    fn give_back(&self, _: &Token) -> Result<()> {
        Err(one_node("give_back"))
    }
}

forebay_core::implement_operated_store!(ClusterClient, ClusterWatch, ClusterSampler, |answer| answer);
