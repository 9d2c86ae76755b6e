//! Selection, runs and accounts through Redis's protocol.

use crate::resp::bed::{Bed, config, request};
use forebay_core::{AttributeSchema, Attributes, Keyspace};
use forebay_server::Limits;
use forebay_store::{OpenEvent, PutOptions};
use std::time::{Duration, Instant};

fn keyspace() -> Keyspace {
    let mut keyspace = Keyspace::events("data", 2).opening_runs();
    keyspace.stages = vec!["fast".to_owned(), "final".to_owned()];
    keyspace.attributes = AttributeSchema::parse(&["lumi:u32"], &[]).unwrap();
    keyspace.run.complete_within = Duration::from_secs(60);
    keyspace
}

fn bed() -> Bed {
    Bed::with(&[keyspace()], config(), Limits::default())
}

#[test]
fn an_event_goes_through_its_stages() {
    let bed = bed();
    let mut wire = bed.tcp();
    assert_eq!(wire.ask("HELLO 3").split(',').count(), 7);
    assert_eq!(wire.ask("FB.RUN OPEN 7"), "OK");
    let attributes = Attributes::parse(&keyspace().attributes, &["lumi=5"]).unwrap();
    let primary = bed.store.schema().parse_primary("7/1").unwrap();
    let options = OpenEvent { attributes: Some(&attributes), ..OpenEvent::default() };
    let _ = bed.store.open_event(&primary, &options).unwrap();
    assert_eq!(wire.ask("SET 7/1/1 one"), "OK");
    assert_eq!(
        wire.ask("FB.EVENT 7/1 SOURCES NONE"),
        "{primary: 7/1, state: open, stage: fast, attributes: {lumi: 5}, streams: [], missing: [], \
         sources: {1: present}, fragments: {}}"
    );
    assert_eq!(wire.ask("FB.GETANY"), "[]");
    assert_eq!(wire.ask("SET 7/1/2 two"), "OK");
    assert_eq!(wire.ask("FB.GETANY FILTER lumi=6 COUNT 5"), "[]");
    let lease = |wire: &mut crate::resp::bed::Wire, words: &str, stage: &str, fragments: &str| {
        let answer = wire.ask(words);
        let token = answer.split("token: ").nth(1).unwrap().split(',').next().unwrap().to_owned();
        assert_eq!(
            answer,
            format!(
                "[{{primary: 7/1, token: {token}, stage: {stage}, delivery: :1, attributes: {{lumi: 5}}, missing: [], \
                 event_fragments: :2, event_bytes: :6, fragments: {{{fragments}}}}}]"
            )
        );
        token
    };
    let token = lease(&mut wire, "FB.GETANY COUNT 5 FILTER lumi=1..5 LEASE 60000 SOURCES 1", "fast", "1: one");
    assert_eq!(wire.ask(&format!("FB.EXTEND 7/1 {token} 30000")), "OK");
    assert_eq!(wire.ask(&format!("FB.REQUEUE 7/1 {token}")), "OK");
    assert!(wire.ask(&format!("FB.EXTEND 7/1 {token} 30000")).starts_with("-FENCED "));
    let token = lease(&mut wire, "FB.GETANY SOURCES NONE", "fast", "");
    assert_eq!(wire.ask_parts(&["FB.FAIL", "7/1", &token, "no tracks"]), "OK");
    assert!(wire.ask_parts(&["FB.FAIL", "7/1", &token, "no tracks"]).starts_with("-FENCED "));
    let again = wire.ask("FB.GETANY SOURCES NONE");
    assert!(again.contains("delivery: :2"), "{again}");
    let token = again.split("token: ").nth(1).unwrap().split(',').next().unwrap();
    assert_eq!(wire.ask(&format!("FB.PASS 7/1 {token} final")), "OK");
    assert_eq!(wire.ask("FB.GETANY"), "[]");
    let token = lease(&mut wire, "FB.GETANY STAGE final", "final", "1: one, 2: two");
    assert_eq!(wire.ask(&format!("FB.ACCEPT 7/1 {token} physics express")), "OK");
    assert_eq!(wire.ask(&format!("FB.ACCEPT 7/1 {token} physics express")), "OK");
    assert!(wire.ask(&format!("FB.REJECT 7/1 {token}")).starts_with("-FENCED "));
    let event = wire.ask("FB.EVENT 7/1");
    assert!(event.contains("state: accepted") && event.contains("streams: [physics, express]"), "{event}");
    assert_eq!(wire.ask("FB.EVENT 7/2"), "nil");

    assert_eq!(wire.ask("SET 7/2/1 x"), "OK");
    assert_eq!(wire.ask("FB.SEAL 7/2"), ":1");
    assert_eq!(wire.ask("FB.SEAL 7/3"), ":0");
    let answer = wire.ask("FB.GETANY");
    let token = answer.split("token: ").nth(1).unwrap().split(',').next().unwrap();
    assert_eq!(wire.ask(&format!("FB.REJECT 7/2 {token}")), "OK");
    assert!(wire.ask("FB.WHY 7/2/1").starts_with("{answer: rejected, because: "));

    let ledger = wire.ask("FB.LEDGER 7");
    for term in
        ["offered: [:0, :3, :7]", "accepted: [:1, :2, :6]", "rejected: [:1, :1, :1]", "complete: :1", "imbalance: nil"]
    {
        assert!(ledger.contains(term), "{term}: {ledger}");
    }
    assert_eq!(wire.ask("FB.RUN LIST"), "{7: open}");
    for word in ["PAUSE", "RESUME", "STOP"] {
        assert_eq!(wire.ask(&format!("FB.RUN {word} 7")), "OK");
    }
    assert!(wire.ask("SET 7/9/1 x").starts_with("-CLOSED run 7 is stopped"));
    assert!(wire.ask("FB.RUN CLOSE 7").starts_with("{\"run\":7,"));
    assert_eq!(wire.ask("FB.RUN LIST"), "{7: closed}");
    assert_eq!(wire.ask_parts(&["FB.RUN", "OPEN", "8", "complete_within_ms = 900\ncount = 3"]), "OK");
    assert!(wire.ask_parts(&["FB.RUN", "OPEN", "8", "complete_within_ms = 900\ncount = 4"]).starts_with("-CONFLICT "));
}

