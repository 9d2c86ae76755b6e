//! A container in memory: its phase, the live data in it, its readers, and its header as last written.
//!
//! ```text
//! empty ─▶ filling ─▶ full ⇄ draining ─▶ custody ─▶ reclaiming ─▶ empty        filling ─▶ poisoned
//! word: live fragments 32 | pins 24 | phase 8
//! ```
//!
//! *Invariants*: readers pin while something in it is live, under the lock of the index that says where; so a word
//! without live fragments and pins in a closed phase gets none of them any more, and one compare-and-swap to
//! *reclaiming* is safe (test `a_pin_that_came_in_time_keeps_a_container`).

use super::device::FileId;
use crate::bytes::{CONTAINER_BYTES_MAX, ContainerHeader, ContainerSeed, ContainerState};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const LIVE: u64 = 0xFFFF_FFFF;
const PIN: u64 = 1 << 32;
const PINS: u64 = 0xFF_FFFF << 32;
const PHASE_SHIFT: u32 = 56;
// The fields lie side by side and fill the word; more fragments than the field holds do not fit the largest container.
const _: () = assert!(LIVE & PINS == 0 && LIVE | PINS == (1 << PHASE_SHIFT) - 1);
const _: () = assert!(CONTAINER_BYTES_MAX / 16 < LIVE);

/// The state of a container in this life of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Holds nothing; can be taken.
    Empty = 0,
    /// Images are appended.
    Filling = 1,
    /// Takes no more; its directory is written.
    Full = 2,
    /// A mover has claimed it: what is live in it is read for the archive.
    Draining = 3,
    /// A write of it failed: it takes no more.
    Poisoned = 4,
    /// Between the last of its data and the durable word that it is empty.
    Reclaiming = 5,
    /// Its device or its file is not there.
    Lost = 6,
    /// The archive has what lives in it.
    Custody = 7,
}

impl Phase {
    fn from_byte(byte: u8) -> Phase {
        use Phase::*;
        let all = [Empty, Filling, Full, Draining, Poisoned, Reclaiming, Custody];
        all.into_iter().find(|phase| *phase as u8 == byte).unwrap_or(Lost)
    }

    pub(super) fn of(state: ContainerState) -> Phase {
        match state {
            ContainerState::Empty => Phase::Empty,
            ContainerState::Filling => Phase::Filling,
            ContainerState::Full => Phase::Full,
            ContainerState::Draining => Phase::Draining,
            ContainerState::Poisoned => Phase::Poisoned,
            ContainerState::Custody => Phase::Custody,
        }
    }
}

pub(crate) struct Container {
    pub(super) number: u32,
    pub(super) device: u32,
    pub(super) file: Option<FileId>,
    word: AtomicU64,
    /// A write or a sync failed in this life: not used again before the next one.
    pub(super) poisoned_here: AtomicBool,
    pub(super) header: Mutex<ContainerHeader>,
    /// Where the last image of this filling ends and how many fragments it has, as this life wrote them: for people.
    appended: [AtomicU64; 2],
    /// Where the shadows ended when it was first found empty; 0 where it was not.
    emptied: AtomicU64,
    /// Held while its state is changed on the medium.
    pub(super) transition: Mutex<()>,
}

impl Container {
    pub(super) fn new(header: ContainerHeader, file: Option<FileId>) -> Container {
        let phase = match Phase::of(header.state) {
            // Without the file the header is a guess: what the container held is named as lost by the opening.
            _ if file.is_none() => Phase::Lost,
            // Draining is the work of one life: a mover claims the container again.
            Phase::Draining => Phase::Full,
            phase => phase,
        };
        Container {
            number: header.container,
            device: header.device,
            file,
            word: AtomicU64::new((phase as u64) << PHASE_SHIFT),
            poisoned_here: AtomicBool::new(false),
            header: Mutex::new(header),
            appended: Default::default(),
            emptied: AtomicU64::new(0),
            transition: Mutex::new(()),
        }
    }

    pub(super) fn seed(&self, store: &[u8; 16]) -> ContainerSeed {
        ContainerSeed::new(store, self.device, self.number, self.header.lock().generation)
    }

    pub(super) fn phase(&self) -> Phase {
        Phase::from_byte((self.word.load(Ordering::Acquire) >> PHASE_SHIFT) as u8)
    }

    /// Live fragments.
    pub(super) fn live(&self) -> u32 {
        (self.word.load(Ordering::Acquire) & LIVE) as u32
    }

    pub(super) fn pins(&self) -> u32 {
        ((self.word.load(Ordering::Acquire) & PINS) / PIN) as u32
    }

    /// An image of `fragments` fragments was written, up to `end`.
    pub(super) fn append(&self, end: u64, fragments: u32) {
        debug_assert_ne!(self.phase(), Phase::Empty, "an image in a container that is not being filled");
        // Relaxed: for people only. What counts after a crash is what the extents say.
        self.appended[0].store(end, Ordering::Relaxed);
        self.appended[1].fetch_add(u64::from(fragments), Ordering::Relaxed);
        self.add_live(fragments);
    }

    /// A filling begins.
    pub(super) fn begin(&self) {
        debug_assert!(self.live() == 0 && self.pins() == 0, "a filling over live fragments");
        self.appended.iter().chain([&self.emptied]).for_each(|figure| figure.store(0, Ordering::Relaxed));
    }

