//! Fuzzes the map of a cluster.

use forebay_core::map::{Change, ClusterMap, Succession};

/// A map's head, so that short inputs reach the keyspaces.
const HEAD: &str = "{\"cluster\":\"00000000000000000000000000000001\",\"epoch\":5,\"nodes\":[{\"id\":1,\"name\":\"a\",\"at\":[\"x\"],\
    \"domain\":\"d\",\"holds\":[\"00000000000000000000000000000001\",0],\"state\":\"active\"}],\"keyspaces\":{\"k\":";

pub(crate) fn target(text: &str) {
    check(text);
    check(&format!("{HEAD}{text}}}}}"));
}

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
