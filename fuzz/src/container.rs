//! Fuzzes every decoder of the warm level's containers: raw bytes, and bytes with magic, version and checksum repaired.

use forebay_core::crc32c;
use forebay_media::bytes::{
    ContainerHeader, ContainerSeed, DeviceSuperblock, Directory, ExtentHead, ImageHead, ImageLayout, Stream,
};

use crate::seal;

const DEVICE: u32 = 1;

pub(crate) fn target(data: (u8, u8, u32, u16, Vec<u8>)) {
    let (primary, rest, position, code, bytes) = data;
    let primary_bytes = 1 + usize::from(primary) % 24;
    let layout = ImageLayout::new(primary_bytes, 1 + usize::from(rest) % (32 - primary_bytes));
    let position = u64::from(position >> 4) * 16;
    if let Some(stream) = Stream::from_code(code) {
        assert_eq!(stream.code(), code);
    }
    check(layout, position, &bytes);
    for (magic, version_at, crc_at, end) in [
        (&b"FBDEVICE"[..], Some(8), 124, 124),
        (b"FBCONTNR", Some(8), 252, 252),
        (b"FBEX", None, 4, 64),
        (b"FBEV", None, 4, usize::MAX),
        (b"FBDR", Some(8), 4, usize::MAX),
    ] {
        if let Some(repaired) = repair(&bytes, position, magic, version_at, crc_at, end) {
            check(layout, position, &repaired);
        }
    }
}

/// The seed, made from the specification alone.
fn seed_crc() -> Vec<u8> {
    let numbers = [DEVICE, seal::SEGMENT, seal::GENERATION].map(u32::to_le_bytes).concat();
    [&seal::STORE[..], &numbers].concat()
}

/// The bytes as something with this magic whose checksum is right: the checksum at 4 covers what follows it up to `end`
/// (or to where the bytes themselves say that they end), that at the end everything before.
fn repair(
    bytes: &[u8],
    position: u64,
    magic: &[u8],
    version: Option<usize>,
    crc_at: usize,
    end: usize,
) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    if bytes.len() < 64 || (crc_at > 4 && bytes.len() < crc_at + 4) {
        return None;
    }
    bytes[..magic.len()].copy_from_slice(magic);
    if let Some(at) = version {
        bytes[at..at + 4].copy_from_slice(&1_u32.to_le_bytes());
    }
    if crc_at > 4 {
        bytes[16..32].copy_from_slice(&seal::STORE);
        let number = if magic == b"FBCONTNR" { 12 } else { 40 };
        bytes[number..number + 4].copy_from_slice(&DEVICE.to_le_bytes());
        if magic == b"FBCONTNR" {
            bytes[32..36].copy_from_slice(&seal::SEGMENT.to_le_bytes());
        }
        let crc = crc32c(&bytes[..end]);
        bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        return Some(bytes);
    }
    let end = match magic {
        b"FBEV" => u32::from_le_bytes(bytes[28..32].try_into().ok()?) as usize,
        b"FBDR" => u64::from_le_bytes(bytes[16..24].try_into().ok()?).try_into().ok()?,
        _ => end,
    };
    let covered = bytes.get(8..end)?;
    let crc = crc32c(&[&seed_crc()[..], &position.to_le_bytes(), covered].concat());
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    Some(bytes)
}

/// What decodes is what encodes to these very bytes, and can be computed with.
fn check(layout: ImageLayout, position: u64, bytes: &[u8]) {
    let seed = ContainerSeed::new(&seal::STORE, DEVICE, seal::SEGMENT, seal::GENERATION);
    if let Ok(superblock) = DeviceSuperblock::decode(bytes) {
        assert!(superblock.possible());
        assert_eq!(superblock.encode()[..], bytes[..DeviceSuperblock::BYTES]);
    }
    if let Ok(header) = ContainerHeader::decode(bytes, &seal::STORE, DEVICE, seal::SEGMENT) {
        assert_eq!(header.encode(&seal::STORE)[..], bytes[..ContainerHeader::BYTES]);
        assert!(header.data_end <= header.container_bytes);
    }
    if let Some(head) = ExtentHead::decode(bytes, seed, position) {
        assert_eq!(head.encode(seed, position)[..], bytes[..ExtentHead::BYTES]);
        assert_eq!(ExtentHead::decode(bytes, seed, position + 16), None);
    }
    let _ = ImageHead::peek(bytes);
    if let Some(image) = layout.decode(bytes, seed, position) {
        let entries: Vec<_> = image.table().map(|(entry, _)| entry).collect();
        assert_eq!(entries.len(), image.head.fragments as usize);
        if !image.head.void {
            let mut again = Vec::new();
            let entries = entries.into_iter();
            let head =
                layout.encode(image.head.marks, image.primary, entries, image.record, seed, position, &mut again);
            assert_eq!(head, image.head);
            assert_eq!(again, bytes[..again.len()]);
        }
        for (entry, offset) in image.table() {
            assert!(offset + u64::from(entry.length) <= image.head.bytes);
        }
    }
    if let Ok(directory) = Directory::decode(bytes, layout, seed, position) {
        let images = directory.iter().filter(|image| image.is_ok()).count();
        assert!(images <= directory.images as usize);
    }
}
