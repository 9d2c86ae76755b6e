//! Removes what dead writers left: by the list of writers and the names that they reserved, never by listing a bucket.
//!
//! *Invariants*: a prefix is taken from its writer by a conditional put of its heartbeat before anything below it is removed; the root is
//! read after that, and what it names stays. So a writer that comes back hears `Fenced` at its next heartbeat, and one that committed
//! loses nothing.

use crate::storage::{self, Condition, Put, Storage};
use crate::write::{alive, change_writers, claim, encode_writers, object, read_alive, read_root, writers};
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
    let storage = storage.as_ref();
    let (announced, _) = writers(storage)?;
    let mut collected = Collected::default();
    for prefix in announced.prefixes {
        if !prefix.bytes().all(|byte| byte.is_ascii_hexdigit()) || prefix.is_empty() {
            return Err(Error::corrupt(format!("{url}: {prefix:?} in the list of writers is no prefix")));
        }
        let reserved = match take(storage, &prefix, silent)? {
            Taken::Alive => {
                collected.alive.push(prefix);
                continue;
            }
            Taken::Names(reserved) => reserved,
        };
        // After the prefix was taken: no commit of its writer can follow.
        let root = read_root(storage)?;
        if root.is_some_and(|(root, _)| root.layers.iter().any(|layer| layer.prefix == prefix && layer.place == 0)) {
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
    Ok(collected)
}

enum Taken {
    /// The writer is at work.
    Alive,
    /// The prefix is ours; its writer reserved so many names.
    Names(u32),
}

/// Takes a prefix from its writer, if that was silent for long enough.
fn take(storage: &dyn Storage, prefix: &str, silent: Duration) -> Result<Taken> {
    let Some((mut state, tag)) = read_alive(storage, prefix)? else {
        // Announced, and died before its first heartbeat or after its commit. One that is between the two makes its first heartbeat on
        // the condition that there is none, so this one has to be there first.
        let claim = claim();
        let put = storage.put_if(&alive(prefix), &encode_writers(&claim)?, Condition::Absent)?;
        return Ok(if matches!(put, Put::Done(_)) { Taken::Names(claim.reserved) } else { Taken::Alive });
    };
    if state.removed {
        // An earlier gc took it and did not get to the end.
        return Ok(Taken::Names(state.reserved));
    }
    if storage.age(&alive(prefix))?.is_none_or(|age| age < silent) {
        return Ok(Taken::Alive);
    }
    state.removed = true;
    match storage.put_if(&alive(prefix), &encode_writers(&state)?, Condition::Unchanged(&tag))? {
        Put::Done(_) => Ok(Taken::Names(state.reserved)),
        Put::Refused => Ok(Taken::Alive),
    }
}
