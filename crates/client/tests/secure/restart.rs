//! A server that comes back, with the same certificate or with a new one, is found again.

use crate::secure::certificates::SERVER;
use crate::secure::scene::{Scene, runtime};
use engine::core::{Kind, PutOptions, PutOutcome};
use forebay_client::{AsyncClient, Client, Options};
use std::time::Duration;

#[test]
fn both_clients_find_it_again() {
    let mut scene = Scene::new();
    let options = Options { deadline: Duration::from_secs(20), ..scene.known() };
    let put = PutOptions::default();
    let runtime = runtime();
    let client = Client::connect(&scene.address(), options.clone()).unwrap();
    let other = runtime.block_on(AsyncClient::connect(&scene.address(), options)).unwrap();
    for round in 0..3 {
        let event = 10 * round;
        assert_eq!(client.put(&scene.key(event), b"blocking", &put).unwrap(), PutOutcome::Stored);
        assert_eq!(runtime.block_on(other.put(&scene.key(event + 1), b"async", &put)).unwrap(), PutOutcome::Stored);
        scene.stop();
        let (keys, client) = ([scene.key(event + 2), scene.key(event + 3)], client.clone());
        // A call that begins while nobody is there.
        let waiting = std::thread::spawn(move || client.put(&keys[0], b"meanwhile", &PutOptions::default()));
        let pair = scene.authority.sign(&format!("server-{round}"), SERVER);
        scene.start(&pair, round % 2 == 0);
        assert_eq!(runtime.block_on(other.put(&keys[1], b"after", &put)).unwrap(), PutOutcome::Stored);
        let _ = waiting.join().unwrap().unwrap();
    }
    assert_eq!(scene.store.ledger(1).unwrap().stored.fragments, 12);
}

#[test]
fn a_server_that_comes_back_and_is_not_believed_is_refused_at_once() {
    let mut scene = Scene::new();
    let options = Options { deadline: Duration::from_secs(60), ..scene.options() };
    let runtime = runtime();
    let client = Client::connect(&scene.address(), options.clone()).unwrap();
    let other = runtime.block_on(AsyncClient::connect(&scene.address(), options)).unwrap();
    assert!(runtime.block_on(other.get(&scene.key(1))).unwrap().is_none());
    scene.stop();
    let strangers = crate::secure::certificates::Authority::new(&scene.dir, "strangers");
    scene.start(&strangers.sign("server", SERVER), false);
    let from = std::time::Instant::now();
    for error in [client.get(&scene.key(1)).unwrap_err(), runtime.block_on(other.get(&scene.key(1))).unwrap_err()] {
        // The call may have gone out on the connection that the server had left.
        assert!(matches!(error.kind(), Kind::Invalid | Kind::OutcomeUnknown), "{error}");
        assert!(error.message().contains(&scene.address()), "{error}");
    }
    assert!(from.elapsed() < Duration::from_secs(20), "{:?}", from.elapsed());
}
