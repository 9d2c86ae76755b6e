//! Fuzzes what the decision log says in words of its own: runs, masks, holds, producers, outputs, snapshots.

use forebay_core::{AttributeSchema, Keyspace};

pub(crate) fn target(bytes: &[u8]) {
    let mut keyspace = Keyspace::events("fuzz", 4);
    keyspace.attributes = AttributeSchema::parse(&["lumi:u32", "class"], &["physics", "calib"]).expect("a schema");
    forebay_store::decode_log_blob(&keyspace, bytes);
    // The head of a snapshot of this version, so that the fuzzer gets behind it.
    let snapshot = [&2_u32.to_le_bytes()[..], &16_u32.to_le_bytes(), bytes].concat();
    forebay_store::decode_log_blob(&keyspace, &snapshot);
}
