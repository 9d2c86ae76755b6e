//! Rings as operators use them: in their directory, and on the server that has it.

use super::serve::{Serving, serve};
use super::{Temp, assert_code, stderr, stdout, write};
use forebay_client::{ClusterRing, Options, RingClient};
use forebay_core::{RingPut, RingSources};
use forebay_recorder::Recording;
use forebay_ring::{Ring, RingConfig, RingOutcome};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A ring of 1 MHz ticks for four links, 1000 bytes a millisecond each.
const RING: &str = "kind = \"ring\"\nname = \"links\"\nsource = [\"crate:u16\", \"link:u32\"]\nticks_per_second = 1000000\n\
    sources_max = 4\nhistory_ms = 1000\nsource_bytes_per_second = 1000000\nmax_skew_ms = 3600000\n\
    fragment_bytes_max = 1000\n";

/// An empty ring.
fn made() -> Temp {
    let temp = Temp::new();
    let file = write(&temp.root.join("ring.toml"), RING.as_bytes());
    assert_code(&temp.run(&["create", "STORE", "--config", &file, "--hot-bytes", "16M"]), 0);
    temp
}

#[test]
fn a_ring_is_made_from_its_file_and_no_store_beside_it() {
    let temp = Temp::new();
    let file = write(&temp.root.join("ring.toml"), RING.as_bytes());
    let created = &temp.json(&["create", "STORE", "--config", &file, "--hot-bytes", "16M"], 0)[0];
    assert_eq!((&created["ring"], &created["source"][1]), (&"links".into(), &"link:u32".into()));
    let refused = |arguments: &[&str], said: &str| {
        let output = temp.run(arguments);
        assert_code(&output, 2);
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
    };
    refused(&["create", "STORE", "--config", &file], "holds a ring already");
    refused(&["create", "STORE"], "holds a ring (ring.fb)");
    refused(&["put", "STORE", "1/42/0", "hello"], "ring");
    assert!(!temp.store().join("keyspace.toml").exists() && !temp.store().join("hot.fb").exists());
    assert_code(&temp.run(&["create", "events", "--hot-bytes", "16M"]), 0);
    refused(&["create", "events", "--keyspace", &file], "holds a store of events (hot.fb)");
    refused(&["create", "small", "--config", &file, "--hot-bytes", "1M"], "need");
    refused(&["create", "warm", "--config", &file, "--warm", "w"], "no warm level");
    let wrong = write(&temp.root.join("wrong.toml"), RING.replace("history_ms", "history").as_bytes());
    refused(&["create", "wrong", "--config", &wrong], "ring file");
    let text = stdout(&temp.run(&["create", "said", "--config", &file, "--hot-bytes", "16M"]));
    assert!(text.contains(": ring links (crate:u16/link:u32)") && text.contains("keeps 1s of 4 sources"), "{text}");
}

/// First tick of the rings here, and ticks of a fragment.
const FIRST: u64 = 1 << 40;
const SPAN: u64 = 1000;

fn payload(link: u64, number: u64) -> Vec<u8> {
    (0..500_u64).map(|at| [link, number, at][at.min(2) as usize] as u8).collect()
}

/// Fragments of links 1 to 3: 50 of each, without those of link 3 from 10 to 19.
fn fill(dir: &Path) {
    let ring = Ring::open(dir, RingConfig::default()).unwrap();
    for number in 0..50 {
        for link in 1..=3 {
            if link == 3 && (10..20).contains(&number) {
                continue;
            }
            let source = ring.keyspace().source(&[0, link]).unwrap();
            let (tick, options) = (FIRST + number * SPAN, RingPut { run: 7, status: 0 });
            let put = ring.put(&source, tick, SPAN as u32, &payload(link, number), &options).unwrap();
            assert_eq!(put, RingOutcome::Stored);
        }
    }
    ring.close().unwrap();
}

fn filled() -> Temp {
    let temp = made();
    fill(&temp.store());
    temp
}

fn ticks(from: u64, to: u64) -> String {
    format!("{}..{}", FIRST + from * SPAN, FIRST + to * SPAN)
}

