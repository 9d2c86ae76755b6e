//! A network that fails: between a Unix socket where clients connect, and the one where the server is.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What happens to connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// One in so many connections is left alone.
    pub(crate) whole_one_in: u32,
    /// The others are cut after up to so many bytes in a direction.
    pub(crate) cut_bytes_max: u64,
    /// Bytes in one piece are delayed by up to so much.
    pub(crate) delay_max: Duration,
    /// One piece in so many is held up for longer.
    pub(crate) stall_one_in: u32,
    /// So long.
    pub(crate) stall: Duration,
}

/// The network.
pub(crate) struct Proxy {
    path: PathBuf,
    stopping: Arc<AtomicBool>,
    cuts: Arc<AtomicU64>,
}

impl Proxy {
    /// Stands between `path`, which is made, and `server`.
    pub(crate) fn start(path: &Path, server: &Path, seed: u64, faults: Faults) -> Proxy {
        let listener = UnixListener::bind(path).unwrap();
        let stopping = Arc::new(AtomicBool::new(false));
        let cuts = Arc::new(AtomicU64::new(0));
        let proxy = Proxy { path: path.to_owned(), stopping: stopping.clone(), cuts: cuts.clone() };
        let server = server.to_owned();
        std::thread::spawn(move || {
            let mut random = SmallRng::seed_from_u64(seed);
            for client in listener.incoming() {
                if stopping.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(client), Ok(server)) = (client, UnixStream::connect(&server)) else { continue };
                let is_whole = random.random_range(0..faults.whole_one_in) == 0;
                // Short cuts hit hellos, long ones payloads.
                let cut = |random: &mut SmallRng| {
                    let most = (faults.cut_bytes_max >> random.random_range(0..12)).max(100);
                    if is_whole { u64::MAX } else { random.random_range(1..=most) }
                };
                let limits = [cut(&mut random), cut(&mut random)];
                let ends = [(client.try_clone(), server.try_clone()), (server.try_clone(), client.try_clone())];
                for ((from, to), limit) in ends.into_iter().zip(limits) {
                    let (Ok(from), Ok(to)) = (from, to) else { continue };
                    let (cuts, random) = (cuts.clone(), SmallRng::seed_from_u64(random.random()));
                    std::thread::spawn(move || carry(from, to, limit, faults, random, &cuts));
                }
            }
        });
        proxy
    }

    /// Connections that were cut.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // It looks when somebody comes.
        let _ = UnixStream::connect(&self.path);
    }
}

fn carry(mut from: UnixStream, mut to: UnixStream, limit: u64, faults: Faults, mut random: SmallRng, cuts: &AtomicU64) {
    let mut bytes = vec![0; 64 << 10];
    let mut left = limit;
    while let Ok(read) = from.read(&mut bytes) {
        if read == 0 {
            // The end of one direction alone goes on as that.
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
        if !faults.delay_max.is_zero() {
            std::thread::sleep(faults.delay_max.mul_f64(random.random_range(0.0..1.0)));
        }
        if faults.stall_one_in > 0 && random.random_range(0..faults.stall_one_in) == 0 {
            std::thread::sleep(faults.stall);
        }
        let carried = left.min(read as u64) as usize;
        if to.write_all(&bytes[..carried]).is_err() {
            break;
        }
        left -= carried as u64;
        if left == 0 {
            cuts.fetch_add(1, Ordering::Relaxed);
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
