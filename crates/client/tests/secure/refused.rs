//! Certificates that are refused: a typed error, at once, that names the address and what to do.

use crate::secure::certificates::{Authority, CLIENT, PAST, SERVER, Wanted};
use crate::secure::scene::{Scene, runtime, showing};
use engine::core::Kind;
use forebay_client::{AsyncClient, Client, Options, Tls};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Long: a client that tries again until it is over takes longer than the tests allow.
const DEADLINE: Duration = Duration::from_secs(60);

/// Both clients are refused at once, and hear this.
#[track_caller]
fn hear(scene: &Scene, options: &Options, hint: &str) {
    let (from, address) = (Instant::now(), scene.address());
    let options = Options { deadline: DEADLINE, connect_deadline: Duration::from_secs(20), ..options.clone() };
    for error in scene.errors(&address, &options) {
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.message().starts_with(&format!("{address}: ")), "{error}");
        assert!(error.message().contains(hint), "{error}");
    }
    assert!(from.elapsed() < DEADLINE / 4, "{:?}", from.elapsed());
}

#[test]
fn a_server_of_another_authority() {
    let scene = Scene::new();
    // Of another name, and of the same name with another key.
    for (dir, name) in [("", "strangers"), ("elsewhere", "authority")] {
        let strangers = Authority::new(&scene.dir.join(dir), name);
        let options = Options { tls: Tls { ca: Some(strangers.file), ..Tls::default() }, ..Options::default() };
        hear(&scene, &options, "name the CA that made it");
    }
}

#[test]
fn a_server_whose_certificate_does_not_count() {
    let cases = [
        (Wanted { until: PAST, ..SERVER }, "has expired"),
        (Wanted { name: "elsewhere.example.org", ..SERVER }, "made for other names"),
        (CLIENT, "made for servers"),
    ];
    for (wanted, hint) in cases {
        let mut scene = Scene::without_server();
        let pair = scene.authority.sign("server", wanted);
        scene.start(&pair, false);
        hear(&scene, &scene.options(), hint);
    }
}

#[test]
fn a_client_that_a_server_does_not_take() {
    let mut scene = Scene::without_server();
    let pair = scene.authority.sign("server", SERVER);
    scene.start(&pair, true);
    let strangers = Authority::new(&scene.dir, "strangers").sign("client", CLIENT);
    let namesakes = Authority::new(&scene.dir.join("elsewhere"), "authority").sign("client", CLIENT);
    let expired = scene.authority.sign("expired", Wanted { until: PAST, ..CLIENT });
    let servers = scene.authority.sign("another", SERVER);
    // What is refused after the client's side of the handshake is a race between the alert and the end: it is heard always.
    for _ in 0..20 {
        hear(&scene, &scene.options(), "wants a client certificate");
    }
    for (shown, hint) in [(&strangers, "client_ca"), (&namesakes, "client_ca"), (&servers, "client_ca")] {
        hear(&scene, &showing(scene.options(), shown), hint);
    }
    hear(&scene, &showing(scene.options(), &expired), "client's certificate has expired");
    Client::connect(&scene.address(), scene.known()).unwrap();
    runtime().block_on(async {
        let client = AsyncClient::connect(&scene.address(), scene.known()).await.unwrap();
        assert!(client.get(&scene.key(1)).await.unwrap().is_none());
    });
}

#[test]
fn a_connection_of_the_async_client_is_refused_as_its_first_one_would_be() {
    let mut scene = Scene::new();
    let options = Options { deadline: DEADLINE, ..scene.options() };
    runtime().block_on(async {
        // The server wants certificates after the client has connected, and before the connection that calls share.
        let client = AsyncClient::connect(&scene.address(), options).await.unwrap();
        scene.stop();
        let pair = scene.authority.sign("server", SERVER);
        scene.start(&pair, true);
        for _ in 0..20 {
            let from = Instant::now();
            let error = client.get(&scene.key(1)).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{error}");
            assert!(error.message().contains("wants a client certificate"), "{error}");
            assert!(error.message().starts_with(&scene.address()), "{error}");
            assert!(from.elapsed() < DEADLINE / 4);
        }
    });
}

#[test]
fn files_that_are_missing_or_hold_something_else() {
    let scene = Scene::new();
    let nothing = scene.dir.join("nothing.pem");
    let other = Authority::new(&scene.dir, "strangers").sign("client", CLIENT);
    let mut wrong_key = scene.known();
    wrong_key.tls.key = Some(other.key.clone());
    let mut alone = scene.known();
    alone.tls.key = None;
    let absent = Options { tls: Tls { ca: Some(nothing.clone()), ..Tls::default() }, ..Options::default() };
    let cases = [
        (Options::default(), "`ca`".to_owned()),
        (absent, nothing.display().to_string()),
        (wrong_key, other.key.display().to_string()),
        (alone, "needs its key".to_owned()),
    ];
    for (options, hint) in cases {
        for error in scene.errors(&scene.address(), &options) {
            assert!(error.kind() == Kind::Invalid && error.message().contains(&hint), "{error}");
        }
    }
}

#[test]
fn what_speaks_no_tls_is_told_from_what_says_nothing() {
    let scene = Scene::new();
    // Speaks, but not TLS.
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tls://localhost:{}", plain.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for mut stream in plain.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]).and_then(|_| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        }
    });
    for error in scene.errors(&address, &Options { deadline: DEADLINE, ..scene.options() }) {
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.message().contains("not TLS"), "{error}");
    }
    // TLS where nobody expects it: the server hangs up.
    let hurried = Options {
        deadline: Duration::from_millis(900),
        connect_deadline: Duration::from_millis(300),
        ..scene.options()
    };
    for error in scene.errors(&format!("tcp://localhost:{}", scene.port()), &hurried) {
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    }
}

#[test]
fn a_handshake_that_drips_ends_by_the_deadline_of_the_connection() {
    let scene = Scene::new();
    let drip = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tls://localhost:{}", drip.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for mut stream in drip.incoming().flatten() {
            std::thread::spawn(move || {
                // The head of a record of 16 KiB, and then a byte now and then.
                let _ = stream.write_all(&[22, 3, 3, 64, 0]);
                while stream.write_all(&[0]).is_ok() {
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
        }
    });
    let hurried = Options {
        deadline: Duration::from_millis(900),
        connect_deadline: Duration::from_millis(300),
        ..scene.options()
    };
    let from = Instant::now();
    let [blocking, asynchronous] = scene.errors(&address, &hurried);
    // A byte now and then would go on forever.
    assert!(from.elapsed() < Duration::from_secs(30), "{:?}", from.elapsed());
    for error in [blocking, asynchronous] {
        assert!(error.kind() == Kind::Unavailable && error.message().contains(&address), "{error}");
    }
}
