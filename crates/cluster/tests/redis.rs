//! Redis's clients of any node: commands go to the node of their event, answers about all are of all, and a node that is dead is named.

use crate::common::redis::Redis;
use crate::common::{Cluster, NODES, eventually, keyspace, met};
use forebay_cluster::{FORWARD, NodeOptions};
use forebay_core::map::Change;
use forebay_core::{Key, Primary, PutOptions, PutOutcome, Report};
use forebay_server::{AccessToken, Limits, Right, Secret, Served, ServerConfig};
use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

const RUN: u64 = 5;

fn at(cluster: &Cluster, id: u16) -> Redis {
    Redis::connect(&cluster.resp(id))
}

fn text(primary: &Primary) -> String {
    keyspace().schema.text(primary.as_bytes())
}

fn key(primary: &Primary, source: u64) -> Key {
    keyspace().schema.parse_key(&format!("{}/{source}", text(primary))).unwrap()
}

/// Two events of each node.
fn events(cluster: &Cluster) -> Vec<(u16, Primary)> {
    (1..=NODES).flat_map(|id| cluster.events_at(id, RUN, 2).into_iter().map(move |primary| (id, primary))).collect()
}

/// Which nodes have a fragment in their books.
fn counted(cluster: &Cluster) -> Vec<u64> {
    (1..=NODES).map(|id| cluster.store(id).ledger(RUN).map_or(0, |ledger| ledger.stored.fragments)).collect()
}

/// All ready events through one node: primary and token.
fn take_all(redis: &mut Redis, events: usize) -> BTreeMap<String, String> {
    let mut leased = BTreeMap::new();
    while leased.len() < events {
        let answer = redis.ask("FB.GETANY COUNT 100 WAIT 5000 SOURCES ALL");
        assert!(answer.starts_with("[["), "{} of {events}: {answer}", leased.len());
        for event in answer.split("primary, ").skip(1) {
            let (primary, rest) = event.split_once(", token, ").unwrap();
            let (token, rest) = rest.split_once(',').unwrap();
            for source in [0, 1] {
                assert!(rest.contains(&format!("bytes of {primary}/{source}")), "whole: {rest}");
            }
            assert!(leased.insert(primary.to_owned(), token.to_owned()).is_none(), "{primary} is leased twice");
        }
    }
    leased
}

fn fill(redis: &mut Redis, events: &[(u16, Primary)]) {
    for (_, primary) in events {
        for source in [0, 1] {
            let name = format!("{}/{source}", text(primary));
            assert_eq!(redis.ask_parts(&[b"SET", name.as_bytes(), format!("bytes of {name}").as_bytes()]), "OK");
        }
    }
}

#[test]
fn fragments_and_events_are_where_their_home_is() {
    let cluster = met(Cluster::new());
    let (mut one, mut two) = (at(&cluster, 1), at(&cluster, 2));
    let events = events(&cluster);
    fill(&mut one, &events);
    assert_eq!(counted(&cluster), [4, 4, 4], "each node has its own events");
    for (_, primary) in &events {
        let name = text(primary);
        let bytes = format!("bytes of {name}/0");
        for redis in [&mut one, &mut two] {
            assert_eq!(redis.ask(&format!("GET {name}/0")), bytes);
            assert_eq!(redis.ask(&format!("GET {name}/7")), "nil");
            assert_eq!(redis.ask_parts(&[b"SET", format!("{name}/0").as_bytes(), bytes.as_bytes()]), "OK", "again");
            let other = redis.ask(&format!("SET {name}/0 others"));
            assert!(other.starts_with("-CONFLICT ") && other.contains(&format!("{name}/0: 6 bytes")), "{other}");
            let event = redis.ask(&format!("FB.EVENT {name} SOURCES 1"));
            assert!(event.contains("state, ready") && event.contains(&format!("bytes of {name}/1")), "{event}");
            let why = redis.ask(&format!("FB.WHY {name}/0"));
            assert!(why.starts_with("[answer, present"), "{why}");
        }
    }
    // Removed through one node, gone for all.
    let (name, place) = (text(&events[5].1), key(&events[5].1, 1));
    assert_eq!(one.ask(&format!("DEL {name}/1 {name}/1")), ":1");
    assert_eq!(two.ask(&format!("GET {name}/1")), "nil");
    assert!(cluster.store(3).get(&place).unwrap().is_none());
    let removed = two.ask(&format!("SET {name}/1 again"));
    assert!(removed.starts_with("-LATE "), "{removed}");
    // Sealed, and announced, at its home.
    for (id, primary) in (1..=NODES).map(|id| (id, cluster.events_at(id, RUN, 4)[3])) {
        let name = text(&primary);
        assert_eq!(two.ask(&format!("FB.SEAL {name}")), ":0");
        assert_eq!(one.ask(&format!("FB.OPENEVENT {name} SOURCES 3 4")), "OK");
        assert_eq!(two.ask(&format!("FB.OPENEVENT {name} SOURCES 3 4")), "OK", "the same again");
        assert!(two.ask(&format!("FB.OPENEVENT {name} SOURCES 3")).starts_with("-CONFLICT "));
        assert_eq!(one.ask(&format!("SET {name}/3 bytes STATUS 0x11")), "OK");
        assert_eq!(two.ask(&format!("FB.SEAL {name}")), ":1");
        assert_eq!(cluster.store(id).get(&key(&primary, 3)).unwrap().unwrap().status(), 0x11);
        assert!(one.ask(&format!("FB.EVENT {name} SOURCES NONE")).contains("missing, [4]"));
    }
}

