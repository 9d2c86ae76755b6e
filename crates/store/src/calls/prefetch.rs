//! Asking for memory ahead: what calls on a batch of keys will touch comes to the processor side by side, where the calls
//! one after the other would wait for each piece of it.
//!
//! *Not here*: any effect. Nothing is looked up, read or changed for the caller.

use crate::Store;
use crate::index::{Path, Reached};
use forebay_core::Key;

/// Keys that are followed side by side: about as many misses as a processor keeps under way.
const SIDE_BY_SIDE: usize = 32;
/// Steps after which a lookup is left to itself: deeper ones are rare.
const STEPS_MAX: usize = 6;

/// How far one lookup is.
#[derive(Clone, Copy)]
enum Place {
    Walking(Path),
    AtEvent(u32),
    Done,
}

impl Store {
    /// A hint that these keys will be put or read now, by calls that follow. Worth it from a few keys on, where the index
    /// is larger than the processor's cache: then a put of a small fragment costs about a third less.
    pub fn prefetch(&self, keys: &[Key]) {
        let engine = self.engine();
        let width = engine.keyspace.schema.primary_bytes();
        for keys in keys.chunks(SIDE_BY_SIDE) {
            let mut places = [Place::Walking(Path::default()); SIDE_BY_SIDE];
            for step in 0..STEPS_MAX {
                let mut walking = false;
                for (key, place) in keys.iter().zip(&mut places) {
                    if matches!(place, Place::Done) {
                        continue;
                    }
                    let Some(primary) = key.as_bytes().get(..width) else { continue };
                    walking = true;
                    // Taken for each step: what is reached may be another node by the next one, which is no harm for a hint.
                    let shard = engine.shards.cell_of(primary).lock();
                    *place = match *place {
                        Place::Walking(mut path) => {
                            // The root is in the cache.
                            if step == 0 {
                                shard.events.step(&mut path, primary);
                            }
                            match shard.events.step(&mut path, primary) {
                                Reached::Node => Place::Walking(path),
                                Reached::Leaf(event) => Place::AtEvent(event),
                                Reached::End => Place::Done,
                            }
                        }
                        Place::AtEvent(event) => {
                            shard.events.will_look_at_table(event);
                            Place::Done
                        }
                        Place::Done => Place::Done,
                    };
                }
                if !walking {
                    break;
                }
            }
        }
    }
}
