//! Removes what dead writers left: by the list of writers and the names that they reserved, never by listing a bucket.
//!
//! *Invariants*: a prefix is taken from its writer by a conditional put of its heartbeat before anything below it is removed; the root is
//! read after that, and what it names stays. So a writer that comes back hears `Fenced` at its next heartbeat, and one that committed
//! loses nothing.

use crate::root::{self, object};
use crate::storage::{self, Condition, Put, Storage};
use crate::write::{Alive, alive, change_writers, claim, encode_writers, read_alive, writers};
use forebay_core::{Error, Result};
use std::time::Duration;

/// Names that are removed in one call.
const AT_ONCE: usize = 1000;

/// What `gc` did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Writers that are at work, or not silent for long enough: their prefixes stay.
    pub alive: Vec<String>,
    /// Writers that had committed: only their announcements were removed.
    pub committed: Vec<String>,
    /// Writers that died: everything below their prefixes was removed.
    pub removed: Vec<String>,
    /// Names that may have had an object and have none now.
    pub names: u64,
}

/// Removes what writers left that were silent for longer than `silent`, by the clock of the storage. Ten minutes are safe for writers
/// with the usual heartbeat of one minute. Old versions stay: what a version names is never removed.
///
/// # Errors
/// Errors of the storage; what was removed until then stays removed, and a repeat goes on.
pub fn gc(url: &str, silent: Duration, options: &storage::Options) -> Result<Collected> {
    let storage = storage::open(url, options)?;
    let mut collected = Collected::default();
    collect(storage.as_ref(), silent, options, &mut collected)?;
    // Places of classes belong to the dataset, those of other datasets do not.
    let places = root::read(storage.as_ref())?.map_or_else(Vec::new, |(root, _)| root.places);
    for place in places.iter().filter(|place| !place.url.is_empty() && place.owner.is_empty()) {
        collect(storage::open(&place.url, options)?.as_ref(), silent, options, &mut collected)?;
    }
    Ok(collected)
}

/// Removes what dead writers left in one place.
fn collect(
    storage: &dyn Storage,
    silent: Duration,
    options: &storage::Options,
    collected: &mut Collected,
) -> Result<()> {
    let (announced, _) = writers(storage)?;
    for prefix in announced.prefixes {
        if !prefix.bytes().all(|byte| byte.is_ascii_hexdigit()) || prefix.is_empty() {
            let url = storage.url();
            return Err(Error::corrupt(format!("{url}: {prefix:?} in the list of writers is no prefix")));
        }
        let Some(taken) = take(storage, &prefix, silent)? else {
            collected.alive.push(prefix);
            continue;
        };
        // After the prefix was taken: no commit of its writer can follow.
        let root = if taken.dataset.is_empty() {
            root::read(storage)?
        } else {
            let found = root::read(storage::open(&taken.dataset, options)?.as_ref())?;
            if found.is_none() {
                return Err(Error::invalid(format!(
                    "{}: the writer {prefix} wrote for {}, where there is no dataset; what it wrote stays",
                    storage.url(),
                    taken.dataset
                )));
            }
            found
        };
        let reserved = taken.reserved;
        if root.is_some_and(|(root, _)| root.layers.iter().any(|layer| layer.prefix == prefix)) {
            storage.remove(&[alive(&prefix)])?;
            collected.committed.push(prefix.clone());
        } else {
            let names: Vec<String> = (0..reserved).map(|number| object(&prefix, number)).collect();
            for names in names.chunks(AT_ONCE) {
                storage.remove(names)?;
            }
            storage.remove(&[alive(&prefix)])?;
            collected.names += u64::from(reserved);
            collected.removed.push(prefix.clone());
        }
        change_writers(storage, |prefixes| prefixes.retain(|known| *known != prefix))?;
    }
    Ok(())
}

/// Takes a prefix from its writer, if that was silent for long enough; what its heartbeat said. None: the writer is at work.
fn take(storage: &dyn Storage, prefix: &str, silent: Duration) -> Result<Option<Alive>> {
    let Some((mut state, tag)) = read_alive(storage, prefix)? else {
        // Announced, and died before its first heartbeat or after its commit. One that is between the two makes its first heartbeat on
        // the condition that there is none, so this one has to be there first.
        let claim = claim();
        let put = storage.put_if(&alive(prefix), &encode_writers(&claim)?, Condition::Absent)?;
        return Ok(matches!(put, Put::Done(_)).then_some(claim));
    };
    if state.removed {
        // An earlier gc took it and did not get to the end.
        return Ok(Some(state));
    }
    if storage.age(&alive(prefix))?.is_none_or(|age| age < silent) {
        return Ok(None);
    }
    state.removed = true;
    match storage.put_if(&alive(prefix), &encode_writers(&state)?, Condition::Unchanged(&tag))? {
        Put::Done(_) => Ok(Some(state)),
        Put::Refused => Ok(None),
    }
}
