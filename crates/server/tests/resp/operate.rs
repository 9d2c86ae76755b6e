//! What operators do, through Redis's protocol.

use crate::resp::bed::{Bed, config};
use forebay_core::{AttributeSchema, Keyspace};
use forebay_server::Limits;
use std::time::Duration;

fn bed() -> Bed {
    let mut keyspace = Keyspace::events("data", 2).opening_runs();
    keyspace.attributes = AttributeSchema::parse(&["lumi:u32"], &[]).unwrap();
    keyspace.announced = true;
    keyspace.run.complete_within = Duration::from_secs(3600);
    Bed::with(&[keyspace], config(), Limits::default())
}

/// Leases the only ready event and accepts it into a stream.
fn accept(wire: &mut crate::resp::bed::Wire, stream: &str) {
    let answer = wire.ask("FB.GETANY SOURCES NONE");
    let field = |name: &str| answer.split(&format!("{name}: ")).nth(1).unwrap().split(',').next().unwrap().to_owned();
    assert_eq!(wire.ask(&format!("FB.ACCEPT {} {} {stream}", field("primary"), field("token"))), "OK");
}

#[test]
fn attributes_and_status_come_with_a_fragment() {
    let bed = bed();
    let mut wire = bed.tcp();
    assert_eq!(wire.ask("HELLO 3").split(',').count(), 7);
    assert_eq!(wire.ask("SET 1/1/1 one STATUS 0x3 ATTR lumi=7"), "OK");
    assert_eq!(wire.ask("SET 1/1/2 two STATUS 5"), "OK");
    assert_eq!(wire.ask("SET 1/1/2 two STATUS 5"), "OK");
    let status = |source: u64| {
        let key = bed.store.schema().key(&[1, 1, source]).unwrap();
        bed.store.get(&key).unwrap().unwrap().status()
    };
    assert_eq!((status(1), status(2)), (3, 5));
    assert!(wire.ask("FB.EVENT 1/1 SOURCES NONE").contains("attributes: {lumi: 7}"));
    for (words, error) in [
        ("SET 1/2/1 x EX 10", "-ERR SET key value [STATUS bits]"),
        ("SET 1/2/1 x STATUS many", "-ERR value is not an integer"),
        ("SET 1/2/1 x STATUS", "-ERR value is not an integer"),
        ("SET 1/2/1 x ATTR", "-ERR SET key value"),
        ("SET 1/2/1 x ATTR nothing=1", "-INVALID "),
    ] {
        assert!(wire.ask(words).starts_with(error), "{words}: {}", wire.ask(words));
    }
    assert_eq!(wire.ask("GET 1/2/1"), "nil");
}

