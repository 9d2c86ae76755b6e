//! Fuzzes the map of a cluster.
#![no_main]

use forebay_core::map::{Change, ClusterMap, Succession};
use libfuzzer_sys::fuzz_target;

/// A map's head, so that short inputs reach the keyspaces.
const HEAD: &str = "{\"cluster\":\"00000000000000000000000000000001\",\"epoch\":5,\"nodes\":[{\"id\":1,\"name\":\"a\",\"at\":[\"x\"],\
    \"domain\":\"d\",\"holds\":[\"00000000000000000000000000000001\",0],\"state\":\"active\"}],\"keyspaces\":{\"k\":";

fuzz_target!(|text: &str| {
    check(text);
    check(&format!("{HEAD}{text}}}}}"));
});

/// A map that is read is written as text that reads as the same, and each next map may be adopted.
fn check(text: &str) {
    if let Ok(map) = ClusterMap::from_json(text) {
        assert_eq!(ClusterMap::from_json(&map.to_json()).unwrap(), map);
        for node in map.nodes() {
            if let Ok(next) = map.next_map(&Change::TakeOut { node: node.id, from_run: u64::MAX }) {
                assert_eq!(map.succeeds(&next, None).unwrap(), Succession::Later);
            }
        }
    }
}
