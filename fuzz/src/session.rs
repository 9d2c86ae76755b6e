//! Fuzzes a server's side of a connection as a state machine: any frames in any order, right and wrong, cut in any way,
//! to a client that takes answers or does not.

use forebay_core::{
    AttributeSchema, Bounds, Call, GetAny, Key, Keyspace, Level, Primary, Report, RingKeyspace, RingSources, RingStamp,
    Source, SourceSchema, Sources, Token, crc32c,
};
use forebay_ring::{Ring, RingConfig};
use forebay_server::{Limits, Served, Step, drive};
use forebay_store::{Config, Store};
use forebay_wire::{
    FrameFlags, FrameHead, FrameKind, Hello, WireExtend, WireJudgement, WireOpen, WirePut, WireRange, WireRemove,
    WireUpdate, WireVerdict, WireWindow, WireWriter,
};
use std::cell::RefCell;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// A store and a ring that live for some inputs, and what runs sessions.
struct World {
    store: Store,
    ring: Ring,
    runtime: Runtime,
    inputs: u32,
}

impl World {
    fn new() -> World {
        let dir = std::env::temp_dir().join(format!("forebay-fuzz-session-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let config = Config {
            hot_bytes: 4 << 20,
            segment_bytes: Some(64 << 10),
            write_heads: 1,
            put_deadline: Duration::from_millis(1),
            maintenance: false,
            ..Config::default()
        };
        let store = Store::create(&dir, &keyspace(), config).expect("a store");
        let config = RingConfig {
            hot_bytes: 2 << 20,
            segment_bytes: Some(16 << 10),
            maintenance: false,
            ..RingConfig::default()
        };
        let ring = Ring::create(&dir.join("ring"), &ring_keyspace(), config).expect("a ring");
        // Both keep their mappings: nothing is left behind.
        let _ = std::fs::remove_dir_all(&dir);
        let runtime =
            Builder::new_current_thread().enable_all().max_blocking_threads(2).build().expect("an event loop");
        World { store, ring, runtime, inputs: 0 }
    }
}

fn keyspace() -> Keyspace {
    Keyspace::events("fuzz", 2)
}

fn ring_keyspace() -> RingKeyspace {
    RingKeyspace {
        name: "fuzz-ring".to_owned(),
        source: SourceSchema::parse(&["crate:u4", "link:u8"]).expect("a schema"),
        ticks_per_second: 1_000_000,
        sources_max: 4,
        history: Duration::from_millis(1),
        source_bytes_per_second: 1_000_000,
        max_skew: Duration::from_secs(3600),
        fragment_bytes_max: 5000,
        pin_percent: 50,
    }
}

fn limits() -> Limits {
    Limits {
        window_bytes: 128 << 10,
        waiting_max: 4,
        waiting_threads_max: 2,
        wait_max: Duration::from_millis(3),
        ..Limits::default()
    }
}

/// The bytes of an input, taken from the front; zeros once they are gone.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn u8(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    fn u16(&mut self) -> u16 {
        u16::from(self.u8()) << 8 | u16::from(self.u8())
    }

    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn some(&mut self) -> &'a [u8] {
        let bytes = usize::from(self.u8());
        self.take(bytes)
    }

    fn key(&mut self, keyspace: &Keyspace) -> Key {
        let byte = u64::from(self.u8());
        keyspace.schema.key(&[byte >> 7, byte >> 2 & 15, byte & 3]).expect("a key")
    }

    fn primary(&mut self, keyspace: &Keyspace) -> Primary {
        let key = self.key(keyspace);
        keyspace.schema.primary_of(&key)
    }

    fn token(&mut self) -> Token {
        Token { epoch: 0, boot: 1, counter: u64::from(self.u8() & 31) }
    }
}

fn add(bytes: &mut Vec<u8>, input: &mut Input<'_>, kind: impl Into<FrameKind>, meta: &[u8], payload: &[u8]) {
    let mut meta = meta.to_vec();
    let wrong = input.u8();
    if wrong < 32 && !meta.is_empty() {
        // A meta that says something else under its right checksum.
        let at = usize::from(input.u16()) % meta.len();
        meta[at] ^= input.u8();
    }
    let mut head = FrameHead::new(kind, FrameFlags::REQUEST, u64::from(wrong)).with(&meta, payload.len() as u32);
    head.credit = u32::from(input.u8()) << 6;
    if wrong == 255 {
        head.payload_bytes = u32::from(input.u16()) << 3;
    }
    bytes.extend(head.encode());
    bytes.extend(&meta);
    bytes.extend(payload);
}

