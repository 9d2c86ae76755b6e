//! Counts the bytes that pass the seam `Device`, so that the write amplification is known.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one device, since it was opened.
#[derive(Default)]
pub(super) struct Counters {
    data: AtomicU64,
    padding: AtomicU64,
    directory: AtomicU64,
    header: AtomicU64,
    payload: AtomicU64,
    commits: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
}

/// What was written to a device and read from it, in bytes if not noted otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Extent heads and images.
    pub data: u64,
    /// Zeros up to the block, and void images.
    pub padding: u64,
    pub directory: u64,
    pub header: u64,
    /// Payload bytes that were appended: what the others are compared with.
    pub payload: u64,
    /// Syncs that made appended data durable.
    pub commits: u64,
    /// Read operations.
    pub reads: u64,
    pub read_bytes: u64,
}

impl DeviceCounts {
    /// All bytes written.
    pub fn written(&self) -> u64 {
        self.data + self.padding + self.directory + self.header
    }
}

impl Counters {
    pub(super) fn wrote(&self, bytes: u64, padding: u64, directory: u64) {
        // Saturating: after a short write the rest is counted with the padding of the whole. Relaxed throughout: figures for people, each exact, of which two may be of different moments.
        self.data.fetch_add(bytes.saturating_sub(padding + directory), Ordering::Relaxed);
        self.padding.fetch_add(padding, Ordering::Relaxed);
        self.directory.fetch_add(directory, Ordering::Relaxed);
    }

    pub(super) fn wrote_header(&self, bytes: u64) {
        self.header.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn appended(&self, payload: u64) {
        self.payload.fetch_add(payload, Ordering::Relaxed);
    }

    pub(super) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> DeviceCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeviceCounts {
            data: get(&self.data),
            padding: get(&self.padding),
            directory: get(&self.directory),
            header: get(&self.header),
            payload: get(&self.payload),
            commits: get(&self.commits),
            reads: get(&self.reads),
            read_bytes: get(&self.read_bytes),
        }
    }
}
