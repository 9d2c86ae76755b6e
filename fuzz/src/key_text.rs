//! Fuzzes what people type: keys, primary keys, bounds, tokens and filters.

use forebay_core::{AttributeSchema, Bounds, Filter, KeySchema, Seek, Token};

pub(crate) fn target(text: &str) {
    for schema in [
        KeySchema::run_event_source(),
        KeySchema::parse(&["run:u3", "event:u64", "part:u5", "source:u1"], &["run", "event"]).unwrap(),
    ] {
        if let Ok(key) = schema.parse_key(text) {
            assert_eq!(schema.parse_key(&schema.text(key.as_bytes())).unwrap(), key);
            assert_eq!(schema.key_from_bytes(key.as_bytes()).unwrap(), key);
            assert_eq!(schema.join(&schema.primary_of(&key), schema.rest_of(&key)), key);
        }
        if let Ok(primary) = schema.parse_primary(text) {
            assert_eq!(schema.parse_primary(&schema.text(primary.as_bytes())).unwrap(), primary);
        }
        if let Ok(bounds) = Bounds::parse(&schema, text) {
            assert_eq!(bounds.seek(bounds.upper()), Seek::Inside);
            assert!(bounds.contains(bounds.upper()));
        }
    }
    if let Ok(token) = text.parse::<Token>() {
        assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
    }
    let attributes = AttributeSchema::parse(&["lumi:u32", "bits:u128", "class"], &["physics", "calib"]).unwrap();
    let _ = Filter::parse(&attributes, &[text]);
}