const CONTROLS: &[&str] = &[
    r#"{"call":"runs"}"#,
    r#"{"call":"run-open","run":1,"config":"complete_within = \"1 h\""}"#,
    r#"{"call":"run-stop","run":1}"#,
    r#"{"call":"run-close","run":1}"#,
    r#"{"call":"ledger","run":0}"#,
    r#"{"call":"holds"}"#,
    r#"{"call":"hold","run":null,"conditions":[]}"#,
    r#"{"call":"release-hold","id":1}"#,
    r#"{"call":"producer","run":0,"name":"p"}"#,
    r#"{"call":"report","object":1,"announced":1,"fragments":2,"bytes":3,"order":"finish"}"#,
    r#"{"call":"watch","run":0}"#,
    r#"{"call":"sampler","conditions":[],"stage":null,"run":null,"decided":false,"sources":null,"rate_hz":1000.0,"bytes_max":100}"#,
    r#"{"call":"drop","object":1}"#,
    r#"{"call":"stats"}"#,
];

fn request(bytes: &mut Vec<u8>, input: &mut Input<'_>, keyspace: &Keyspace) {
    let mut out = WireWriter::new();
    let count = 1 + usize::from(input.u8() & 3);
    match input.u8() % 20 {
        0 => bytes.extend(input.some()),
        1 => {
            let kinds: Vec<FrameKind> = FrameKind::all().collect();
            let kind = kinds[usize::from(input.u8()) % kinds.len()];
            let (meta, payload) = (input.some(), input.some());
            add(bytes, input, kind, meta, payload);
        }
        2..=5 => {
            let mut payload = Vec::new();
            let put = |_| {
                let (key, length) = (input.key(keyspace), usize::from(input.u16()) % 5000);
                let value = vec![key.as_bytes()[7]; length];
                payload.extend(&value);
                let (flags, checksum) = (input.u8(), crc32c(&value) ^ u32::from(input.u8() == 255));
                let deadline = (flags & 1 != 0).then(|| Duration::from_millis(u64::from(flags)));
                let length = length as u32;
                // A server in no cluster refuses what another node would have.
                let level = (flags & 6 == 6).then_some(Level::Elsewhere);
                let report = if flags & 8 != 0 { Report::Later } else { Report::Prompt };
                let (attributes, persisted) = (None, false);
                WirePut { key, length, checksum, status: 0, attributes, deadline, persisted, level, report }
            };
            let puts: Vec<WirePut> = (0..count).map(put).collect();
            let meta = WirePut::encode_all(&puts, &keyspace.attributes).unwrap_or_default();
            add(bytes, input, Call::Put, &meta, &payload);
        }
        6 | 7 => {
            let many = count * (1 + usize::from(input.u8()));
            let key = input.key(keyspace);
            let _ = out.shorts((0..many).map(|_| key.as_bytes()));
            add(bytes, input, Call::Get, out.bytes(), b"");
        }
        8 | 9 => {
            let wait = Duration::from_millis(u64::from(input.u8() & 3));
            let _ = out.get_any(&GetAny { n: usize::from(input.u8() & 63), wait, ..GetAny::default() });
            add(bytes, input, Call::GetAny, out.bytes(), b"");
        }
        10 => {
            let judgement = match input.u8() & 3 {
                0 => WireJudgement::Accept(vec![("physics".to_owned(), Sources::All)]),
                1 => WireJudgement::Reject,
                2 => WireJudgement::Requeue,
                _ => WireJudgement::Pass("final".to_owned()),
            };
            let payload = input.some();
            let results = if payload.is_empty() {
                Vec::new()
            } else {
                vec![(Source::from_packed(&[0, 0, 0, input.u8()]), payload.len() as u32, crc32c(payload))]
            };
            let verdict = WireVerdict { primary: input.primary(keyspace), token: input.token(), judgement, results };
            let meta = WireVerdict::encode_all(&[verdict]).unwrap_or_default();
            add(bytes, input, Call::Verdict, &meta, payload);
        }
        11 => {
            let text = CONTROLS[usize::from(input.u8()) % CONTROLS.len()];
            add(bytes, input, FrameKind::Control, text.as_bytes(), b"");
        }
        12 => {
            out.u32(u32::from(input.u8() & 3));
            out.u32(u32::from(input.u8() & 3));
            add(bytes, input, Call::Watch, out.bytes(), b"");
        }
        13 => {
            let bounds = Bounds::parse(&keyspace.schema, ["0", "1", "0/1-9"][usize::from(input.u8()) % 3]);
            let (Ok(bounds), flags) = (bounds, input.u8()) else { return };
            let after = (flags & 2 != 0).then(|| input.key(keyspace));
            let meta = WireRange { bounds, events: flags & 1 != 0, after }.encode().unwrap_or_default();
            add(bytes, input, Call::Range, &meta, b"");
        }
        14 => {
            out.u32(count as u32);
            for _ in 0..count {
                let _ = out.short(input.primary(keyspace).as_bytes());
                let _ = out.sources(&Sources::All);
            }
            add(bytes, input, Call::GetEvent, out.bytes(), b"");
        }
        15 => {
            let kind = [Call::Seal, Call::Release, Call::Replay][usize::from(input.u8()) % 3];
            out.u32(1);
            let _ = out.short(input.primary(keyspace).as_bytes());
            add(bytes, input, kind, out.bytes(), b"");
        }
        16 => {
            let _ = out.short(input.primary(keyspace).as_bytes());
            if input.u8() & 1 == 0 {
                let _ = out.milliseconds(Duration::from_millis(u64::from(input.u8())));
                add(bytes, input, Call::Lease, out.bytes(), b"");
            } else {
                out.token(&input.token());
                let _ = out.sources(&Sources::All);
                add(bytes, input, Call::LeaseGet, out.bytes(), b"");
            }
        }
        17 => {
            let payload = input.some();
            let (key, token) = (input.key(keyspace), (input.u8() & 1 == 0).then(|| input.token()));
            let update = WireUpdate::Fragment { key, token, checksum: crc32c(payload) };
            add(bytes, input, Call::Update, &update.encode(keyspace).unwrap_or_default(), payload);
        }
        18 => {
            let remove = match input.u8() % 3 {
                0 => WireRemove::Fragment(input.key(keyspace)),
                1 => WireRemove::Event(input.primary(keyspace)),
                _ => match Bounds::parse(&keyspace.schema, "0/0-9") {
                    Ok(bounds) => WireRemove::Range(bounds),
                    Err(_) => return,
                },
            };
            add(bytes, input, Call::Remove, &remove.encode().unwrap_or_default(), b"");
        }
        _ => {
            let (primary, token) = (input.primary(keyspace), input.token());
            if input.u8() & 1 == 0 {
                let duration = Duration::from_millis(u64::from(input.u8()));
                let meta = WireExtend::encode_all(&[WireExtend { primary, token, duration }]).unwrap_or_default();
                add(bytes, input, Call::Extend, &meta, b"");
            } else {
                let sources = (input.u8() & 1 == 0).then(|| vec![Source::from_packed(&[0, 0, 0, 1])]);
                let meta = WireOpen::encode_all(&[WireOpen { primary, sources, attributes: None }], keyspace);
                add(bytes, input, Call::OpenEvent, &meta.unwrap_or_default(), b"");
            }
        }
    }
}

