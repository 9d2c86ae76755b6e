//! Chunked storage with 32-bit references: no item ever moves, no reallocation ever copies, freed places are reused.

use std::ops::{Index, IndexMut};

/// Items of one type.
pub(crate) struct Slab<T> {
    chunks: Vec<Box<[T]>>,
    used: u32,
    free: Vec<u32>,
}

impl<T: Default> Slab<T> {
    const SHIFT: u32 = {
        let mut shift = 0;
        while shift < 8 && (size_of::<T>() << (shift + 1)) <= 8192 {
            shift += 1;
        }
        shift
    };

    pub(crate) fn new() -> Slab<T> {
        Slab { chunks: Vec::new(), used: 0, free: Vec::new() }
    }

    /// Stores an item.
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        // The place that was freed last: it is most likely still in the cache.
        let at = self.free.pop().unwrap_or_else(|| {
            if self.used as usize == self.chunks.len() << Self::SHIFT {
                if self.chunks.len() == self.chunks.capacity() {
                    self.chunks.reserve_exact(self.chunks.len() / 8 + 4);
                }
                // Chunks of at most 8 KiB: no item ever moves, and a small store stays small.
                self.chunks.push((0..1 << Self::SHIFT).map(|_| T::default()).collect());
            }
            self.used += 1;
            self.used - 1
        });
        self[at] = item;
        at
    }

    /// Takes an item out.
    pub(crate) fn remove(&mut self, at: u32) -> T {
        debug_assert!(at < self.used, "place {at} was never taken");
        self.free.push(at);
        debug_assert!(self.free.len() <= self.used as usize, "a place is freed once");
        // A default is left behind: an event without a state is vacant, and owns nothing.
        std::mem::take(&mut self[at])
    }

    /// Places that were ever taken: all items are below.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Heap bytes, slack included.
    pub(crate) fn heap_bytes(&self) -> usize {
        (self.chunks.len() << Self::SHIFT) * size_of::<T>()
            + self.chunks.capacity() * size_of::<Box<[T]>>()
            + self.free.capacity() * 4
    }
}

impl<T: Default> Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, at: u32) -> &T {
        &self.chunks[(at >> Self::SHIFT) as usize][(at & ((1 << Self::SHIFT) - 1)) as usize]
    }
}

impl<T: Default> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.chunks[(at >> Self::SHIFT) as usize][(at & ((1 << Self::SHIFT) - 1)) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::Slab;

    #[test]
    fn places_are_reused_and_items_stay() {
        let mut slab = Slab::new();
        let places: Vec<u32> = (0..5000_u64).map(|item| slab.insert(item)).collect();
        for (item, &at) in places.iter().enumerate() {
            assert_eq!(slab[at], item as u64);
        }
        let bytes = slab.heap_bytes();
        for &at in &places {
            slab.remove(at);
        }
        for item in 0..5000 {
            slab.insert(item);
        }
        assert!(slab.heap_bytes() <= bytes + 8192 * 4);
    }
}
