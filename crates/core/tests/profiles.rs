//! The keyspace files in `docs/profiles` work: each TOML block is a keyspace that reads and writes back the same.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use forebay_core::{Completeness, Keyspace, RingKeyspace};
use std::path::Path;

/// The TOML blocks of every page, with the page's name.
fn blocks() -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/profiles");
    let mut blocks = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let page = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let before = blocks.len();
        for after in text.split("```toml\n").skip(1) {
            let (block, _) = after.split_once("\n```").unwrap();
            blocks.push((page.clone(), block.to_owned()));
        }
        assert!(blocks.len() > before, "{page}: no TOML block");
    }
    blocks.sort();
    blocks
}

#[test]
fn every_block_is_a_keyspace() {
    let (mut pages, mut rings) = (Vec::new(), 0);
    for (page, block) in blocks() {
        if block.starts_with("kind = \"ring\"") {
            let ring = RingKeyspace::from_toml(&block).unwrap_or_else(|error| panic!("{page}: {error}\n{block}"));
            assert_eq!(RingKeyspace::from_toml(&ring.to_toml().unwrap()).unwrap(), ring, "{page}");
            rings += 1;
        } else {
            let events = Keyspace::from_toml(&block).unwrap_or_else(|error| panic!("{page}: {error}\n{block}"));
            assert_eq!(Keyspace::from_toml(&events.to_toml().unwrap()).unwrap(), events, "{page}");
        }
        pages.push(page);
    }
    pages.dedup();
    assert_eq!((pages, rings), (["alice", "atlas", "cms", "dune"].map(str::to_owned).into(), 1));
}

#[test]
fn the_pages_say_what_the_keyspaces_do() {
    let of = |name: &str| {
        let (_, block) = blocks().into_iter().find(|(_, block)| block.contains(&format!("name = \"{name}\""))).unwrap();
        Keyspace::from_toml(&block).unwrap()
    };
    let atlas = of("atlas");
    assert!(matches!(&atlas.run.completeness, Completeness::Sources(sources) if sources.len() == 500));
    assert_eq!((atlas.stage("final").unwrap(), atlas.run.auto_mask), (1, Some(1000)));
    let Completeness::Sources(tile) = &atlas.run.classes[0].1 else { panic!("the class has no source list") };
    assert_eq!(*tile, atlas.group("tile").unwrap().sources);
    assert_eq!(of("cms-scouting").schema.primary_bytes(), 10);
    assert!(of("cms").ledger_by.is_some_and(|name| name == "lumi"));
    assert_eq!(of("alice-tf").stages, ["synchronous", "asynchronous"]);
    assert_eq!(of("trigger-records").run.completeness, Completeness::Seal);
}
