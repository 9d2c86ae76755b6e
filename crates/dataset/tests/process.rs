//! The event loop: the same result on any number of threads; errors, panics and stops end it without a commit.

use forebay_dataset::{
    Array, Batch, Dataset, Error, EventLoop, Kind, Product, ReadOptions, Result, Scalar, Type, WriteOptions, Writer,
};
use forebay_testkit::TempDir;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const BATCHES: usize = 9;
/// Not a whole number of batches.
const EVENTS: u64 = BATCHES as u64 * 256 - 100;

fn options() -> WriteOptions {
    WriteOptions { batch_events: Some(256), target_bytes: 4096, threads: Some(2), ..WriteOptions::default() }
}

/// A dataset with event numbers and jagged energies.
fn input(folder: &TempDir) -> Dataset {
    let url = folder.path().join("in").display().to_string();
    let mut writer = Writer::create(&url, options()).unwrap();
    let counts: Vec<u32> = (0..EVENTS).map(|event| (event % 4) as u32).collect();
    let energies = (0..counts.iter().sum()).map(|hit: u32| hit as f32 * 0.5).collect::<Vec<f32>>();
    let columns = [
        (Product::new("event", Type::Value(Scalar::U64)), Array::values(Scalar::U64, (0..EVENTS).collect())),
        (Product::new("energy", Type::list(Type::Value(Scalar::F32))), Array::jagged(Scalar::F32, counts, energies)),
    ];
    writer.push("Events", &columns).unwrap();
    writer.commit("input").unwrap();
    Dataset::open(&url, ReadOptions::default()).unwrap()
}

fn output(folder: &TempDir) -> (String, Writer) {
    let url = folder.path().join("out").display().to_string();
    let writer = Writer::create(&url, options()).unwrap();
    (url, writer)
}

/// Number and sum of energies of each event.
fn sums(batch: &Batch) -> Result<Vec<(Product, Array)>> {
    let offsets = batch.columns[1].parts[0].integers();
    let energies: &[f32] = batch.columns[1].values();
    let sums: Vec<f64> = offsets
        .windows(2)
        .map(|of| energies[of[0] as usize..of[1] as usize].iter().map(|&e| f64::from(e)).sum())
        .collect();
    Ok(vec![
        (Product::new("event", Type::Value(Scalar::U64)), batch.columns[0].to_array()),
        (Product::new("sum", Type::Value(Scalar::F64)), Array::values(Scalar::F64, sums)),
    ])
}

fn events_loop(dataset: &Dataset, threads: usize) -> EventLoop<'_> {
    EventLoop::new(dataset, "Events", &["event", "energy"]).unwrap().threads(threads)
}

