//! One command's turn: what it may touch, and what it leaves behind for the counters.

use super::client::Client;
use super::failure::Failure;
use super::keys;
use super::parse::Command;
use super::replies::Replies;
use crate::call::Call;
use crate::shared::Shared;
use forebay_core::{Error, Key, Kind};
use forebay_store::PutOptions;
use std::time::{Duration, Instant};

/// What a command works with.
pub(super) struct Turn<'a> {
    pub(super) shared: &'a Shared,
    pub(super) client: &'a mut Client,
    pub(super) replies: &'a mut Replies,
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

/// What follows from a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// It is answered.
    Done,
    /// It has to be repeated where it may wait; nothing was done or answered.
    Wait,
    /// It is answered, and the connection ends, for this reason.
    End(&'static str),
}

pub(super) type Answer = Result<Flow, Failure>;

impl Turn<'_> {
    /// The key of the first argument.
    ///
    /// # Errors
    /// `Invalid` for one that is none.
    #[inline]
    pub(super) fn key(&self, command: Command<'_>) -> Result<Key, Failure> {
        match self.key {
            Some(key) => Ok(key),
            None => Ok(keys::key(self.client.store()?.schema(), command.part(1))?),
        }
    }

    /// How fragments are put: without waiting for space where this thread must not wait.
    #[inline]
    pub(super) fn put_options(&self) -> PutOptions<'static> {
        PutOptions { deadline: if self.may_wait { None } else { Some(Duration::ZERO) }, ..PutOptions::default() }
    }

    /// Whether the answer under way has become too large: a client asks for it in parts then.
    ///
    /// # Errors
    /// `ERR` past four times the window.
    pub(super) fn check_answer(&self) -> Result<(), Failure> {
        let most = 4 * self.shared.limits.window_bytes as usize;
        if self.replies.memory() <= most {
            return Ok(());
        }
        Err(Failure::err(format!("the answer would take more than {most} bytes of memory: ask for less at once")))
    }

    /// What comes of an error: where only waiting may help, the command is repeated where it may.
    ///
    /// # Errors
    /// The error itself, where it stands.
    pub(super) fn wait_or(&self, error: Error) -> Answer {
        let may_pass = matches!(error.kind(), Kind::Full | Kind::Unavailable);
        if may_pass && !self.may_wait { Ok(Flow::Wait) } else { Err(error.into()) }
    }
}
