//! The other nodes for the client of one: through the client of the cluster that made it, or one of its own.

use super::{ClusterClient, Inner};
use crate::client::Client;
use crate::elsewhere::{Asked, AtHolder, OtherNodes};
use forebay_core::{Key, Primary, Result, Sources};
use std::sync::{OnceLock, Weak};

/// The cluster that a client's server is a node of.
#[derive(Default)]
pub(crate) struct Joined {
    /// Who made the client.
    within: Weak<Inner>,
    /// Made when it is needed, where nobody did, or that is gone.
    own: OnceLock<ClusterClient>,
}

impl Joined {
    pub(super) fn within(within: Weak<Inner>) -> Joined {
        Joined { within, own: OnceLock::new() }
    }

    /// The cluster, where nobody need be asked.
    fn known(&self) -> Option<ClusterClient> {
        self.within.upgrade().map(|inner| ClusterClient { inner, end: None }).or_else(|| self.own.get().cloned())
    }

    fn cluster(&self, asking: &Client) -> Result<ClusterClient> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let cluster = asking.cluster()?;
        Ok(self.own.get_or_init(|| cluster).clone())
    }
}

impl OtherNodes for Joined {
    fn held(&self, asking: &Client, keys: &[Key]) -> Vec<AtHolder> {
        match self.cluster(asking) {
            Ok(cluster) => cluster.held(asking.limit(), keys),
            Err(error) => keys.iter().map(|_| (0, Err(error.again()))).collect(),
        }
    }

    fn ask(&self, asking: &Client, primary: &Primary, sources: &Sources) -> Asked {
        self.known().map(|cluster| cluster.ask(asking.limit(), primary, sources)).unwrap_or_default()
    }

    fn counted(&self, counted: usize, asked: usize) {
        if let Some(cluster) = self.known() {
            cluster.counted(counted, asked);
        }
    }

    fn close(&self) {
        if let Some(own) = self.own.get() {
            own.close();
        }
    }
}