#[test]
fn a_connection_answers_in_order_and_large_values_arrive_whole() {
    let cluster = met(Cluster::new());
    let mut redis = at(&cluster, 1);
    let names: Vec<String> = events(&cluster).iter().map(|(_, primary)| format!("{}/0", text(primary))).collect();
    // Nodes in turn, so that each command is behind one of another node.
    let order = [0, 2, 4, 1, 3, 5, 2, 0, 5];
    let mut commands: Vec<[&[u8]; 3]> = Vec::new();
    order.iter().for_each(|&at| commands.push([b"SET", names[at].as_bytes(), names[at].as_bytes()]));
    let mut all: Vec<&[&[u8]]> = commands.iter().map(|command| &command[..]).collect();
    let reads: Vec<[&[u8]; 2]> = order.iter().map(|&at| [&b"GET"[..], names[at].as_bytes()]).collect();
    all.extend(reads.iter().map(|command| &command[..]));
    all.push(&[b"PING"]);
    redis.send(&all);
    order.iter().for_each(|_| assert_eq!(redis.answer(), "OK"));
    order.iter().for_each(|&at| assert_eq!(redis.answer(), names[at]));
    assert_eq!(redis.answer(), "PONG");
    // Longer than what is copied, and than what comes with one read; another command is behind each.
    let large: Vec<u8> = (0..200_000).map(|at: u32| b'a' + (at % 23) as u8).collect();
    for (id, primary) in events(&cluster) {
        let name = format!("{}/1", text(&primary));
        redis.send(&[
            &[b"SET", name.as_bytes(), &large],
            &[b"GET", name.as_bytes()],
            &[b"SET", name.as_bytes(), &large[1..]],
        ]);
        assert_eq!(redis.answer(), "OK");
        assert!(redis.answer().as_bytes() == large, "{name}");
        assert!(redis.answer().starts_with("-CONFLICT "), "{name}");
        assert_eq!(&cluster.store(id).get(&key(&primary, 1)).unwrap().unwrap()[..], &large[..]);
    }
}

