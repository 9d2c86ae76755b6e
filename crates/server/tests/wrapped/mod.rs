//! A server over what stands before a store: it makes every call through the traits of `forebay-core`, from the real client,
//! from a client of Redis's protocol and from monitors.

mod counted;

use counted::{CALLS, Counted, SAID};
use forebay_client::{Client, Options};
use forebay_core::{
    AttributeSchema, Attributes, Bounds, GetAny, Keyspace, Kind, LedgerBy, Level, OpenEvent, PrescaleFactor,
    PutOptions, PutOutcome, Sampling, Sources,
};
use forebay_server::{Endpoint, Served, Server, ServerConfig};
use forebay_store::{Config, Store, WarmDevice};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const RUN: u64 = 1;
/// Longer than what is copied: the socket fills memory of the store.
const LONG: usize = 100_000;

struct Scene {
    dir: PathBuf,
    counted: Counted,
    server: Server,
    keyspace: Keyspace,
}

impl Scene {
    fn new() -> Scene {
        let dir = std::env::temp_dir().join(format!("forebay-wrapped-{}", std::process::id()));
        std::fs::remove_dir_all(&dir).ok();
        std::fs::create_dir_all(&dir).unwrap();
        let mut keyspace = Keyspace::events("wrapped", 2).opening_runs();
        keyspace.run.complete_within = Duration::from_secs(3600);
        keyspace.stages = ["fast", "final"].map(str::to_owned).into();
        keyspace.attributes = AttributeSchema::parse(&["lumi:u32"], &[]).unwrap();
        let config = Config {
            hot_bytes: 16 << 20,
            segment_bytes: Some(512 << 10),
            container_bytes: 1 << 20,
            device_log_bytes: 64 << 10,
            warm: vec![WarmDevice::directory(dir.join("disk"), 8 << 20)],
            ..Config::default()
        };
        let store = Store::create(&dir.join("store"), &keyspace, config).unwrap();
        let counted = Counted::new(store);
        let config = ServerConfig {
            native: vec![Endpoint::Unix(dir.join("native"))],
            resp: vec![Endpoint::Unix(dir.join("resp"))],
            http: Some("127.0.0.1:0".parse().unwrap()),
            threads: 1,
            ..ServerConfig::default()
        };
        let server = Server::start_over(vec![Served::Events(counted.clone())], config).unwrap();
        Scene { dir, counted, server, keyspace }
    }

    fn client(&self) -> Client {
        Client::connect(&format!("unix://{}", self.dir.join("native").display()), Options::default()).unwrap()
    }

    fn of(&self, call: &str) -> u64 {
        self.counted.calls.of(call)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.dir).ok();
    }
}

#[test]
fn every_call_of_a_server_goes_through_the_traits() {
    let scene = Scene::new();
    let client = scene.client();
    assert_eq!((scene.of("named"), scene.of("boot"), scene.of("lease_time")), (1, 1, 1), "a hello");
    runs(&client);
    data(&scene, &client);
    select(&scene, &client);
    operate(&client);
    wait_on_the_event_loop(&scene);
    redis(&scene);
    monitor(&scene);
    client.run_stop(RUN).unwrap();
    assert_eq!(client.run_close(RUN).unwrap_err().kind(), Kind::Unavailable, "events are ready");
    let unseen: Vec<&str> = CALLS.split_whitespace().filter(|call| scene.of(call) == 0).collect();
    assert_eq!(unseen, Vec::<&str>::new(), "calls that went past the wrapper, or were not made");
}

fn runs(client: &Client) {
    client.run_open(RUN, &client.keyspace().run).unwrap();
    client.run_pause(RUN).unwrap();
    client.run_resume(RUN).unwrap();
    assert_eq!(client.runs().unwrap().len(), 1);
}

/// Puts an event with both of its fragments.
fn event(client: &Client, number: u64, bytes: usize) {
    for source in 0..2 {
        let key = client.schema().key(&[RUN, number, source]).unwrap();
        assert_eq!(client.put(&key, &vec![7; bytes], &PutOptions::default()).unwrap(), PutOutcome::Stored);
    }
}

