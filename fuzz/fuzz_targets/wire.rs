//! Fuzzes what comes over a connection: heads, raw and under a repaired checksum, and metas.
#![no_main]

use forebay_core::{
    AttributeSchema, FRAME_HEAD_BYTES, FrameHead, Keyspace, WireLease, WirePut, WireReader, WireVerdict, WireWriter,
    crc32c,
};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static KEYSPACE: LazyLock<Keyspace> = LazyLock::new(|| {
    let mut keyspace = Keyspace::events("fuzz", 2);
    let attributes = AttributeSchema::parse(&["lumi:u32", "bits:u128", "class"], &["physics", "calib"]);
    keyspace.attributes = attributes.unwrap_or_default();
    keyspace
});

fuzz_target!(|data: ([u8; FRAME_HEAD_BYTES], bool, u32, &[u8])| {
    let (head, repaired, payload_bytes, meta) = data;
    frame(head, repaired, meta);
    let keyspace = &*KEYSPACE;
    if let Ok(puts) = WirePut::decode_all(meta, payload_bytes, &keyspace.schema, &keyspace.attributes) {
        let total: u64 = puts.iter().map(|put| u64::from(put.length)).sum();
        assert_eq!(total, u64::from(payload_bytes));
        let again = WirePut::encode_all(&puts, &keyspace.attributes)
            .map(|meta| WirePut::decode_all(&meta, payload_bytes, &keyspace.schema, &keyspace.attributes).ok());
        assert_eq!(again.ok().flatten(), Some(puts));
    }
    if let Ok(verdicts) = WireVerdict::decode_all(meta, payload_bytes, keyspace) {
        let again = WireVerdict::encode_all(&verdicts).ok();
        assert_eq!(again.as_deref(), Some(meta));
    }
    let mut read = WireReader::new(meta);
    if let Ok(lease) = WireLease::decode(&mut read, keyspace) {
        let mut out = WireWriter::new();
        assert!(lease.encode(&mut out, keyspace).is_ok());
        let again = WireLease::decode(&mut WireReader::new(out.bytes()), keyspace);
        assert_eq!(again.ok(), Some(lease));
    }
    let _ = WireReader::new(meta).get_any(keyspace);
    let _ = WireReader::new(meta).outcome(|read| read.fragment());
});

fn frame(mut head: [u8; FRAME_HEAD_BYTES], repaired: bool, meta: &[u8]) {
    if repaired {
        head[..4].copy_from_slice(b"FBW\x01");
        let crc = crc32c(&head[..36]);
        head[36..].copy_from_slice(&crc.to_le_bytes());
    }
    if let Ok(head) = FrameHead::decode(&head, 1 << 20) {
        assert!(head.frame_bytes() <= FRAME_HEAD_BYTES as u64 + (1 << 20));
        let again = FrameHead::decode(&head.encode(), 1 << 20);
        assert_eq!(again.ok(), Some(head));
        let _ = head.check_meta(meta);
    }
}