#[test]
fn events_of_all_nodes_are_leased_through_one_and_decided_through_another() {
    let cluster = met(Cluster::new());
    let [mut one, mut two, mut three] = [1, 2, 3].map(|id| at(&cluster, id));
    let events = events(&cluster);
    fill(&mut two, &events);
    let leased = take_all(&mut one, events.len());
    assert_eq!(one.ask("FB.GETANY"), "[]", "each once");
    for (place, (_, primary)) in events.iter().enumerate() {
        let name = text(primary);
        let token = &leased[&name];
        assert_eq!(two.ask(&format!("FB.EXTEND {name} {token} 60000")), "OK");
        let verdict =
            if place % 2 == 0 { format!("FB.ACCEPT {name} {token} main") } else { format!("FB.REJECT {name} {token}") };
        assert_eq!(three.ask(&verdict), "OK");
        assert_eq!(two.ask(&verdict), "OK", "the same verdict again");
        let other = one.ask(&format!("FB.REQUEUE {name} {token}"));
        assert!(other.starts_with("-FENCED "), "{other}");
        let extended = one.ask(&format!("FB.EXTEND {name} {token} 60000"));
        assert!(extended.starts_with("-FENCED "), "{extended}");
    }
    // What is left is the same through each node, in the order of the keys over all nodes.
    let mut kept: Vec<&Primary> = events.iter().step_by(2).map(|(_, primary)| primary).collect();
    kept.sort_unstable_by_key(|primary| primary.as_bytes().to_vec());
    let pairs = kept.iter().flat_map(|primary| [0, 1].map(|source| format!("{}/{source}", text(primary))));
    let pairs: Vec<String> = pairs.map(|name| format!("[{name}, bytes of {name}]")).collect();
    for redis in [&mut one, &mut two, &mut three] {
        assert_eq!(redis.ask("FB.RANGE *"), format!("[{}]", pairs.join(", ")));
        let first = pairs[0].trim_start_matches('[').split(',').next().unwrap();
        assert_eq!(
            redis.ask(&format!("FB.RANGE {RUN} AFTER {first} COUNT 3")),
            format!("[{}]", pairs[1..4].join(", "))
        );
        let ledger = redis.ask(&format!("FB.LEDGER {RUN}"));
        assert!(ledger.contains("stored, [:0, :12, ") && ledger.contains("imbalance, nil"), "{ledger}");
    }
    // An event that becomes ready on another node ends a wait.
    let late = cluster.events_at(3, RUN, 3)[2];
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| at(&cluster, 1).ask("FB.GETANY WAIT 15000"));
        std::thread::sleep(Duration::from_millis(300));
        fill(&mut two, &[(3, late)]);
        let found = waiting.join().unwrap();
        assert!(found.contains(&text(&late)), "{found}");
        let token = found.split("token, ").nth(1).unwrap().split(',').next().unwrap();
        assert_eq!(two.ask(&format!("FB.REQUEUE {} {token}", text(&late))), "OK");
    });
    let again = take_all(&mut three, 1);
    assert_eq!(one.ask(&format!("FB.REJECT {} {}", text(&late), again[&text(&late)])), "OK");
}

#[test]
fn operators_commands_are_about_the_whole_cluster() {
    let cluster = met(Cluster::new());
    let [mut one, mut two, mut three] = [1, 2, 3].map(|id| at(&cluster, id));
    let events = events(&cluster);
    assert_eq!(one.ask(&format!("FB.RUN OPEN {RUN}")), "OK");
    for redis in [&mut one, &mut two, &mut three] {
        assert_eq!(redis.ask("FB.RUN LIST"), format!("[{RUN}, open]"));
    }
    // A hold has one number, and is in force on all nodes.
    let hold = two.ask(&format!("FB.HOLD SET RUN {RUN}"));
    fill(&mut one, &events);
    assert_eq!([one.ask("FB.GETANY"), three.ask("FB.GETANY")], ["[]", "[]"], "{hold}");
    assert!(three.ask("FB.HOLD LIST").contains(&format!("id, {hold}")));
    assert_eq!(one.ask(&format!("FB.HOLD RELEASE {}", hold.trim_start_matches(':'))), ":1");
    assert_eq!(one.ask("FB.HOLD LIST"), "[]");
    assert_eq!(three.ask(&format!("FB.MASK {RUN} 1")), "OK");
    for id in 1..=NODES {
        let masked = cluster.store(id).runs().into_iter().find(|run| run.run == RUN).unwrap().masked;
        assert_eq!(masked, ["1"], "node {id}");
    }
    let sources = one.ask(&format!("FB.SOURCES {RUN}"));
    assert!(sources.contains("fragments, :6") && !sources.contains("masked, nil, 1,"), "of all nodes: {sources}");
    assert_eq!(two.ask(&format!("FB.UNMASK {RUN} 1")), "OK");
    assert_eq!(two.ask(&format!("FB.PRESCALE {RUN} minbias 20")), "OK");
    for (place, (name, token)) in take_all(&mut two, events.len()).into_iter().enumerate() {
        // One node alone has an event of this stream.
        let stream = if place == 0 { "calib" } else { "main" };
        assert_eq!(one.ask(&format!("FB.ACCEPT {name} {token} {stream}")), "OK");
    }
    assert_eq!(one.ask(&format!("FB.RELEASE {RUN} STREAM calib")), "[:1, nil]");
    let unknown = one.ask(&format!("FB.RELEASE {RUN} STREAM nonsense"));
    assert!(unknown.starts_with("-INVALID no stream `nonsense`"), "{unknown}");
    assert_eq!(three.ask(&format!("FB.RUN STOP {RUN}")), "OK");
    assert!(one.ask(&format!("SET {RUN}/999999/0 x")).starts_with("-CLOSED "));
    assert!(two.ask(&format!("FB.RELEASE {RUN}")).starts_with("[:5, "));
    let summary = one.ask(&format!("FB.RUN CLOSE {RUN}"));
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["ledger"]["released"]["events"], 6, "of all nodes: {summary}");
    for redis in [&mut one, &mut two, &mut three] {
        assert_eq!(redis.ask("FB.RUN LIST"), format!("[{RUN}, closed]"));
        let again: serde_json::Value = serde_json::from_str(&redis.ask(&format!("FB.RUN SUMMARY {RUN}"))).unwrap();
        assert_eq!(again["ledger"]["released"]["events"], 6);
    }
}

