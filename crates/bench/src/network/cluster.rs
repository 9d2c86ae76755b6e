//! The same calls over the nodes of a cluster as of one server; bytes that are elsewhere; maps of many nodes.
//!
//! All nodes are in one process on the processor of servers: a share says what a cluster costs, and not what more machines bring.

use super::moving::{CALL, SIZES, client, count, end_run, end_runs, get_long_events, put, put_long_events, put_part};
use super::nodes::{ELSEWHERE, SPREAD, config, map_of, node, start};
use super::selection::select;
use super::{Measurement, peer, pin};
use crate::Result;
use crate::engine::Scratch;
use forebay_client::{Client, ClusterClient, Options};
use forebay_core::map::{ClusterMap, Hex128};
use forebay_core::{Bounds, EventStore, Key, PutOptions, PutOutcome};
use forebay_store::Store;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TEN_KIB: usize = 10 << 10;
/// Parts of a pass that is made in several ways in turns.
const PARTS: u64 = 12;
/// Passes into a store that is made for them, of which the last one counts: those before it write into all of its memory for the
/// first time.
const HELD_PASSES: u64 = 3;
/// Nodes of a large map.
const NODES_MANY: u16 = 500;

/// Writes once into all memory of one server and of the nodes: the first time costs more.
pub(super) fn warm(on: &mut Measurement<'_>) -> Result<()> {
    let (one, all) = clients(on)?;
    let (count, value) = (count(on.plan, TEN_KIB), vec![0xA5; TEN_KIB]);
    let hot = on.plan.hot_bytes;
    // Three nodes lead events, and the last one has the bytes of the runs from `ELSEWHERE` on.
    for (first, bytes) in [(0, 3 * hot / 2), (ELSEWHERE, hot / 2)] {
        for _ in 0..bytes.div_ceil(on.plan.pass_bytes) {
            fill(&all, first + on.next_run(), count, &value)?;
        }
    }
    for _ in 0..hot.div_ceil(on.plan.pass_bytes) {
        fill(&one, on.next_run(), count, &value)?;
    }
    Ok(())
}

fn fill(client: &impl EventStore, run: u64, count: u64, value: &[u8]) -> Result<()> {
    client.run_open(run, &peer::keyspace().run)?;
    put(client, run, count, value)?;
    end_run(client, run)
}

/// Of one server, and of the nodes.
fn clients(on: &Measurement<'_>) -> Result<(Client, ClusterClient)> {
    let addresses: Vec<&str> = on.cluster.addresses.iter().map(|(_, address)| address.as_str()).collect();
    let options = Options { name: "bench".to_owned(), extend_leases: false, ..Options::default() };
    Ok((client(on.forebay, "unix")?, ClusterClient::connect(&addresses, options)?))
}

pub(super) fn measure(on: &mut Measurement<'_>) -> Result<()> {
    let (one, all) = clients(on)?;
    for bytes in SIZES {
        let (count, value, run) = (count(on.plan, bytes), vec![0xA5; bytes], on.next_run());
        // Before the time: in a cluster it takes a round through all nodes.
        let config = peer::keyspace().run;
        one.run_open(run, &config)?;
        [run, ELSEWHERE + run].into_iter().try_for_each(|run| all.run_open(run, &config))?;
        let to_one = |part| put_part(&one, run, part, &value);
        let to_all = |part| put_part(&all, run, part, &value);
        let to_holder = |part| put_part(&all, ELSEWHERE + run, part, &value);
        let [took, over_all, away] = in_turns(count, CALL as u64, [&to_one, &to_all, &to_holder])?;
        end_run(&one, run)?;
        end_runs(&all, &[run, ELSEWHERE + run])?;
        on.results.record("cluster.put", bytes, count as f64 / over_all);
        on.results.record("cluster.put.share", bytes, took / over_all);
        on.results.record("cluster.table.put", bytes, count as f64 / away);
        on.results.record("cluster.table.put.share", bytes, over_all / away);
    }
    let run = on.next_run();
    let of_one = select(on.plan, &one, run, |verdicts| one.decide(verdicts))?;
    let of_all = select(on.plan, &all, run, |verdicts| all.decide(verdicts))?;
    on.results.record("cluster.select", 64, of_all);
    on.results.record("cluster.select.share", 64, of_all / of_one);
    let run = on.next_run();
    let events = put_long_events(on.plan, &one, run)?;
    all.run_open(SPREAD + run, &peer::keyspace().run)?;
    put_long_events(on.plan, &all, SPREAD + run)?;
    let of_one = |part| get_long_events(&one, run, part);
    let of_four = |part| get_long_events(&all, SPREAD + run, part);
    let [took, over_all] = in_turns(events, 1, [&of_one, &of_four])?;
    end_run(&one, run)?;
    end_run(&all, SPREAD + run)?;
    on.results.record("cluster.event", TEN_KIB, events as f64 / over_all);
    on.results.record("cluster.event.share", TEN_KIB, took / over_all);
    held(on)?;
    large_map(on)
}

/// Does the same with parts of some things, of a multiple of `step` each, in several ways, each first in turn: the machine drifts
/// under all of them. The time that each took.
fn in_turns<const WAYS: usize>(
    count: u64,
    step: u64,
    ways: [&dyn Fn(Range<u64>) -> Result<f64>; WAYS],
) -> Result<[f64; WAYS]> {
    let mut took = [0.0; WAYS];
    let part = count.div_ceil(PARTS).next_multiple_of(step);
    for (turn, from) in (0..count).step_by(part as usize).enumerate() {
        for way in (0..WAYS).map(|way| (way + turn) % WAYS) {
            took[way] += ways[way](from..count.min(from + part))?;
        }
    }
    Ok(took)
}

