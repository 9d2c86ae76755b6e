//! A client that sends what a test wants.

use forebay_core::{Call, Error, GetAny, Key, Keyspace, PutOutcome, Report, Result, crc32c};
use forebay_wire::{
    FRAME_HEAD_BYTES, FrameFlags, FrameHead, FrameKind, Hello, WireLease, WireOutcome, WirePut, WireReader, WireWriter,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A frame that came in.
pub(crate) struct Frame {
    pub(crate) head: FrameHead,
    pub(crate) meta: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The error that it says.
    #[track_caller]
    pub(crate) fn error(&self) -> Error {
        assert!(self.head.flags.is_error(), "no error: {:?}", self.head);
        WireReader::new(&self.meta).error().unwrap()
    }
}

/// A socket of either sort.
pub(crate) trait Socket: Read + Write + Send {
    fn shut(&self);
}

impl Socket for TcpStream {
    fn shut(&self) {
        self.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

impl Socket for UnixStream {
    fn shut(&self) {
        self.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

/// A connection.
pub(crate) struct Raw {
    pub(crate) socket: Box<dyn Socket>,
    next: u64,
}

/// Longest silence that a test puts up with.
const PATIENCE: Duration = Duration::from_secs(20);

impl Raw {
    pub(crate) fn unix(path: &Path) -> Raw {
        let socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Raw { socket: Box::new(socket), next: 1 }
    }

    pub(crate) fn tcp(address: SocketAddr) -> Raw {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Raw { socket: Box::new(socket), next: 1 }
    }

    /// Says hello, and takes this many bytes at once.
    pub(crate) fn hello(mut self, window_bytes: u32) -> Raw {
        self.write(&hello(window_bytes));
        let welcome = self.frame();
        assert_eq!((welcome.head.kind, welcome.head.flags), (FrameKind::Hello, FrameFlags::ANSWER));
        self
    }

    #[track_caller]
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Sends a request; answers its number.
    pub(crate) fn send(&mut self, kind: impl Into<FrameKind>, meta: &[u8], payload: &[u8]) -> u64 {
        let number = self.next;
        self.next += 1;
        self.write(&frame(kind, number, meta, payload));
        number
    }

    /// The next frame; `None` at the end of the stream.
    pub(crate) fn try_frame(&mut self) -> Option<Frame> {
        let mut bytes = [0; FRAME_HEAD_BYTES];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.socket.read(&mut bytes[filled..]) {
                Ok(0) => {
                    assert_eq!(filled, 0, "the server ends within a frame");
                    return None;
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset && filled == 0 => return None,
                Err(error) => panic!("no frame: {error}"),
            }
        }
        let head = FrameHead::decode(&bytes, u64::from(u32::MAX)).unwrap();
        let mut meta = vec![0; head.meta_bytes as usize];
        self.socket.read_exact(&mut meta).unwrap();
        head.check_meta(&meta).unwrap();
        let mut payload = vec![0; head.payload_bytes as usize];
        self.socket.read_exact(&mut payload).unwrap();
        Some(Frame { head, meta, payload })
    }

    #[track_caller]
    pub(crate) fn frame(&mut self) -> Frame {
        self.try_frame().expect("the server closed the connection")
    }

    /// Sends a request and takes its whole answer, giving credit for what comes.
    pub(crate) fn ask(&mut self, kind: impl Into<FrameKind>, meta: &[u8], payload: &[u8]) -> Frame {
        let number = self.send(kind, meta, payload);
        self.answer(number)
    }

    /// Takes the whole answer to a request.
    pub(crate) fn answer(&mut self, number: u64) -> Frame {
        let mut all: Option<Frame> = None;
        loop {
            let next = self.frame();
            assert_eq!(next.head.request, number, "{:?} {:?}", next.head, next.meta);
            self.credit(next.head.frame_bytes() as u32);
            let more = next.head.flags.has_more();
            match &mut all {
                None => all = Some(next),
                Some(all) => all.payload.extend_from_slice(&next.payload),
            }
            if !more {
                return all.unwrap();
            }
        }
    }

    pub(crate) fn credit(&mut self, bytes: u32) {
        // A server that has ended hears no more: what it said is still read.
        let _ = self.socket.write_all(&credit(bytes));
    }

    /// Whether the server answers here.
    #[track_caller]
    pub(crate) fn ping(&mut self) {
        let pong = self.ask(FrameKind::Ping, b"there?", b"");
        assert_eq!((pong.head.kind, &pong.meta[..]), (FrameKind::Ping, &b"there?"[..]));
    }

    /// The same while other answers are owed: the server has seen all that was sent before.
    #[track_caller]
    pub(crate) fn ping_out_of_turn(&mut self) {
        let number = self.send(FrameKind::Ping, b"", b"");
        assert_eq!(self.frame().head.request, number);
    }

    /// The server said what was wrong, and closed the connection.
    #[track_caller]
    pub(crate) fn refused(mut self) -> Error {
        let error = self.frame().error();
        assert!(self.try_frame().is_none(), "more after {error}");
        error
    }

    /// Puts one fragment.
    pub(crate) fn put(&mut self, keyspace: &Keyspace, key: &Key, value: &[u8]) -> Result<PutOutcome> {
        let (meta, payload) = put(keyspace, &[(*key, value, None)]);
        outcomes(&self.ask(Call::Put, &meta, &payload)).pop().unwrap()
    }

    /// Leases events.
    pub(crate) fn get_any(&mut self, keyspace: &Keyspace, n: usize, wait: Duration) -> Vec<WireLease> {
        let answer = self.ask(Call::GetAny, &get_any(n, wait), b"");
        leases(keyspace, &answer)
    }
}

/// The bytes of a request.
pub(crate) fn frame(kind: impl Into<FrameKind>, number: u64, meta: &[u8], payload: &[u8]) -> Vec<u8> {
    let head = FrameHead::new(kind, FrameFlags::REQUEST, number).with(meta, payload.len() as u32);
    [&head.encode()[..], meta, payload].concat()
}

/// A head with its checksum put right.
pub(crate) fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32c(&bytes[..36]);
    bytes[36..40].copy_from_slice(&crc.to_le_bytes());
    bytes
}

pub(crate) fn hello(window_bytes: u32) -> Vec<u8> {
    let (token, keyspace, name) = (Vec::new(), String::new(), "raw".to_owned());
    let hello = Hello { features: 0, window_bytes, token, keyspace, name };
    frame(FrameKind::Hello, 0, &hello.encode().unwrap(), b"")
}

pub(crate) fn credit(bytes: u32) -> Vec<u8> {
    let head = FrameHead { credit: bytes, ..FrameHead::new(FrameKind::Credit, FrameFlags::REQUEST, 0) };
    head.encode().to_vec()
}

/// Meta and payload of a put.
pub(crate) fn put(keyspace: &Keyspace, all: &[(Key, &[u8], Option<Duration>)]) -> (Vec<u8>, Vec<u8>) {
    put_as(keyspace, all, false)
}

/// The same, persisted or not.
pub(crate) fn put_as(
    keyspace: &Keyspace,
    all: &[(Key, &[u8], Option<Duration>)],
    persisted: bool,
) -> (Vec<u8>, Vec<u8>) {
    let wire = |(key, value, deadline): &(Key, &[u8], Option<Duration>)| WirePut {
        key: *key,
        length: value.len() as u32,
        checksum: crc32c(value),
        status: 0,
        attributes: None,
        deadline: *deadline,
        persisted,
        level: None,
        report: Report::Prompt,
    };
    let puts: Vec<WirePut> = all.iter().map(wire).collect();
    let payload = all.iter().flat_map(|(_, value, _)| value.iter().copied()).collect();
    (WirePut::encode_all(&puts, &keyspace.attributes).unwrap(), payload)
}

pub(crate) fn outcomes(answer: &Frame) -> Vec<Result<PutOutcome>> {
    let one = |read: &mut WireReader<'_>| read.outcome(|read| PutOutcome::of_byte(read.u8()?));
    WireReader::whole(&answer.meta, |read| read.list(1, one)).unwrap()
}

/// Meta of a request for fragments.
pub(crate) fn get(keys: &[Key]) -> Vec<u8> {
    let mut out = WireWriter::new();
    out.shorts(keys.iter().map(Key::as_bytes)).unwrap();
    out.finish()
}

pub(crate) fn get_any(n: usize, wait: Duration) -> Vec<u8> {
    let mut out = WireWriter::new();
    out.get_any(&GetAny { n, wait, ..GetAny::default() }).unwrap();
    out.finish()
}

pub(crate) fn leases(keyspace: &Keyspace, answer: &Frame) -> Vec<WireLease> {
    let read = |read: &mut WireReader<'_>| read.list(50, |read| WireLease::decode(read, keyspace));
    WireReader::whole(&answer.meta, read).unwrap()
}