#[test]
fn bytes_under_a_look_up_table_come_from_where_they_are() {
    // Source 0 is on node 1, source 1 on node 3, wherever the homes are.
    let cluster = met(Cluster::with_holders([1, 3]));
    let [mut one, mut two, mut three] = [1, 2, 3].map(|id| at(&cluster, id));
    let events = events(&cluster);
    fill(&mut two, &events);
    for (_, primary) in &events {
        let name = text(primary);
        for redis in [&mut one, &mut two, &mut three] {
            for source in [0, 1] {
                assert_eq!(redis.ask(&format!("GET {name}/{source}")), format!("bytes of {name}/{source}"));
            }
            let event = redis.ask(&format!("FB.EVENT {name}"));
            assert!(event.contains("state, ready") && event.contains(&format!("bytes of {name}/1")), "{event}");
        }
    }
    let large = vec![b'x'; 200_000];
    let last = format!("{}/1", text(&cluster.events_at(2, RUN, 3)[2]));
    assert_eq!(one.ask_parts(&[b"SET", last.as_bytes(), &large]), "OK");
    assert!(two.ask(&format!("GET {last}")).as_bytes() == large);
    assert_eq!(three.ask(&format!("DEL {last}")), ":1");
    assert_eq!(one.ask(&format!("GET {last}")), "nil");
    for redis in [&mut one, &mut two, &mut three] {
        assert_eq!(redis.ask("FB.RANGE *").matches("bytes of").count(), 2 * events.len());
        // Each of them leases them all, whole, and gives them back.
        for (name, token) in take_all(redis, events.len()) {
            assert_eq!(redis.ask(&format!("FB.REQUEUE {name} {token}")), "OK");
        }
    }
    let is_held = |(_, primary): &(u16, Primary)| {
        let held = [(1, 0), (3, 1)].map(|(holder, source)| cluster.store(holder).get(&key(primary, source)));
        held.into_iter().all(|found| matches!(found, Ok(Some(_))))
    };
    assert!(events.iter().all(is_held));
    for (name, token) in take_all(&mut three, events.len()) {
        assert_eq!(two.ask(&format!("FB.REJECT {name} {token}")), "OK");
    }
    eventually("the holders hear of it", || !events.iter().any(is_held));
}