#[test]
fn every_look_says_the_same_of_a_rings_directory_and_of_its_server() {
    let temp = filled();
    let before = std::fs::read(temp.store().join("ring.fb")).unwrap();
    let (part, all) = (ticks(2, 30), ticks(0, 50));
    let looks: &[&[&str]] = &[
        &["sources"],
        &["sources", "--wrong"],
        &["window", &part],
        &["window", &part, "--source", "0/1", "--source", "0/9"],
        &["window", &all, "--source", "0/3"],
        &["window", "--last", "5ms"],
        &["pin"],
        &["pin", "list"],
        &["inspect", "chunks", "--source", "0/9"],
        &["inspect", "segments"],
        &["sources", "1"],
        &["window", "9..9"],
    ];
    let run = |look: &[&str], place: &[&str]| {
        let arguments = [&look[..1], place, &look[1..]].concat();
        let (text, json) = (temp.run(&arguments), temp.run(&[&arguments[..], &["--json"]].concat()));
        (text.status.code(), stdout(&text), json.status.code(), stdout(&json))
    };
    let closed: Vec<_> = looks.iter().map(|look| run(look, &["STORE"])).collect();
    assert_eq!(closed.iter().map(|said| said.0).collect::<Vec<_>>(), [0, 0, 1, 1, 1, 0, 0, 0, 0, 2, 2, 2].map(Some));
    for look in [&["stats", "STORE"][..], &["inspect", "STORE"], &["inspect", "STORE", "chunks"], &["check", "STORE"]] {
        assert_eq!(temp.json(look, 0).len(), 1, "{look:?}");
    }
    // A look changes nothing.
    assert!(before == std::fs::read(temp.store().join("ring.fb")).unwrap());

    let server = Serving::start(&mut serve(&temp));
    let address = format!("tcp://{}", server.address("native"));
    for place in [&["STORE"][..], &[&address], &["--connect", &address]] {
        for (look, expected) in looks.iter().zip(&closed) {
            assert_eq!(run(look, place), *expected, "{look:?} at {place:?}");
        }
        // Figures since the opening differ.
        let one = |arguments: &[&str]| temp.json(&[&arguments[..1], place, &arguments[1..]].concat(), 0)[0].clone();
        let stats = one(&["stats"]);
        assert_eq!((&stats["ring"], &stats["fragments"]), (&"links".into(), &140.into()));
        let chunks = one(&["inspect", "chunks"]);
        let count =
            |key: &str| chunks.as_array().unwrap().iter().map(|chunk| chunk[key].as_u64().unwrap()).sum::<u64>();
        assert_eq!((count("fragments"), count("bytes")), (140, 140 * 500));
        assert_eq!(
            (&one(&["inspect"])["sources"], &one(&["inspect"])["newest"]),
            (&3.into(), &(FIRST + 50 * SPAN).into())
        );
        let checked = one(&["check", "--deep"]);
        assert_eq!(
            (&checked["served"], &checked["fragments"], &checked["bytes"]),
            (&true.into(), &140.into(), &70_000.into())
        );
    }
    // Commands of events say what is there.
    let refused = temp.run(&["ledger", "STORE", "1"]);
    assert_code(&refused, 2);
    assert!(stderr(&refused).contains("holds a ring"), "{}", stderr(&refused));
    assert_code(&temp.run(&["ledger", &address, "1"]), 2);
    server.end("TERM");
    assert_eq!(temp.json(&["check", "STORE", "--deep"], 0)[0]["clean"], true);
}

#[test]
fn a_window_says_what_covers_its_ticks_and_writes_their_bytes() {
    let temp = filled();
    let said = &temp.json(&["window", "STORE", &ticks(8, 60), "--out", "burst"], 1)[0];
    let coverage = |source: usize| -> Vec<(u64, String)> {
        let list = said["sources"][source]["coverage"].as_array().unwrap();
        let one = |stretch: &Value| {
            let cause = stretch["cause"].as_str().unwrap_or_default();
            (
                (stretch["end"].as_u64().unwrap() - FIRST) / SPAN,
                format!("{}{cause}", stretch["state"].as_str().unwrap()),
            )
        };
        list.iter().map(one).collect()
    };
    assert_eq!(coverage(0), [(50, "covered".to_owned()), (60, "not yet".to_owned())]);
    let third = [(10, "covered"), (20, "missingnever arrived"), (50, "covered"), (60, "not yet")];
    assert_eq!(coverage(2), third.map(|(end, state)| (end, state.to_owned())));
    let burst = temp.root.join("burst");
    let expected: Vec<u8> = [8, 9].into_iter().chain(20..50).flat_map(|number| payload(3, number)).collect();
    assert!(std::fs::read(burst.join("0-3.bin")).unwrap() == expected);
    let index = std::fs::read_to_string(burst.join("0-3.jsonl")).unwrap();
    let line: Value = serde_json::from_str(index.lines().nth(2).unwrap()).unwrap();
    let tick = FIRST + 20 * SPAN;
    assert_eq!((&line["tick"], &line["offset"], &line["run"]), (&tick.into(), &1000.into(), &7.into()));
    let written: Value = serde_json::from_slice(&std::fs::read(burst.join("window.json")).unwrap()).unwrap();
    assert_eq!(&written, said);
    let gone = temp.run(&["window", "STORE", &format!("{}..{}", FIRST - 5, FIRST + 5), "--source", "0/1"]);
    assert_code(&gone, 1);
    assert!(stdout(&gone).contains("gone\n") && stdout(&gone).contains("covered\n"), "{}", stdout(&gone));
}