fn data(scene: &Scene, client: &Client) {
    let schema = client.schema();
    let key = |event, source| schema.key(&[RUN, event, source]).unwrap();
    let primary = |event| schema.primary(&[RUN, event]).unwrap();
    event(client, 1, 100);
    assert!(scene.of("try_put") == 2 && scene.of("try_reserve") == 0, "a short fragment is copied");
    event(client, 2, LONG);
    assert!(scene.of("try_reserve") == 2 && scene.of("commit_checked") == 2, "the socket fills memory of the store");
    let many: Vec<_> = (3..9).map(|event| (key(event, 0), &b"many"[..], PutOptions::default())).collect();
    assert!(client.put_many(&many).unwrap().into_iter().all(|outcome| outcome.unwrap() == PutOutcome::Stored));
    let persisted = PutOptions { persisted: true, ..PutOptions::default() };
    assert_eq!(client.put(&key(9, 0), b"on a device", &persisted).unwrap(), PutOutcome::Stored);

    assert_eq!(client.get(&key(2, 1)).unwrap().unwrap().len(), LONG);
    assert_eq!(client.get_event(&primary(2), &Sources::All).unwrap().unwrap().fragments.len(), 2);
    assert!(client.range(&Bounds::all(schema)).all(|fragment| fragment.unwrap().verify().is_ok()));
    assert_eq!(client.events(&Bounds::all(schema)).unwrap().len(), 9);
    assert_eq!(client.update(&key(3, 0), b"newer", None).unwrap(), 1);
    let attributes = Attributes::parse(&client.keyspace().attributes, &["lumi=5"]).unwrap();
    client.update_attributes(&primary(3), &attributes, None).unwrap();
    assert!(client.remove(&key(4, 0)).unwrap());
    assert!(client.remove_event(&primary(5)).unwrap());
    assert_eq!(client.remove_range(&Bounds::parse(schema, "1/6").unwrap()).unwrap(), 1);
    assert_eq!(client.open_event(&primary(10), &OpenEvent::default()).unwrap(), PutOutcome::Stored);
    assert!(client.seal(&primary(7)).unwrap());
}

fn select(scene: &Scene, client: &Client) {
    let schema = client.schema();
    let primary = |event| schema.primary(&[RUN, event]).unwrap();
    let sources = Sources::only(schema, [0]).unwrap();
    let lease = client.lease(&primary(1), None).unwrap().unwrap();
    assert_eq!(lease.get(&sources).unwrap().len(), 1);
    lease.extend(Duration::from_secs(30)).unwrap();
    lease.pass("final", &[]).unwrap();
    let lease = client.lease(&primary(2), None).unwrap().unwrap();
    lease.requeue().unwrap();
    client.lease(&primary(2), None).unwrap().unwrap().fail("no tracks").unwrap();
    client.lease(&primary(2), None).unwrap().unwrap().accept(&["physics"]).unwrap();
    assert_eq!(scene.of("accept_into"), 1);
    client.outputs(&primary(2)).unwrap().unwrap();
    let ready = client.get_any(&GetAny { n: 10, ..GetAny::default() }).unwrap();
    assert_eq!(ready.len(), 1, "the one that was sealed");
    ready[0].reject().unwrap();
    // What the wrapper says is what the client hears.
    let error = client.release(&primary(2)).unwrap_err();
    assert_eq!((error.kind(), error.message().contains(SAID)), (Kind::Unavailable, true), "{error}");
    assert_eq!(client.losses().unwrap(), [SAID]);
}

fn operate(client: &Client) {
    let schema = client.schema();
    let source = schema.parse_source("1").unwrap();
    assert!(!client.replay(&schema.primary(&[RUN, 3]).unwrap()).unwrap());
    client.mask(RUN, &source, None).unwrap();
    client.unmask(RUN, &source, None).unwrap();
    client.prescale(RUN, "minbias", PrescaleFactor::new(20.0).unwrap(), None).unwrap();
    assert_eq!(client.run_summary(RUN).unwrap().prescales.len(), 1);
    let hold = client.hold(Some(RUN), &["lumi=99"]).unwrap();
    assert_eq!(client.holds().unwrap().len(), 1);
    assert!(client.release_hold(hold).unwrap());
    assert_eq!(client.drain_device(0).unwrap_err().kind(), Kind::Invalid, "it is the only one");
    client.undo_drain(0).unwrap();
    assert_eq!(client.exchange_device(0, "/nowhere".as_ref()).unwrap_err().kind(), Kind::Conflict);
    assert_eq!(client.add_device("/nowhere".as_ref(), Some(1)).unwrap_err().kind(), Kind::Invalid, "too small");
    client.ledger(RUN).unwrap();
    client.ledger_by(RUN, LedgerBy::Source).unwrap();
    client.sources(RUN).unwrap();
    client.debug_events().unwrap();
    client.conflicts().unwrap();
    client.why(&schema.key(&[RUN, 3, 0]).unwrap()).unwrap();
    assert!(client.stats().unwrap().segments > 0);
    client.segments().unwrap();
    let producer = client.producer(RUN, "crate 7").unwrap();
    producer.offered(10);
    producer.finish().unwrap();
    assert!(client.watch(RUN).unwrap().next(Duration::ZERO).is_some(), "the first look at a run");
    let mut sampler = client.sampler(&Sampling { rate_hz: 100.0, ..Sampling::default() }).unwrap();
    assert!(sampler.next(Duration::from_secs(5)).unwrap().is_some());
}

