//! Fragments whose bytes other nodes have: read there, so that no caller sees the difference.
//!
//! ```text
//! answer of a home ─▶ "length and checksum; another node has it" ─▶ its holder, by the look-up table ─▶ bytes
//!                                                  the holder has it not ─▶ the home once more: removed, or missed
//! event whose sources are known ─▶ its home and the holders at once ─▶ what the home counts, with the bytes that came
//! ```
//!
//! *Invariants*: no call hands out what stands for bytes in their place; what a holder answers is what its home counts, by length
//! and checksum.
//!
//! *Not here*: which node holds what (`cluster/joined.rs`).

use crate::client::Client;
use crate::fragment::Fragment;
use forebay_core::{Error, Key, Level, Primary, Result, Sources};
use std::collections::BTreeMap;

/// A fragment as its holder has it, and the holder's number; `None` where it has not what it should.
pub(crate) type AtHolder = (u16, Result<Option<Fragment>>);

/// Fragments that came before their home has said what it counts.
pub(crate) type Ahead = BTreeMap<Key, (u16, Fragment)>;

/// The other nodes of the cluster that a client's server is a node of.
pub(crate) trait OtherNodes: Send + Sync {
    /// Fragments at the nodes that hold them, each asked once; in the order of the keys. Does something between the questions and
    /// the answers.
    fn held(&self, asking: &Client, keys: &[Key], meanwhile: &mut dyn FnMut()) -> Vec<AtHolder>;

    /// Fragments of an event that its home is likely to count and not to have: none where that is not known without asking.
    fn likely(&self, primary: &Primary, sources: &Sources) -> Vec<Key>;

    /// The same of fragments by name.
    fn likely_of(&self, keys: &[Key]) -> Vec<Key>;

    /// So many of the likely fragments were there.
    fn were_there(&self, found: usize, likely: usize);

    /// Connections are closed.
    fn close(&self);
}

fn is_elsewhere(fragment: &Fragment) -> bool {
    fragment.level() == Level::Elsewhere
}

/// Whether a holder has what the home counts.
fn is_as_said(said: &Fragment, found: &Fragment) -> bool {
    let away = said.elsewhere();
    away.is_some_and(|away| (away.length as usize, away.checksum) == (found.len(), found.checksum()))
}

impl Client {
    /// Reads what other nodes have of these; what was removed meanwhile is `None`.
    ///
    /// # Errors
    /// `Unavailable` where a holder does not answer, by name; `Corrupt` where it does not have what the home counts.
    pub(crate) fn fetch_elsewhere(&self, found: &mut [Option<Fragment>], ahead: Ahead) -> Result<()> {
        let mut places: Vec<_> = found.iter_mut().filter(|found| found.as_ref().is_some_and(is_elsewhere)).collect();
        let away: Vec<Fragment> = places.iter().filter_map(|place| (**place).clone()).collect();
        for (place, bytes) in places.iter_mut().zip(self.held(&away, ahead)) {
            **place = bytes?;
        }
        Ok(())
    }

    /// The same of a list; what was removed meanwhile is left out.
    ///
    /// # Errors
    /// As [`Client::fetch_elsewhere`].
    pub(crate) fn fetch_list(&self, list: &mut Vec<Fragment>) -> Result<()> {
        self.fetch_lists([list], Ahead::new()).pop().unwrap_or(Ok(()))
    }

    /// Asks the home of an event, and at the same time the nodes that are likely to have these fragments of it, which are handed to
    /// [`Client::fetch_lists`]: what the home says of them counts.
    pub(crate) fn beside_holders<T>(&self, keys: Vec<Key>, home: impl Fn() -> T) -> (T, Ahead) {
        if keys.is_empty() {
            return (home(), Ahead::new());
        }
        let (mut said, keys_asked) = (None, keys.len());
        let held = self.inner.others.held(self, &keys, &mut || said = Some(home()));
        let found = keys.into_iter().zip(held).filter_map(|(key, (holder, found))| Some((key, (holder, found.ok()??))));
        let found: Ahead = found.collect();
        self.inner.others.were_there(found.len(), keys_asked);
        (said.unwrap_or_else(home), found)
    }

    /// The same of several lists, each with its outcome. One that failed is not whole.
    pub(crate) fn fetch_lists<'a>(
        &self,
        lists: impl IntoIterator<Item = &'a mut Vec<Fragment>>,
        ahead: Ahead,
    ) -> Vec<Result<()>> {
        let lists: Vec<_> = lists.into_iter().collect();
        let away = lists.iter().flat_map(|list| list.iter()).filter(|one| is_elsewhere(one));
        let mut held = self.held(&away.cloned().collect::<Vec<_>>(), ahead).into_iter();
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

    fn held(&self, away: &[Fragment], mut ahead: Ahead) -> Vec<Result<Option<Fragment>>> {
        // What came ahead and is not what the home counts is asked for again.
        ahead.retain(|key, (_, found)| {
            let said = away.iter().find(|said| said.key() == *key);
            said.is_some_and(|said| is_as_said(said, found))
        });
        let keys: Vec<Key> = away.iter().map(Fragment::key).filter(|key| !ahead.contains_key(key)).collect();
        let found = if keys.is_empty() { Vec::new() } else { self.inner.others.held(self, &keys, &mut || ()) };
        let lacking = |at: &usize| matches!(found[*at].1, Ok(None));
        let missing: Vec<Key> = (0..found.len()).filter(lacking).map(|at| keys[at]).collect();
        // What was removed meanwhile the home has not either.
        let mut still = self.get_many_here(&missing).map(Vec::into_iter);
        let mut found = found.into_iter();
        let whole = |said: &Fragment| {
            if let Some((_, found)) = ahead.remove(&said.key()) {
                return Ok(Some(found));
            }
            let Some((holder, found)) = found.next() else { return Ok(None) };
            match (found?, &mut still) {
                (Some(found), _) => self.as_said(said, holder, found).map(Some),
                (None, Err(error)) => Err(error.again()),
                (None, Ok(still)) => match still.next().flatten() {
                    None => Ok(None),
                    Some(_) => Err(Error::corrupt(format!(
                        "{}: node {holder} does not have its bytes, which its home counts: look at `forebay losses` there",
                        self.schema().text(said.key().as_bytes())
                    ))),
                },
            }
        };
        away.iter().map(whole).collect()
    }

    /// What a holder has, if it is what the home counts.
    fn as_said(&self, said: &Fragment, holder: u16, found: Fragment) -> Result<Fragment> {
        if is_as_said(said, &found) {
            return Ok(found);
        }
        let name = self.schema().text(said.key().as_bytes());
        Err(Error::corrupt(format!("{name}: node {holder} has other bytes than those that its home counts")))
    }
}
