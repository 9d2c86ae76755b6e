//! Memory that loses what was not flushed.
//!
//! ```text
//! working memory (what the processor sees)  ── flush, fence ──▶  image (what is surely durable)
//! ```
//!
//! A power loss keeps the image, and of each aligned 8-byte word that differs from it either the old or the new value,
//! word by word, as H. LeBlanc et al. state it for persistent memory (CapybaraKV, OSDI 2025).
//!
//! The medium can also be an *ordinary file* ([`SimMedium::file`]). Flushes and fences make nothing durable there. The kernel
//! writes a page back whenever it likes, here one at each step, and a power loss keeps the image, and of each page that
//! differs from it the old or the new bytes. Only a sync makes pages durable. The machine has another boot id after that
//! loss ([`SimMedium::after_power_loss`]), as a real one has.

use forebay_media::hot::Medium;
use parking_lot::Mutex;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory with a durable image behind it.
pub struct SimMedium {
    memory: NonNull<u8>,
    length: usize,
    /// What the machine calls its boot, for an ordinary file; persistent memory does not depend on it.
    file_boot: Option<u64>,
    state: Mutex<MediumState>,
}

/// The kernel writes whole pages.
const PAGE_BYTES: usize = 4096;

struct MediumState {
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
    use super::{Medium, NonNull, PAGE_BYTES, SimMedium};
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

    // SAFETY: allocated once, and given back when the medium is dropped.
    unsafe impl Medium for SimMedium {
        fn memory(&self) -> (NonNull<u8>, usize) {
            (self.memory, self.length)
        }

        /// Whether what was flushed and fenced survives power loss.
        fn is_persistent(&self) -> bool {
            self.file_boot.is_none()
        }

        /// The boot id of the machine; `None` where it is the real one's.
        fn machine_boot(&self) -> Option<[u8; 36]> {
            let text = format!("{:0>36}", self.file_boot?);
            text.as_bytes().try_into().ok()
        }

        /// Makes the first bytes durable, in whole pages.
        fn sync(&self, length: usize) {
            self.step();
            let end = length.next_multiple_of(PAGE_BYTES).min(self.length);
            self.state.lock().image[..end].copy_from_slice(&self.view()[..end]);
        }

        fn flush(&self, offset: u64, length: usize) {
            self.step();
            if !self.is_persistent() {
                return;
            }
            let mut state = self.state.lock();
            let first = offset as usize & !63;
            let end = (offset as usize + length).next_multiple_of(64).min(self.length);
            state.flushed.push((first, end));
        }

        fn fence(&self) {
            self.step();
            let mut state = self.state.lock();
            for (first, end) in std::mem::take(&mut state.flushed) {
                state.image[first..end].copy_from_slice(&self.view()[first..end]);
            }
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
    /// An empty medium of this many bytes (rounded up to whole words).
    pub fn new(bytes: u64) -> Arc<SimMedium> {
        SimMedium::from_image(vec![0; (bytes as usize).next_multiple_of(8).max(8)])
    }

    /// A medium that holds what a crash left.
    pub fn from_image(image: Vec<u8>) -> Arc<SimMedium> {
        SimMedium::with(image, None)
    }

    /// An empty ordinary file of this many bytes (rounded up to whole pages).
    pub fn file(bytes: u64) -> Arc<SimMedium> {
        SimMedium::with(vec![0; (bytes as usize).next_multiple_of(PAGE_BYTES).max(PAGE_BYTES)], Some(1))
    }

    /// The file that `image` says, on the same machine after its next start.
    pub fn after_power_loss(&self, image: Vec<u8>) -> Arc<SimMedium> {
        SimMedium::with(image, self.file_boot.map(|boot| boot + 1))
    }

    /// The file that `image` says, on the same machine without a restart: what the death of the process leaves.
    pub fn after_kill(&self, image: Vec<u8>) -> Arc<SimMedium> {
        SimMedium::with(image, self.file_boot)
    }

    fn with(image: Vec<u8>, file_boot: Option<u64>) -> Arc<SimMedium> {
        let length = image.len();
        let medium = SimMedium {
            memory: memory::allocate(length),
            length,
            file_boot,
            state: Mutex::new(MediumState {
                image,
                flushed: Vec::new(),
                steps: 0,
                armed: None,
                hook: None,
                crash: None,
            }),
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

    /// Counts a step that is about to take effect. The hook is called without the lock: it looks at the medium.
    fn step(&self) {
        let hook = {
            let mut state = self.state.lock();
            let next = state.steps + 1;
            if let Some((_, seed)) = state.armed.take_if(|armed| armed.0 == next) {
                state.crash = Some(self.lose(&state, seed));
            }
            state.steps = next;
            if !self.is_persistent() {
                self.write_back(&mut state);
            }
            state.hook.take_if(|(at, _)| *at == next)
        };
        if let Some((_, hook)) = hook {
            hook();
        }
    }

    /// The kernel writes some page back, now: a later power loss finds it as it is at this moment, or as it is then.
    fn write_back(&self, state: &mut MediumState) {
        // Multiplied by an odd number, steps in order name pages in no order (Knuth's multiplicative hash).
        let page = (state.steps.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % self.length.div_ceil(PAGE_BYTES);
        let (first, end) = (page * PAGE_BYTES, ((page + 1) * PAGE_BYTES).min(self.length));
        state.image[first..end].copy_from_slice(&self.view()[first..end]);
    }

    fn lose(&self, state: &MediumState, seed: u64) -> Vec<u8> {
        let mut left = state.image.clone();
        let mut random = seed | 1;
        let unit = if self.is_persistent() { 8 } else { PAGE_BYTES };
        for (old, new) in left.chunks_mut(unit).zip(self.view().chunks(unit)) {
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
