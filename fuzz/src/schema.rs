//! Fuzzes keyspace and run files.

use forebay_core::{KeySchema, Keyspace, RunConfig};

/// A keyspace file's head, so that short inputs reach the parts behind it.
const HEAD: &str = "name = \"x\"\nkey = [\"run:u32\", \"event:u64\", \"source:u32\"]\nprimary = [\"run\", \"event\"]\n";

pub(crate) fn target(text: &str) {
    check(text);
    check(&format!("{HEAD}{text}"));
    let schema = KeySchema::run_event_source();
    if let Ok(run) = RunConfig::from_toml(text, &schema) {
        assert_eq!(RunConfig::from_toml(&run.to_toml(&schema).unwrap(), &schema).unwrap(), run);
    }
}

/// A keyspace that is read can be written, and is read again as the same.
fn check(text: &str) {
    if let Ok(keyspace) = Keyspace::from_toml(text) {
        keyspace.check().unwrap();
        assert_eq!(Keyspace::from_toml(&keyspace.to_toml().unwrap()).unwrap(), keyspace);
    }
}
