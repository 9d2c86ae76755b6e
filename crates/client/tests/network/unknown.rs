//! An answer to a put is lost, and the repeat is not taken any more: the answer says that the first try is unknown, a
//! readout counts it so, and its check against the ledger knows that.

use crate::network::proxy::{NONE, Proxy};
use crate::network::scene::{Dir, RUN, key, serve, store, tcp, until};
use crate::network::workload::PATIENCE;
use engine::Store;
use forebay_client::core::{Error, Key, Kind, OpenEvent, PutOptions, PutOutcome, Result};
use forebay_client::{AsyncClient, Client, Options};
use forebay_daq::processes::{FilterConfig, ReadoutConfig, ReadoutReport, audit_readouts, run_filter, run_readout};
use forebay_server::{Endpoint, Limits, Server, ServerConfig};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

struct Scene {
    store: Store,
    proxy: Proxy,
    client: Client,
    runtime: Runtime,
    other: AsyncClient,
    _server: Server,
    _dir: Dir,
}

fn options(deadline: Duration) -> Options {
    // The answer to a hello may be lost as well.
    Options { deadline, connect_deadline: Duration::from_millis(200), ..Options::default() }
}

fn scene() -> Scene {
    let dir = Dir::new();
    let store = store(dir.path());
    let server = serve(&store, &dir.socket());
    let proxy = Proxy::start(None, &tcp(&server), 1, NONE);
    let options = options(Duration::from_secs(20));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client::connect(proxy.address(), options.clone()).unwrap();
    let other = runtime.block_on(AsyncClient::connect(proxy.address(), options)).unwrap();
    Scene { store, proxy, client, runtime, other, _server: server, _dir: dir }
}

impl Scene {
    /// Makes a call whose first answer is lost; `meanwhile` happens once its event is there, before it is repeated.
    fn lost<T: Send>(&self, event: u64, call: impl FnOnce() -> T + Send, meanwhile: impl FnOnce()) -> T {
        self.proxy.mute(true);
        let primary = self.store.schema().primary(&[RUN, event]).unwrap();
        let is_there = || self.store.get_event(&primary, &forebay_client::core::Sources::None).unwrap().is_some();
        std::thread::scope(|scope| {
            let calling = scope.spawn(call);
            until("the first try is there", is_there);
            meanwhile();
            self.proxy.cut();
            calling.join().unwrap()
        })
    }

    /// Both clients are connected.
    fn connect(&self) {
        self.client.get(&key(1, 0)).unwrap();
        self.runtime.block_on(self.other.get(&key(1, 0))).unwrap();
    }

    /// A put of either client.
    fn put(&self, is_async: bool, key: &Key) -> Result<PutOutcome> {
        let put = PutOptions::default();
        match is_async {
            true => self.runtime.block_on(self.other.put(key, b"bytes", &put)),
            false => self.client.put(key, b"bytes", &put),
        }
    }

    /// Somebody else decides the event.
    fn reject(&self, event: u64) {
        let primary = self.store.schema().primary(&[RUN, event]).unwrap();
        assert!(self.store.seal(&primary).unwrap());
        self.store.lease(&primary, None).unwrap().unwrap().reject().unwrap();
    }
}

/// An error of its kind, from a repeat or from the only try.
#[track_caller]
fn is(kind: Kind, is_repeat: bool, answer: Result<PutOutcome>) {
    let error: Error = answer.unwrap_err();
    assert_eq!((error.kind(), error.earlier_try_unknown()), (kind, is_repeat), "{error}");
    assert_eq!(error.message().contains("earlier try"), is_repeat, "{error}");
}

#[test]
fn a_late_repeat_says_that_the_first_try_is_unknown() {
    let scene = scene();
    for (is_async, event) in [(false, 1), (true, 2)] {
        scene.connect();
        let answer = scene.lost(event, || scene.put(is_async, &key(event, 0)), || scene.reject(event));
        assert_eq!(answer.unwrap(), PutOutcome::LateUnknown);
        // A put that is tried once is answered as ever.
        for source in 0..2 {
            assert_eq!(scene.put(is_async, &key(event, source)).unwrap(), PutOutcome::Late);
        }
    }
    scene.connect();
    let commit = || {
        let mut memory = scene.client.reserve(&key(3, 0), 5, &PutOptions::default()).unwrap();
        memory.copy_from_slice(b"bytes");
        memory.commit()
    };
    assert_eq!(scene.lost(3, commit, || scene.reject(3)).unwrap(), PutOutcome::LateUnknown);
    let ledger = scene.store.ledger(RUN).unwrap();
    assert_eq!((ledger.stored.fragments, ledger.late.fragments, ledger.imbalance()), (3, 7, None));
}