#[test]
fn a_lost_connection_ends_no_lease() {
    let bed = bed();
    let mut worker = bed.tcp();
    assert_eq!([worker.ask("SET 7/1/1 one"), worker.ask("SET 7/1/2 two")], ["OK", "OK"]);
    let answer = worker.ask("FB.GETANY LEASE 600000 SOURCES NONE");
    let token = answer.split("token, ").nth(1).unwrap().split(',').next().unwrap().to_owned();
    drop(worker);
    let mut other = bed.unix();
    // A round of maintenance, and all of the server's turns, later.
    for _ in 0..3 {
        bed.store.tick();
        assert_eq!(other.ask("FB.GETANY"), "[]");
    }
    assert_eq!(other.ask(&format!("FB.ACCEPT 7/1 {token} physics")), "OK");
}

#[test]
fn a_worker_waits_for_an_event_and_holds_nobody_up() {
    let bed = bed();
    let (mut waits, mut puts) = (bed.tcp(), bed.unix());
    let from = Instant::now();
    waits.send(&request(&["PING"]));
    waits.send(&request(&["FB.GETANY", "WAIT", "20000", "SOURCES", "NONE"]));
    waits.send(&request(&["PING", "after"]));
    // What was answered before the wait is sent before it.
    assert_eq!(waits.answer(), "PONG");
    std::thread::sleep(Duration::from_millis(250));
    assert_eq!([puts.ask("SET 1/1/1 a"), puts.ask("SET 1/1/2 b")], ["OK", "OK"]);
    assert!(waits.answer().starts_with("[[primary, 1/1, "));
    assert_eq!(waits.answer(), "after");
    assert!(from.elapsed() < Duration::from_secs(10));
    let from = Instant::now();
    assert_eq!(waits.ask("FB.GETANY WAIT 300"), "[]");
    assert!(from.elapsed() >= Duration::from_millis(300));
}

#[test]
fn a_worker_that_has_gone_gets_no_event() {
    let bed = bed();
    let mut gone = bed.tcp();
    gone.send(&request(&["FB.GETANY", "WAIT", "20000"]));
    std::thread::sleep(Duration::from_millis(150));
    drop(gone);
    std::thread::sleep(Duration::from_millis(400));
    let mut wire = bed.tcp();
    assert_eq!([wire.ask("SET 1/1/1 a"), wire.ask("SET 1/1/2 b")], ["OK", "OK"]);
    std::thread::sleep(Duration::from_millis(150));
    assert!(wire.ask("FB.GETANY").contains("delivery, :1"));
}

#[test]
fn many_events_come_in_one_answer() {
    let bed = bed();
    let mut wire = bed.tcp();
    let payload = vec![7; 5000];
    for event in 0..100 {
        for source in 0..2 {
            let key = bed.store.schema().key(&[1, event, source]).unwrap();
            let _ = bed.store.put(&key, &payload, &PutOptions::default()).unwrap();
        }
    }
    let answer = wire.ask("FB.GETANY COUNT 70");
    assert_eq!((answer.matches("primary").count(), answer.matches(&"\u{7}".repeat(5000)).count()), (70, 140));
    assert_eq!(wire.ask("FB.GETANY COUNT 1000 SOURCES NONE").matches("primary").count(), 30);
    assert_eq!(wire.ask("FB.GETANY COUNT 1000 SOURCES NONE"), "[]");
}

#[test]
fn everything_works_with_all_data_on_a_device() {
    let mut config = config();
    let dir = std::env::temp_dir().join(format!("forebay-resp-warm-{}", std::process::id()));
    config.warm = vec![forebay_store::WarmDevice::directory(&dir, 64 << 20)];
    (config.container_bytes, config.device_log_bytes) = (8 << 20, 1 << 20);
    (config.demote_high, config.demote_low) = (0.01, 0.0);
    let bed = Bed::with(&[Keyspace::events("data", 1).opening_runs()], config, Limits::default());
    let mut wire = bed.tcp();
    let value = |event: usize| format!("{event:0>9000}");
    for event in 0..40 {
        assert_eq!(wire.ask_parts(&["SET", &format!("1/{event}/0"), &value(event)]), "OK");
    }
    let went_down = || bed.store.warm_stats().is_some_and(|stats| stats.demoted_events > 0);
    let from = Instant::now();
    while !went_down() && from.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(went_down());
    for event in 0..40 {
        assert_eq!(wire.ask(&format!("GET 1/{event}/0")), value(event));
        assert_eq!(wire.ask_parts(&["SET", &format!("1/{event}/0"), &value(event)]), "OK");
    }
    assert_eq!(wire.ask("FB.RANGE 1").matches("[1/").count(), 40);
    let leased = wire.ask("FB.GETANY COUNT 3");
    assert_eq!(leased.matches("primary").count(), 3);
    drop(bed);
    let _ = std::fs::remove_dir_all(dir);
}
