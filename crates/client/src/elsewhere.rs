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
//! *Not here*: which node holds what (`cluster/joined.rs`).

use crate::client::Client;
use crate::fragment::Fragment;
use forebay_core::{Elsewhere, Error, Key, Level, Result};

/// The other nodes of the cluster that a client's server is a node of.
pub(crate) trait OtherNodes: Send + Sync {
    /// Fragments at the nodes that hold them, with the node of each; `None` where it has not what it should.
    ///
    /// # Errors
    /// `Unavailable` where one does not answer, by its number, or no table says which node it is.
    fn held(&self, asking: &Client, keys: &[Key]) -> Result<Vec<(u16, Option<Fragment>)>>;

    /// Connections are closed.
    fn close(&self);
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
        let keys: Vec<Key> = away.iter().map(|(key, _)| *key).collect();
        let found = self.inner.others.held(self, &keys)?;
        let name = |key: &Key| self.schema().text(key.as_bytes());
        let missing = keys.iter().zip(&found).filter(|(_, (_, found))| found.is_none());
        let (missing, holders): (Vec<Key>, Vec<u16>) = missing.map(|(key, (holder, _))| (*key, *holder)).unzip();
        // What was removed meanwhile the home has not either.
        for (still, holder) in self.get_many_here(&missing)?.iter().zip(holders) {
            if let Some(still) = still {
                return Err(Error::unavailable(format!(
                    "{}: node {holder} does not have its bytes, which its home counts: look at `forebay losses` there",
                    name(&still.key())
                )));
            }
        }
        for ((key, said), (holder, found)) in away.iter().zip(&found) {
            let Some(found) = found else { continue };
            if (found.len(), found.checksum()) != (said.length as usize, said.checksum) {
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
        Ok(found.into_iter().map(|(_, found)| found).collect())
    }
}