#[test]
fn a_repeat_that_meets_other_bytes_says_that_the_first_try_is_unknown() {
    let scene = scene();
    for (is_async, event) in [(false, 1), (true, 2)] {
        scene.connect();
        let update = || assert_eq!(scene.store.update(&key(event, 0), b"other", None).unwrap(), 1);
        is(Kind::Conflict, true, scene.lost(event, || scene.put(is_async, &key(event, 0)), update));
        is(Kind::Conflict, false, scene.put(is_async, &key(event, 0)));
    }
}

#[test]
fn a_repeat_that_meets_a_closed_run_says_that_the_first_try_is_unknown() {
    for is_async in [false, true] {
        let scene = scene();
        scene.connect();
        let close = || {
            scene.reject(1);
            scene.store.run_stop(RUN).unwrap();
            until("the run is closed", || scene.store.run_close(RUN).is_ok());
        };
        is(Kind::Closed, true, scene.lost(1, || scene.put(is_async, &key(1, 0)), close));
        is(Kind::Closed, false, scene.put(is_async, &key(1, 0)));
    }
}

#[test]
fn of_many_puts_each_says_whether_its_first_try_is_unknown() {
    let scene = scene();
    for (is_async, first) in [(false, 1), (true, 11)] {
        scene.connect();
        let keys: Vec<Key> = (first..first + 3).map(|event| key(event, 0)).collect();
        let puts: Vec<(Key, &[u8], PutOptions<'_>)> =
            keys.iter().map(|key| (*key, &b"bytes"[..], PutOptions::default())).collect();
        let call = || match is_async {
            true => scene.runtime.block_on(scene.other.put_many(&puts)),
            false => scene.client.put_many(&puts),
        };
        let meanwhile = || {
            until("all are there", || keys.iter().all(|key| scene.store.get(key).unwrap().is_some()));
            scene.reject(first);
            scene.store.update(&keys[1], b"other", None).unwrap();
        };
        let mut outcomes = scene.lost(first, call, meanwhile).unwrap();
        assert_eq!(outcomes.pop().unwrap().unwrap(), PutOutcome::Stored, "a duplicate of its own");
        is(Kind::Conflict, true, outcomes.pop().unwrap());
        assert_eq!(outcomes.pop().unwrap().unwrap(), PutOutcome::LateUnknown);
    }
}

/// A server that takes 64 KiB at once, behind a proxy.
fn narrow(dir: &Dir, store: &Store) -> (Server, Proxy) {
    let limits = Limits { window_bytes: 64 << 10, ..Limits::default() };
    let native = vec![Endpoint::Unix(dir.socket())];
    let config = ServerConfig { native, threads: 1, limits, ..ServerConfig::default() };
    let server = Server::start(vec![store.clone()], config).unwrap();
    (server, Proxy::start(Some(dir.path().join("front")), &dir.address(), 1, NONE))
}

/// A put that is dropped once it is stored: it holds its credit.
async fn give_up(client: &AsyncClient, store: &Store, key: &Key, value: &[u8]) {
    let put = PutOptions::default();
    let is_there = async {
        while store.get(key).unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        answer = client.put(key, value, &put) => panic!("answered: {answer:?}"),
        () = is_there => {}
    }
}

/// The second call waits for credit, which the answer to the first one would bring: nothing of it is sent, and the next one
/// gets another connection.
#[test]
fn what_waits_for_credit_to_its_end_is_not_unknown() {
    let dir = Dir::new();
    let store = store(dir.path());
    let (_server, proxy) = narrow(&dir, &store);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(AsyncClient::connect(proxy.address(), options(Duration::from_millis(500)))).unwrap();
    runtime.block_on(client.get(&key(1, 0))).unwrap();
    proxy.mute(true);
    let (value, keys, put) = (vec![7; 40_000], [key(2, 0), key(3, 0)], PutOptions::default());
    runtime.block_on(give_up(&client, &store, &keys[0], &value));
    let second = runtime.block_on(client.put(&keys[1], &value, &put));
    assert_eq!(second.unwrap_err().kind(), Kind::Unavailable);
    assert!(store.get(&keys[1]).unwrap().is_none(), "it was sent");
    proxy.mute(false);
    assert_eq!(runtime.block_on(client.put(&keys[1], &value, &put)).unwrap(), PutOutcome::Stored);
}

#[test]
fn what_is_given_up_holds_credit_no_longer_than_its_time() {
    let dir = Dir::new();
    let store = store(dir.path());
    let (_server, proxy) = narrow(&dir, &store);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let deadline = Duration::from_secs(3);
    let client = runtime.block_on(AsyncClient::connect(proxy.address(), options(deadline))).unwrap();
    runtime.block_on(client.get(&key(1, 0))).unwrap();
    proxy.mute(true);
    let value = vec![7; 40_000];
    runtime.block_on(give_up(&client, &store, &key(2, 0), &value));
    std::thread::sleep(deadline);
    proxy.mute(false);
    let next = runtime.block_on(client.put(&key(3, 0), &value, &PutOptions::default()));
    assert_eq!(next.unwrap(), PutOutcome::Stored);
}

/// The second fragment waits for the answer to the first one: nothing of it is sent before the connection is cut.
#[test]
fn what_a_lost_connection_never_carried_is_not_unknown() {
    let dir = Dir::new();
    let store = store(dir.path());
    let (_server, proxy) = narrow(&dir, &store);
    let client = Client::connect(proxy.address(), options(Duration::from_secs(20))).unwrap();
    let value = vec![7; 40_000];
    let _ = store.put(&key(2, 0), &value, &PutOptions::default()).unwrap();
    let reject = |event| {
        let primary = store.schema().primary(&[RUN, event]).unwrap();
        store.seal(&primary).unwrap();
        store.lease(&primary, None).unwrap().unwrap().reject().unwrap();
    };
    reject(2);
    client.runs().unwrap();
    proxy.mute(true);
    let outcomes = std::thread::scope(|scope| {
        let puts = [1, 2].map(|event| (key(event, 0), &value[..], PutOptions::default()));
        let client = &client;
        let calling = scope.spawn(move || client.put_many(&puts).unwrap());
        until("the first try is there", || store.get(&key(1, 0)).unwrap().is_some());
        reject(1);
        proxy.cut();
        calling.join().unwrap()
    });
    let outcomes: Vec<PutOutcome> = outcomes.into_iter().map(|outcome| outcome.unwrap()).collect();
    assert_eq!(outcomes, [PutOutcome::LateUnknown, PutOutcome::Late]);
}

/// A call that waits for its server is tried often, and sent once.
#[test]
fn what_was_sent_once_is_late_and_no_more() {
    let dir = Dir::new();
    let store = store(dir.path());
    let server = serve(&store, &dir.socket());
    let client = Client::connect(&dir.address(), options(Duration::from_secs(20))).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let other = runtime.block_on(AsyncClient::connect(&dir.address(), options(Duration::from_secs(20)))).unwrap();
    let _ = client.put(&key(1, 0), b"bytes", &PutOptions::default()).unwrap();
    runtime.block_on(other.get(&key(1, 0))).unwrap();
    assert!(store.remove_event(&store.schema().primary(&[RUN, 1]).unwrap()).unwrap());
    drop(server);
    // Longer than a client believes that its connections are still there.
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(200)).await });
    let put = PutOptions::default();
    std::thread::scope(|scope| {
        let calls = [
            scope.spawn(|| client.put(&key(1, 0), b"bytes", &put)),
            scope.spawn(|| runtime.block_on(other.put(&key(1, 0), b"bytes", &put))),
        ];
        std::thread::sleep(Duration::from_millis(100));
        let server = serve(&store, &dir.socket());
        for call in calls {
            assert_eq!(call.join().unwrap().unwrap(), PutOutcome::Late);
        }
        drop(server);
    });
}

