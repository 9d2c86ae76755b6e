//! One command's turn: what it may touch, and what it leaves behind for the counters.

use super::client::Client;
use super::failure::Failure;
use super::keys;
use super::parse::Command;
use super::replies::Replies;
use crate::shared::Shared;
use forebay_core::{Call, Key, PutOptions, PutOutcome, ServedStore};
use std::time::{Duration, Instant};

/// What a command works with.
pub(super) struct Turn<'a, S: ServedStore> {
    pub(super) shared: &'a Shared,
    pub(super) client: &'a mut Client<S>,
    pub(super) replies: &'a mut Replies<S::Fragment>,
    /// Whether this thread may wait: it is none that serves connections.
    pub(super) may_wait: bool,
    /// Until when the command under way waits for events.
    pub(super) patience: &'a mut Option<Instant>,
    /// The key of its first argument, where that was read before.
    pub(super) key: Option<Key>,
    /// The call as which it is counted.
    pub(super) call: Option<Call>,
    /// Things that were asked for, of which some failed by themselves.
    pub(super) things: u64,
    /// Payload bytes that came and went.
    pub(super) received: u64,
    pub(super) sent: u64,
    /// What it cost, about, in commands on one fragment.
    pub(super) cost: usize,
}

/// The next step after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// It is answered.
    Done,
    /// It has to be repeated where it may wait; nothing was done that a repetition does not find again.
    Wait,
    /// It waits for events: to be repeated once there may be some, or after this time.
    Later(Duration),
    /// It is answered, and the connection ends, for this reason.
    End(&'static str),
}

/// What a look for a fragment has shown.
pub(super) enum Looked<F> {
    There(F),
    Absent,
    /// It is on a device, for which this thread must not wait.
    Wait,
}

pub(super) type Answer = Result<Flow, Failure>;

impl<S: ServedStore> Turn<'_, S> {
    /// The key of the first argument.
    ///
    /// # Errors
    /// `Invalid` for one that is none.
    #[inline]
    pub(super) fn key(&self, command: Command<'_>) -> Result<Key, Failure> {
        match self.key {
            // Read before, when the batch was read ahead for its prefetch.
            Some(key) => Ok(key),
            None => Ok(keys::key(self.client.store()?.schema(), command.part(1))?),
        }
    }

    /// Stores a fragment; `None` where this thread would have to wait.
    ///
    /// # Errors
    /// Those of a put.
    #[inline]
    pub(super) fn put(&self, key: &Key, value: &[u8], options: &PutOptions<'_>) -> Result<Option<PutOutcome>, Failure> {
        let store = self.client.store()?;
        // On the event loop only what needs no wait; `None` sends the whole session to a thread.
        Ok(if self.may_wait {
            Some(store.put(key, value, options)?)
        } else {
            store.try_put(key, value, options, None)?
        })
    }

    /// Looks for a fragment.
    ///
    /// # Errors
    /// Those of a get.
    #[inline]
    pub(super) fn look(&self, key: &Key) -> Result<Looked<S::Fragment>, Failure> {
        let store = self.client.store()?;
        if self.client.may_be_slow() && !self.may_wait {
            let schema = store.schema();
            // Asked before the read: once a read of a device has begun it cannot be given up.
            if store.may_wait(&schema.primary_of(key), Some(schema.rest_of(key))) {
                return Ok(Looked::Wait);
            }
        }
        Ok(store.get(key)?.map_or(Looked::Absent, Looked::There))
    }
}
