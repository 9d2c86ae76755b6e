//! For who has the map: a node, which goes by its own and asks nobody for one.

use super::nodes::Placed;
use super::{ClusterClient, Contact};
use crate::options::Options;
use forebay_core::map::ClusterMap;
use forebay_core::{Key, Keyspace, Result};

impl ClusterClient {
    /// The nodes of a map. Connections are made when they are needed, and no node is called that is not in contact.
    ///
    /// # Errors
    /// `Invalid` for a keyspace that is not in the map.
    pub fn by_map(keyspace: &Keyspace, map: &ClusterMap, options: Options, contact: Contact) -> Result<ClusterClient> {
        let placed = Placed::of(map.clone(), &keyspace.name)?;
        Ok(ClusterClient::over(keyspace.clone(), placed, options, Some(contact)))
    }

    /// Goes by a later map from now on; an earlier one changes nothing.
    pub fn go_by(&self, map: &ClusterMap) {
        if map.epoch() <= self.epoch() {
            return;
        }
        if let Ok(later) = Placed::of(map.clone(), &self.keyspace().name) {
            self.inner.nodes.go_on(later);
        }
    }

    /// Epoch of the map that the client goes by.
    pub fn epoch(&self) -> u32 {
        self.placed().map.epoch()
    }

    /// The numbers of all nodes that may have something.
    pub fn node_numbers(&self) -> Vec<u16> {
        self.placed().nodes().map(|node| node.id).collect()
    }

    /// The home of an event, by the bytes of its primary key.
    pub fn home_of(&self, primary: &[u8]) -> u16 {
        self.home(primary)
    }

    /// The node that gets the bytes of a fragment, and the home of its event: the same one without a look-up table.
    pub fn route_of(&self, key: &Key) -> (u16, u16) {
        self.placed().route(self.schema(), key)
    }

    /// Whether the bytes of some runs may be on other nodes than their homes.
    pub fn has_tables(&self) -> bool {
        !self.placed().keyspace.tables().is_empty()
    }
}
