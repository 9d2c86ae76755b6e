//! Byte blocks in size classes with 32-bit references: the tables of events. Blocks of a class are reused, never
//! returned; every byte is counted.

/// Largest block: class `CLASSES - 1`.
pub(crate) const BLOCK_BYTES_MAX: usize = 1 << 20;
const CLASSES: usize = 64;
const INDEX_BITS: u32 = 26;
const CHUNK_BYTES: usize = 8192;

/// A block: class in the upper 6 bits, index in the lower 26.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Block(u32);

#[derive(Default)]
struct Class {
    chunks: Vec<Box<[u8]>>,
    used: u32,
    free: Vec<u32>,
}

/// All blocks of one shard.
pub(crate) struct Arena {
    classes: Vec<Class>,
}

// A reference has the class in the bits above its index.
const _: () = assert!(CLASSES <= 1 << (u32::BITS - INDEX_BITS));
// Classes grow, so that a table that grows gets a larger block.
const _: () = {
    let mut class = 1;
    while class < CLASSES {
        assert!(class_bytes(class - 1) < class_bytes(class));
        class += 1;
    }
};

// Four steps per doubling waste at most a fifth of a block; powers of two would waste half of it.
/// Size of a class: 8 to 64 in steps of 8, then four steps per doubling.
const fn class_bytes(class: usize) -> usize {
    if class < 8 { (class + 1) * 8 } else { (5 + (class - 8) % 4) << ((class - 8) / 4 + 4) }
}

const fn class_of(bytes: usize) -> usize {
    if bytes <= 64 {
        return if bytes == 0 { 0 } else { (bytes - 1) / 8 };
    }
    let doubling = (bytes - 1).ilog2() as usize - 6;
    8 + doubling * 4 + ((bytes - 1) >> (doubling + 4)) - 4
}

const fn shift(class: usize) -> u32 {
    let mut shift = 0;
    while class_bytes(class) << (shift + 1) <= CHUNK_BYTES {
        shift += 1;
    }
    shift
}

const _: () = assert!(class_of(BLOCK_BYTES_MAX) < CLASSES && class_bytes(class_of(BLOCK_BYTES_MAX)) >= BLOCK_BYTES_MAX);

impl Arena {
    pub(crate) fn new() -> Arena {
        Arena { classes: (0..CLASSES).map(|_| Class::default()).collect() }
    }

    /// A zeroed block of at least `bytes`.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Block {
        assert!(bytes <= BLOCK_BYTES_MAX);
        let number = class_of(bytes);
        let class = &mut self.classes[number];
        let index = match class.free.pop() {
            Some(index) => index,
            None => {
                if class.used as usize == class.chunks.len() << shift(number) {
                    // By an eighth, not by half: this list is counted as memory, and its slack is a cost per event.
                    if class.chunks.len() == class.chunks.capacity() {
                        class.chunks.reserve_exact(class.chunks.len() / 8 + 1);
                    }
                    class.chunks.push(vec![0; class_bytes(number) << shift(number)].into_boxed_slice());
                }
                class.used += 1;
                assert!(class.used < 1 << INDEX_BITS, "more blocks than references reach");
                class.used - 1
            }
        };
        let block = Block((number as u32) << INDEX_BITS | index);
        // A zeroed table has no attribute record (`slot.rs`), and bytes of an ended event are not to be found in another one.
        self.bytes_mut(block).fill(0);
        block
    }

    /// Gives a block back.
    pub(crate) fn free(&mut self, block: Block) {
        let (class, index) = split(block);
        let class = &mut self.classes[class];
        debug_assert!(index < class.used, "block {index} was never given out");
        class.free.push(index);
        // A block that is freed twice is given to two events, which overwrite each other's slots.
        debug_assert!(class.free.len() <= class.used as usize, "more blocks are free than were ever given out");
    }

    /// A block of at least `bytes` with the same contents; the old one is given back.
    pub(crate) fn grow(&mut self, block: Block, bytes: usize) -> Block {
        debug_assert!(bytes > self.bytes(block).len(), "a table grows only where it is full");
        let larger = self.allocate(bytes);
        // Copied through a vector: both blocks are of one arena, and tables grow rarely.
        let old = self.bytes(block).to_vec();
        self.bytes_mut(larger)[..old.len()].copy_from_slice(&old);
        self.free(block);
        larger
    }

    #[inline]
    pub(crate) fn bytes(&self, block: Block) -> &[u8] {
        let (class, index) = split(block);
        let (chunk, start) = place(class, index);
        &self.classes[class].chunks[chunk][start..start + class_bytes(class)]
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self, block: Block) -> &mut [u8] {
        let (class, index) = split(block);
        let (chunk, start) = place(class, index);
        &mut self.classes[class].chunks[chunk][start..start + class_bytes(class)]
    }

    /// Heap bytes, slack included.
    pub(crate) fn heap_bytes(&self) -> usize {
        let one = |(number, class): (usize, &Class)| {
            (class.chunks.len() << shift(number)) * class_bytes(number)
                + class.chunks.capacity() * size_of::<Box<[u8]>>()
                + class.free.capacity() * 4
        };
        self.classes.iter().enumerate().map(one).sum::<usize>() + CLASSES * size_of::<Class>()
    }
}

#[inline]
fn split(block: Block) -> (usize, u32) {
    ((block.0 >> INDEX_BITS) as usize, block.0 & ((1 << INDEX_BITS) - 1))
}

#[inline]
fn place(class: usize, index: u32) -> (usize, usize) {
    let shift = SHIFTS[class];
    ((index >> shift) as usize, (index & ((1 << shift) - 1)) as usize * class_bytes(class))
}

// Computed once: a table is looked up with every put.
const SHIFTS: [u32; CLASSES] = {
    let mut shifts = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        shifts[class] = shift(class);
        class += 1;
    }
    shifts
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_fit_what_they_are_asked_for() {
        for bytes in 1..=70_000 {
            let class = class_of(bytes);
            assert!(class_bytes(class) >= bytes, "{bytes}");
            assert!(class == 0 || class_bytes(class - 1) < bytes, "{bytes}");
        }
        assert_eq!(class_bytes(class_of(BLOCK_BYTES_MAX)), BLOCK_BYTES_MAX);
    }

    #[test]
    fn blocks_are_distinct_zeroed_and_reused() {
        let mut arena = Arena::new();
        let mut blocks = Vec::new();
        for round in 0..3 {
            for i in 0..3000_usize {
                let block = arena.allocate(i % 700 + 1);
                assert!(arena.bytes(block).iter().all(|&byte| byte == 0));
                arena.bytes_mut(block).fill(i as u8 | 1);
                blocks.push((block, i as u8 | 1));
            }
            for (block, mark) in blocks.drain(..) {
                assert!(arena.bytes(block).iter().all(|&byte| byte == mark), "round {round}");
                arena.free(block);
            }
        }
        let before = arena.heap_bytes();
        let block = arena.allocate(20);
        arena.bytes_mut(block).fill(9);
        let grown = arena.grow(block, 500);
        assert!(arena.bytes(grown)[..24].iter().all(|&byte| byte == 9) && arena.bytes(grown)[24] == 0);
        assert!(arena.heap_bytes() <= before + 64);
    }
}
