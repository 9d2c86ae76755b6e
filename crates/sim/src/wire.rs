//! What a stream carries, read beside it: the puts that were sent, and the bytes that each side has under way at the other.
//!
//! ```text
//! client ── requests: as many bytes as the server takes ──▶ server     both numbers are in the hellos
//!        ◀── answers: as many bytes as the client takes ──            a frame grants the bytes that its sender takes again
//! ```
//!
//! *Invariant*: counted at the sender of each frame, and granted at the sender of the credit: what is counted here is at most what
//! that sender counts itself, so that a figure beyond the window is a fault of it.

use forebay_core::{Call, Keyspace};
use forebay_wire::{FRAME_HEAD_BYTES, FrameHead, FrameKind, Hello, Welcome, WirePut};

/// The client, and the server, of a stream.
const NAMES: [&str; 2] = ["client", "server"];

/// One stream, as it is read beside its ends.
pub(crate) struct Watch {
    /// What the client sends, and what the server does.
    readings: [Reading; 2],
    /// Bytes of requests, and of answers, that are under way.
    under_way: [u64; 2],
    /// How many may be: of requests the server says so, of answers the client.
    windows: [u64; 2],
}

/// Frames of one direction.
#[derive(Default)]
struct Reading {
    /// Of the head, or of the meta, as far as it was sent.
    bytes: Vec<u8>,
    /// The head whose meta follows.
    head: Option<FrameHead>,
    /// Bytes that say nothing here.
    passed_over: u64,
}

/// What was read.
#[derive(Default)]
pub(crate) struct Seen {
    /// Puts whose request was sent: the other side may take them from here on.
    pub(crate) puts: Vec<WirePut>,
    /// What one side must not have done.
    pub(crate) wrong: Option<String>,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { readings: Default::default(), under_way: [0; 2], windows: [u64::MAX; 2] }
    }
}

impl Watch {
    /// One side (0: the client) has sent these bytes.
    pub(crate) fn sent(&mut self, side: usize, mut bytes: &[u8], keyspace: &Keyspace) -> Seen {
        let mut seen = Seen::default();
        while let Some((head, meta)) = self.readings[side].next(&mut bytes) {
            match meta {
                None => seen.wrong = seen.wrong.or(self.account(side, &head)),
                Some(meta) => match (head.kind, side) {
                    (FrameKind::Hello, 0) => {
                        self.windows[1] = Hello::decode(&meta).map_or(u64::MAX, |hello| hello.window_bytes.into());
                    }
                    (FrameKind::Hello, _) => {
                        self.windows[0] = Welcome::decode(&meta).map_or(u64::MAX, |hello| hello.window_bytes.into());
                    }
                    _ => {
                        let (schema, attributes) = (&keyspace.schema, &keyspace.attributes);
                        match WirePut::decode_all(&meta, head.payload_bytes, schema, attributes) {
                            Ok(puts) => seen.puts.extend(puts),
                            Err(error) => seen.wrong = Some(format!("a client sends a put that is none: {error}")),
                        }
                    }
                },
            }
        }
        seen
    }

    /// A frame takes of what the other side has granted, and grants.
    fn account(&mut self, side: usize, head: &FrameHead) -> Option<String> {
        let other = 1 - side;
        self.under_way[other] = self.under_way[other].saturating_sub(head.credit.into());
        // Hellos are outside of the windows, and so is what takes no memory of a server.
        if head.kind == FrameKind::Hello || side == 0 && matches!(head.kind, FrameKind::Credit | FrameKind::Goodbye) {
            return None;
        }
        self.under_way[side] += head.frame_bytes();
        let (under_way, window) = (self.under_way[side], self.windows[side]);
        // The error that ends a connection waits for nobody.
        (under_way > window && !head.flags.is_error()).then(|| {
            let [by, to] = [NAMES[side], NAMES[other]];
            format!("{under_way} bytes are under way from a {by}, and its {to} takes {window}")
        })
    }
}

impl Reading {
    /// The next head, or a meta that is looked at, with its head.
    fn next(&mut self, bytes: &mut &[u8]) -> Option<(FrameHead, Option<Vec<u8>>)> {
        let passed_over = bytes.len().min(self.passed_over as usize);
        *bytes = &bytes[passed_over..];
        self.passed_over -= passed_over as u64;
        let wanted = self.head.map_or(FRAME_HEAD_BYTES, |head| head.meta_bytes as usize);
        let (new, rest) = bytes.split_at(bytes.len().min(wanted - self.bytes.len()));
        self.bytes.extend_from_slice(new);
        *bytes = rest;
        if self.passed_over > 0 || self.bytes.len() < wanted {
            return None;
        }
        let read = std::mem::take(&mut self.bytes);
        if let Some(head) = self.head.take() {
            self.passed_over = head.payload_bytes.into();
            return Some((head, Some(read)));
        }
        // Another protocol, or what a reset has cut: nothing of it is read any more.
        let head = read.first_chunk().and_then(|head| FrameHead::decode(head, u64::MAX).ok());
        let Some(head) = head else {
            self.passed_over = u64::MAX;
            return None;
        };
        let is_put = head.kind == FrameKind::Call(Call::Put) && !head.flags.is_answer();
        match (is_put || head.kind == FrameKind::Hello) && !head.flags.is_error() {
            true => self.head = Some(head),
            false => self.passed_over = head.frame_bytes() - FRAME_HEAD_BYTES as u64,
        }
        Some((head, None))
    }
}
