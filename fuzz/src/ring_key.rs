//! Fuzzes the keys of ring entries, and ring keyspaces as text.

use forebay_core::{RingKeyspace, SourceSchema};

pub(crate) fn target(data: (Vec<u8>, Vec<u8>, String)) {
    let (widths, key, text) = data;
    let parts: Vec<String> = widths.iter().take(5).enumerate().map(|(at, bits)| format!("p{at}:u{bits}")).collect();
    if let Ok(schema) = SourceSchema::parse(&parts)
        && let Some((source, stamp)) = schema.decode(&key)
    {
        assert_eq!(schema.key(&source, &stamp).as_bytes(), key);
        assert_eq!(schema.source(&source.values()).ok(), Some(source));
        assert_eq!(schema.parse_source(&source.text()).ok(), Some(source));
    }
    if let Ok(keyspace) = RingKeyspace::from_toml(&text) {
        let again = keyspace.to_toml().expect("a keyspace that was read can be written");
        assert_eq!(RingKeyspace::from_toml(&again).expect("and read again"), keyspace);
    }
}