/// A `get_any` that needs no device waits without a thread: the store wakes the session through the wrapper.
fn wait_on_the_event_loop(scene: &Scene) {
    let client = scene.client();
    // The mask of source 1 let events become ready.
    for lease in client.get_any(&GetAny { n: 100, ..GetAny::default() }).unwrap() {
        lease.reject().unwrap();
    }
    let wait = GetAny { n: 1, level: Some(Level::Hot), wait: Duration::from_secs(20), ..GetAny::default() };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.get_any(&wait).unwrap());
        let from = Instant::now();
        while scene.of("wake_when_ready") == 0 {
            assert!(!waiting.is_finished(), "nothing is ready: {:?}", waiting.join());
            assert!(from.elapsed() < Duration::from_secs(20), "nobody waits");
            std::thread::sleep(Duration::from_millis(2));
        }
        event(&scene.client(), 20, 100);
        let leases = waiting.join().unwrap();
        assert_eq!(leases.len(), 1);
        leases[0].reject().unwrap();
    });
    client.close();
    let from = Instant::now();
    while scene.of("forget_waker") == 0 {
        assert!(from.elapsed() < Duration::from_secs(20), "a session that ended is forgotten");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The same over Redis's protocol: where a command waits for a thread, those behind it may wait as well.
fn redis(scene: &Scene) {
    let mut wire = UnixStream::connect(scene.dir.join("resp")).unwrap();
    wire.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut ask = |request: &[u8], answer: &[u8]| {
        wire.write_all(request).unwrap();
        let mut said = vec![0; answer.len()];
        wire.read_exact(&mut said).unwrap();
        assert_eq!(said, answer, "{}", String::from_utf8_lossy(&said));
    };
    let before = (scene.of("try_put"), scene.of("get"));
    ask(b"SET 1/30/0 short\r\nGET 1/30/0\r\n", b"+OK\r\n$5\r\nshort\r\n");
    assert_eq!((scene.of("try_put"), scene.of("get")), (before.0 + 1, before.1 + 1));
    let long = |event: &str| {
        let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{event}\r\n${LONG}\r\n", event.len());
        [head.as_bytes(), &vec![b'x'; LONG], b"\r\n"].concat()
    };
    let before = (scene.of("try_reserve"), scene.of("commit"));
    ask(&long("1/31/0"), b"+OK\r\n");
    assert_eq!((scene.of("try_reserve"), scene.of("commit")), (before.0 + 1, before.1 + 1), "a large value lands");
    ask(&[b"DEL 1/99/0\r\nSET 1/32/0 short\r\n", &long("1/33/0")[..]].concat(), b":0\r\n+OK\r\n+OK\r\n");
    assert!(scene.of("reserve") > 0 && scene.of("put") > 0, "on a thread that may wait");
}

fn monitor(scene: &Scene) {
    let before = (scene.of("marks"), scene.of("containers"), scene.of("stats"));
    let page = |path: &str| {
        let mut answer = ureq::get(format!("http://{}{path}", scene.server.http().unwrap())).call().unwrap();
        answer.body_mut().read_to_string().unwrap()
    };
    assert!(page("/metrics").contains("forebay_level_fill_ratio{keyspace=\"wrapped\""));
    assert!(page("/status").contains("\"wrapped\""));
    let after = (scene.of("marks"), scene.of("containers"), scene.of("stats"));
    assert!(after.0 > before.0 && after.1 > before.1 && after.2 > before.2 + 1, "{before:?}, {after:?}");
    assert_eq!(scene.keyspace.name, "wrapped");
}
