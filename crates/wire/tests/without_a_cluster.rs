//! Frames without a cluster are byte for byte those of builds that knew none.
//!
//! `without_a_cluster.txt` was written by the code of commit 32a9b07, the last one before clusters, from these same values. It
//! is never written again: a difference is a break between old and new builds.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use forebay_core::{Attributes, Bounds, Call, Error, GetAny, Key, Keyspace, Level, LiveState, Sources, Token};
use forebay_wire::{
    Control, FrameFlags, FrameHead, FrameKind, Hello, Welcome, WireEvent, WireExtend, WireFragment, WireJudgement,
    WireOpen, WirePut, WireRange, WireRemove, WireUpdate, WireVerdict, WireWriter,
};
use std::fmt::Write;
use std::time::Duration;

fn keyspace() -> Keyspace {
    let text = r#"
        name = "physics"
        key = ["run:u32", "event:u64", "source:u16"]
        primary = ["run", "event"]
        attributes = ["trigger:u32"]
        stages = ["first", "second"]
        [run]
        complete_within_ms = 1500
        stop_grace_ms = 500
    "#;
    Keyspace::from_toml(text).unwrap()
}

/// Each frame by a name: head, meta and no payload.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let keyspace = keyspace();
    let schema = &keyspace.schema;
    let key = |source| schema.key(&[7, 42, source]).unwrap();
    let primary = schema.primary(&[7, 42]).unwrap();
    let token = Token { epoch: 0, boot: 3, counter: 99 };
    let attributes = Attributes::parse(&keyspace.attributes, &["trigger=5"]).unwrap();
    let plain = |source| put(key(source));
    let full = WirePut {
        status: 9,
        attributes: Some(attributes.clone()),
        deadline: Some(Duration::from_millis(250)),
        persisted: true,
        level: Some(Level::Warm),
        ..plain(2)
    };
    let puts = WirePut::encode_all(&[plain(1), full], &keyspace.attributes).unwrap();
    let mut get = WireWriter::new();
    get.shorts([key(1), key(2)].iter().map(Key::as_bytes)).unwrap();
    let mut get_any = WireWriter::new();
    get_any.get_any(&GetAny { n: 3, wait: Duration::from_secs(2), ..GetAny::default() }).unwrap();
    let verdict = |judgement| WireVerdict { primary, token, judgement, results: vec![] };
    let verdicts = [
        verdict(WireJudgement::Reject),
        verdict(WireJudgement::Accept(vec![("main".to_owned(), Sources::All)])),
        verdict(WireJudgement::Requeue),
        verdict(WireJudgement::Pass("second".to_owned())),
    ];
    let fragment = WireFragment { length: 100, checksum: 0xABCD, status: 1, version: 0, level: Level::Hot };
    let event = WireEvent {
        primary,
        state: LiveState::Ready,
        stage: 0,
        attributes: attributes.clone(),
        streams: vec!["main".to_owned()],
        fragments: vec![(key(1), fragment), (key(2), WireFragment { level: Level::Warm, ..fragment })],
        missing: vec![key(3)],
        sources: Default::default(),
    };
    let mut events = WireWriter::new();
    event.encode(&mut events, &keyspace).unwrap();
    let mut outcomes = WireWriter::new();
    outcomes.outcome(&Ok(1_u8), |out, byte| out.u8(*byte));
    outcomes.outcome(&Err::<u8, _>(Error::fenced("another lease")), |out, byte| out.u8(*byte));
    let bounds = Bounds::parse(schema, "7/10-20/*").unwrap();
    let range = WireRange { bounds: bounds.clone(), events: false, after: Some(key(1)) };
    let hello = Hello {
        features: 0,
        window_bytes: 1 << 20,
        token: b"secret".to_vec(),
        keyspace: "physics".to_owned(),
        name: "readout 7".to_owned(),
    };
    let welcome = Welcome {
        features: 0,
        window_bytes: 1 << 22,
        boot: 3,
        lease_ms: 10_000,
        keyspace: "name = \"physics\"".to_owned(),
        version: "0.1.0".to_owned(),
        member: None,
    };
    let open = WireOpen { primary, sources: Some(vec![schema.source_of(&key(1))]), attributes: Some(attributes) };
    let update = WireUpdate::Fragment { key: key(1), token: Some(token), checksum: 5 };
    let extend = WireExtend { primary, token, duration: Duration::from_secs(3) };
    let json = |control: Control| serde_json::to_vec(&control).unwrap();
    let masked = Control::Mask { run: 7, source: schema.source_of(&key(1)), from: None, set: true };
    let call = FrameKind::Call;
    [
        ("put", call(Call::Put), puts),
        ("get", call(Call::Get), get.finish()),
        ("get any", call(Call::GetAny), get_any.finish()),
        ("verdict", call(Call::Verdict), WireVerdict::encode_all(&verdicts).unwrap()),
        ("event", call(Call::GetEvent), events.finish()),
        ("outcomes", call(Call::Put), outcomes.finish()),
        ("range", call(Call::Range), range.encode().unwrap()),
        ("remove", call(Call::Remove), WireRemove::Range(bounds).encode().unwrap()),
        ("hello", FrameKind::Hello, hello.encode().unwrap()),
        ("welcome", FrameKind::Hello, welcome.encode().unwrap()),
        ("open event", call(Call::OpenEvent), WireOpen::encode_all(&[open], &keyspace).unwrap()),
        ("update", call(Call::Update), update.encode(&keyspace).unwrap()),
        ("extend", call(Call::Extend), WireExtend::encode_all(&[extend]).unwrap()),
        ("mask", FrameKind::Control, json(masked)),
        ("run", FrameKind::Control, json(Control::RunOpen { run: 7, config: "complete_within = \"1s\"".to_owned() })),
    ]
    .into_iter()
    .map(|(name, kind, meta)| {
        let head = FrameHead { credit: 77, ..FrameHead::new(kind, FrameFlags::REQUEST, 12).with(&meta, 0) };
        (name, [&head.encode()[..], &meta].concat())
    })
    .collect()
}

fn put(key: Key) -> WirePut {
    WirePut {
        key,
        length: 0,
        checksum: 0,
        status: 0,
        attributes: None,
        deadline: None,
        persisted: false,
        level: None,
        report: Default::default(),
    }
}

#[test]
fn frames_without_a_cluster_are_those_of_builds_that_knew_none() {
    let mut text = String::new();
    for (name, bytes) in frames() {
        write!(text, "{name}: ").unwrap();
        bytes.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        text.push('\n');
    }
    let before = include_str!("without_a_cluster.txt");
    for (now, before) in text.lines().zip(before.lines()) {
        assert_eq!(now, before);
    }
    assert_eq!(text.lines().count(), before.lines().count());
}