#[test]
fn a_dead_node_is_named_in_time_and_the_others_go_on() {
    let mut cluster = met(Cluster::new());
    let events = events(&cluster);
    let (mut one, mut three) = (at(&cluster, 1), at(&cluster, 3));
    fill(&mut one, &events);
    cluster.stop(2);
    let lost = text(&cluster.events_at(2, RUN, 3)[2]);
    let begun = Instant::now();
    let first = one.ask(&format!("SET {lost}/0 x"));
    // A connection from before may have taken it: then nobody knows whether it was stored.
    let kind = first.strip_prefix("-UNAVAILABLE ").or(first.strip_prefix("-OUTCOMEUNKNOWN "));
    assert!(kind.is_some_and(|words| words.starts_with("node 2 (`n2`)")), "{first}");
    assert!(begun.elapsed() < 3 * FORWARD, "{:?}", begun.elapsed());
    // Known now: nobody else waits for it.
    for words in ["SET # x", "GET #", "DEL #", "FB.WHY #"] {
        let begun = Instant::now();
        let refused = one.ask(&words.replace('#', &format!("{lost}/0")));
        assert!(refused.starts_with("-UNAVAILABLE node 2 (`n2`)"), "{words}: {refused}");
        assert!(begun.elapsed() < FORWARD / 2, "{words}: {:?}", begun.elapsed());
    }
    let large = vec![b'x'; 100_000];
    let name = format!("{lost}/1");
    one.send(&[&[b"SET", name.as_bytes(), &large], &[b"PING"]]);
    assert!(one.answer().starts_with("-UNAVAILABLE node 2 (`n2`)"));
    assert_eq!(one.answer(), "PONG", "what is behind a value that goes nowhere is found");
    for words in ["FB.EVENT #", "FB.SEAL #", "FB.OPENEVENT # SOURCES 1", "FB.REJECT # 0.1.1", "FB.EXTEND # 0.1.1 1000"]
    {
        let refused = one.ask(&words.replace('#', &lost));
        assert!(refused.starts_with("-UNAVAILABLE node 2 (`n2`)"), "{words}: {refused}");
    }
    // What is about all nodes is of all of them, or it is an error.
    for words in ["FB.RANGE *", "FB.RUN LIST", "FB.LEDGER 5", "FB.SOURCES 5", "FB.HOLD LIST", "FB.DEBUG LIST"] {
        let refused = one.ask(words);
        assert!(refused.starts_with("-UNAVAILABLE node 2 (`n2`)"), "{words}: {refused}");
    }
    // Events of the others are read, leased and decided through each other.
    assert_eq!(one.ask(&format!("GET {}/0", text(&events[5].1))), format!("bytes of {}/0", text(&events[5].1)));
    let begun = Instant::now();
    for (name, token) in take_all(&mut one, 4) {
        assert_eq!(three.ask(&format!("FB.REJECT {name} {token}")), "OK");
    }
    assert!(begun.elapsed() < FORWARD, "{:?}", begun.elapsed());
    let none = one.ask("FB.GETANY WAIT 300");
    assert!(none.starts_with("-UNAVAILABLE node 2 (`n2`)"), "none is ready, as far as is known: {none}");
    cluster.start(2);
    eventually("it is back", || one.ask(&format!("SET {lost}/0 x")) == "OK");
    assert_eq!(take_all(&mut one, 2).len(), 2, "what it had");
}

#[test]
fn under_a_look_up_table_the_holder_that_is_dead_is_named() {
    let mut cluster = met(Cluster::with_holders([1, 3]));
    let mut one = at(&cluster, 1);
    // Homes are nodes 1 and 2.
    let events: Vec<(u16, Primary)> = events(&cluster).into_iter().filter(|(id, _)| *id != 3).collect();
    fill(&mut one, &events);
    cluster.stop(3);
    let begun = Instant::now();
    let name = text(&events[3].1);
    let read = one.ask(&format!("GET {name}/1"));
    assert!(read.starts_with("-UNAVAILABLE ") && read.contains("node 3"), "{read}");
    let again = Instant::now();
    assert!(one.ask(&format!("GET {name}/1")).starts_with("-UNAVAILABLE node 3 (`n3`)"));
    let event = one.ask(&format!("FB.EVENT {name}"));
    assert!(event.starts_with("-UNAVAILABLE node 3 (`n3`)"), "{event}");
    assert!(again.elapsed() < FORWARD / 2, "known now: {:?}", again.elapsed());
    assert_eq!(one.ask(&format!("GET {name}/0")), format!("bytes of {name}/0"), "this one is on node 1");
    let put = one.ask(&format!("SET {}/1 x", text(&cluster.events_at(2, RUN, 4)[3])));
    assert!(put.starts_with("-UNAVAILABLE node 3 (`n3`)"), "{put}");
    assert!(begun.elapsed() < 6 * FORWARD, "{:?}", begun.elapsed());
}

