//! Answers that are lost: what a call says then, and what the server has done.

use crate::network::proxy::{NONE, Proxy};
use crate::network::scene::{Dir, RUN, key, serve, store, tcp, until};
use engine::Store;
use forebay_client::core::{GetAny, Kind, PutOptions, PutOutcome};
use forebay_client::{AsyncClient, Client, Options, Verdict};
use forebay_wire::WireJudgement;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_millis(400);

struct Scene {
    store: Store,
    proxy: Proxy,
    client: Client,
    _server: forebay_server::Server,
    _dir: Dir,
}

fn options() -> Options {
    Options { deadline: DEADLINE, connect_deadline: DEADLINE, ..Options::default() }
}

fn scene() -> Scene {
    let dir = Dir::new();
    let store = store(dir.path());
    let server = serve(&store, &dir.socket());
    let proxy = Proxy::start(None, &tcp(&server), 1, NONE);
    let client = Client::connect(proxy.address(), options()).unwrap();
    Scene { store, proxy, client, _server: server, _dir: dir }
}

impl Scene {
    /// Makes a call on an open connection whose answers are lost from now on.
    fn lost<T>(&self, call: impl FnOnce(&Client) -> T) -> T {
        self.proxy.mute(false);
        self.client.runs().unwrap();
        self.proxy.mute(true);
        let answer = call(&self.client);
        self.proxy.mute(false);
        answer
    }
}

#[track_caller]
fn is<T: std::fmt::Debug>(kind: Kind, answer: forebay_client::core::Result<T>) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
}

#[test]
fn what_must_not_be_repeated_is_done_once_and_unknown() {
    let scene = scene();
    let Scene { store, client, .. } = &scene;
    for source in 0..2 {
        let _ = client.put(&key(1, source), b"first", &PutOptions::default()).unwrap();
    }
    is(Kind::OutcomeUnknown, scene.lost(|client| client.update(&key(1, 0), b"second", None)));
    is(Kind::OutcomeUnknown, scene.lost(|client| client.hold(Some(7), &[])));
    is(Kind::OutcomeUnknown, scene.lost(|client| client.remove(&key(1, 1))));
    until("the server has done it", || store.get(&key(1, 1)).unwrap().is_none());
    let fragment = store.get(&key(1, 0)).unwrap().unwrap();
    assert_eq!((&fragment[..], fragment.version()), (&b"second"[..], 1), "an update was made twice");
    assert_eq!(store.holds().len(), 1, "a hold was set twice");
    assert!(!client.remove(&key(1, 1)).unwrap(), "a client goes on once it is answered again");
}

#[test]
fn what_may_be_repeated_is_unknown_and_then_the_same() {
    let scene = scene();
    let Scene { store, client, .. } = &scene;
    for source in 0..2 {
        let _ = client.put(&key(1, source), b"bytes", &PutOptions::default()).unwrap();
    }
    let lease = client.get_any(&GetAny::default()).unwrap().pop().unwrap();
    is(Kind::OutcomeUnknown, scene.lost(|client| client.put(&key(2, 0), b"bytes", &PutOptions::default())));
    is(Kind::OutcomeUnknown, scene.lost(|client| client.accept(&lease.primary, &lease.token, &["physics"])));
    is(Kind::OutcomeUnknown, scene.lost(|client| client.run_pause(RUN)));
    until("the server has done it", || store.stats().leases == 0);
    // The repeats come from a client that has time: a busy machine must not make them unknown once more.
    let patient = Client::connect(scene.proxy.address(), Options::default()).unwrap();
    assert_eq!(patient.put(&key(2, 0), b"bytes", &PutOptions::default()).unwrap(), PutOutcome::Duplicate);
    patient.accept(&lease.primary, &lease.token, &["physics"]).unwrap();
    patient.run_resume(RUN).unwrap();
    let ledger = patient.ledger(RUN).unwrap();
    assert_eq!((ledger.stored.fragments, ledger.imbalance()), (3, None));
}

#[test]
fn what_only_looks_is_unavailable() {
    let scene = scene();
    is(Kind::Unavailable, scene.lost(|client| client.get(&key(1, 0))));
    is(Kind::Unavailable, scene.lost(|client| client.ledger(RUN)));
    is(Kind::Unavailable, scene.lost(|client| client.stats()));
    is(Kind::Unavailable, scene.lost(|client| client.get_any(&GetAny::default()).map(|leases| leases.len())));
    // The outcome of what was never sent is known, no matter which call it was.
    scene.proxy.mute(true);
    let stranger = Client::connect(scene.proxy.address(), options());
    is(Kind::Unavailable, stranger);
}

#[test]
fn the_async_client_says_the_same() {
    let Scene { proxy, client: blocking, .. } = &scene();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = AsyncClient::connect(proxy.address(), options()).await.unwrap();
        for source in 0..2 {
            let _ = client.put(&key(1, source), b"bytes", &PutOptions::default()).await.unwrap();
        }
        let lease = client.get_any(&GetAny::default()).await.unwrap().pop().unwrap();
        let verdict = || Verdict::about(&lease, WireJudgement::Reject);
        for call in 0..4 {
            // On an open connection.
            proxy.mute(false);
            client.get(&key(1, 0)).await.unwrap();
            proxy.mute(true);
            match call {
                // First of all: the lease lasts no longer than this.
                0 => is(Kind::OutcomeUnknown, client.decide(&[verdict()]).await.map(|outcomes| outcomes.len())),
                1 => is(Kind::Unavailable, client.get(&key(1, 0)).await),
                2 => is(Kind::Unavailable, client.get_any(&GetAny::default()).await.map(|leases| leases.len())),
                _ => is(Kind::OutcomeUnknown, client.put(&key(2, 0), b"bytes", &PutOptions::default()).await),
            }
        }
        proxy.mute(false);
        client.decide(&[verdict()]).await.unwrap().pop().unwrap().unwrap();
    });
    assert_eq!(blocking.ledger(RUN).unwrap().rejected.events, 1);
}
