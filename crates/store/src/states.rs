//! How the sources of one event stand, as every read of it says.

use crate::stats::SourceState;

/// The sources of an event: those that are there and those that it waits for, each with its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceStates {
    /// Packed sources, each followed by its state.
    packed: Vec<u8>,
    width: usize,
}

impl SourceStates {
    pub(crate) fn new(packed: Vec<u8>, width: usize) -> SourceStates {
        SourceStates { packed, width }
    }

    /// Packed sources (sub-keys after the primary key) with their states: first those that are there, in key order, then
    /// the others.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], SourceState)> {
        self.packed.chunks_exact(self.width + 1).map(|one| (&one[..self.width], state_of(one[self.width])))
    }

    /// How one source stands.
    pub fn of(&self, source: &[u8]) -> SourceState {
        self.iter().find(|(known, _)| *known == source).map_or(SourceState::NotExpected, |(_, state)| state)
    }

    /// How many sources are in this state.
    pub fn count(&self, state: SourceState) -> usize {
        self.iter().filter(|(_, one)| *one == state).count()
    }
}

fn state_of(byte: u8) -> SourceState {
    use SourceState::*;
    [Present, Empty, Missing, Masked, Late, NotExpected, Removed][usize::from(byte).min(6)]
}
