//! Memory that loses what was not flushed.
//!
//! ```text
//! working memory (what the processor sees)  ── flush, fence ──▶  image (what is surely durable)
//! ```
//!
//! A power loss keeps the image, and of each aligned 8-byte word that differs from it either the old or the new value,
//! word by word, as H. LeBlanc et al. state it for persistent memory (CapybaraKV, OSDI 2025).

use parking_lot::Mutex;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory with a durable image behind it.
pub struct SimMedium {
    memory: NonNull<u8>,
    length: usize,
    state: Mutex<State>,
}

struct State {
    image: Vec<u8>,
    flushed: Vec<(usize, usize)>,
    steps: u64,
    armed: Option<(u64, u64)>,
    hook: Option<(u64, Hook)>,
    crash: Option<Vec<u8>>,
}

type Hook = Box<dyn FnOnce() + Send>;

#[expect(unsafe_code, reason = "raw memory shared with the engine, as a mapping would be")]
mod memory {
    use super::{NonNull, SimMedium};
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

    // SAFETY: plain memory; the engine's protocol says who accesses what when.
    unsafe impl Send for SimMedium {}
    // SAFETY: as above.
    unsafe impl Sync for SimMedium {}

    fn layout(length: usize) -> Layout {
        Layout::from_size_align(length, 4096).expect("a length that was allocated before")
    }

    pub(super) fn allocate(length: usize) -> NonNull<u8> {
        assert!(length > 0);
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout(length)) };
        NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout(length)))
    }

    impl SimMedium {
        /// The working memory as it is now.
        pub(super) fn view(&self) -> &[u8] {
            // SAFETY: allocated with this length; flushes and crashes come from the engine's own threads.
            unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.length) }
        }

        pub(super) fn fill(&self, image: &[u8]) {
            // SAFETY: as long as the allocation; nobody else has the medium yet.
            unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), self.memory.as_ptr(), self.length) };
        }
    }

    impl Drop for SimMedium {
        fn drop(&mut self) {
            // SAFETY: allocated with the same layout.
            unsafe { dealloc(self.memory.as_ptr(), layout(self.length)) };
        }
    }
}

impl SimMedium {
    /// An empty medium of so many bytes (rounded up to whole words).
    pub fn new(bytes: u64) -> Arc<SimMedium> {
        SimMedium::from_image(vec![0; (bytes as usize).next_multiple_of(8).max(8)])
    }

    /// A medium that holds what a crash left.
    pub fn from_image(image: Vec<u8>) -> Arc<SimMedium> {
        let length = image.len();
        let medium = SimMedium {
            memory: memory::allocate(length),
            length,
            state: Mutex::new(State { image, flushed: Vec::new(), steps: 0, armed: None, hook: None, crash: None }),
        };
        medium.fill(&medium.state.lock().image);
        Arc::new(medium)
    }

    /// Flushes and fences completed so far.
    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// Takes a crash image just before step number `step` (counted from 1) takes effect.
    pub fn arm(&self, step: u64, seed: u64) {
        let mut state = self.state.lock();
        state.armed = Some((step, seed));
        state.crash = None;
    }

    /// Calls `hook` once, just before step number `step` (counted from 1) takes effect: the moment for
    /// [`SimMedium::crash_now`], together with other media.
    pub fn before_step(&self, step: u64, hook: impl FnOnce() + Send + 'static) {
        self.state.lock().hook = Some((step, Box::new(hook)));
    }

    /// What the death of the process now would leave: all that was written.
    pub fn killed_now(&self) -> Vec<u8> {
        self.view().to_vec()
    }

    /// The armed image, once its step has come.
    pub fn crash_image(&self) -> Option<Vec<u8>> {
        self.state.lock().crash.clone()
    }

    /// What a power loss now would leave.
    pub fn crash_now(&self, seed: u64) -> Vec<u8> {
        self.lose(&self.state.lock(), seed)
    }

    pub(crate) fn memory(&self) -> (NonNull<u8>, usize) {
        (self.memory, self.length)
    }

    pub(crate) fn flush(&self, offset: u64, length: usize) {
        self.step();
        let mut state = self.state.lock();
        let first = offset as usize & !63;
        let end = (offset as usize + length).next_multiple_of(64).min(self.length);
        state.flushed.push((first, end));
    }

    pub(crate) fn fence(&self) {
        self.step();
        let mut state = self.state.lock();
        for (first, end) in std::mem::take(&mut state.flushed) {
            state.image[first..end].copy_from_slice(&self.view()[first..end]);
        }
    }

    /// Counts a step that is about to take effect. The hook is called without the lock: it looks at the medium.
    fn step(&self) {
        let hook = {
            let mut state = self.state.lock();
            let next = state.steps + 1;
            if let Some((_, seed)) = state.armed.take_if(|armed| armed.0 == next) {
                state.crash = Some(self.lose(&state, seed));
            }
            state.steps = next;
            state.hook.take_if(|(at, _)| *at == next)
        };
        if let Some((_, hook)) = hook {
            hook();
        }
    }

    fn lose(&self, state: &State, seed: u64) -> Vec<u8> {
        let mut left = state.image.clone();
        let mut random = seed | 1;
        for (old, new) in left.chunks_exact_mut(8).zip(self.view().chunks_exact(8)) {
            if old != new {
                // xorshift64: enough for a coin.
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                if random & 1 == 1 {
                    old.copy_from_slice(new);
                }
            }
        }
        left
    }
}
