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
use forebay_core::{Error, Key, Level, Result};

/// A fragment as its holder has it, and the holder's number; `None` where it has not what it should.
pub(crate) type AtHolder = (u16, Result<Option<Fragment>>);

/// The other nodes of the cluster that a client's server is a node of.
pub(crate) trait OtherNodes: Send + Sync {
    /// Fragments at the nodes that hold them, each asked once; in the order of the keys.
    fn held(&self, asking: &Client, keys: &[Key]) -> Vec<AtHolder>;

    /// Connections are closed.
    fn close(&self);
}

fn is_elsewhere(fragment: &Fragment) -> bool {
    fragment.level() == Level::Elsewhere
}

impl Client {
    /// Reads what other nodes have of these; what was removed meanwhile is `None`.
    ///
    /// # Errors
    /// `Unavailable` where a holder does not answer, by name; `Corrupt` where it does not have what the home counts.
    pub(crate) fn fetch_elsewhere(&self, found: &mut [Option<Fragment>]) -> Result<()> {
        let mut places: Vec<_> = found.iter_mut().filter(|found| found.as_ref().is_some_and(is_elsewhere)).collect();
        let away: Vec<Fragment> = places.iter().filter_map(|place| (**place).clone()).collect();
        for (place, bytes) in places.iter_mut().zip(self.held(&away)) {
            **place = bytes?;
        }
        Ok(())
    }

    /// The same of a list; what was removed meanwhile is left out.
    ///
    /// # Errors
    /// As [`Client::fetch_elsewhere`].
    pub(crate) fn fetch_list(&self, list: &mut Vec<Fragment>) -> Result<()> {
        self.fetch_lists([list]).pop().unwrap_or(Ok(()))
    }

    /// The same of several lists, each with its outcome. One that failed is not whole.
    pub(crate) fn fetch_lists<'a>(&self, lists: impl IntoIterator<Item = &'a mut Vec<Fragment>>) -> Vec<Result<()>> {
        let lists: Vec<_> = lists.into_iter().collect();
        let away = lists.iter().flat_map(|list| list.iter()).filter(|one| is_elsewhere(one));
        let mut held = self.held(&away.cloned().collect::<Vec<_>>()).into_iter();
        let fetch = |list: &mut Vec<Fragment>| {
            let mut outcome = Ok(());
            list.retain_mut(|fragment| {
                if is_elsewhere(fragment) {
                    match held.next() {
                        Some(Ok(Some(bytes))) => *fragment = bytes,
                        Some(Err(error)) if outcome.is_ok() => outcome = Err(error),
                        Some(Ok(None)) => return false,
                        _ => {}
                    }
                }
                true
            });
            outcome
        };
        lists.into_iter().map(fetch).collect()
    }

    fn held(&self, away: &[Fragment]) -> Vec<Result<Option<Fragment>>> {
        if away.is_empty() {
            return Vec::new();
        }
        let keys: Vec<Key> = away.iter().map(Fragment::key).collect();
        let found = self.inner.others.held(self, &keys);
        let lacking = |at: &usize| matches!(found[*at].1, Ok(None));
        let missing: Vec<Key> = (0..found.len()).filter(lacking).map(|at| keys[at]).collect();
        // What was removed meanwhile the home has not either.
        let mut still = self.get_many_here(&missing).map(Vec::into_iter);
        let whole = |(said, (holder, found)): (&Fragment, AtHolder)| match (found?, &mut still) {
            (Some(found), _) => self.as_said(said, holder, found).map(Some),
            (None, Err(error)) => Err(error.again()),
            (None, Ok(still)) => match still.next().flatten() {
                None => Ok(None),
                Some(_) => Err(Error::corrupt(format!(
                    "{}: node {holder} does not have its bytes, which its home counts: look at `forebay losses` there",
                    self.schema().text(said.key().as_bytes())
                ))),
            },
        };
        away.iter().zip(found).map(whole).collect()
    }

    /// What a holder has, if it is what the home counts.
    fn as_said(&self, said: &Fragment, holder: u16, found: Fragment) -> Result<Fragment> {
        let away =
            said.elsewhere().filter(|away| (away.length as usize, away.checksum) == (found.len(), found.checksum()));
        away.map(|_| found).ok_or_else(|| {
            let name = self.schema().text(said.key().as_bytes());
            Error::corrupt(format!("{name}: node {holder} has other bytes than those that its home counts"))
        })
    }
}
