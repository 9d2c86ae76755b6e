//! A network that fails: between a place where clients connect and the server, over TCP or Unix sockets. Each connection is
//! delayed on its own, so that requests on several overtake each other; within one the system keeps the order.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happens to connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// One in this many connections is left alone.
    pub(crate) whole_one_in: u32,
    /// The others are cut after up to this many bytes in a direction.
    pub(crate) cut_bytes_max: u64,
    /// Bytes in one piece are delayed by up to so much.
    pub(crate) delay_max: Duration,
    /// One piece in this many is held up for longer.
    pub(crate) stall_one_in: u32,
    /// So long.
    pub(crate) stall: Duration,
}

/// Nothing happens.
pub(crate) const NONE: Faults =
    Faults { whole_one_in: 1, cut_bytes_max: 0, delay_max: Duration::ZERO, stall_one_in: 0, stall: Duration::ZERO };

/// The network.
pub(crate) struct Proxy {
    address: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    cuts: AtomicU64,
    /// What the server says is lost.
    mute: AtomicBool,
    /// Ends of all connections, for a cut.
    ends: Mutex<Vec<Stream>>,
}

/// One end of a connection.
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Connects to `unix:PATH` or `tcp://HOST:PORT`.
    fn connect(address: &str) -> std::io::Result<Stream> {
        match address.strip_prefix("unix:") {
            Some(path) => UnixStream::connect(path).map(Stream::Unix),
            None => TcpStream::connect(address.trim_start_matches("tcp://")).map(Stream::Tcp),
        }
    }

    fn try_clone(&self) -> std::io::Result<Stream> {
        match self {
            Stream::Unix(stream) => stream.try_clone().map(Stream::Unix),
            Stream::Tcp(stream) => stream.try_clone().map(Stream::Tcp),
        }
    }

    fn shutdown(&self, how: Shutdown) {
        let _ = match self {
            Stream::Unix(stream) => stream.shutdown(how),
            Stream::Tcp(stream) => stream.shutdown(how),
        };
    }

    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(bytes),
            Stream::Tcp(stream) => stream.read(bytes),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.write_all(bytes),
            Stream::Tcp(stream) => stream.write_all(bytes),
        }
    }
}

/// Who connects, one after the other.
fn clients(front: Option<&Path>) -> (String, Box<dyn Iterator<Item = std::io::Result<Stream>> + Send>) {
    match front {
        Some(path) => {
            let listener = UnixListener::bind(path).unwrap();
            let all = std::iter::repeat_with(move || listener.accept().map(|(stream, _)| Stream::Unix(stream)));
            (format!("unix:{}", path.display()), Box::new(all))
        }
        None => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = format!("tcp://{}", listener.local_addr().unwrap());
            let all = std::iter::repeat_with(move || listener.accept().map(|(stream, _)| Stream::Tcp(stream)));
            (address, Box::new(all))
        }
    }
}

impl Proxy {
    /// Listens in front of `server`, at a Unix socket that is made, or on TCP.
    pub(crate) fn start(front: Option<PathBuf>, server: &str, seed: u64, faults: Faults) -> Proxy {
        let (address, clients) = clients(front.as_deref());
        let shared = Arc::<Shared>::default();
        let proxy = Proxy { address, shared: shared.clone() };
        let server = server.to_owned();
        std::thread::spawn(move || {
            let mut random = SmallRng::seed_from_u64(seed);
            for client in clients {
                if shared.stopping.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(client), Ok(server)) = (client, Stream::connect(&server)) else { continue };
                let is_whole = random.random_range(0..faults.whole_one_in) == 0;
                // Short cuts hit hellos, long ones payloads.
                let cut = |random: &mut SmallRng| {
                    let most = (faults.cut_bytes_max >> random.random_range(0..12)).max(100);
                    if is_whole { u64::MAX } else { random.random_range(1..=most) }
                };
                let limits = [cut(&mut random), cut(&mut random)];
                shared.ends.lock().unwrap().extend([client.try_clone(), server.try_clone()].into_iter().flatten());
                let ends = [(client.try_clone(), server.try_clone()), (server.try_clone(), client.try_clone())];
                for ((number, (from, to)), limit) in ends.into_iter().enumerate().zip(limits) {
                    let (Ok(from), Ok(to)) = (from, to) else { continue };
                    let (shared, random) = (shared.clone(), SmallRng::seed_from_u64(random.random()));
                    std::thread::spawn(move || carry(from, to, number == 1, limit, faults, random, &shared));
                }
            }
        });
        proxy
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Connections that were cut.
    pub(crate) fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::Relaxed)
    }

    /// Cuts all connections at once; new ones are served, and heard.
    pub(crate) fn cut(&self) {
        for end in self.shared.ends.lock().unwrap().drain(..) {
            end.shutdown(Shutdown::Both);
        }
        self.mute(false);
    }

    /// Whether what the server says is lost from now on.
    pub(crate) fn mute(&self, is_mute: bool) {
        self.shared.mute.store(is_mute, Ordering::Release);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        // It looks when somebody comes.
        let _ = Stream::connect(&self.address);
    }
}

fn carry(
    mut from: Stream,
    mut to: Stream,
    is_answer: bool,
    limit: u64,
    faults: Faults,
    mut random: SmallRng,
    shared: &Shared,
) {
    let mut bytes = vec![0; 64 << 10];
    let mut left = limit;
    while let Ok(read) = from.read(&mut bytes) {
        if read == 0 {
            // The end of one direction alone goes on as that.
            to.shutdown(Shutdown::Write);
            return;
        }
        if is_answer && shared.mute.load(Ordering::Acquire) {
            continue;
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
            shared.cuts.fetch_add(1, Ordering::Relaxed);
            break;
        }
    }
    from.shutdown(Shutdown::Both);
    to.shutdown(Shutdown::Both);
}