#[test]
fn pins_are_made_and_removed_on_the_server_that_has_the_ring() {
    let temp = filled();
    let refused = temp.run(&["pin", "STORE", "add", "--last", "5ms", "--for", "1h"]);
    assert_code(&refused, 2);
    assert!(stderr(&refused).contains("nobody serves this ring"), "{}", stderr(&refused));
    let server = Serving::start(&mut serve(&temp));
    let address = format!("tcp://{}", server.address("native"));
    let added = &temp.json(&["pin", "STORE", "add", "--last", "5ms", "--for", "1h", "--source", "0/2"], 0)[0];
    assert_eq!((&added["end"], &added["kept"]), (&(FIRST + 50 * SPAN).into(), &true.into()));
    // It is there although the command that made it has ended, and its chunk is named by it.
    let listed = &temp.json(&["pin", &address], 0)[0];
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["pin"]), (1, &added["pin"]));
    let chunks = &temp.json(&["inspect", &address, "chunks"], 0)[0];
    let pinned = |chunk: &&Value| chunk["pinned"] == true;
    assert!(chunks.as_array().unwrap().iter().filter(pinned).all(|chunk| chunk["source"] == "0/2"));
    assert!(chunks.as_array().unwrap().iter().any(|chunk| pinned(&chunk)));
    // One that a client holds is its own.
    let client = RingClient::connect(&address, Options::default()).unwrap();
    let held = client.pin(FIRST, FIRST + SPAN, &RingSources::All, Duration::from_secs(600)).unwrap();
    let conflict = temp.run(&["pin", "STORE", "remove", &held.id().to_string()]);
    assert_code(&conflict, 3);
    let id = added["pin"].to_string();
    assert_eq!(temp.json(&["pin", "STORE", "remove", &id], 0)[0]["removed"], true);
    assert_code(&temp.run(&["pin", "STORE", "remove", &id]), 1);
    // One that is over is gone by itself.
    assert_code(&temp.run(&["pin", "STORE", "add", &ticks(0, 1), "--for", "1ms"]), 0);
    let from = std::time::Instant::now();
    while temp.json(&["pin", "STORE"], 0)[0].as_array().unwrap().len() > 1 {
        assert!(from.elapsed() < Duration::from_secs(60));
    }
    assert_code(&temp.run(&["pin", "STORE", "add", "0..99999999999999", "--for", "1h"]), 4);
    drop(held);
}

#[test]
fn a_check_finds_what_does_not_verify_and_changes_nothing() {
    let temp = filled();
    let file = temp.store().join("ring.fb");
    let mut bytes = std::fs::read(&file).unwrap();
    let wanted = payload(2, 30);
    let at = bytes.windows(wanted.len()).position(|window| window == wanted).unwrap();
    bytes[at + 100] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    assert_code(&temp.run(&["check", "STORE"]), 0);
    let found = &temp.json(&["check", "STORE", "--deep"], 1)[0];
    assert_eq!((found["problems"].as_array().unwrap().len(), &found["fragments"]), (1, &139.into()));
    assert!(bytes == std::fs::read(&file).unwrap());
    // The window that shows it says so.
    let shown = &temp.json(&["window", "STORE", &ticks(30, 31), "--source", "0/2", "--out", "rotten"], 1)[0];
    assert_eq!(shown["sources"][0]["corrupt"].as_array().unwrap().len(), 1);
}

