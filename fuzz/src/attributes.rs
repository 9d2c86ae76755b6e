//! Fuzzes attribute blocks.

use forebay_core::{AttributeSchema, Attributes};

pub(crate) fn target(bytes: &[u8]) {
    for schema in [
        AttributeSchema::parse(&["lumi:u32", "bcid:u12", "bits:u128", "class"], &["physics", "calib"]).unwrap(),
        AttributeSchema::parse(&["flag:u1"], &[] as &[&str]).unwrap(),
    ] {
        // Blocks of the right length, regardless of the length of the input.
        let mut block = vec![0; schema.packed_bytes()];
        let copied = bytes.len().min(block.len());
        block[..copied].copy_from_slice(&bytes[..copied]);
        // Presence bits past the first byte only ever name fields that these schemas lack.
        block[1..8].fill(0);
        for packed in [bytes, &block] {
            if let Ok(attributes) = Attributes::unpack(&schema, packed) {
                let mut again = vec![0xAA; schema.packed_bytes()];
                attributes.pack(&schema, &mut again);
                assert_eq!(Attributes::unpack(&schema, &again).unwrap(), attributes);
                for pair in attributes.text(&schema) {
                    let text = format!("{}={}", pair.0, pair.1);
                    Attributes::parse(&schema, &[text]).unwrap();
                }
            }
        }
    }
}
