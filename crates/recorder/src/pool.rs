//! Memory of extents: a bounded number of buffers per device, lent out and given back.
//!
//! *Invariants*: never more than `max` buffers exist; a push that finds none waits to its deadline (test
//! `a_buffer_is_waited_for_to_the_deadline`).

use forebay_media::warm::Buffer;
use parking_lot::{Condvar, Mutex};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

/// Buffers that are ready before they are needed, of those that are allowed at once.
const READY: usize = 2;
/// Memory comes in pages of this length.
const PAGE_BYTES: usize = 4096;

/// A buffer whose memory is there.
// Zeroed memory is mapped at its first write: a fault for each page of a link's first extents would come under its frames.
fn touched(bytes: usize) -> Buffer {
    let mut buffer = Buffer::new(bytes);
    buffer.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
    buffer
}

/// Buffers of one device.
pub(super) struct Pool {
    bytes: usize,
    stock: Mutex<Stock>,
    returned: Condvar,
}

#[derive(Default)]
struct Stock {
    free: Vec<Buffer>,
    made: usize,
    max: usize,
}

/// A buffer that goes back to its pool when it is dropped.
pub(super) struct Lent {
    buffer: Option<Buffer>,
    pool: Arc<Pool>,
}

impl Pool {
    /// No buffers yet; see [`Pool::allow`].
    pub(super) fn new(bytes: usize) -> Arc<Pool> {
        Arc::new(Pool { bytes, stock: Mutex::default(), returned: Condvar::new() })
    }

    /// Allows `more` buffers in addition. Two of them are made and touched now, so that the first frames find memory; the others
    /// when they are first needed.
    pub(super) fn allow(&self, more: usize) {
        let ready: Vec<Buffer> = (0..more.min(READY)).map(|_| touched(self.bytes)).collect();
        let mut stock = self.stock.lock();
        // The bound and what is ready together: a thread that looks in between must not make a buffer too many.
        stock.max += more;
        stock.made += ready.len();
        stock.free.extend(ready);
    }

    /// A buffer; `None` where none comes back to the deadline. Without one it does not wait.
    pub(super) fn take(self: &Arc<Pool>, deadline: Option<Instant>) -> Option<Lent> {
        let mut stock = self.stock.lock();
        loop {
            if let Some(buffer) = stock.free.pop() {
                return Some(Lent { buffer: Some(buffer), pool: self.clone() });
            }
            debug_assert!(stock.made <= stock.max, "more buffers than are allowed");
            if stock.made < stock.max {
                stock.made += 1;
                // Let go before the memory is made: zeroing megabytes would hold up every link of the device.
                drop(stock);
                return Some(Lent { buffer: Some(Buffer::new(self.bytes)), pool: self.clone() });
            }
            // Waits on the condition in a loop: another link may take the buffer that woke this one.
            let deadline = deadline?;
            if self.returned.wait_until(&mut stock, deadline).timed_out() && stock.free.is_empty() {
                return None;
            }
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            // Not bounded here: it comes from this pool, which made no more than it may.
            self.pool.stock.lock().free.push(buffer);
            self.pool.returned.notify_one();
        }
    }
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_buffer_is_waited_for_to_the_deadline() {
        let pool = Pool::new(8192);
        assert!(pool.take(None).is_none());
        pool.allow(1);
        let first = pool.take(None).unwrap();
        assert_eq!(first.len(), 8192);
        let start = Instant::now();
        assert!(pool.take(Some(start + Duration::from_millis(30))).is_none());
        assert!(start.elapsed() >= Duration::from_millis(30));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.take(Some(Instant::now() + Duration::from_secs(20))).is_some());
            std::thread::sleep(Duration::from_millis(10));
            drop(first);
            assert!(waiting.join().unwrap());
        });
        assert!(pool.take(None).is_some());
    }
}
