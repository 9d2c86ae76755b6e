//! The client for async programs: many calls at once over one connection, and what happens when that goes away.

use engine::core::{Completeness, GetAny, Key, Keyspace, Kind, PutOptions, PutOutcome, Repeat, Result, Sources};
use engine::{Config, Store};
use forebay_client::{AsyncClient, Connector, Options, Reader, Verdict, Writer};
use forebay_server::{Endpoint, Server, ServerConfig};
use forebay_wire::{Control, WireJudgement};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;

/// A store with a server on a Unix socket.
struct Scene {
    dir: PathBuf,
    store: Store,
    server: Option<Server>,
}

impl Scene {
    fn new(fragments: u32) -> Scene {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("forebay-async-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut keyspace = Keyspace::events("async", fragments).opening_runs();
        keyspace.run.completeness = Completeness::Count(fragments);
        keyspace.run.complete_within = Duration::from_secs(600);
        let config = Config { hot_bytes: 128 << 20, ..Config::default() };
        let store = Store::create(&dir.join("store"), &keyspace, config).unwrap();
        let mut scene = Scene { dir, store, server: None };
        scene.start();
        scene
    }

    fn start(&mut self) {
        let native = vec![Endpoint::Unix(self.dir.join("socket"))];
        let config = ServerConfig { native, threads: 1, ..ServerConfig::default() };
        self.server = Some(Server::start(vec![self.store.clone()], config).unwrap());
    }

    fn address(&self) -> String {
        format!("unix:{}", self.dir.join("socket").display())
    }

    fn key(&self, event: u64, source: u64) -> Key {
        self.store.schema().key(&[1, event, source]).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.server = None;
        std::fs::remove_dir_all(&self.dir).ok();
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn hundreds_of_calls_share_a_connection() {
    let scene = Scene::new(2);
    runtime().block_on(async {
        let client = AsyncClient::connect(&scene.address(), Options::default()).await.unwrap();
        let mut calls = tokio::task::JoinSet::new();
        for event in 0..300_u64 {
            let (client, keys) = (client.clone(), [scene.key(event, 0), scene.key(event, 1)]);
            calls.spawn(async move {
                let value = vec![event as u8; 20_000];
                for key in keys {
                    let outcome = client.put(&key, &value, &PutOptions::default()).await.unwrap();
                    assert_eq!(outcome, PutOutcome::Stored);
                    let read = client.get(&key).await.unwrap().unwrap();
                    assert_eq!(&read[..], &value[..]);
                    read.verify().unwrap();
                }
            });
        }
        while let Some(done) = calls.join_next().await {
            done.unwrap();
        }
        let primary = scene.store.schema().primary(&[1, 7]).unwrap();
        let event = client.get_event(&primary, &Sources::All).await.unwrap().unwrap();
        assert_eq!((event.fragments.len(), event.fragments[1].len()), (2, 20_000));
        assert!(client.get(&scene.key(1000, 0)).await.unwrap().is_none());
        assert_eq!(client.with(|client| client.ledger(1)).await.unwrap().stored.fragments, 600);
        let key = scene.key(0, 0);
        let error = client.put(&key, b"other", &PutOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict);
    });
}

#[test]
fn events_are_leased_and_decided() {
    let scene = Scene::new(1);
    runtime().block_on(async {
        let client = AsyncClient::connect(&scene.address(), Options::default()).await.unwrap();
        let request = GetAny { n: 100, wait: Duration::from_secs(10), ..GetAny::default() };
        // One waits for what the other puts.
        let keys: Vec<Key> = (0..100).map(|event| scene.key(event, 0)).collect();
        let puts: Vec<(Key, &[u8], PutOptions<'_>)> =
            keys.iter().map(|key| (*key, &b"bytes"[..], PutOptions::default())).collect();
        let (leases, outcomes) = tokio::join!(client.get_any(&request), client.put_many(&puts));
        assert!(outcomes.unwrap().into_iter().all(|outcome| outcome.unwrap() == PutOutcome::Stored));
        let mut leases = leases.unwrap();
        assert!(!leases.is_empty());
        while leases.len() < 100 {
            leases.extend(client.get_any(&request).await.unwrap());
        }
        client.extend(&leases[0], Duration::from_secs(20)).await.unwrap();
        let verdicts: Vec<_> = leases.iter().map(|lease| Verdict::about(lease, WireJudgement::Reject)).collect();
        assert!(client.decide(&verdicts).await.unwrap().into_iter().all(|outcome| outcome.is_ok()));
        let fenced = client.extend(&leases[0], Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(fenced.kind(), Kind::Fenced);
        assert_eq!(scene.store.ledger(1).unwrap().rejected.events, 100);
    });
}

#[test]
fn a_server_that_comes_back_is_found_again_and_one_that_does_not_is_given_up() {
    let mut scene = Scene::new(1);
    runtime().block_on(async {
        let options = Options { deadline: Duration::from_millis(800), ..Options::default() };
        let client = AsyncClient::connect(&scene.address(), options).await.unwrap();
        let options = PutOptions::default();
        assert_eq!(client.put(&scene.key(1, 0), b"one", &options).await.unwrap(), PutOutcome::Stored);
        scene.server = None;
        let error = client.put(&scene.key(2, 0), b"two", &options).await.unwrap_err();
        assert!(matches!(error.kind(), Kind::Unavailable | Kind::OutcomeUnknown), "{error}");
        scene.start();
        assert_eq!(client.put(&scene.key(2, 0), b"two", &options).await.unwrap(), PutOutcome::Stored);
    });
}

#[test]
fn a_call_that_is_given_up_harms_no_other() {
    let scene = Scene::new(1);
    runtime().block_on(async {
        let client = AsyncClient::connect(&scene.address(), Options::default()).await.unwrap();
        let value = vec![1; 1 << 20];
        for event in 0..20_u64 {
            let (key, options) = (scene.key(event, 0), PutOptions::default());
            let micros = 100 * event;
            // Whether it got through or not: the next calls do.
            let _ = tokio::time::timeout(Duration::from_micros(micros), client.put(&key, &value, &options)).await;
            let small = scene.key(1000 + event, 0);
            assert_eq!(client.put(&small, b"small", &options).await.unwrap(), PutOutcome::Stored, "{event}");
            let found = client.get(&small).await.unwrap().unwrap();
            assert_eq!(&found[..], b"small");
        }
    });
}

/// Makes connections whose writers take only the bytes that are left, and then stall.
#[derive(Clone, Default)]
struct Stalling {
    socket: PathBuf,
    /// Bytes, over all connections.
    left: Arc<AtomicUsize>,
    /// Writers fail from now on.
    is_broken: Arc<AtomicBool>,
    connects: Arc<AtomicUsize>,
}

impl Stalling {
    fn new(scene: &Scene) -> Stalling {
        let left = Arc::new(AtomicUsize::new(1 << 20));
        Stalling { socket: scene.dir.join("socket"), left, ..Stalling::default() }
    }
}

impl Connector for Stalling {
    fn name(&self) -> String {
        "a server behind sockets that stall".to_owned()
    }

    fn connect(&self) -> Pin<Box<dyn Future<Output = Result<(Reader, Writer)>> + Send + '_>> {
        Box::pin(async {
            self.connects.fetch_add(1, Ordering::Relaxed);
            let (reader, writer) = UnixStream::connect(&self.socket).await.unwrap().into_split();
            let writer = Box::pin(Stalled { writer, by: self.clone() });
            Ok((Box::pin(reader) as Reader, writer as Writer))
        })
    }

    fn draw(&self) -> f64 {
        0.5
    }
}

struct Stalled {
    writer: OwnedWriteHalf,
    by: Stalling,
}

impl AsyncWrite for Stalled {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        if self.by.is_broken.load(Ordering::Relaxed) {
            return Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into()));
        }
        let most = bytes.len().min(self.by.left.load(Ordering::Relaxed));
        if most == 0 {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.writer).poll_write(context, &bytes[..most]);
        if let Poll::Ready(Ok(written)) = written {
            self.by.left.fetch_sub(written, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(context)
    }
}

/// Behind half a frame nothing is sent: only the call that began it is unknown.
#[test]
fn what_waits_behind_a_frame_that_stalls_is_not_unknown() {
    let scene = Scene::new(1);
    runtime().block_on(async {
        let connector = Stalling::new(&scene);
        let left = connector.left.clone();
        let options = Options { deadline: Duration::from_millis(500), ..Options::default() };
        let client = AsyncClient::over(Arc::new(connector), scene.store.keyspace().clone(), options);
        let (long, short, put) = (scene.key(1, 0), scene.key(2, 0), PutOptions::default());
        assert!(client.get(&long).await.unwrap().is_none());
        left.store(20_000, Ordering::Relaxed);
        let (first, second) = tokio::join!(client.put(&long, &[7; 40_000], &put), client.put(&short, b"short", &put));
        assert_eq!(first.unwrap_err().kind(), Kind::OutcomeUnknown);
        assert_eq!(second.unwrap_err().kind(), Kind::Unavailable);
        left.store(1 << 20, Ordering::Relaxed);
        assert_eq!(client.put(&short, b"short", &put).await.unwrap(), PutOutcome::Stored);
        assert_eq!(client.put(&long, &[7; 40_000], &put).await.unwrap(), PutOutcome::Stored, "half of it was taken");
    });
}

/// Credit that is due meanwhile would be taken for the rest of a frame that was given up.
#[test]
fn behind_half_a_frame_no_credit_goes_out_either() {
    let scene = Scene::new(1);
    runtime().block_on(async {
        let connector = Stalling::new(&scene);
        let left = connector.left.clone();
        // Half of it is granted again at once.
        let options = Options { window_bytes: 64 << 10, ..Options::default() };
        let client = AsyncClient::over(Arc::new(connector), scene.store.keyspace().clone(), options);
        let (there, long, put) = (scene.key(1, 0), scene.key(2, 0), PutOptions::default());
        assert_eq!(client.put(&there, &[7; 40_000], &put).await.unwrap(), PutOutcome::Stored);
        left.store(20_000, Ordering::Relaxed);
        // In a task of its own: nothing wakes it before it is given up.
        let given_up = tokio::spawn({
            let client = client.clone();
            async move { client.put(&long, &[7; 40_000], &put).await }
        });
        let found = client.get(&there).await.unwrap().unwrap();
        assert_eq!((found.len(), left.load(Ordering::Relaxed)), (40_000, 0));
        left.store(1 << 20, Ordering::Relaxed);
        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled());
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(left.load(Ordering::Relaxed), 1 << 20, "something was sent");
        assert_eq!(client.put(&long, &[7; 40_000], &put).await.unwrap(), PutOutcome::Stored, "half of it was taken");
    });
}

/// The first write finds out that the server has gone: nothing of the call was sent, and it goes to the one that came after.
#[test]
fn a_call_of_which_no_byte_was_taken_is_not_unknown() {
    let mut scene = Scene::new(1);
    let runtime = runtime();
    let client = runtime.block_on(AsyncClient::connect(&scene.address(), Options::default())).unwrap();
    let put = PutOptions::default();
    assert_eq!(runtime.block_on(client.put(&scene.key(1, 0), b"one", &put)).unwrap(), PutOutcome::Stored);
    scene.server = None;
    scene.start();
    let hold = Control::Hold { run: Some(1), conditions: Vec::new() };
    assert_eq!(hold.repeat(), Repeat::Never, "one that may be unknown");
    runtime.block_on(client.control(&hold)).unwrap();
}

/// Credit cannot be sent any more: what the server answers all the same is read.
#[test]
fn an_answer_behind_a_write_that_failed_is_read() {
    let scene = Scene::new(2);
    runtime().block_on(async {
        let connector = Stalling::new(&scene);
        let options = Options { window_bytes: 64 << 10, ..Options::default() };
        let (keyspace, put) = (scene.store.keyspace().clone(), PutOptions::default());
        let client = AsyncClient::over(Arc::new(connector.clone()), keyspace, options);
        let there = scene.key(1, 0);
        assert_eq!(client.put(&there, &[7; 40_000], &put).await.unwrap(), PutOutcome::Stored);
        let request = GetAny { n: 1, wait: Duration::from_secs(10), ..GetAny::default() };
        let (mut leases, mut found) = (pin!(client.get_any(&request)), pin!(client.get(&there)));
        std::future::poll_fn(|context| {
            assert!(leases.as_mut().poll(context).is_pending() && found.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        // Both are sent.
        connector.is_broken.store(true, Ordering::Relaxed);
        assert_eq!(found.await.unwrap().unwrap().len(), 40_000);
        for source in 0..2 {
            assert_eq!(scene.store.put(&scene.key(2, source), b"bytes", &put).unwrap(), PutOutcome::Stored);
        }
        assert_eq!(leases.await.unwrap().len(), 1);
        assert_eq!(connector.connects.load(Ordering::Relaxed), 1);
    });
}
