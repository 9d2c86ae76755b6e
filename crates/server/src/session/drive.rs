//! A session without a socket, step by step: for the fuzzer.
//!
//! *Invariants*: a session that has nothing to do waits; one whose client is gone ends; what it says is frames. Each is
//! asserted here.

use super::Session;
use crate::access::Access;
use crate::keyspaces::Keyspaces;
use crate::limits::Limits;
use crate::served::Served;
use crate::shared::Shared;
use crate::transport::Transport;
use forebay_core::ServedStore;
use forebay_wire::{FRAME_HEAD_BYTES, FrameHead};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// One step of what a client does.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// It sends these bytes.
    Send(&'a [u8]),
    /// It takes this many bytes.
    Take(usize),
    /// It waits a little.
    Wait,
}

/// Most polls of one step: more of them spin.
const POLLS_MAX: usize = 10_000;
/// Time in which a session ends whose client is gone.
const END: Duration = Duration::from_secs(5);

/// Takes a session through the steps and to its end; answers what it said. To be called within a Tokio runtime.
///
/// # Panics
/// Where a session spins, does not end, or says what is no frame.
pub async fn drive<S: ServedStore>(served: &Served<S>, limits: Limits, steps: &[Step<'_>]) -> Vec<FrameHead> {
    let keyspaces = Keyspaces::of(served.clone());
    let shared = Shared::new(Access::default(), None, limits, 1);
    let pipe = Rc::new(RefCell::new(Pipe::default()));
    let mut session = Session::new(Memory(pipe.clone()), Arc::new(shared), Arc::new(keyspaces));
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(flag.clone());
    let mut is_over = false;
    for step in steps {
        match step {
            Step::Send(bytes) => pipe.borrow_mut().input.extend(*bytes),
            Step::Take(bytes) => pipe.borrow_mut().room += bytes,
            Step::Wait => tokio::time::sleep(Duration::from_millis(1)).await,
        }
        let mut polls = 0;
        while !is_over {
            flag.0.store(false, Ordering::Release);
            is_over = session.poll(&mut Context::from_waker(&waker)).is_ready();
            if !flag.0.load(Ordering::Acquire) {
                break;
            }
            polls += 1;
            // A session that wakes itself without getting on would keep a processor busy forever on a real socket.
            assert!(polls < POLLS_MAX, "a session spins at {step:?}");
            tokio::task::yield_now().await;
        }
    }
    {
        let mut pipe = pipe.borrow_mut();
        // The client goes away and takes everything: after any steps the session must now end.
        (pipe.is_eof, pipe.room) = (true, usize::MAX);
    }
    if !is_over {
        let end = tokio::time::timeout(END, poll_fn(|context| session.poll(context))).await;
        assert!(end.is_ok(), "a session whose client is gone does not end");
    }
    tokio::time::timeout(END, session.leave()).await.unwrap_or_else(|_| panic!("work of a session does not end"));
    let output = std::mem::take(&mut pipe.borrow_mut().output);
    frames(&output)
}

/// The heads of the frames in the output, which may end within a frame.
fn frames(mut output: &[u8]) -> Vec<FrameHead> {
    let mut heads = Vec::new();
    while let Some((bytes, rest)) = output.split_first_chunk::<FRAME_HEAD_BYTES>() {
        let head = FrameHead::decode(bytes, u64::from(u32::MAX)).unwrap_or_else(|error| panic!("no frame: {error}"));
        heads.push(head);
        let Some((meta, rest)) = rest.split_at_checked(head.meta_bytes as usize) else { break };
        assert!(head.check_meta(meta).is_ok(), "a meta without its checksum: {head:?}");
        output = rest.get(head.payload_bytes as usize..).unwrap_or_default();
    }
    heads
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Flag>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Bytes both ways.
#[derive(Default)]
struct Pipe {
    input: VecDeque<u8>,
    is_eof: bool,
    output: Vec<u8>,
    /// Bytes that the client still takes.
    room: usize,
}

struct Memory(Rc<RefCell<Pipe>>);

impl AsyncRead for Memory {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.0.borrow_mut();
        if pipe.input.is_empty() {
            // The code that adds to it polls again.
            return if pipe.is_eof { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let most = to.remaining().min(pipe.input.len());
        to.put_slice(&pipe.input.make_contiguous()[..most]);
        pipe.input.drain(..most);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Memory {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let mut pipe = self.0.borrow_mut();
        let most = pipe.room.min(from.len());
        if most == 0 && !from.is_empty() {
            return Poll::Pending;
        }
        pipe.room -= most;
        pipe.output.extend_from_slice(&from[..most]);
        Poll::Ready(Ok(most))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Transport for Memory {}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Keyspace;
    use forebay_store::{Config, Store};
    use forebay_wire::{FrameFlags, FrameKind, Hello};

    #[test]
    fn a_session_is_driven_by_hand() {
        let dir = std::env::temp_dir().join(format!("forebay-drive-{}", std::process::id()));
        std::fs::remove_dir_all(&dir).ok();
        let config = Config { hot_bytes: 4 << 20, segment_bytes: Some(64 << 10), ..Config::default() };
        let store = Store::create(&dir, &Keyspace::events("drive", 1).opening_runs(), config).unwrap();
        let (window_bytes, token, keyspace) = (64 << 10, Vec::new(), String::new());
        let hello = Hello { features: 0, window_bytes, token, keyspace, name: "drive".to_owned() }.encode().unwrap();
        let hello =
            [&FrameHead::new(FrameKind::Hello, FrameFlags::REQUEST, 1).with(&hello, 0).encode()[..], &hello].concat();
        let ping = FrameHead::new(FrameKind::Ping, FrameFlags::REQUEST, 2).encode();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let steps = [Step::Send(&hello[..50]), Step::Take(1), Step::Send(&hello[50..]), Step::Wait, Step::Send(&ping)];
        let heads = runtime.block_on(drive(&store.into(), Limits::default(), &steps));
        let said: Vec<_> = heads.iter().map(|head| (head.kind, head.request)).collect();
        assert_eq!(said, [(FrameKind::Hello, 1), (FrameKind::Ping, 2)]);
        std::fs::remove_dir_all(&dir).ok();
    }
}
