//! `cargo xtask bench dataset --ceph`: the paper's tables and curves against a real Ceph on this machine.
//!
//! ```text
//! Table 2     bytes of the files' datasets, and in Ceph's units of 4 KiB, for each stripe size
//! Figure 4    stripe sizes: writing and reading
//! Figure 5    threads of one client: reading, and reading with writing
//! Figure 6    clients, each a process: the same
//! ```
//!
//! *Invariants*: processor time is read from `/proc`, for each process by its name; all daemons are children of this process.
//!
//! *Not here*: goals. Servers and clients share the processors of one machine, so curves have a shape and no scale.

use super::latency::{self, BATCH_EVENTS, COLUMNS, place};
use super::{Found, Plan};
use crate::page::Section;
use crate::{Result, child, processor};
use clap::Args;
use forebay_dataset::storage::Options as Place;
use forebay_dataset::{Dataset, EventLoop, ReadOptions, WriteOptions, Writer};
use forebay_testkit::ceph::{ACCESS_KEY, Ceph, INDEX_LESS, SECRET_KEY};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Stripe sizes, in KiB.
const STRIPES_KIB: [u32; 5] = [32, 128, 512, 1024, 4096];
const THREADS: [usize; 4] = [1, 2, 4, 8];
const CLIENTS: [usize; 3] = [1, 2, 4];
/// Requests at once of each client.
const IN_FLIGHT: usize = 16;

/// What a client does, in a process of its own.
#[derive(Args)]
pub(crate) struct ClientOptions {
    /// The gateway.
    #[arg(long)]
    endpoint: String,
    /// The dataset to read.
    #[arg(long)]
    input: String,
    /// The dataset to write; none: it only reads.
    #[arg(long)]
    output: Option<String>,
    /// Threads of the event loop.
    #[arg(long)]
    threads: usize,
}

pub(super) fn measure(plan: &Plan, found: &mut Found) -> Result<()> {
    let ceph = Ceph::start(&[("bucket", INDEX_LESS)])?;
    let options = place(ceph.endpoint(), ACCESS_KEY, SECRET_KEY, IN_FLIGHT);
    stripes(plan, &options, found)?;
    let input = "s3://bucket/input";
    latency::write(input, &options, &latency::batch(), plan.batches, 512 << 10)?;
    let mut run = Run { plan, endpoint: ceph.endpoint(), input, next: 0 };
    let mut threads = run.section("threads", "Figure 5: threads of one client", "threads");
    for n in THREADS {
        run.both(n, 1, n, &mut threads)?;
    }
    let mut clients = run.section("clients", "Figure 6: clients, one thread each", "clients");
    for n in CLIENTS {
        run.both(n, n, 1, &mut clients)?;
    }
    found.sections.extend([threads, clients]);
    Ok(())
}

/// Rates, objects and what they take in Ceph, for each stripe size.
fn stripes(plan: &Plan, options: &Place, found: &mut Found) -> Result<()> {
    let bytes = plan.batches * u64::from(BATCH_EVENTS) * COLUMNS as u64 * 4;
    let mut table = Section::new(
        "stripes",
        "Table 2 and Figure 4: stripe sizes",
        format!(
            "{bytes} bytes of noise in {COLUMNS} columns, written to and read from an index-less bucket of Ceph 16.2 (one OSD in memory), \
             {IN_FLIGHT} requests at once. Columns of a batch have 32 KiB: larger stripes are objects with several columns. *Units*: bytes with \
             each object rounded up to 4 KiB, from the same dataset in a directory. Processor seconds are of reading and writing together.",
        ),
        &[
            "stripe KiB",
            "objects",
            "bytes",
            "in 4 KiB units",
            "write MB/s",
            "read MB/s",
            "CPU here s",
            "CPU gateway s",
            "CPU OSD s",
            "CPU others s",
        ],
    );
    let columns = latency::batch();
    for kib in STRIPES_KIB {
        println!("stripes of {kib} KiB");
        let url = format!("s3://bucket/stripes-{kib}");
        let before = processor::by_process()?;
        let began = Instant::now();
        latency::write(&url, options, &columns, plan.batches, kib << 10)?;
        let wrote = began.elapsed().as_secs_f64();
        let began = Instant::now();
        latency::read(&url, options, 2)?;
        let read = began.elapsed().as_secs_f64();
        let spent = spent(&before)?;
        let folder = child::target_dir().join(format!("bench-stripes-{}", std::process::id()));
        latency::write(&folder.display().to_string(), &Place::default(), &columns, plan.batches, kib << 10)?;
        let objects = super::sizes::objects(&folder)?;
        std::fs::remove_dir_all(&folder)?;
        let rate = |seconds: f64| json!(bytes as f64 / seconds / 1e6);
        let mut row = vec![
            json!(kib),
            json!(objects.len()),
            json!(objects.values().sum::<u64>()),
            json!(objects.values().map(|len| len.next_multiple_of(4096)).sum::<u64>()),
            rate(wrote),
            rate(read),
        ];
        row.extend(spent.map(|seconds| json!(seconds)));
        table.add(row);
    }
    found.sections.push(table);
    Ok(())
}

