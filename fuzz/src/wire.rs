//! Fuzzes what comes over a connection: heads, raw and under a repaired checksum, and metas.

use forebay_core::{AttributeSchema, Keyspace, SourceSchema, crc32c};
use forebay_wire::{
    Control, FRAME_HEAD_BYTES, FrameHead, Hello, Welcome, WireExtend, WireLease, WireOpen, WirePut, WireRange,
    WireReader, WireRemove, WireSample, WireUpdate, WireVerdict, WireWindow, WireWindowPart, WireWriter,
};
use std::sync::LazyLock;

static KEYSPACE: LazyLock<Keyspace> = LazyLock::new(|| {
    let mut keyspace = Keyspace::events("fuzz", 2);
    let attributes = AttributeSchema::parse(&["lumi:u32", "bits:u128", "class"], &["physics", "calib"]);
    keyspace.attributes = attributes.unwrap_or_default();
    keyspace
});

static SOURCES: LazyLock<SourceSchema> =
    LazyLock::new(|| SourceSchema::parse(&["crate:u4", "link:u16"]).expect("a schema"));

pub(crate) fn target(data: ([u8; FRAME_HEAD_BYTES], bool, u32, &[u8])) {
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
    requests(meta, keyspace);
    rings(meta, payload_bytes);
    hellos(meta);
    let mut read = WireReader::new(meta);
    if let Ok(sample) = WireSample::decode(&mut read, keyspace) {
        let mut out = WireWriter::new();
        assert!(sample.encode(&mut out, keyspace).is_ok());
        assert_eq!(WireSample::decode(&mut WireReader::new(out.bytes()), keyspace).ok(), Some(sample));
    }
    if let Ok(control) = serde_json::from_slice::<Control>(meta) {
        let again = serde_json::to_vec(&control).ok().and_then(|text| serde_json::from_slice::<Control>(&text).ok());
        // What is no number is not equal to itself.
        assert_eq!(format!("{again:?}"), format!("{:?}", Some(control)));
    }
    let _ = WireReader::new(meta).get_any(keyspace);
    let _ = WireReader::new(meta).outcome(|read| read.fragment());
}

/// The same of a ring.
fn rings(meta: &[u8], payload_bytes: u32) {
    let schema = &*SOURCES;
    if let Ok(puts) = WirePut::decode_all_of_ring(meta, payload_bytes, schema) {
        assert!(puts.iter().all(|put| schema.decode(put.key.as_bytes()).is_some()));
        let again = WirePut::encode_all(&puts, &AttributeSchema::default());
        assert_eq!(again.ok().as_deref(), Some(meta));
    }
    if let Ok(window) = WireWindow::decode(meta, schema) {
        assert_eq!(window.encode(schema).ok().as_deref(), Some(meta));
    }
    if let Ok(parts) = WireWindowPart::decode_all(meta, schema) {
        assert_eq!(WireWindowPart::encode_all(&parts, schema).ok().as_deref(), Some(meta));
    }
}

/// What decodes as a request is written again as it was understood.
fn requests(meta: &[u8], keyspace: &Keyspace) {
    if let Ok(update) = WireUpdate::decode(meta, keyspace) {
        let again = update.encode(keyspace).and_then(|meta| WireUpdate::decode(&meta, keyspace));
        assert_eq!(again.ok(), Some(update));
    }
    if let Ok(remove) = WireRemove::decode(meta, keyspace) {
        let again = remove.encode().and_then(|meta| WireRemove::decode(&meta, keyspace));
        assert_eq!(again.ok(), Some(remove));
    }
    if let Ok(range) = WireRange::decode(meta, keyspace) {
        let again = range.encode().and_then(|meta| WireRange::decode(&meta, keyspace));
        assert_eq!(again.ok(), Some(range));
    }
    if let Ok(open) = WireOpen::decode_all(meta, keyspace) {
        let again = WireOpen::encode_all(&open, keyspace).and_then(|meta| WireOpen::decode_all(&meta, keyspace));
        assert_eq!(again.ok(), Some(open));
    }
    if let Ok(extend) = WireExtend::decode_all(meta, keyspace) {
        let again = WireExtend::encode_all(&extend).and_then(|meta| WireExtend::decode_all(&meta, keyspace));
        assert_eq!(again.ok(), Some(extend));
    }
}

fn hellos(meta: &[u8]) {
    if let Ok(hello) = Hello::decode(meta) {
        let again = hello.encode().and_then(|meta| Hello::decode(&meta));
        assert_eq!(again.ok(), Some(hello));
    }
    if let Ok(welcome) = Welcome::decode(meta) {
        let again = welcome.encode().and_then(|meta| Welcome::decode(&meta));
        assert_eq!(again.ok(), Some(welcome));
    }
}

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
