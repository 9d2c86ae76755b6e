//! Emptying a full container of an accepted stream: what a mover does.
//!
//! ```text
//! full ─▶ draining ─▶ event after event is read and released ─▶ the last one reclaims the container
//!              └─▶ dropped before: full again
//! ```
//!
//! *Invariants*: a container is drained by one at a time, and not written meanwhile; nothing is released but by its
//! caller.

use crate::{Event, Sources, Store};
use forebay_core::{Error, Primary, Result};
use forebay_media::bytes::Stream;
use std::collections::VecDeque;

/// A container that is being emptied. Dropping it gives it back.
pub struct Drain {
    store: Store,
    container: u32,
    events: VecDeque<Primary>,
}

impl Store {
    /// Takes the oldest full container of an accepted stream to be emptied; `None` if there is none. Events that share
    /// a container with other streams are among what [`Drain::next_event`] gives.
    ///
    /// # Errors
    /// `Invalid` for an unknown stream or a store without a warm level, `Unavailable` where the device does not answer,
    /// `Closed`.
    pub fn drain(&self, stream: &str) -> Result<Option<Drain>> {
        let engine = self.engine();
        engine.check_open()?;
        let level =
            engine.placement.level.as_ref().ok_or_else(|| Error::invalid("this store has no warm level to drain"))?;
        let known = engine.decisions.streams.read().iter().position(|name| name == stream);
        let number = known.ok_or_else(|| Error::invalid(format!("no event was accepted into a stream `{stream}`")))?;
        let Some(container) = level.warm.drain_next(Stream::Accepted(number as u8))? else { return Ok(None) };
        let mut drain = Drain { store: self.clone(), container, events: VecDeque::new() };
        let mut last = None;
        level.warm.images_of(container, &mut |_, image| {
            let primary = Primary::from_packed(image.primary);
            // An event that is larger than an image has several, one after the other.
            if last != Some(primary) {
                drain.events.push_back(primary);
                last = Some(primary);
            }
            Ok(())
        })?;
        Ok(Some(drain))
    }
}

impl Drain {
    /// The container's number.
    pub fn container(&self) -> u32 {
        self.container
    }

    /// The next accepted event that is in the container, whole: one read. `None` at the end.
    ///
    /// # Errors
    /// `Corrupt` where its bytes do not verify, `Unavailable` where the device does not answer, `Closed`.
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        while let Some(primary) = self.events.pop_front() {
            let event = self.store.get_event(&primary, &Sources::All)?;
            // Released or removed since the container was written: nothing is left to archive.
            if let Some(event) = event.filter(|event| event.state == forebay_core::LiveState::Accepted) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        let engine = self.store.engine();
        if let Some(level) = &engine.placement.level
            && let Err(error) = level.warm.end_drain(self.container, Some(&level.log))
        {
            level.note(error.to_string());
        }
    }
}
