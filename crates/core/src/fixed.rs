//! Hash tables whose order is the same in every process that did the same before, so that a simulation can be repeated.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hasher};

// A peer that knows the hasher can choose keys that collide, and make each access a search through all of them: keys that
// peers choose belong in a `SeededMap`, or in a `BTreeMap`.
/// For keys that the program numbers itself.
pub type FixedMap<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// The same without values.
pub type FixedSet<K> = HashSet<K, BuildHasherDefault<DefaultHasher>>;

/// For keys that peers choose: without the seed nobody knows which of them collide.
pub type SeededMap<K, V> = HashMap<K, V, SeededHasher>;

/// The same without values.
pub type SeededSet<K> = HashSet<K, SeededHasher>;

/// The hashers of tables with one seed, a random number.
#[derive(Clone, Copy, Debug)]
pub struct SeededHasher {
    seed: u64,
}

impl SeededHasher {
    /// Of tables with this seed.
    pub fn new(seed: u64) -> SeededHasher {
        SeededHasher { seed }
    }
}

impl BuildHasher for SeededHasher {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        hasher
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_tables_with_one_past_have_one_order() {
        let made = || {
            let mut map: FixedMap<u32, ()> = (0..1000).map(|key| (key * 7, ())).collect();
            (0..500).for_each(|key| _ = map.remove(&(key * 7)));
            map.into_keys().collect::<Vec<u32>>()
        };
        let keys = made();
        assert_eq!(keys, made());
        assert!(!keys.is_sorted(), "it is no tree");
    }

    #[test]
    fn the_seed_decides_where_a_key_is() {
        let hash = |seed: u64| SeededHasher::new(seed).hash_one("a key that a peer has chosen");
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }
}