/// The holder had the bytes before this put, and may have told the home while the event was still open.
#[test]
fn a_put_of_which_nobody_knows_whether_it_was_late_says_so() {
    let cluster = met(Cluster::with_holders([1, 3]));
    let mut two = at(&cluster, 2);
    // A holder that is faster than this client leaves it a `LATE`.
    let said = cluster.events_at(1, RUN, 5).into_iter().map(|primary| {
        let name = text(&primary);
        assert_eq!(two.ask(&format!("SET {name}/0 bytes")), "OK");
        assert_eq!(two.ask(&format!("FB.SEAL {name}")), ":1");
        assert!(two.ask("FB.GETANY").contains(&name));
        let later = PutOptions { report: Report::Later, ..PutOptions::default() };
        assert_eq!(cluster.store(3).put(&key(&primary, 1), b"bytes", &later).unwrap(), PutOutcome::Stored);
        two.ask(&format!("SET {name}/1 bytes"))
    });
    let said: Vec<String> = said.collect();
    assert!(said.iter().all(|said| said.starts_with("-LATE")), "{said:?}");
    let unknown = said.iter().find(|said| said.starts_with("-LATEUNKNOWN "));
    assert!(unknown.is_some_and(|unknown| unknown.ends_with("a final answer")), "{said:?}");
}

/// A node that takes connections and never answers, as one whose process is stopped.
#[test]
fn who_finds_no_thread_free_in_time_is_told_that_nothing_was_done() {
    let limits = Limits { waiting_threads_max: 4, frame_deadline: FORWARD / 6, ..Limits::default() };
    let mut cluster = met(Cluster::limited(limits));
    let events = events(&cluster);
    fill(&mut at(&cluster, 1), &events);
    cluster.stop(2);
    let socket = cluster.dir.path().join("n2.sock");
    let _ = std::fs::remove_file(&socket);
    let _silent = UnixListener::bind(&socket).unwrap();
    let [mut waits, mut late, mut goes] = [1; 3].map(|id| at(&cluster, id));
    let get = |place: usize| format!("GET {}/0", text(&events[place].1));
    let [of_silent, of_other] = [2, 4].map(get);
    waits.send(&[&of_silent.split(' ').map(str::as_bytes).collect::<Vec<_>>()]);
    std::thread::sleep(FORWARD / 20);
    // What has gone before its turn takes nothing with it.
    goes.send(&[&[b"FB.GETANY", b"COUNT", b"9"]]);
    drop(goes);
    assert_eq!(at(&cluster, 1).ask(&get(0)), format!("bytes of {}/0", text(&events[0].1)), "what waits for nobody");
    let answer = late.ask(&of_other);
    assert!(answer.starts_with("-UNAVAILABLE ") && answer.contains("not done: connect again"), "{answer}");
    assert!(late.has_ended());
    assert!(waits.answer().starts_with("-UNAVAILABLE node 2 (`n2`)"));
    assert_eq!(at(&cluster, 1).ask(&of_other), format!("bytes of {}/0", text(&events[4].1)));
    for id in [1, 3] {
        assert_eq!(cluster.store(id).ledger(RUN).unwrap().live.leased.events, 0, "at node {id}");
    }
}

#[test]
fn a_node_has_a_thread_for_the_others() {
    let cluster = Cluster::new();
    let limits = Limits { waiting_threads_max: 3, ..Limits::default() };
    let member = cluster.members[0].as_ref().unwrap();
    let served = vec![Served::from(member.store.clone())];
    let config = ServerConfig { limits, ..ServerConfig::default() };
    let refused = forebay_cluster::serve(served, config, &member.node, &NodeOptions::default()).err().unwrap();
    assert!(refused.message().contains("waiting_threads_max: at least 4"), "{refused}");
}

#[test]
fn nodes_do_not_wait_for_each_others_threads() {
    // A removal takes a thread where it is asked for and one at its home: four threads at each node, of which one waits for others, and many who remove.
    let limits = Limits { waiting_threads_max: 4, ..Limits::default() };
    let cluster = met(Cluster::limited(limits));
    assert_eq!(at(&cluster, 1).ask(&format!("FB.RUN OPEN {RUN}")), "OK");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for lane in 0..24 {
            let cluster = &cluster;
            scope.spawn(move || {
                // Each lane has its node and its events, which are on all nodes.
                let mut redis = at(cluster, 1 + lane % NODES);
                for event in 0..6 {
                    let name = format!("{RUN}/{}/0", (u64::from(lane) * 6 + event) * 64);
                    assert_eq!(redis.ask(&format!("SET {name} bytes")), "OK");
                    assert_eq!(redis.ask(&format!("DEL {name}")), ":1", "{name}");
                }
            });
        }
    });
    assert!(begun.elapsed() < FORWARD, "nobody waited for a deadline: {:?}", begun.elapsed());
}