#[test]
fn a_repeated_announcement_that_is_late_says_so() {
    let scene = scene();
    let event = scene.store.schema().primary(&[RUN, 2]).unwrap();
    let sources = vec![scene.store.schema().source_of(&key(1, 0))];
    let how = OpenEvent { sources: Some(&sources), attributes: None };
    let call = || scene.client.open_event(&event, &how);
    scene.connect();
    let answer = scene.lost(2, call, || assert!(scene.store.remove_event(&event).unwrap()));
    assert_eq!(answer.unwrap(), PutOutcome::LateUnknown);
    assert_eq!(call().unwrap(), PutOutcome::Late);
}

/// A readout whose answers get lost, with a filter that decides at once; what the readout says, and how many fragments
/// the ledger has as stored.
fn readout(deadline: Duration, mute: Duration) -> (ReadoutReport, u64) {
    // Two seconds: the first report, after which answers are muted, comes after half a second.
    const EVENTS: u64 = 1600;
    let scene = scene();
    // Within its deadline, which is short for a busy machine.
    let connect = || Client::connect(scene.proxy.address(), options(deadline)).ok();
    let client = std::iter::repeat_with(connect).take(1000).flatten().next().unwrap();
    let made = ReadoutConfig {
        name: "readout-0".to_owned(),
        run: RUN,
        sources: 0..2,
        fragment_bytes: 1000,
        events: 1..1 + EVENTS,
        events_per_second: 800,
        seed: 1,
        patience: Duration::from_secs(30),
    };
    let decided = FilterConfig {
        batch: 8,
        accept: 0.0,
        stream: "physics".to_owned(),
        stage: None,
        seed: 1,
        verify: true,
        think: Duration::ZERO,
        until_stopped: true,
        patience: Duration::from_secs(30),
    };
    let (never, began, is_over) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let report = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let report = run_readout(&client, &made, &never, &mut |_| began.store(true, Ordering::Release));
            is_over.store(true, Ordering::Release);
            report
        });
        let filtering = scope.spawn(|| run_filter(&scene.store, &decided, &never, &mut |_| {}).unwrap());
        until("the readout is at work", || began.load(Ordering::Acquire) || is_over.load(Ordering::Acquire));
        // In the long times a busy machine gets its calls through as well.
        for open in [40, 40, 40, 400].into_iter().cycle().map(Duration::from_millis) {
            if is_over.load(Ordering::Acquire) {
                break;
            }
            scene.proxy.mute(true);
            std::thread::sleep(mute);
            scene.proxy.cut();
            std::thread::sleep(open);
        }
        scene.store.run_stop(RUN).unwrap();
        let _ = filtering.join().unwrap();
        reading.join().unwrap().unwrap()
    });
    let ledger = scene.store.ledger(RUN).unwrap();
    assert_eq!(audit_readouts(std::slice::from_ref(&report), &ledger, false), Vec::<String>::new(), "{report:?}");
    assert_eq!(report.fragments + report.late + report.unknown, 2 * EVENTS, "{report:?}");
    (report, ledger.stored.fragments)
}

/// Readouts until enough has happened in one: on a busy machine not in the first.
fn readouts(deadline: Duration, mute: Duration, is_enough: impl Fn(&ReadoutReport) -> bool) {
    let from = Instant::now();
    loop {
        let (report, stored) = readout(deadline, mute);
        // Without the term it does not balance: the ledger has more than the readout knows of.
        if stored > report.fragments && is_enough(&report) {
            return;
        }
        assert!(from.elapsed() < PATIENCE, "too little happened: this proves nothing: {report:?}, {stored} stored");
    }
}

#[test]
fn a_readout_counts_what_is_unknown_and_agrees_with_the_ledger() {
    readouts(Duration::from_secs(20), Duration::from_millis(40), |report| report.unknown > 0);
}

/// Its client gives up before it is answered: the readout makes the same call again itself.
#[test]
fn a_readout_that_repeats_calls_itself_counts_the_same() {
    let is_enough = |report: &ReadoutReport| report.unknown > 0 && report.away > 0;
    readouts(Duration::from_millis(60), Duration::from_millis(200), is_enough);
}
