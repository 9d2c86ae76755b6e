//! Limits of the data model and their relations, asserted at compile time.

/// Longest key, in bytes: primary and remaining sub-keys, each part padded to whole bytes.
pub const KEY_BYTES_MAX: usize = 32;
/// Most sub-keys of one key.
pub const SUB_KEYS_MAX: usize = 16;
/// Most attributes of one keyspace: presence is one 64-bit word.
pub const ATTRIBUTES_MAX: usize = 64;
/// Widest attribute, in bits.
pub const ATTRIBUTE_BITS_MAX: u32 = 128;
/// Most named classes of one keyspace.
pub const CLASSES_MAX: usize = 1 << 16;
/// Most streams known to one store: a decision names them by numbers of one byte, of which one says that there is none.
pub const STREAMS_MAX: usize = 255;
/// Most stages of a keyspace: the stage has 3 bits on the medium.
pub const STAGES_MAX: usize = 8;
/// Most source groups of a keyspace.
pub const GROUPS_MAX: usize = 64;
/// Most classes of one run with sources of their own.
pub const CLASS_RULES_MAX: usize = 200;
/// Most prescales of a run.
pub const PRESCALES_MAX: usize = 512;
/// Longest name of a sub-key, attribute, class, stream or holder, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Most fragments of one event, removed ones included.
pub const FRAGMENTS_PER_EVENT_MAX: u32 = 24_000;
/// Highest version that updates can give to one fragment: versions are 16 bits on the medium.
pub const VERSION_MAX: u16 = u16::MAX;
/// Most parts of a ring's source.
pub const SOURCE_PARTS_MAX: usize = 4;
/// Longest packed source of a ring, in bytes.
pub const SOURCE_BYTES_MAX: usize = 16;
/// Bytes of a ring key after its source: timestamp, span, run.
pub const RING_KEY_TAIL_BYTES: usize = 16;
/// Most sources of one ring.
pub const SOURCES_MAX: u32 = 1 << 16;
/// Most times an event is given to workers, regardless of the policy: the count has 4 bits on the medium.
pub const DELIVERIES_MAX: u8 = 15;

/// Most different fragments that a keyspace may ask for before a run opens by itself.
pub const AUTO_OPEN_AFTER_MAX: u8 = 16;

/// Most bytes that are kept of the reason for which a worker failed; more are cut off.
pub const FAILURE_BYTES_MAX: usize = 512;
/// Age from which on the holder of a fragment, under a look-up table, asks the home of its event about it where a client tells.
pub const HELD_ASKED_AFTER: std::time::Duration = std::time::Duration::from_secs(1);
/// Losses that an opening lists by name; further ones are only counted in the ledger.
pub const LOSSES_LISTED_MAX: usize = 10_000;

// A ring's key fits where any key fits.
const _: () = assert!(SOURCE_BYTES_MAX + RING_KEY_TAIL_BYTES <= KEY_BYTES_MAX);
// Presence bits cover all attributes.
const _: () = assert!(ATTRIBUTES_MAX <= u64::BITS as usize);