/// Clients against one Ceph.
struct Run<'a> {
    plan: &'a Plan,
    endpoint: String,
    input: &'a str,
    /// Number of the next output.
    next: usize,
}

impl Run<'_> {
    fn section(&self, id: &'static str, title: &'static str, first: &'static str) -> Section {
        let events = self.plan.batches * u64::from(BATCH_EVENTS);
        let text = format!(
            "Each client reads {events} events of {COLUMNS} columns, and writes all of them where the row says so, with stripes of 512 KiB. \
             Events of all clients a second, start of the process included; processor seconds of all clients, the gateway, the OSD, and the \
             monitor and manager."
        );
        Section::new(
            id,
            title,
            text,
            &[first, "what", "events/s", "CPU clients s", "CPU gateway s", "CPU OSD s", "CPU others s"],
        )
    }

    /// Reading, and reading with writing.
    fn both(&mut self, shown: usize, clients: usize, threads: usize, table: &mut Section) -> Result<()> {
        for writes in [false, true] {
            let what = if writes { "read and write" } else { "read" };
            println!("{clients} clients with {threads} threads: {what}");
            let before = processor::by_process()?;
            let began = Instant::now();
            let mut running = Vec::new();
            for _ in 0..clients {
                running.push(self.client(threads, writes)?);
            }
            // All of them end before a failure of one is reported.
            let ended: Vec<_> = running.iter_mut().map(Child::wait).collect();
            let seconds = began.elapsed().as_secs_f64();
            for status in ended {
                if !status?.success() {
                    return Err(format!("a client failed: {what}, {threads} threads").into());
                }
            }
            let events = clients as f64 * self.plan.batches as f64 * f64::from(BATCH_EVENTS);
            let mut row = vec![json!(shown), json!(what), json!(events / seconds)];
            row.extend(spent(&before)?.map(|seconds| json!(seconds)));
            table.add(row);
        }
        Ok(())
    }

    fn client(&mut self, threads: usize, writes: bool) -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([
            "dataset-client",
            "--endpoint",
            &self.endpoint,
            "--input",
            self.input,
            "--threads",
            &threads.to_string(),
        ]);
        if writes {
            command.args(["--output", &format!("s3://bucket/out-{}", self.next)]);
            self.next += 1;
        }
        Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?)
    }
}

/// One client: reads everything, and writes it where it is told to.
pub(crate) fn client(options: &ClientOptions) -> Result<()> {
    let place = place(options.endpoint.clone(), ACCESS_KEY, SECRET_KEY, IN_FLIGHT);
    let Some(output) = &options.output else { return latency::read(&options.input, &place, options.threads) };
    let dataset =
        Dataset::open(&options.input, ReadOptions { threads: Some(options.threads), storage: place.clone() })?;
    let products = dataset.products("Events")?;
    let names: Vec<&str> = products.iter().map(|product| product.name.as_str()).collect();
    let writing = WriteOptions {
        batch_events: Some(BATCH_EVENTS),
        threads: Some(options.threads),
        storage: place,
        ..WriteOptions::default()
    };
    let looped = EventLoop::new(&dataset, "Events", &names)?.threads(options.threads).in_flight(options.threads + 4);
    let (mut writer, _) = looped.write(Writer::create(output, writing)?, "Events", |batch| {
        Ok(products.iter().cloned().zip(batch.columns.iter().map(forebay_dataset::Column::to_array)).collect())
    })?;
    writer.commit("copy")?;
    Ok(())
}

/// Seconds since then: here with clients, gateway, OSD, others.
fn spent(before: &BTreeMap<String, f64>) -> Result<[f64; 4]> {
    let mut spent = [0.0; 4];
    for (name, after) in processor::by_process()? {
        let at = match name.as_str() {
            processor::OWN => 0,
            "radosgw" => 1,
            "ceph-osd" => 2,
            _ => 3,
        };
        spent[at] += after - before.get(&name).copied().unwrap_or(0.0);
    }
    Ok(spent)
}
