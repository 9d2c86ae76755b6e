//! One program of a pair: measures the calls that must not get slower, and prints lines of `row figure`.
//!
//! `cargo xtask pairs REVISION` compiles this file with the crates of two revisions, and runs both in turn. So it uses only
//! what both have.

use forebay_client::{Client, Options};
use forebay_core::{Bounds, Completeness, Key, Keyspace, RunConfig};
use forebay_server::{Endpoint, Server, ServerConfig};
use forebay_store::{Config, GetAny, PutOptions, PutOutcome, Store, WarmDevice};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SOURCES: u64 = 16;
const HOUR: Duration = Duration::from_secs(3600);
/// Passes of each row; the figure is their median.
const PASSES: u64 = 5;
const HOT_BYTES: u64 = 1 << 30;
/// Fragments of one call of a client.
const CALL: usize = 512;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(memory), Some(disk)) = (arguments.next(), arguments.next()) else {
        return Err("a directory in memory and one on a disk; then, if wanted, the only part to measure".into());
    };
    let only = arguments.next();
    let wanted = |name: &str| only.as_ref().is_none_or(|only| only.as_os_str() == name);
    for (name, measure) in
        [("embedded", embedded as fn(&Path) -> Result<()>), ("reopening", reopening), ("network", network)]
    {
        if wanted(name) {
            in_directory(&memory, name, measure)?;
        }
    }
    if wanted("persisted") {
        in_directory(&disk, "persisted", persisted)?;
    }
    for devices in [1, 2].into_iter().filter(|_| wanted("verdicts")) {
        in_directory(&disk, "verdicts", |dir| verdicts(dir, devices))?;
    }
    Ok(())
}

