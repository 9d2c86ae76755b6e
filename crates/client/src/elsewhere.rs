//! Fragments whose bytes other nodes have: read there, so that no caller sees the difference.
//!
//! ```text
//! answer of a home ─▶ "length and checksum; another node has it" ─▶ its holder, by the look-up table ─▶ bytes
//!                                                  the holder has it not ─▶ the home once more: removed, or missed
//! event whose sources are few ─▶ its home, and behind it the holders ─▶ what the home counts, with the bytes that came
//! ```
//!
//! *Invariants*: no call hands out the record of a length and checksum in place of the bytes; what a holder answers is what its home
//! counts, by length and checksum.
//!
//! *Not here*: which node holds what (`cluster/joined.rs`).

use crate::client::Client;
use crate::fragment::Fragment;
use crate::pool::Ahead;
use forebay_core::{Error, Key, Level, Primary, Result, Sources};
use std::collections::BTreeMap;

/// A fragment as its holder has it, and the holder's number; `None` where it has not what it should.
pub(crate) type AtHolder = (u16, Result<Option<Fragment>>);

/// Fragments that came while their home said what it counts.
pub(crate) type Early = BTreeMap<Key, Fragment>;

/// What holders were asked for before the home of an event has answered. Dropped, its connections end.
#[derive(Default)]
pub(crate) struct Asked {
    /// A holder, the keys, and its answer to come.
    pub(crate) parts: Vec<(Client, Vec<Key>, Ahead)>,
}

/// The other nodes of the cluster that a client's server is a node of.
pub(crate) trait OtherNodes: Send + Sync {
    /// Fragments at the nodes that hold them, each asked once; in the order of the keys.
    fn held(&self, asking: &Client, keys: &[Key]) -> Vec<AtHolder>;

    /// Asks holders for fragments of an event that its home is likely to count: over connections that are free, and nothing where
    /// the nodes are not known.
    fn ask(&self, asking: &Client, primary: &Primary, sources: &Sources) -> Asked;

    /// Of the fragments that holders were asked for, the home counts this number.
    fn counted(&self, counted: usize, asked: usize);

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
    pub(crate) fn fetch_elsewhere(&self, found: &mut [Option<Fragment>]) -> Result<()> {
        let mut places: Vec<_> = found.iter_mut().filter(|found| found.as_ref().is_some_and(is_elsewhere)).collect();
        let away: Vec<Fragment> = places.iter().filter_map(|place| (**place).clone()).collect();
        for (place, bytes) in places.iter_mut().zip(self.held(&away, Early::new())) {
            **place = bytes?;
        }
        Ok(())
    }

    /// The same of a list; what was removed meanwhile is left out.
    ///
    /// # Errors
    /// As [`Client::fetch_elsewhere`].
    pub(crate) fn fetch_list(&self, list: &mut Vec<Fragment>) -> Result<()> {
        self.fetch_lists([list], Early::new()).pop().unwrap_or(Ok(()))
    }

    /// What holders were asked for ahead, of these fragments as their home counts them. A holder of none of them is not waited for.
    pub(crate) fn read_asked(&self, asked: Option<Asked>, counted: &[Fragment]) -> Early {
        let parts = asked.map_or_else(Vec::new, |asked| asked.parts);
        let wanted: BTreeMap<Key, &Fragment> =
            counted.iter().filter(|one| is_elsewhere(one)).map(|one| (one.key(), one)).collect();
        let count = |keys: &[Key]| keys.iter().filter(|key| wanted.contains_key(key)).count();
        let sum = |each: &dyn Fn(&[Key]) -> usize| parts.iter().map(|(_, keys, _)| each(keys)).sum();
        if !parts.is_empty() {
            self.inner.others.counted(sum(&count), sum(&<[Key]>::len));
        }
        let mut held = Early::new();
        for (holder, keys, ahead) in parts {
            if count(&keys) > 0 {
                let there = holder.there_of(&keys, ahead).into_iter();
                // What came and is not what the home counts is asked for again.
                let right = |found: &Fragment| wanted.get(&found.key()).is_some_and(|said| is_as_said(said, found));
                held.extend(there.filter(right).map(|found| (found.key(), found)));
            }
        }
        held
    }

    /// The same of several lists, each with its outcome. One that failed is not whole.
    pub(crate) fn fetch_lists<'a>(
        &self,
        lists: impl IntoIterator<Item = &'a mut Vec<Fragment>>,
        ahead: Early,
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

    fn held(&self, away: &[Fragment], mut ahead: Early) -> Vec<Result<Option<Fragment>>> {
        let keys: Vec<Key> = away.iter().map(Fragment::key).filter(|key| !ahead.contains_key(key)).collect();
        let found = if keys.is_empty() { Vec::new() } else { self.inner.others.held(self, &keys) };
        let lacking = |at: &usize| matches!(found[*at].1, Ok(None));
        let missing: Vec<Key> = (0..found.len()).filter(lacking).map(|at| keys[at]).collect();
        // What was removed meanwhile the home has not either.
        let mut still = self.get_many_here(&missing).map(Vec::into_iter);
        let mut found = found.into_iter();
        let whole = |said: &Fragment| {
            if let Some(found) = ahead.remove(&said.key()) {
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
