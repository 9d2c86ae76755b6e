//! Places of the index as locations: on the hot level, or in images of the warm one.
//!
//! ```text
//! place (58 bits):  location 57 bits, bit 57 says which level | bit 56 beside a hot location: a device has a copy as well
//! ```

use crate::events::{PlaceBits, Word};
use forebay_core::Error;
use forebay_media::bytes::IMAGE_ALIGN;
use forebay_media::hot::Location;
use forebay_media::warm::ImagePlace;

/// Beside a location on the hot level, which leaves this bit free.
const PERSISTED: u64 = 1 << 56;

// Places have 58 bits, and the highest one says which level.
const _: () = assert!(PERSISTED < 1 << 57);

impl PlaceBits {
    /// The place of what is at a location.
    #[inline]
    pub(crate) fn of(location: Location) -> PlaceBits {
        // Else a fragment would count as copied to a device that has nothing of it.
        debug_assert!(location.is_warm() || location.bits() & PERSISTED == 0, "a hot location leaves this bit free");
        PlaceBits(location.bits())
    }

    /// The location that it names.
    #[inline]
    pub(crate) fn location(self) -> Location {
        Location::from_bits(self.0)
    }
}

impl Word {
    /// The word of a fragment that can be read at a location.
    #[inline]
    pub(crate) fn of(location: Location) -> Word {
        Word::at(PlaceBits::of(location))
    }

    #[inline]
    pub(crate) fn location(self) -> Location {
        self.place().location()
    }

    #[inline]
    pub(crate) fn is_warm(self) -> bool {
        self.location().is_warm()
    }

    /// The same facts about a record that is elsewhere now. A copy on a device stays known as long as the record is hot.
    pub(crate) fn carried_to(self, location: Location) -> Word {
        // On the warm level the bit has another meaning, and the copy ends with its event.
        let moved = self.moved_to(PlaceBits::of(location));
        if self.is_persisted() && !location.is_warm() { moved.persisted() } else { moved }
    }

    /// A device has a copy of it.
    pub(crate) fn persisted(self) -> Word {
        debug_assert!(!self.is_warm(), "what is on a device needs no copy there");
        self.with_place(PlaceBits(self.place().0 | PERSISTED))
    }

    /// No device has a copy of it.
    pub(crate) fn not_persisted(self) -> Word {
        if self.is_persisted() { self.with_place(PlaceBits(self.place().0 & !PERSISTED)) } else { self }
    }

    pub(crate) fn is_persisted(self) -> bool {
        !self.is_warm() && self.place().0 & PERSISTED != 0
    }
}

/// The location of a fragment of an image.
pub(crate) fn at(place: ImagePlace, index: u32) -> Location {
    let location = Location::warm(place.container, (place.position / IMAGE_ALIGN) as u32, index);
    // Positions are kept in units of their alignment, so that they fit beside the container in 57 bits.
    debug_assert!(place_of(location).position == place.position, "an image is aligned, and within reach of a location");
    location
}

/// The image of a location on the warm level.
pub(crate) fn place_of(location: Location) -> ImagePlace {
    debug_assert!(location.is_warm(), "only the warm level has images");
    ImagePlace { container: location.container(), position: u64::from(location.entry) * IMAGE_ALIGN }
}

/// A fragment that no container can take is refused when it is put.
pub(crate) fn too_large(length: u64, most: u64) -> Error {
    Error::invalid(format!("a fragment of {length} bytes; a container of the warm level takes {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_location_and_facts_apart() {
        let location = Location { segment: 0xFF_FFFF, entry: 0xFF_FFFE };
        let word = Word::of(location).pending().busy();
        assert_eq!((word.location(), word.is_persisted()), (location, false));
        let copied = Word::of(location).persisted();
        assert!(copied.is_persisted() && copied.location() == location && !copied.not_persisted().is_persisted());
        assert!(copied.carried_to(Location { segment: 1, entry: 2 }).is_persisted());
        let warm = Location::warm(0x3FFF, 0xFFF_FFFE, 0x7FFE);
        assert!(!copied.carried_to(warm).is_persisted());
        let there = Word::of(warm).of_fragment(true, 0).of_result().busy();
        assert_eq!((there.location(), there.is_warm(), word.is_warm()), (warm, true, false));
        let parts = (warm.container(), warm.entry, warm.index());
        assert_eq!(parts, (0x3FFF, 0xFFF_FFFE, 0x7FFE));
    }
}
