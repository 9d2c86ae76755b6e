//! The limit: the same bytes through the same sort of socket, from memory to memory, and nothing else.
//!
//! ```text
//! 1: the peer receives frames of a length and acknowledges each;   2: the peer sends frames of a length on request
//! 3: the same, from memory that no cache holds
//! ```

use crate::Result;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Instant;

/// Bytes that are read at once into memory that stays in the cache.
const READ_BYTES: usize = 256 << 10;
/// Memory from which frames come that are in no cache.
const COLD_BYTES: usize = 512 << 20;
/// Congestion control that does not pace what goes out, as that of Forebay within a machine.
const UNPACED: &str = "reno";
/// Bytes of an acknowledgement, and of a request.
const SHORT_BYTES: usize = 64;

/// A stream of either sort.
pub(super) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A stream to where an address says: `tcp://…`, `unix:…`, `unpaced://…`, which is TCP without BBR.
pub(super) fn connect(address: &str) -> Result<Box<dyn Stream>> {
    if let Some(path) = address.strip_prefix("unix:") {
        return Ok(Box::new(UnixStream::connect(path)?));
    }
    if let Some(place) = address.strip_prefix("unpaced://") {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_tcp_congestion(&socket, UNPACED)?;
        rustix::net::connect(&socket, &place.parse::<SocketAddr>()?)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        return Ok(Box::new(stream));
    }
    let stream = TcpStream::connect(address.trim_start_matches("tcp://"))?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

/// The peer that only moves bytes: one thread for each connection.
pub(super) struct Bare {
    pub(super) tcp: SocketAddr,
    /// The same without BBR, as server and client of Forebay speak TCP within a machine.
    pub(super) unpaced: SocketAddr,
}

impl Bare {
    pub(super) fn start(socket: &Path) -> Result<Bare> {
        let unix = UnixListener::bind(socket)?;
        let mut bound = [SocketAddr::from(([127, 0, 0, 1], 0)); 2];
        for (address, is_paced) in bound.iter_mut().zip([true, false]) {
            let tcp = TcpListener::bind(*address)?;
            if !is_paced {
                sockopt::set_tcp_congestion(&tcp, UNPACED)?;
            }
            *address = tcp.local_addr()?;
            std::thread::spawn(move || {
                for stream in tcp.incoming().flatten() {
                    let _ = stream.set_nodelay(true);
                    std::thread::spawn(move || answer(stream));
                }
            });
        }
        std::thread::spawn(move || {
            for stream in unix.incoming().flatten() {
                std::thread::spawn(move || answer(stream));
            }
        });
        let [tcp, unpaced] = bound;
        Ok(Bare { tcp, unpaced })
    }
}

/// Serves one connection to its end.
fn answer(mut stream: impl Stream) -> io::Result<()> {
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    let mut word = [0; 8];
    word.copy_from_slice(&head[1..]);
    let bytes = u64::from_le_bytes(word) as usize;
    let cold = if head[0] == 3 { COLD_BYTES } else { 0 };
    let mut memory = vec![1; READ_BYTES.max(bytes).max(cold)];
    if head[0] == 1 {
        let mut left = bytes;
        loop {
            let read = stream.read(&mut memory[..READ_BYTES])?;
            if read == 0 {
                return Ok(());
            }
            let mut rest = read;
            while rest >= left {
                rest -= left;
                left = bytes;
                stream.write_all(&[0; SHORT_BYTES])?;
            }
            left -= rest;
        }
    }
    let mut request = [0; SHORT_BYTES];
    let mut at = 0;
    loop {
        stream.read_exact(&mut request)?;
        stream.write_all(&memory[at..at + bytes])?;
        at = if cold > 0 && at + 2 * bytes <= memory.len() { at + bytes } else { 0 };
    }
}

/// Sends `frames` frames of these pieces, `ahead` of them before the first acknowledgement must be there.
pub(super) fn push(address: &str, frames: u64, pieces: &[&[u8]], ahead: u64) -> Result<()> {
    let mut stream = connect(address)?;
    let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
    stream.write_all(&[&[1], &(bytes as u64).to_le_bytes()[..]].concat())?;
    let mut acknowledged = [0; SHORT_BYTES];
    for frame in 0..frames {
        let mut places: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut left = &mut places[..];
        while !left.is_empty() {
            let sent = stream.write_vectored(left)?;
            IoSlice::advance_slices(&mut left, sent);
        }
        if frame + 1 >= ahead {
            stream.read_exact(&mut acknowledged)?;
        }
    }
    for _ in 0..frames.min(ahead.saturating_sub(1)) {
        stream.read_exact(&mut acknowledged)?;
    }
    Ok(())
}

/// Requests `frames` frames of `bytes` bytes, `ahead` of them before the first arrives, into one buffer; returns the time
/// from the first arrival on. The peer sends from one buffer too, or with `cold` from memory that is in no cache.
pub(super) fn pull(address: &str, frames: u64, bytes: usize, ahead: u64, cold: bool) -> Result<f64> {
    let mut stream = connect(address)?;
    stream.write_all(&[&[if cold { 3 } else { 2 }], &(bytes as u64).to_le_bytes()[..]].concat())?;
    let mut memory = vec![0; bytes];
    // The first one waits until the peer has its memory.
    stream.write_all(&[0; SHORT_BYTES])?;
    stream.read_exact(&mut memory)?;
    let from = Instant::now();
    let ahead = ahead.clamp(1, frames);
    for _ in 1..ahead {
        stream.write_all(&[0; SHORT_BYTES])?;
    }
    for frame in 0..frames {
        if frame + ahead <= frames {
            stream.write_all(&[0; SHORT_BYTES])?;
        }
        stream.read_exact(&mut memory)?;
    }
    Ok(from.elapsed().as_secs_f64())
}
