//! The states of the sources of one event, as every read of it reports them.

use crate::{Error, Result, SourceState};

/// The sources of an event: those that are there and those that it waits for, each with its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceStates {
    /// Packed sources, each followed by its state.
    packed: Vec<u8>,
    width: usize,
}

impl SourceStates {
    /// From packed sources of `width` bytes, each followed by its state as a byte.
    pub fn new(packed: Vec<u8>, width: usize) -> SourceStates {
        SourceStates { packed, width }
    }

    /// The same as [`SourceStates::new`], of bytes that came from elsewhere.
    ///
    /// # Errors
    /// `Corrupt` for states that there are not, or bytes that are not whole.
    pub fn from_packed(packed: &[u8], width: usize) -> Result<SourceStates> {
        let known = |one: &[u8]| one.len() == width + 1 && one[width] < STATES.len() as u8;
        if !packed.chunks(width + 1).all(known) {
            return Err(Error::corrupt("states of sources that are not whole, or that there are not"));
        }
        Ok(SourceStates { packed: packed.to_vec(), width })
    }

    /// Packed sources, each followed by its state as a byte.
    pub fn packed(&self) -> &[u8] {
        &self.packed
    }

    /// Packed sources (sub-keys after the primary key) with their states: first those that are there, in key order, then
    /// the others.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], SourceState)> {
        self.packed.chunks_exact(self.width + 1).map(|one| (&one[..self.width], state_of(one[self.width])))
    }

    /// The state of one source.
    pub fn of(&self, source: &[u8]) -> SourceState {
        self.iter().find(|(known, _)| *known == source).map_or(SourceState::NotExpected, |(_, state)| state)
    }

    /// How many sources are in this state.
    pub fn count(&self, state: SourceState) -> usize {
        self.iter().filter(|(_, one)| *one == state).count()
    }
}

const STATES: [SourceState; 7] = {
    use SourceState::*;
    [Present, Empty, Missing, Masked, Late, NotExpected, Removed]
};

fn state_of(byte: u8) -> SourceState {
    STATES[usize::from(byte).min(STATES.len() - 1)]
}