#[test]
fn any_number_of_threads_writes_the_same_events_in_their_order() {
    let mut all = Vec::new();
    for threads in [1, 2, 5] {
        let folder = TempDir::new();
        let dataset = input(&folder);
        let (url, writer) = output(&folder);
        let late = AtomicUsize::new(0);
        let (mut writer, ended) = events_loop(&dataset, threads)
            .write(writer, "Events", |batch| {
                // Early batches end late.
                std::thread::sleep(std::time::Duration::from_millis(if batch.number % 3 == 0 { 10 } else { 0 }));
                late.fetch_add(1, Ordering::Relaxed);
                sums(batch)
            })
            .unwrap();
        assert_eq!((ended.events, ended.batches, ended.stopped), (EVENTS, BATCHES, false));
        assert_eq!(late.into_inner(), BATCHES);
        writer.commit("sums").unwrap();
        let written = Dataset::open(&url, ReadOptions::default()).unwrap();
        let columns = written.read("Events", &["event", "sum"], 0..EVENTS).unwrap();
        assert_eq!(columns[0].values::<u64>(), (0..EVENTS).collect::<Vec<_>>());
        all.push(columns[1].to_array());
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
    let sum: f64 = all[0].streams[0].values::<f64>().iter().sum();
    let hits: u64 = (0..EVENTS).map(|event| event % 4).sum();
    assert_eq!(sum, (0..hits).map(|hit| hit as f64 * 0.5).sum::<f64>());
}

#[test]
fn batches_in_flight_are_bounded() {
    let folder = TempDir::new();
    let dataset = input(&folder);
    let (_url, writer) = output(&folder);
    let seen = Mutex::new(Vec::new());
    // The first batch is held until the others cannot go on: none of them may be more than three ahead of it.
    let looped = events_loop(&dataset, 2).in_flight(3);
    let (_, ended) = looped
        .write(writer, "Events", |batch| {
            if batch.number == 0 {
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            seen.lock().unwrap().push(batch.number);
            sums(batch)
        })
        .unwrap();
    assert_eq!(ended.batches, BATCHES);
    let seen = seen.into_inner().unwrap();
    let first = seen.iter().position(|&number| number == 0).unwrap();
    assert!(seen[..first].iter().all(|&number| number < 3), "{seen:?}");
}

#[test]
fn only_the_columns_asked_for_are_read() {
    let folder = TempDir::new();
    let dataset = input(&folder);
    let bytes = |columns: &[&str]| {
        let before = dataset.traffic().bytes_read;
        EventLoop::new(&dataset, "Events", columns).unwrap().threads(2).run(|_| Ok(())).unwrap();
        dataset.traffic().bytes_read - before
    };
    // Directories come once.
    bytes(&["event"]);
    let (one, both) = (bytes(&["event"]), bytes(&["event", "energy"]));
    assert!(one < both, "{one} and {both} bytes");
    assert_eq!(EventLoop::new(&dataset, "Events", &["evnet"]).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn the_first_error_ends_the_loop_without_a_commit() {
    for threads in [1, 2, 5] {
        let folder = TempDir::new();
        let dataset = input(&folder);
        let (url, writer) = output(&folder);
        let error = events_loop(&dataset, threads)
            .write(writer, "Events", |batch| match batch.number {
                4 => Err(Error::unavailable("no calibration")),
                _ => sums(batch),
            })
            .unwrap_err();
        assert_eq!((error.kind(), error.message()), (Kind::Unavailable, "no calibration"));
        assert!(Dataset::open(&url, ReadOptions::default()).is_err(), "nothing was committed");
    }
}

#[test]
fn an_error_of_the_writer_or_of_a_read_ends_the_loop() {
    let folder = TempDir::new();
    let dataset = input(&folder);
    let (_url, writer) = output(&folder);
    let short = |batch: &Batch| {
        let mut columns = sums(batch)?;
        columns[1].1 = columns[1].1.slice(0..1);
        Ok(columns)
    };
    let error = events_loop(&dataset, 2).write(writer, "Events", short).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    std::fs::remove_dir_all(folder.path().join("in")).unwrap();
    assert!(events_loop(&dataset, 2).run(|_| Ok(())).is_err());
}

#[test]
fn a_stopped_loop_gives_the_first_batches() {
    for threads in [1, 2, 5] {
        let folder = TempDir::new();
        let dataset = input(&folder);
        let (url, writer) = output(&folder);
        let looped = events_loop(&dataset, threads).in_flight(threads);
        let stop = looped.stop();
        let (mut writer, ended) = looped
            .write(writer, "Events", |batch| {
                if batch.number == 3 {
                    stop.stop();
                }
                sums(batch)
            })
            .unwrap();
        assert!(ended.stopped && ended.batches < BATCHES, "{ended:?}");
        assert_eq!(ended.events, ended.batches as u64 * 256);
        if ended.events > 0 {
            writer.commit("first batches").unwrap();
            let written = Dataset::open(&url, ReadOptions::default()).unwrap();
            let columns = written.read("Events", &["event"], 0..ended.events).unwrap();
            assert_eq!(columns[0].values::<u64>(), (0..ended.events).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_panic_ends_the_other_threads() {
    let folder = TempDir::new();
    let dataset = input(&folder);
    let looped = events_loop(&dataset, 2);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        looped.run(|batch| match batch.number {
            2 => panic!("user's mistake"),
            _ => Ok(()),
        })
    }));
    assert!(ended.is_err());
}