    /// Position in the shadows before which everything was decided that ended here; for a container in which nothing lives.
    pub(super) fn emptied_at(&self, end: impl Fn() -> u64) -> u64 {
        // Kept from the first look on: what ended here was decided before it, and later entries of the shadows are about
        // other events. Asking for the present end each time would never be satisfied under load.
        if self.live() > 0 {
            return u64::MAX;
        }
        let now = end();
        match self.emptied.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => now,
            Err(before) => before,
        }
    }

    /// The header, with what was written since.
    pub(super) fn header_now(&self) -> ContainerHeader {
        let mut header = *self.header.lock();
        if matches!(self.phase(), Phase::Filling | Phase::Poisoned) {
            header.data_end = header.data_end.max(self.appended[0].load(Ordering::Relaxed));
            header.fragments = header.fragments.max(self.appended[1].load(Ordering::Relaxed));
        }
        header
    }

    fn change(&self, change: impl Fn(u64) -> Option<u64>) -> Result<u64, u64> {
        // All three fields in one word and one swap: a reclaim that looked at them one after the other could miss a pin.
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, change)
    }

    pub(super) fn add_live(&self, fragments: u32) {
        let before = self.word.fetch_add(u64::from(fragments), Ordering::AcqRel);
        debug_assert!((before & LIVE) + u64::from(fragments) <= LIVE, "live fragments run into the pins");
    }

    /// Fewer live fragments; answers whether none is left and nobody reads.
    pub(super) fn end_live(&self, fragments: u32) -> bool {
        let ended = |word: u64| {
            // A release would rather keep a wrong count at zero than borrow from the pins: a container that is reclaimed too
            // early is caught by the generation in every checksum, one that is never reclaimed fills the level.
            debug_assert!(word & LIVE >= u64::from(fragments), "more fragments ended than lived");
            Some(word - (word & LIVE).min(u64::from(fragments)))
        };
        let before = self.change(ended).unwrap_or_else(|word| word);
        before & LIVE <= u64::from(fragments) && before & PINS == 0
    }

    pub(super) fn pin(&self) {
        let before = self.word.fetch_add(PIN, Ordering::AcqRel);
        debug_assert!(before & PINS != PINS, "pins run into the phase");
    }

    /// One reader fewer; answers whether nobody reads and nothing is live.
    pub(super) fn unpin(&self) -> bool {
        let before = self.word.fetch_sub(PIN, Ordering::AcqRel);
        debug_assert!(before & PINS != 0, "unpinned twice");
        before & PINS == PIN && before & LIVE == 0
    }

    /// From one phase to another; `false` where it is in none of `from`.
    pub(super) fn set_phase(&self, from: &[Phase], to: Phase) -> bool {
        self.change(|word| {
            let phase = Phase::from_byte((word >> PHASE_SHIFT) as u8);
            from.contains(&phase).then_some(word & (LIVE | PINS) | (to as u64) << PHASE_SHIFT)
        })
        .is_ok()
    }

    /// Its directory and its header are durable: it is full.
    pub(super) fn close(&self) {
        self.set_phase(&[Phase::Filling], Phase::Full);
    }

    /// Takes a closed container in which nothing lives and that nobody reads; answers the phase that it had.
    pub(super) fn begin_reclaiming(&self) -> Option<Phase> {
        let closed = [Phase::Full, Phase::Draining, Phase::Custody, Phase::Poisoned];
        let taken = self.change(|word| {
            let phase = Phase::from_byte((word >> PHASE_SHIFT) as u8);
            let idle = word & (LIVE | PINS) == 0 && closed.contains(&phase);
            idle.then_some((Phase::Reclaiming as u64) << PHASE_SHIFT)
        });
        taken.ok().map(|word| Phase::from_byte((word >> PHASE_SHIFT) as u8))
    }

    /// The header with this change and a new revision: the copy that it goes to and its bytes.
    pub(super) fn next_header(
        &self,
        store: &[u8; 16],
        change: impl FnOnce(&mut ContainerHeader),
    ) -> (u64, [u8; ContainerHeader::BYTES]) {
        // The lock guards the header's value alone; the write that follows is ordered by `transition`, or by the one writer
        // that fills the container.
        let mut header = self.header.lock();
        let before = header.generation;
        change(&mut header);
        debug_assert!(header.generation >= before, "a generation that was used comes again");
        header.revision += 1;
        (header.revision % 2 * crate::bytes::CONTAINER_BLOCK_BYTES, header.encode(store))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container() -> Container {
        Container::new(ContainerHeader::empty(0, 7, 1 << 20), Some(FileId(1)))
    }

    #[test]
    fn a_pin_that_came_in_time_keeps_a_container() {
        let container = container();
        assert!(container.set_phase(&[Phase::Empty], Phase::Filling));
        container.add_live(3);
        container.pin();
        assert!(container.begin_reclaiming().is_none(), "still filling");
        assert!(!container.set_phase(&[Phase::Empty], Phase::Full));
        assert!(container.set_phase(&[Phase::Filling], Phase::Full));
        assert!(!container.end_live(3), "somebody reads");
        assert!(container.begin_reclaiming().is_none());
        assert!(container.unpin());
        assert_eq!(container.begin_reclaiming(), Some(Phase::Full));
        assert!(container.begin_reclaiming().is_none(), "only one reclaims");
        assert_eq!((container.phase(), container.live(), container.pins()), (Phase::Reclaiming, 0, 0));
    }

    #[test]
    fn counts_of_the_last_fragment_and_pin_say_so() {
        let container = container();
        container.add_live(2);
        assert!(!container.end_live(1));
        assert!(container.end_live(1));
        container.pin();
        container.pin();
        assert!(!container.unpin());
        assert!(container.unpin());
    }

    #[test]
    fn headers_alternate_between_the_copies() {
        let container = container();
        let (first, _) = container.next_header(&[1; 16], |header| header.generation += 1);
        let (second, bytes) = container.next_header(&[1; 16], |header| header.generation += 1);
        assert_eq!((first, second), (4096, 0));
        assert_eq!(ContainerHeader::decode(&bytes, &[1; 16], 0, 7).unwrap().generation, 2);
    }
}
