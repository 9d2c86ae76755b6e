//! Fragments whose bytes other nodes have: read there, so that no caller sees the difference.
//!
//! ```text
//! answer of a home ─▶ "length and checksum; another node has it" ─▶ its holder, by the look-up table ─▶ bytes
//!                                                  the holder has it not ─▶ the home once more: removed, or missed
//! ```
//!
//! *Invariants*: no call hands out what stands for bytes in their place; what a holder answers is what its home counts, by length
//! and checksum.
//!
//! *Not here*: which node holds what (`cluster/mod.rs`).

use crate::client::Client;
use crate::cluster::{ClusterClient, Inner};
use crate::fragment::Fragment;
use forebay_core::{Elsewhere, Error, Key, Level, Result};
use std::sync::{OnceLock, Weak};

/// The cluster of which a client's server is a node.
#[derive(Default)]
pub(crate) struct OfCluster {
    /// The client of a cluster that made this one.
    within: OnceLock<Weak<Inner>>,
    /// Made when it is needed, where no client of a cluster made this one, or that is gone.
    own: OnceLock<ClusterClient>,
}

impl OfCluster {
    pub(crate) fn is_within(&self, cluster: &ClusterClient) {
        let _ = self.within.set(cluster.downgrade());
    }

    pub(crate) fn close(&self) {
        if let Some(own) = self.own.get() {
            own.close();
        }
    }

    fn of(&self, client: &Client) -> Result<ClusterClient> {
        if let Some(within) = self.within.get().and_then(Weak::upgrade) {
            return Ok(ClusterClient::of_inner(within));
        }
        if let Some(own) = self.own.get() {
            return Ok(own.clone());
        }
        let cluster = client.cluster()?;
        Ok(self.own.get_or_init(|| cluster).clone())
    }
}

fn is_elsewhere(fragment: &Fragment) -> bool {
    fragment.level() == Level::Elsewhere
}

/// What is to be read, and what the home says of it.
fn about(fragment: &Fragment) -> Result<(Key, Elsewhere)> {
    let ill_formed = || Error::corrupt(format!("{:?}: its home does not say what another node has", fragment.key()));
    Ok((fragment.key(), fragment.elsewhere().ok_or_else(ill_formed)?))
}

impl Client {
    /// Reads what other nodes have of these; what was removed meanwhile is `None`.
    ///
    /// # Errors
    /// `Unavailable` where a holder does not answer, or does not have what the home counts, by name; `Corrupt` where it has
    /// something else.
    pub(crate) fn fetch_elsewhere<'a>(&self, found: impl Iterator<Item = &'a mut Option<Fragment>>) -> Result<()> {
        let places: Vec<_> = found.filter(|found| found.as_ref().is_some_and(is_elsewhere)).collect();
        let away = places.iter().filter_map(|place| place.as_ref()).map(about).collect::<Result<Vec<_>>>()?;
        for (place, bytes) in places.into_iter().zip(self.held(&away)?) {
            *place = bytes;
        }
        Ok(())
    }

    /// The same of lists; what was removed meanwhile is left out.
    ///
    /// # Errors
    /// As [`Client::fetch_elsewhere`].
    pub(crate) fn fetch_all_elsewhere<'a>(&self, lists: impl IntoIterator<Item = &'a mut Vec<Fragment>>) -> Result<()> {
        let lists: Vec<_> = lists.into_iter().filter(|list| list.iter().any(is_elsewhere)).collect();
        let away = lists.iter().flat_map(|list| list.iter()).filter(|one| is_elsewhere(one));
        let away = away.map(about).collect::<Result<Vec<_>>>()?;
        let mut held = self.held(&away)?.into_iter();
        for list in lists {
            list.retain_mut(|fragment| {
                if is_elsewhere(fragment) {
                    let Some(bytes) = held.next().flatten() else { return false };
                    *fragment = bytes;
                }
                true
            });
        }
        Ok(())
    }

    fn held(&self, away: &[(Key, Elsewhere)]) -> Result<Vec<Option<Fragment>>> {
        if away.is_empty() {
            return Ok(Vec::new());
        }
        let cluster = self.inner.cluster.of(self)?;
        let keys: Vec<Key> = away.iter().map(|(key, _)| *key).collect();
        let found = cluster.held(&keys)?;
        let missing: Vec<Key> =
            keys.iter().zip(&found).filter(|(_, found)| found.is_none()).map(|(key, _)| *key).collect();
        let name = |key: &Key| self.schema().text(key.as_bytes());
        if let Some(missed) = self.get_many_here(&missing)?.iter().flatten().next() {
            let (key, holder) = (missed.key(), cluster.holder(&missed.key()).unwrap_or_default());
            return Err(Error::unavailable(format!(
                "{}: node {holder} does not have its bytes, which its home counts: look at `forebay losses` there",
                name(&key)
            )));
        }
        for ((key, said), found) in away.iter().zip(&found) {
            let Some(found) = found else { continue };
            if (found.len(), found.checksum()) != (said.length as usize, said.checksum) {
                let holder = cluster.holder(key).unwrap_or_default();
                return Err(Error::corrupt(format!(
                    "{}: node {holder} has {} bytes of checksum {:08x}, and its home counts {} of {:08x}",
                    name(key),
                    found.len(),
                    found.checksum(),
                    said.length,
                    said.checksum
                )));
            }
        }
        Ok(found)
    }
}
