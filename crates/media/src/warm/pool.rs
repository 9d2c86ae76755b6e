//! Buffers, idle for the next read or the next writer: fresh memory would be zeroed and faulted in for each.

use super::buffer::Buffer;
use parking_lot::Mutex;

/// Most bytes of one buffer that is idle, and of all of them.
const KEPT_BYTES_MAX: usize = 4 << 20;
const POOL_BYTES_MAX: usize = 64 << 20;
const SMALLEST: usize = 16 << 10;
const _: () =
    assert!(SMALLEST.is_power_of_two() && KEPT_BYTES_MAX.is_power_of_two() && KEPT_BYTES_MAX <= POOL_BYTES_MAX);

pub(super) struct Pool(Mutex<Idle>);

#[derive(Default)]
struct Idle {
    buffers: Vec<Buffer>,
    bytes: usize,
}

impl Pool {
    pub(super) fn new() -> Pool {
        Pool(Mutex::new(Idle::default()))
    }

    /// A buffer of at least this length; its contents are arbitrary.
    pub(super) fn take(&self, bytes: usize) -> Buffer {
        let wanted = if bytes <= KEPT_BYTES_MAX { bytes.next_power_of_two().max(SMALLEST) } else { bytes };
        {
            // Let go before a new buffer is made: zeroing megabytes under the lock would hold up every reader. From the back,
            // because the buffer that came last is most likely still in a cache.
            let mut idle = self.0.lock();
            if let Some(at) = idle.buffers.iter().rposition(|buffer| buffer.len() == wanted) {
                debug_assert!(idle.bytes >= wanted, "the pool has more buffers than bytes");
                idle.bytes -= wanted;
                return idle.buffers.swap_remove(at);
            }
        }
        Buffer::new(wanted)
    }

    /// A buffer of exactly this length, rounded up to blocks; its contents are arbitrary.
    pub(super) fn take_exact(&self, bytes: usize) -> Buffer {
        if bytes.is_power_of_two() && bytes >= SMALLEST { self.take(bytes) } else { Buffer::new(bytes) }
    }

    /// Gives a buffer back.
    pub(super) fn give(&self, buffer: Buffer) {
        // Sizes are powers of two, so that a few sizes serve all reads; others are freed.
        let mut idle = self.0.lock();
        if buffer.len().is_power_of_two()
            && (SMALLEST..=KEPT_BYTES_MAX).contains(&buffer.len())
            && idle.bytes + buffer.len() <= POOL_BYTES_MAX
        {
            idle.bytes += buffer.len();
            idle.buffers.push(buffer);
        }
        debug_assert!(idle.bytes <= POOL_BYTES_MAX, "the pool has outgrown its bound");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_and_the_pool_is_bounded() {
        let pool = Pool::new();
        let buffer = pool.take(100_000);
        assert_eq!(buffer.len(), 131_072);
        let address = buffer.as_ptr();
        pool.give(buffer);
        assert_eq!(pool.take(120_000).as_ptr(), address);
        let many: Vec<Buffer> = (0..40).map(|_| pool.take(KEPT_BYTES_MAX)).collect();
        many.into_iter().for_each(|buffer| pool.give(buffer));
        assert_eq!(pool.0.lock().bytes, POOL_BYTES_MAX);
        assert_eq!((pool.take_exact(1 << 20).len(), pool.take_exact(12_288).len()), (1 << 20, 12_288));
        pool.give(Buffer::new(KEPT_BYTES_MAX + 4096));
        assert_eq!(pool.0.lock().bytes, POOL_BYTES_MAX);
    }
}