const RING_CONTROLS: &[&str] = &[
    r#"{"call":"stats"}"#,
    r#"{"call":"ring-sources"}"#,
    r#"{"call":"ledger","run":1}"#,
    r#"{"call":"losses"}"#,
    r#"{"call":"runs"}"#,
    r#"{"call":"pin","begin":0,"end":500,"sources":null,"ms":1000}"#,
    r#"{"call":"pin","begin":9,"end":5,"sources":[[[1,4],[2,8]]],"ms":1000}"#,
    r#"{"call":"pin","begin":0,"end":90,"sources":[[[1,4],[2,8]]],"ms":1000}"#,
    r#"{"call":"move-pin","object":1,"ticks":[100,700],"ms":50}"#,
    r#"{"call":"move-pin","object":1,"ticks":null,"ms":0}"#,
    r#"{"call":"drop","object":1}"#,
];

/// The same for a ring.
fn ring_request(bytes: &mut Vec<u8>, input: &mut Input<'_>, keyspace: &RingKeyspace) {
    let schema = &keyspace.source;
    let source = |byte: u8| schema.source(&[u64::from(byte & 1), u64::from(byte >> 1 & 3)]).expect("a source");
    match input.u8() % 8 {
        0 => bytes.extend(input.some()),
        1 => {
            let kinds: Vec<FrameKind> = FrameKind::all().collect();
            let kind = kinds[usize::from(input.u8()) % kinds.len()];
            let (meta, payload) = (input.some(), input.some());
            add(bytes, input, kind, meta, payload);
        }
        2..=4 => {
            let mut payload = Vec::new();
            let put = |_| {
                let (length, byte) = (usize::from(input.u16()) % 6000, input.u8());
                let stamp = RingStamp {
                    timestamp: u64::from(input.u16()),
                    span: 1 + u32::from(byte >> 4),
                    run: u32::from(byte & 1),
                };
                let value = vec![byte; length];
                payload.extend(&value);
                let checksum = crc32c(&value) ^ u32::from(input.u8() == 255);
                let (key, length) = (schema.key(&source(byte), &stamp), length as u32);
                WirePut {
                    key,
                    length,
                    checksum,
                    status: 0,
                    attributes: None,
                    deadline: None,
                    persisted: false,
                    level: None,
                    report: Report::Prompt,
                }
            };
            let puts: Vec<WirePut> = (0..3).map(put).collect();
            let meta = WirePut::encode_all(&puts, &AttributeSchema::default()).unwrap_or_default();
            add(bytes, input, Call::Put, &meta, &payload);
        }
        5 | 6 => {
            let begin = u64::from(input.u16());
            let end = begin.saturating_add(u64::from(input.u16()));
            let all = input.u8();
            let sources =
                if all & 1 == 0 { RingSources::All } else { RingSources::Only(vec![source(all), source(all >> 3)]) };
            let window = WireWindow { begin, end, sources, wait: Duration::from_millis(u64::from(input.u8() & 3)) };
            add(bytes, input, Call::Window, &window.encode(schema).unwrap_or_default(), b"");
        }
        _ => {
            let text = RING_CONTROLS[usize::from(input.u8()) % RING_CONTROLS.len()];
            add(bytes, input, FrameKind::Control, text.as_bytes(), b"");
        }
    }
}