#[test]
fn events_are_announced_masked_held_and_released() {
    let bed = bed();
    let mut wire = bed.tcp();
    assert_eq!(wire.ask("HELLO 3").split(',').count(), 7);
    assert_eq!(wire.ask("FB.OPENEVENT 1/1 ATTR lumi=7 SOURCES 1 2 3"), "OK");
    assert_eq!(wire.ask("FB.OPENEVENT 1/1 ATTR lumi=7 SOURCES 1 2 3"), "OK");
    assert!(wire.ask("FB.OPENEVENT 1/1 SOURCES 9").starts_with("-CONFLICT "));
    assert_eq!(wire.ask("FB.OPENEVENT 1/1 NOTHING"), "-ERR syntax error");
    for source in 1..=2 {
        assert_eq!(wire.ask(&format!("SET 1/1/{source} x")), "OK");
    }
    assert_eq!(wire.ask("FB.GETANY"), "[]");
    assert_eq!(wire.ask("FB.MASK 1 3"), "OK");
    assert!(wire.ask("FB.SOURCES 1").contains("masked: "));
    assert_eq!(wire.ask("FB.UNMASK 1 3 FROM 1/5"), "OK");
    assert_eq!(wire.ask("FB.MASK 1 3 AT 1/5"), "-ERR syntax error");
    assert_eq!(wire.ask("FB.PRESCALE 1 mu-4 20"), "OK");
    assert_eq!(wire.ask("FB.PRESCALE 1 mu-4 off FROM 1/9"), "OK");
    assert!(wire.ask("FB.PRESCALE 1 mu-4 0.5").starts_with("-INVALID "));
    assert_eq!(wire.ask("FB.PRESCALE 1 mu-4 20 AT 1/9"), "-ERR syntax error");
    let summary: serde_json::Value = serde_json::from_str(&wire.ask("FB.RUN SUMMARY 1")).unwrap();
    assert_eq!((&summary["masks"][0]["by"], &summary["masks"][1]["from"]), (&"anonymous".into(), &"1/5".into()));
    assert_eq!(
        (&summary["prescales"][1]["factor"], &summary["prescales"][1]["by"]),
        (&"off".into(), &"anonymous".into())
    );

    assert_eq!(wire.ask("FB.HOLD SET RUN 1 lumi=7"), ":1");
    assert_eq!(wire.ask("FB.GETANY"), "[]");
    assert_eq!(wire.ask("FB.HOLD LIST"), "[{id: :1, run: :1, conditions: [lumi=7], events: :1}]");
    assert_eq!(wire.ask("FB.HOLD RELEASE 1"), ":1");
    assert_eq!(wire.ask("FB.HOLD RELEASE 1"), ":0");
    assert!(wire.ask("FB.HOLD NOTHING").starts_with("-ERR FB.HOLD"));

    accept(&mut wire, "physics");
    for event in 2..=4 {
        for source in 1..=2 {
            assert_eq!(wire.ask(&format!("SET 1/{event}/{source} x")), "OK");
        }
        accept(&mut wire, if event == 2 { "calib" } else { "physics" });
    }
    assert!(wire.ask("FB.RELEASE 1 STREAM phyiscs").starts_with("-INVALID "));
    assert!(wire.ask("FB.RELEASE 1/2/1").starts_with("-INVALID "));
    assert_eq!(wire.ask("FB.RELEASE 1 STREAM calib"), "[:1, nil]");
    assert_eq!(wire.ask("FB.RELEASE 1 AFTER 1/3"), "[:1, nil]");
    assert_eq!(wire.ask("FB.RELEASE 1/1-9"), "[:2, nil]");
    assert_eq!(wire.ask("FB.RELEASE 1"), "[:0, nil]");
    let ledger = wire.ask("FB.LEDGER 1");
    assert!(ledger.contains("released: [:4,") && ledger.contains("imbalance: nil"), "{ledger}");
}

#[test]
fn the_debug_stream_is_listed_and_replayed() {
    let bed = bed();
    let mut wire = bed.tcp();
    assert_eq!(wire.ask("HELLO 3").split(',').count(), 7);
    assert_eq!(wire.ask("FB.DEBUG LIST"), "[]");
    assert_eq!(wire.ask("FB.DEBUG REPLAY 1/1"), ":0");
    assert!(wire.ask("FB.DEBUG RELEASE 1/1").starts_with("-ERR FB.DEBUG"));
}

#[test]
fn declared_streams_take_events_and_are_released_by_name() {
    let mut keyspace = Keyspace::events("data", 1).opening_runs();
    keyspace.streams = (0..255).map(|stream| format!("stream-{stream}")).collect();
    let bed = Bed::with(&[keyspace], config(), Limits::default());
    let mut wire = bed.tcp();
    assert_eq!(wire.ask("HELLO 3").split(',').count(), 7);
    assert_eq!(wire.ask("SET 1/1/0 x"), "OK");
    let typo = wire.ask("FB.RELEASE 1 STREAM steam-200");
    assert!(typo.starts_with("-INVALID "), "{typo}");
    accept(&mut wire, "stream-200 stream-3");
    assert!(wire.ask("FB.EVENT 1/1 SOURCES NONE").contains("streams: [stream-3, stream-200]"));
    assert_eq!(wire.ask("SET 1/2/0 x"), "OK");
    accept(&mut wire, "stream-201");
    assert_eq!(wire.ask("FB.RELEASE 1 STREAM stream-200"), "[:1, nil]");
    assert_eq!(wire.ask("FB.RELEASE 1 STREAM stream-254"), "[:0, nil]");
    assert_eq!(wire.ask("SET 1/3/0 x"), "OK");
    let lease = wire.ask("FB.GETANY SOURCES NONE");
    let token = lease.split("token: ").nth(1).unwrap().split(',').next().unwrap();
    let refused = wire.ask(&format!("FB.ACCEPT 1/3 {token} steam-200"));
    assert!(refused.starts_with("-INVALID ") && refused.contains("did you mean `stream-200`?"), "{refused}");
    assert_eq!(wire.ask(&format!("FB.REJECT 1/3 {token}")), "OK");
}