#[test]
fn a_connection_goes_by_a_later_map_once_its_node_does() {
    let mut cluster = met(Cluster::new());
    let [mut one, mut three] = [1, 3].map(|id| at(&cluster, id));
    fill(&mut one, &events(&cluster));
    cluster.stop(2);
    let later = cluster.map.next_map(&Change::TakeOut { node: 2, from_run: 100 }).unwrap();
    cluster.members[0].as_ref().unwrap().node.adopt(&Arc::new(later)).unwrap();
    eventually("the other one goes by it", || cluster.store(3).epoch() == cluster.store(1).epoch());
    // The run's home is one of those that are there.
    for event in 0..40 {
        for (redis, source) in [(&mut one, 0), (&mut three, 1)] {
            assert_eq!(redis.ask(&format!("SET 100/{}/{source} bytes", event * 64)), "OK");
        }
    }
    let parts = [1, 3].map(|id| cluster.store(id).ledger(100).unwrap().stored.fragments);
    assert!(parts[0] + parts[1] == 80 && parts[0] > 0 && parts[1] > 0, "{parts:?}");
}

const NODE: &[u8] = b"the secret of the nodes";

fn token(name: &str, secret: &[u8], rights: &[Right]) -> AccessToken {
    let rights = [("*".to_owned(), rights.to_vec())].into();
    AccessToken { name: name.to_owned(), secret: Secret::new(secret).unwrap(), rights }
}

fn logged_in(cluster: &Cluster, id: u16, secret: &str) -> Redis {
    let mut redis = at(cluster, id);
    assert_eq!(redis.ask(&format!("AUTH {secret}")), "OK");
    redis
}

#[test]
fn a_clients_right_is_asked_for_here_and_that_of_the_node_there() {
    let cluster = met(Cluster::guarded(
        vec![
            token("node", NODE, &[Right::Peer, Right::Read, Right::Write, Right::Select]),
            token("reader", b"secret-of-the-reader", &[Right::Read]),
            token("operator", b"secret-of-the-operator", &Right::ALL),
        ],
        NODE,
    ));
    let mut reader = logged_in(&cluster, 1, "secret-of-the-reader");
    let mut operator = logged_in(&cluster, 1, "secret-of-the-operator");
    let events = events(&cluster);
    for (_, primary) in &events {
        let name = text(primary);
        // The node's token may write: its client must not.
        assert!(reader.ask(&format!("SET {name}/0 x")).starts_with("-NOPERM "));
        assert!(reader.ask(&format!("FB.REJECT {name} 0.1.1")).starts_with("-NOPERM "));
    }
    assert_eq!(counted(&cluster), [0, 0, 0]);
    assert!(at(&cluster, 1).ask(&format!("GET {}/0", text(&events[5].1))).starts_with("-NOAUTH "));
    fill(&mut operator, &events);
    assert_eq!(counted(&cluster), [4, 4, 4]);
    for (id, primary) in &events {
        let name = text(primary);
        assert_eq!(reader.ask(&format!("GET {name}/0")), format!("bytes of {name}/0"));
        // The operator may remove; the node may not at another node, and says so.
        let removed = operator.ask(&format!("DEL {name}/0"));
        match id {
            1 => assert_eq!(removed, ":1"),
            _ => assert!(
                removed.starts_with(&format!("-INVALID node {id} (`n{id}`): "))
                    && removed.contains("needs the right `admin`"),
                "{removed}"
            ),
        }
    }
    assert_eq!(cluster.store(3).ledger(RUN).unwrap().removed.fragments, 0);
    // What is about all nodes is asked of this one too, in the same way.
    let ledger = reader.ask(&format!("FB.LEDGER {RUN}"));
    assert!(ledger.contains("stored, [:0, :12, "), "{ledger}");
    // Changes of runs go through their home as orders of a peer, signed by who asked.
    for run in 20..26 {
        assert!(reader.ask(&format!("FB.RUN OPEN {run}")).starts_with("-NOPERM "));
        assert_eq!(operator.ask(&format!("FB.RUN OPEN {run}")), "OK");
        for id in 1..=NODES {
            assert_eq!(
                cluster.store(id).run_summary(run).unwrap().opened.by.as_deref(),
                Some("operator"),
                "run {run}, node {id}"
            );
        }
    }
}
