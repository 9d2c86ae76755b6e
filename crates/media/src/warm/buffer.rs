//! Memory for direct I/O: aligned to blocks, zeroed, of fixed size.

#![expect(unsafe_code, reason = "memory aligned for direct I/O")]

use super::device::BLOCK_BYTES;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Zeroed bytes whose address is a multiple of [`BLOCK_BYTES`].
pub struct Buffer {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the buffer owns its memory like a `Box<[u8]>`; nothing else knows the address.
unsafe impl Send for Buffer {}
// SAFETY: shared references only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of `bytes`, rounded up to whole blocks, at least one.
    pub fn new(bytes: usize) -> Buffer {
        // Zeroed: buffers go to devices in whole blocks, and what lies behind the data must not be other memory.
        let layout = layout(bytes.max(1).next_multiple_of(BLOCK_BYTES));
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Buffer { start, bytes: layout.size() }
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, BLOCK_BYTES).unwrap_or_else(|_| handle_alloc_error(Layout::new::<u8>()))
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `bytes` initialised bytes as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout.
        unsafe { dealloc(self.start.as_ptr(), layout(self.bytes)) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Buffer({} bytes)", self.bytes)
    }
}