/// A readout that puts into its own store: alone, and as the holder for a home that is told of it. The home and what tells it work
/// on the processor of servers.
fn held(on: &mut Measurement<'_>) -> Result<()> {
    let scratch = Scratch::new(&on.plan.dir)?;
    let at = |name: &str| scratch.path().join(name);
    let create = |name: &str, bytes: u64| Store::create(&at(name), &peer::keyspace(), config(bytes));
    pin::this_thread(pin::SERVER)?;
    let alone = create("alone", on.plan.hot_bytes / 2)?;
    let (holder, home) = (create("holder", on.plan.hot_bytes / 2)?, create("home", on.plan.hot_bytes / 4)?);
    let nodes = [(1, &holder), (2, &home)].map(|(id, store)| node(id, &at(&format!("{id}.sock")), store.holding()));
    let map = map_of(nodes.to_vec(), Some(1), &[(1, &[("0..99", 1)])])?;
    let serving = [(1, &holder), (2, &home)].map(|(id, store)| start(store, &map, &at(&format!("{id}.sock"))));
    pin::this_thread(pin::LOAD)?;
    let count = count(on.plan, TEN_KIB);
    let value = vec![0xA5; TEN_KIB];
    for run in 1..=HELD_PASSES {
        let keys = opened(&alone, run, count)?;
        opened(&holder, run, count)?;
        let part =
            |store: &Store, part: Range<u64>| put_all(store, &keys[part.start as usize..part.end as usize], &value);
        let (to_alone, to_holder) = (|numbers| part(&alone, numbers), |numbers| part(&holder, numbers));
        let [took, as_holder] = in_turns(count, 1, [&to_alone, &to_holder])?;
        if run == HELD_PASSES {
            on.results.record("cluster.held.put", TEN_KIB, count as f64 / as_holder);
            on.results.record("cluster.held.put.share", TEN_KIB, took / as_holder);
        }
        let all = Bounds::parse(home.schema(), &run.to_string())?;
        let told = || -> Result<bool> { Ok(home.ledger(run)?.stored.fragments == count + 1) };
        until("the home hears of all", told)?;
        alone.remove_range(&all)?;
        home.remove_range(&all)?;
        until("the holder's space comes back", || {
            let stats = holder.stats();
            Ok(stats.segments - stats.segments_free <= stats.segments / 8 + 4)
        })?;
    }
    for serving in serving {
        serving?.0.stop(Duration::from_secs(2));
    }
    Ok(())
}

fn until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    for _ in 0..1500 {
        if done()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("not within 30 s: {what}").into())
}

/// Opens a run by its first event, and answers keys of others.
fn opened(store: &Store, run: u64, count: u64) -> Result<Vec<Key>> {
    let key = |number| store.schema().key(&[run, number / peer::SOURCES, number % peer::SOURCES]);
    // The first of a run waits until it is open.
    let patient = PutOptions { deadline: Some(Duration::from_secs(10)), ..PutOptions::default() };
    let _ = store.put(&key(count)?, &[0], &patient)?;
    Ok((0..count).map(key).collect::<forebay_core::Result<_>>()?)
}

/// Puts into a store of this process, one after the other; the time that it took.
fn put_all(store: &Store, keys: &[Key], value: &[u8]) -> Result<f64> {
    let from = Instant::now();
    for key in keys {
        if store.put(key, value, &PutOptions::default())? != PutOutcome::Stored {
            return Err("a put was not stored".into());
        }
    }
    Ok(from.elapsed().as_secs_f64())
}

/// A map of 500 nodes: the time to read it, and puts into a store that goes by it beside one that is a cluster's only node.
fn large_map(on: &mut Measurement<'_>) -> Result<()> {
    let scratch = Scratch::new(&on.plan.dir)?;
    let at = |name: &str| scratch.path().join(name);
    let create = |name: &str| Store::create(&at(name), &peer::keyspace(), config(on.plan.hot_bytes / 4));
    let (few, many) = (create("few")?, create("many")?);
    let socket = at("socket");
    few.adopt_map(&map_of(vec![node(1, &socket, few.holding())], None, &[])?)?;
    let others = (2..=NODES_MANY).map(|id| node(id, &socket.with_extension(id.to_string()), (Hex128(id.into()), 0)));
    let nodes = std::iter::once(node(1, &socket, many.holding())).chain(others).collect();
    let map = map_of(nodes, None, &[])?;
    let text = map.to_json();
    let from = Instant::now();
    let read = ClusterMap::from_json(&text)?;
    on.results.record("map.read", 0, from.elapsed().as_secs_f64() * 1e6);
    many.adopt_map(&Arc::new(read))?;
    let placement = map.keyspace("bench").ok_or("no keyspace in the map")?;
    let schema = few.schema();
    let mut keys = Vec::new();
    for event in 0.. {
        let primary = schema.primary(&[1, event])?;
        if placement.home(1, primary.as_bytes()) == 1 {
            for source in 0..peer::SOURCES {
                keys.push(schema.key(&[1, event, source])?);
            }
        }
        if keys.len() as u64 >= on.plan.pass_fragments / 2 {
            break;
        }
    }
    for store in [&few, &many] {
        store.run_open(1, &peer::keyspace().run)?;
    }
    let part =
        |store: &Store, part: Range<u64>| put_all(store, &keys[part.start as usize..part.end as usize], &[7; 64]);
    let (to_few, to_many) = (|numbers| part(&few, numbers), |numbers| part(&many, numbers));
    let [of_few, of_many] = in_turns(keys.len() as u64, 1, [&to_few, &to_many])?;
    on.results.record("map.put.share", 64, of_many / of_few);
    Ok(())
}
