//! A multi-threaded event loop: `cargo run -p forebay-dataset --example 16_event_loop`.
//!
//! Batches of a dataset are read ahead, events are selected on all cores, and the selected ones are written to another dataset, in their
//! order.
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_dataset::{
    Array, Batch, Dataset, EventLoop, Product, ReadOptions, Result, Scalar, Type, WriteOptions, Writer,
};

const EVENTS: u64 = 20_000;

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("forebay-example-16-{}", std::process::id()));
    let (input, output) = (dir.join("events").display().to_string(), dir.join("selected").display().to_string());
    simulate(&input)?;

    // Only these columns are fetched. At most four batches are in memory, two of them being processed.
    let dataset = Dataset::open(&input, ReadOptions::default())?;
    let events = EventLoop::new(&dataset, "Events", &["event", "Muon_pt"])?.threads(2).in_flight(4);

    // `run` is for results that are not events: histograms, sums. Batches come in any order.
    let muons = std::sync::atomic::AtomicUsize::new(0);
    events.run(|batch| {
        muons.fetch_add(batch.columns[1].values::<f32>().len(), std::sync::atomic::Ordering::Relaxed);
        Ok(())
    })?;
    println!("{} muons in {EVENTS} events", muons.into_inner());

    // `write` gives the writer back where everything went well: only then there is something to commit.
    let options = WriteOptions { batch_events: Some(1024), ..WriteOptions::default() };
    let (mut writer, ended) = events.write(Writer::create(&output, options)?, "Events", select)?;
    writer.commit("events with a muon above 40 GeV")?;

    let selected = Dataset::open(&output, ReadOptions::default())?;
    println!(
        "{} of {} events in {} batches have a muon above 40 GeV",
        selected.events("Events")?,
        ended.events,
        ended.batches
    );
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}

/// Number and leading muon of the events that have one above 40 GeV.
fn select(batch: &Batch) -> Result<Vec<(Product, Array)>> {
    let numbers: &[u64] = batch.columns[0].values();
    let (offsets, pt): (_, &[f32]) = (batch.columns[1].parts[0].integers(), batch.columns[1].values());
    let (mut events, mut leading) = (Vec::new(), Vec::new());
    for (number, of) in numbers.iter().zip(offsets.windows(2)) {
        let most = pt[of[0] as usize..of[1] as usize].iter().copied().fold(0.0, f32::max);
        if most > 40.0 {
            events.push(*number);
            leading.push(most);
        }
    }
    Ok(vec![
        (Product::new("event", Type::Value(Scalar::U64)), Array::values(Scalar::U64, events)),
        (Product::new("leading_pt", Type::Value(Scalar::F32)), Array::values(Scalar::F32, leading)),
    ])
}

/// Writes events with 0 to 3 muons each.
fn simulate(url: &str) -> Result<()> {
    let counts: Vec<u32> = (0..EVENTS).map(|event| (event * 7 % 4) as u32).collect();
    let pt = (0..counts.iter().sum()).map(|muon: u32| 25.0 + 20.0 * (muon as f32 * 0.61).sin()).collect::<Vec<f32>>();
    let options = WriteOptions { batch_events: Some(2048), ..WriteOptions::default() };
    let mut writer = Writer::create(url, options)?;
    let columns = [
        (Product::new("event", Type::Value(Scalar::U64)), Array::values(Scalar::U64, (0..EVENTS).collect())),
        (Product::new("Muon_pt", Type::list(Type::Value(Scalar::F32))), Array::jagged(Scalar::F32, counts, pt)),
    ];
    writer.push("Events", &columns)?;
    writer.commit("simulated").map(drop)
}
