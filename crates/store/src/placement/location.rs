//! Places of images as locations of the index.

use forebay_core::Error;
use forebay_media::hot::Location;
use forebay_media::warm::ImagePlace;

/// The location of a fragment of an image.
pub(crate) fn at(place: ImagePlace, index: u32) -> Location {
    Location::warm(place.container, (place.position / forebay_media::bytes::IMAGE_ALIGN) as u32, index)
}

/// Where an image of a location stands.
pub(crate) fn place_of(location: Location) -> ImagePlace {
    let position = u64::from(location.entry) * forebay_media::bytes::IMAGE_ALIGN;
    ImagePlace { container: location.container(), position }
}

/// A fragment that no container can take is refused when it is put.
pub(crate) fn too_large(length: u64, most: u64) -> Error {
    Error::invalid(format!("a fragment of {length} bytes; a container of the warm level takes {most}"))
}