/// A producer that goes on until it is dropped: every millisecond a fragment of each link, with the next ticks.
struct Readout {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Readout {
    fn start(ring: RingClient, links: &'static [u64]) -> Readout {
        let stop = Arc::new(AtomicBool::new(false));
        let ended = stop.clone();
        let thread = std::thread::spawn(move || {
            let (start, mut number) = (Instant::now(), 0);
            while !ended.load(Ordering::Acquire) {
                while number < start.elapsed().as_millis() as u64 && !ended.load(Ordering::Acquire) {
                    for &link in links {
                        let source = ring.keyspace().source(&[0, link]).unwrap();
                        let tick = FIRST + number * SPAN;
                        // A server that is gone is one of the tests.
                        let _ = ring.put(&source, tick, SPAN as u32, &payload(link, number), &RingPut::default());
                    }
                    number += 1;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Readout { stop, thread: Some(thread) }
    }
}

impl Drop for Readout {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Waits until a ring holds this many fragments.
fn until_it_has(client: &RingClient, fragments: u64) {
    let from = Instant::now();
    while client.stats().unwrap().fragments < fragments {
        assert!(from.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Every frame of a recording is the payload of its tick and of a link, and frames are there for all of them.
fn is_genuine(temp: &Temp, recording: &str, begin: u64, end: u64, links: &[u64]) {
    let playback = Recording::open(&[temp.root.join(recording)], false).unwrap();
    let all: Vec<u32> = (0..links.len() as u32).collect();
    let mut found = 0;
    for frame in playback.window(begin, end, &all).unwrap() {
        let frame = frame.unwrap();
        let (link, number) = (links[frame.link as usize], (frame.tick - FIRST) / SPAN);
        assert!(frame.bytes() == payload(link, number), "link {link}, frame {number}");
        found += 1;
    }
    let frames = (end - 1 - FIRST) / SPAN - (begin - FIRST) / SPAN + 1;
    assert_eq!(found, frames * links.len() as u64);
}

#[test]
fn a_rings_directory_is_recorded_as_it_is() {
    let temp = filled();
    let call = ["record", "STORE", "--warm", "rec:16M", "--ticks", &ticks(5, 60)];
    let said = &temp.json(&call, 0)[0];
    let links = said["manifest"]["links"].as_array().unwrap();
    assert_eq!(links.iter().map(|link| link["recorded"].as_u64().unwrap()).collect::<Vec<_>>(), [45, 45, 35]);
    assert_eq!(said["retroactive"]["end"], FIRST + 60 * SPAN);
    is_genuine(&temp, "rec", FIRST + 20 * SPAN, FIRST + 50 * SPAN, &[1, 2, 3]);
    assert_code(&temp.run(&["play", "rec", "--verify"]), 0);
    let text = stdout(&temp.run(&["record", "STORE", "--warm", "last:16M", "--last", "10ms"]));
    assert!(text.contains("complete: every frame is recorded"), "{text}");
    is_genuine(&temp, "last", FIRST + 40 * SPAN, FIRST + 50 * SPAN, &[1, 2, 3]);
    let refused = |arguments: &[&str], code: i32, said: &str| {
        let output = temp.run(&[&["record", "STORE", "--warm", "no"], arguments].concat());
        assert_code(&output, code);
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
    };
    refused(&[], 2, "which ticks?");
    refused(&["--links", "3", "--last", "1s"], 2, "cannot be used with");
    refused(&["STORE", "--last", "1s"], 5, "");
    assert_code(&temp.run(&["create", "events", "--hot-bytes", "16M"]), 0);
    assert_code(&temp.run(&["record", "events", "--warm", "no", "--last", "1s"]), 2);
    assert!(!temp.root.join("no/recording.json").exists());
}

#[test]
fn a_ring_on_a_server_is_recorded_with_what_was_and_what_comes() {
    let temp = made();
    let server = Serving::start(&mut serve(&temp));
    let address = format!("tcp://{}", server.address("native"));
    let client = RingClient::connect(&address, Options::default()).unwrap();
    let _readout = Readout::start(client.clone(), &[1, 2]);
    until_it_has(&client, 600);
    let call = ["record", "STORE", "--warm", "rec:64M", "--last", "100ms", "--next", "200ms", "--patience", "60s"];
    let said = &temp.json(&call, 0)[0];
    let (begin, end) = (said["retroactive"]["begin"].as_u64().unwrap(), said["retroactive"]["end"].as_u64().unwrap());
    assert_eq!(end - begin, 300_000);
    assert_eq!(said["manifest"]["totals"]["missed"], 0, "{said}");
    is_genuine(&temp, "rec", begin, end, &[1, 2]);
    assert_code(&temp.run(&["play", "rec", "--verify"]), 0);
    // Its pin went with it.
    assert!(temp.json(&["pin", &address], 0)[0].as_array().unwrap().is_empty());
}

#[test]
fn rings_of_several_servers_are_recorded_with_one_trigger() {
    let units = [made(), made()];
    let servers: Vec<Serving> = units.iter().map(|temp| Serving::start(&mut serve(temp))).collect();
    let addresses: Vec<String> = servers.iter().map(|server| format!("tcp://{}", server.address("native"))).collect();
    let connect = |address: &String| RingClient::connect(address, Options::default()).unwrap();
    let clients: Vec<RingClient> = addresses.iter().map(connect).collect();
    let readouts = [Readout::start(clients[0].clone(), &[1, 2]), Readout::start(clients[1].clone(), &[3])];
    clients.iter().for_each(|client| until_it_has(client, 300));
    let temp = &units[0];
    let places = [addresses[0].as_str(), addresses[1].as_str()];
    let all =
        [&["record"], &places[..], &["--warm", "rec:64M", "--last", "100ms", "--next", "100ms", "--patience", "60s"]];
    let said = &temp.json(&all.concat(), 0)[0];
    let (begin, end) = (said["retroactive"]["begin"].as_u64().unwrap(), said["retroactive"]["end"].as_u64().unwrap());
    assert_eq!((said["manifest"]["links"].as_array().unwrap().len(), end - begin), (3, 200_000));
    is_genuine(temp, "rec", begin, end, &[1, 2, 3]);
    // One source in both: no manifest could tell which is which.
    let twice = temp.run(&["record", places[0], places[0], "--warm", "twice:64M", "--last", "10ms"]);
    assert_code(&twice, 2);
    assert!(stderr(&twice).contains("its source is that of another link"), "{}", stderr(&twice));
    assert!(!temp.root.join("twice/recording.json").exists());
    // A server that goes away in the middle costs its own ticks, and the manifest says so.
    let lasts =
        [&["record"], &places[..], &["--warm", "cut:64M", "--last", "50ms", "--next", "4s", "--patience", "60s"]];
    let child = temp.command(&lasts.concat()).arg("--json").stdout(Stdio::piped()).spawn().unwrap();
    let from = Instant::now();
    let has_pin = || temp.json(&["pin", places[1]], 0)[0].as_array().is_some_and(|pins| !pins.is_empty());
    while !has_pin() {
        assert!(from.elapsed() < Duration::from_secs(60));
    }
    let mut servers = servers.into_iter();
    let first = servers.next();
    drop(servers);
    let output = child.wait_with_output().unwrap();
    assert_code(&output, 1);
    let cut: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    let links = cut["manifest"]["links"].as_array().unwrap();
    assert!(links[2]["missed_by"]["ring-restart"].as_u64() > Some(0), "{}", links[2]);
    assert_eq!(links[0]["missed"], 0, "{}", links[0]);
    drop((readouts, first));
}

/// Each crate's links on its own node, by the map; for people it is one ring.
#[test]
fn a_ring_on_two_nodes_of_a_cluster_is_one_ring() {
    let temp = Temp::new();
    let file = write(&temp.root.join("ring.toml"), RING.as_bytes());
    let socket = |id: u64| format!("unix:{}", temp.root.join(format!("n{id}.sock")).display());
    let mut new = ["cluster", "new", "map.json"].map(str::to_owned).to_vec();
    for id in 1..=2 {
        assert_code(&temp.run(&["create", &format!("n{id}"), "--hot-bytes", "16M"]), 0);
        assert_code(&temp.run(&["create", &format!("r{id}"), "--config", &file, "--hot-bytes", "16M"]), 0);
        new.extend(["--node".to_owned(), format!("n{id}={}=n{id}", socket(id))]);
    }
    assert_code(&temp.run(&new.iter().map(String::as_str).collect::<Vec<_>>()), 0);
    let change = ["cluster", "change", "map.json", "rings.json", "--ring", "links", "--from-run", "0"];
    assert_code(&temp.run(&[&change[..], &["--table", "0/1..2=1", "--table", "0/3=2"]].concat()), 0);
    let start = |id: u64| {
        let config = format!(
            "state_dir = \"state{id}\"\n[listen]\nnative = [{:?}]\nresp = []\nhttp = \"127.0.0.1:0\"\n[cluster]\nmap = \"rings.json\"\n\
             [[keyspace]]\npath = \"n{id}\"\n[[ring]]\npath = \"r{id}\"\n",
            socket(id)
        );
        let config = write(&temp.root.join(format!("n{id}.toml")), config.as_bytes());
        Serving::start(&mut temp.command(&["serve", "--config", &config]))
    };
    let servers = [start(1), start(2)];
    let places = format!("{},{}", socket(1), socket(2));
    let options = Options { keyspace: "links".to_owned(), ..Options::default() };
    let ring = ClusterRing::connect(&[socket(2)], options).unwrap();
    for number in 0..50 {
        for link in 1..=3 {
            let source = ring.keyspace().source(&[0, link]).unwrap();
            let (tick, value) = (FIRST + number * SPAN, payload(link, number));
            let put = ring.put(&source, tick, SPAN as u32, &value, &RingPut { run: 7, status: 0 });
            assert_eq!(put.unwrap(), RingOutcome::Stored);
        }
    }
    let of_ring = |call: &[&str]| {
        let (place, rest) = (&call[..2], &call[2..]);
        temp.json(&[place, &["--keyspace", "links"], rest].concat(), 0)[0].clone()
    };
    let names = |place: &str| -> Vec<String> {
        let rows = of_ring(&["sources", place]);
        rows.as_array().unwrap().iter().map(|row| row["source"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        (names(&places), names(&socket(2))),
        (["0/1", "0/2", "0/3"].map(str::to_owned).to_vec(), vec!["0/3".to_owned()])
    );
    assert_eq!(of_ring(&["stats", &places])["fragments"], 150);
    let window = of_ring(&["window", &places, "--last", "10ms"]);
    let covered = |source: &Value| source["coverage"][0]["state"] == "covered";
    assert!(window["sources"].as_array().unwrap().iter().all(covered), "{window}");
    let top = &of_ring(&["top", &places, "--interval", "200ms"]);
    let of_node = |at: usize| ["sources", "fragments"].map(|figure| top["nodes"][at]["ring"][figure].as_u64());
    assert_eq!([of_node(0), of_node(1)], [[Some(2), Some(100)], [Some(1), Some(50)]], "{top}");
    assert_eq!((&top["totals"]["ring"]["fragments"], &top["totals"]["answering"]), (&150.into(), &2.into()), "{top}");
    let text = stdout(&temp.run(&["top", &places, "--once", "--interval", "200ms", "--keyspace", "links"]));
    assert!(text.contains("refused/s") && text.contains("2 nodes") && !text.contains("trigger free"), "{text}");
    let added = temp.json(&["pin", &places, "--keyspace", "links", "add", "--last", "5ms", "--for", "1h"], 0);
    assert_eq!(added.len(), 2, "one on each node");
    for pin in &added {
        assert_eq!(of_ring(&["pin", &places, "remove", &pin["pin"].to_string()])["removed"], true);
    }
    let call = ["record", &places, "--warm", "rec:64M", "--last", "50ms", "--keyspace", "links"];
    assert_eq!(temp.json(&call, 0)[0]["manifest"]["totals"]["missed"], 0);
    is_genuine(&temp, "rec", FIRST, FIRST + 50 * SPAN, &[1, 2, 3]);
    drop(servers);
}

#[test]
fn top_shows_a_ring() {
    let temp = filled();
    let server = Serving::start(&mut serve(&temp));
    let url = server.line["listening"]["http"].as_str().unwrap().to_owned();
    let client = RingClient::connect(&format!("tcp://{}", server.address("native")), Options::default()).unwrap();
    let _readout = Readout::start(client, &[1]);
    let view = &temp.json(&["top", "--interval", "500ms", "--keyspace", "links", "--url", &url], 0)[0];
    assert_eq!((&view["keyspace"], &view["ring"]["sources"]), (&"links".into(), &3.0.into()));
    assert!(view["rates"]["puts"].as_f64() > Some(0.0) && view["rates"]["stored_bytes"].as_f64() > Some(0.0), "{view}");
    let text = stdout(&temp.run(&["top", "--once", "--interval", "200ms", "--url", &url]));
    for words in ["links", " ring ", "sources  3, longest silence", "pins     0:", "lost     0"] {
        assert!(text.contains(words), "no `{words}` in\n{text}");
    }
    assert!(!text.contains("trigger free"), "{text}");
}