fn in_directory(parent: &Path, name: &str, measure: impl Fn(&Path) -> Result<()>) -> Result<()> {
    let dir = parent.join(format!("forebay-pair-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let measured = measure(&dir);
    std::fs::remove_dir_all(&dir)?;
    measured.map_err(|error| format!("{name}: {error}").into())
}

/// Prints the median rate of one row, in operations per second.
#[expect(clippy::print_stdout, reason = "the program that starts this reads it")]
fn say(row: &str, mut rates: Vec<f64>) {
    rates.sort_by(f64::total_cmp);
    println!("{row} {}", rates[rates.len() / 2]);
}

fn keyspace() -> Keyspace {
    let mut keyspace = Keyspace::events("pair", SOURCES as u32).opening_runs();
    keyspace.run.complete_within = HOUR;
    keyspace
}

fn config() -> Config {
    Config { hot_bytes: HOT_BYTES, write_heads: 2, ..Config::default() }
}

fn open_run(store: &Store, run: u64, fragments: u64) -> Result<()> {
    Ok(store.run_open(run, &RunConfig::new(Completeness::Count(fragments as u32), HOUR))?)
}

/// Removes a run and waits until its space is back.
fn end_run(store: &Store, run: u64) -> Result<()> {
    store.remove_range(&Bounds::parse(store.schema(), &run.to_string())?)?;
    store.run_stop(run)?;
    store.run_close(run)?;
    let from = Instant::now();
    while from.elapsed() < Duration::from_secs(30) {
        let stats = store.stats();
        if stats.segments - stats.segments_free <= stats.segments / 8 + 4 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err("space does not come back".into())
}

fn key(store: &Store, run: u64, number: u64) -> Result<Key> {
    Ok(store.schema().key(&[run, number / SOURCES, number % SOURCES])?)
}

fn put(store: &Store, key: &Key, bytes: &[u8], options: &PutOptions<'_>) -> Result<()> {
    match store.put(key, bytes, options)? {
        PutOutcome::Stored => Ok(()),
        other => Err(format!("a put was answered {other:?}").into()),
    }
}

fn rate(count: u64, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let from = Instant::now();
    work()?;
    Ok(count as f64 / from.elapsed().as_secs_f64())
}

/// Puts and gets `count` fragments of `bytes` bytes, pass after pass, each in a run of its own that is removed afterwards.
fn puts_and_gets(
    (store, run): (&Store, &mut u64),
    row: &str,
    (bytes, count): (usize, u64),
    put: impl Fn(&[Key], &[u8]) -> Result<()>,
    get: impl Fn(&[Key]) -> Result<()>,
) -> Result<()> {
    let (mut puts, mut gets, value) = (Vec::new(), Vec::new(), vec![0x5A; bytes]);
    // The first pass writes into memory that was never written.
    for pass in 0..=PASSES {
        *run += 1;
        open_run(store, *run, SOURCES)?;
        let keys = (0..count).map(|at| key(store, *run, at)).collect::<Result<Vec<Key>>>()?;
        let rates = [rate(count, || put(&keys, &value))?, rate(count, || get(&keys))?];
        if pass > 0 {
            puts.push(rates[0]);
            gets.push(rates[1]);
        }
        end_run(store, *run)?;
    }
    say(&format!("{row}put.{bytes}"), puts);
    say(&format!("{row}get.{bytes}"), gets);
    Ok(())
}

fn found<T>(fragment: Option<T>) -> Result<T> {
    fragment.ok_or_else(|| "a fragment that was put is not there".into())
}

fn embedded(dir: &Path) -> Result<()> {
    let store = Store::create(&dir.join("store"), &keyspace(), config())?;
    let mut run = 0;
    for size in [(64, 1_600_000), (10 << 10, 32_000)] {
        let put = |keys: &[Key], value: &[u8]| {
            keys.iter().try_for_each(|key| put(&store, key, value, &PutOptions::default()))
        };
        // In another order than they were put.
        let get = |keys: &[Key]| {
            let key = |at: usize| &keys[at.wrapping_mul(7_919) % keys.len()];
            (0..keys.len()).try_for_each(|at| found(store.get(key(at))?).map(drop))
        };
        puts_and_gets((&store, &mut run), "", size, put, get)?;
    }
    let (mut selected, count) = (Vec::new(), 200_000);
    for _ in 0..PASSES {
        run += 1;
        open_run(&store, run, 1)?;
        for event in 0..count {
            put(&store, &store.schema().key(&[run, event, 0])?, &[0x5A; 1024], &PutOptions::default())?;
        }
        selected.push(rate(count, || {
            (0..count).try_for_each(|_| {
                let lease = store.get_any(&GetAny::default())?.pop().ok_or("no event is ready")?;
                Ok(lease.accept(&["physics"])?)
            })
        })?);
        for event in 0..count {
            let _ = store.release(&store.schema().primary(&[run, event])?)?;
        }
        end_run(&store, run)?;
    }
    say("get_any+accept", selected);
    Ok(store.close()?)
}

fn reopening(dir: &Path) -> Result<()> {
    let (path, count) = (dir.join("store"), 1_600_000);
    let mut store = Store::create(&path, &keyspace(), config())?;
    open_run(&store, 1, SOURCES)?;
    for at in 0..count {
        put(&store, &key(&store, 1, at)?, &[0x5A; 64], &PutOptions::default())?;
    }
    let mut opened = Vec::new();
    for _ in 0..PASSES {
        store.close()?;
        drop(store);
        let from = Instant::now();
        store = Store::open(&path, config())?;
        opened.push(count as f64 / from.elapsed().as_secs_f64());
    }
    say("reopen", opened);
    Ok(store.close()?)
}

fn network(dir: &Path) -> Result<()> {
    let store = Store::create(&dir.join("store"), &keyspace(), config())?;
    let socket = dir.join("pair.sock");
    let listen = ServerConfig { native: vec![Endpoint::Unix(socket.clone())], threads: 1, ..ServerConfig::default() };
    let server = Server::start(vec![store.clone()], listen)?;
    let client = Client::connect(&format!("unix:{}", socket.display()), Options::default())?;
    let mut run = 0;
    for size in [(64, 400_000), (10 << 10, 24_000)] {
        let put = |keys: &[Key], value: &[u8]| {
            keys.chunks(CALL).try_for_each(|part| {
                let puts: Vec<_> = part.iter().map(|key| (*key, value, PutOptions::default())).collect();
                client.put_many(&puts)?.into_iter().try_for_each(|outcome| Ok(outcome.map(drop)?))
            })
        };
        let get = |keys: &[Key]| {
            keys.chunks(CALL.min((1 << 20) / size.0)).try_for_each(|part| {
                client.get_many(part)?.into_iter().try_for_each(|fragment| found(fragment).map(drop))
            })
        };
        puts_and_gets((&store, &mut run), "unix.", size, put, get)?;
    }
    drop(client);
    server.stop(Duration::from_secs(2));
    Ok(store.close()?)
}

/// A store with this number of warm directories.
fn warm_store(dir: &Path, devices: u64, container_bytes: u64) -> Result<Store> {
    let device = |number| WarmDevice::directory(dir.join(format!("warm-{number}")), 700 << 20);
    let config = Config {
        warm: (0..devices).map(device).collect(),
        container_bytes,
        device_log_bytes: 16 << 20,
        hot_bytes: HOT_BYTES / 4,
        // No event is demoted without a call.
        demote_high: 0.8,
        demote_low: 0.7,
        ..config()
    };
    Ok(Store::create(&dir.join("store"), &keyspace(), config)?)
}

fn persisted(dir: &Path) -> Result<()> {
    let store = warm_store(dir, 1, 64 << 20)?;
    open_run(&store, 1, 1)?;
    let options = PutOptions { persisted: true, ..PutOptions::default() };
    for (threads, count) in [(1, 60), (8, 800)] {
        let (mut rates, mut event) = (Vec::new(), threads << 40);
        for _ in 0..PASSES {
            let from = Instant::now();
            let putting = |first: u64| {
                let store = &store;
                move || {
                    (first..first + count / threads).try_for_each(|event| {
                        put(store, &store.schema().key(&[1, event, 0])?, &[0x5A; 10 << 10], &options)
                    })
                }
            };
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..threads).map(|at| scope.spawn(putting(event + (at << 20)))).collect();
                threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
            })?;
            event += 1 << 32;
            rates.push(count as f64 / from.elapsed().as_secs_f64());
        }
        say(&format!("persisted.{threads}"), rates);
    }
    Ok(store.close()?)
}

/// Verdicts on events that are whole on one device, or half of them on another: a fragment fills a container.
fn verdicts(dir: &Path, devices: u64) -> Result<()> {
    const CONTAINER: u64 = 1 << 20;
    let (store, count) = (warm_store(dir, devices, CONTAINER)?, 40);
    let options = PutOptions { persisted: true, ..PutOptions::default() };
    let mut rates = Vec::new();
    for run in 1..=PASSES {
        open_run(&store, run, 2)?;
        for event in 0..count {
            for source in 0..2 {
                let bytes = vec![0x5A; CONTAINER as usize * 3 / 5];
                put(&store, &store.schema().key(&[run, event, source])?, &bytes, &options)?;
            }
        }
        rates.push(rate(count, || {
            (0..count).try_for_each(|_| {
                let lease = store.get_any(&GetAny::default())?.pop().ok_or("no event is ready")?;
                Ok(lease.reject()?)
            })
        })?);
    }
    say(&format!("verdict.{devices}"), rates);
    Ok(store.close()?)
}
