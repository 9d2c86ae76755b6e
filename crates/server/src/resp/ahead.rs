//! Commands that have come together: read before the first of them is carried out, so that the memory which they will
//! touch is asked for at once.
//!
//! *Invariants*: only commands on one fragment are read past; what may change the meaning of a key (SELECT, AUTH, …) is
//! the last of its batch.

use super::keys;
use super::parse::{Command, Parts};
use super::table::{self, Spec};
use forebay_core::{Key, ServedStore};

/// Commands of one batch.
const COMMANDS_MAX: usize = 32;
/// Keys from which on asking ahead is worth its time.
const KEYS_MIN: usize = 4;

/// One whole command.
pub(super) struct Ready {
    /// Its bytes, from its first one on.
    pub(super) length: usize,
    pub(super) parts: Parts,
    /// What it is; `None` for one that there is not.
    pub(super) spec: Option<&'static Spec>,
    /// Its key, where it is a good one of a command on one fragment.
    pub(super) key: Option<Key>,
}

/// One batch.
#[derive(Default)]
pub(super) struct Ahead {
    pub(super) commands: Vec<Ready>,
    keys: Vec<Key>,
}

impl Ahead {
    pub(super) fn clear(&mut self) {
        self.commands.clear();
        self.keys.clear();
    }

    /// Adds a command; whether another one may be read past it.
    #[inline]
    pub(super) fn add<S: ServedStore>(
        &mut self,
        length: usize,
        parts: Parts,
        command: Command<'_>,
        store: Option<&S>,
    ) -> bool {
        let spec = table::find(command.part(0));
        let on_one = spec.is_some_and(|spec| spec.is_on_one_fragment());
        let key = store.filter(|_| on_one).and_then(|store| keys::key(store.schema(), command.part(1)).ok());
        self.keys.extend(key);
        self.commands.push(Ready { length, parts, spec, key });
        // The first command of another kind ends the batch: it may select another keyspace, in which the keys behind it
        // mean others.
        on_one && self.commands.len() < COMMANDS_MAX
    }

    /// Asks for what the commands will touch.
    pub(super) fn touch<S: ServedStore>(&self, store: Option<&S>) {
        if let Some(store) = store.filter(|_| self.keys.len() >= KEYS_MIN) {
            store.prefetch(&self.keys);
        }
    }
}