pub(crate) fn target(data: &[u8]) {
    let mut input = Input(data);
    let (keyspace, ring_keyspace) = (keyspace(), ring_keyspace());
    let mut cuts = Input(input.some());
    let mut bytes = Vec::new();
    let manner = input.u8();
    if manner % 16 != 0 {
        let window_bytes = (64 << 10) << (manner >> 6);
        let hello =
            Hello { features: 0, window_bytes, token: vec![], keyspace: String::new(), name: "fuzz".to_owned() };
        let meta = hello.encode().unwrap_or_default();
        bytes.extend(FrameHead::new(FrameKind::Hello, FrameFlags::REQUEST, 0).with(&meta, 0).encode());
        bytes.extend(meta);
    }
    while !input.0.is_empty() && bytes.len() < 1 << 20 {
        if manner & 16 == 0 {
            request(&mut bytes, &mut input, &keyspace);
        } else {
            ring_request(&mut bytes, &mut input, &ring_keyspace);
        }
    }
    let mut steps = Vec::new();
    if manner & 32 == 0 {
        steps.push(Step::Take(1 << 30));
    }
    let mut left = &bytes[..];
    while !left.is_empty() {
        let cut = if cuts.0.is_empty() { left.len() } else { 1 << (cuts.u8() & 15) };
        let (piece, rest) = left.split_at(cut.min(left.len()));
        steps.push(Step::Send(piece));
        left = rest;
        match cuts.u8() {
            0 => {}
            1..8 => steps.push(Step::Wait),
            more => steps.push(Step::Take(usize::from(more) * 16)),
        }
    }
    WORLD.with_borrow_mut(|world| {
        let old = world.as_ref().is_some_and(|world| world.inputs > 2000 || world.store.stats().fill > 0.7);
        if old {
            *world = None;
        }
        let world = world.get_or_insert_with(World::new);
        world.inputs += 1;
        let served =
            if manner & 16 == 0 { Served::from(world.store.clone()) } else { Served::from(world.ring.clone()) };
        world.runtime.block_on(drive(&served, limits(), &steps));
        world.store.tick();
        world.ring.tick();
        let ring = world.ring.stats();
        assert_eq!(ring.ledger.imbalance(), None);
        assert!(
            ring.pins.is_empty() && ring.holders.iter().all(|holder| holder.guards == 0),
            "something is left: {ring:?}"
        );
        for run in world.store.runs() {
            assert_eq!(run.ledger.imbalance(), None, "run {}", run.run);
        }
        let holders = world.store.stats().holders;
        assert!(holders.iter().all(|holder| holder.guards == 0), "guards are left: {holders:?}");
    });
}
