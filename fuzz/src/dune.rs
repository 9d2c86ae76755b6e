//! Fuzzes DUNE's fragment and trigger record headers: raw bytes, and bytes under a repaired head, so that what lies behind
//! it is reached.

use forebay_daq::dune::{COMPONENT_REQUEST_BYTES, FragmentHeader, RECORD_HEADER_BYTES, TriggerRecordHeader};

pub(crate) fn target(bytes: &[u8]) {
    check(bytes);
    let mut repaired = bytes.to_vec();
    if let Some(head) = repaired.get_mut(..16) {
        head[..8].copy_from_slice(&[0x22, 0x22, 0x11, 0x11, 5, 0, 0, 0]);
        head[8..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        check(&repaired);
    }
    let mut repaired = bytes.to_vec();
    if let Some(head) = repaired.get_mut(..RECORD_HEADER_BYTES) {
        head[..8].copy_from_slice(&[0x44, 0x44, 0x33, 0x33, 4, 0, 0, 0]);
        let components = (bytes.len() - RECORD_HEADER_BYTES) / COMPONENT_REQUEST_BYTES;
        head[24..32].copy_from_slice(&(components as u64).to_le_bytes());
        check(&repaired);
        repaired.truncate(TriggerRecordHeader::bytes_for(components));
        check(&repaired);
    }
}

/// What decodes survives being written again.
fn check(bytes: &[u8]) {
    if let Ok((header, frames)) = FragmentHeader::decode(bytes) {
        assert_eq!([&header.encode()[..], frames].concat(), bytes);
    }
    if let Ok(header) = TriggerRecordHeader::decode(bytes) {
        let again = header.encode();
        assert_eq!(again.len(), bytes.len());
        // Padding is written as ones, regardless of what was read.
        assert_eq!(TriggerRecordHeader::decode(&again).unwrap(), header);
    }
}
