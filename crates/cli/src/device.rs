//! `forebay device`: the devices of the warm level, one by one: which there are, taking one out of use, adding one.

use crate::levels::{WarmDir, parse_dir};
use crate::open::{Close, Opened, Place};
use crate::output::{Answer, Output};
use crate::{signal, units};
use forebay_core::{ContainerStatus, DeviceStatus, Error, EventStore, OperatedStore, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const LS_HELP: &str = "\
Show each device of the warm level: its number, how many of its containers are free, what lives on it, and its state:

  in use        it takes data
  leaving 40 %  it is being drained; 40 % of its containers are empty
  drained       it leaves, and nothing is on it any more
  exchanged     another directory replaces it at the next opening of the store
  missing       it is not there, and that loss was accepted
  added         it becomes a device at the next opening of the store

Without a warm level the exit code is 1.

Example: at a glance, and the numbers of those that are drained:
  forebay device ls /tmp/two
  forebay device ls /tmp/two --json | jq '.[] | select(.state == \"drained\") | .device'";

const DRAIN_HELP: &str = "\
Take a device out of use while data is taken: from now on nothing is written to it, and what lives on it moves to the other \
devices beside all other work. What the archive has in custody there is released early. Fragments that were persisted there stay \
until their event is complete, because only whole events move.

The device stays out of use after a restart as well, until --undo. A drain is refused where the other devices have no room for \
what lives on it. Data moves while the store is open: in a server, or here for as long as --wait waits; Ctrl-C ends the wait, not \
the drain.

Example: drain device 1 of a served store, and let it take data again:
  forebay device drain --connect tcp://daq01:7440 1 --wait
  forebay device drain --connect tcp://daq01:7440 1 --undo";

const EXCHANGE_HELP: &str = "\
Replace a drained device by another directory, while data is taken. The directory, on the new disk, gets empty \
containers and the decision log; the full size is allocated at once. It takes data from the next opening of the store on: restart the \
server when it suits; until then the store goes on without the device. The old disk can be taken out once the store was closed.

The new device has the number, the containers and their size of the old one: a larger disk gives no more. For a served store the path \
is one of the server's machine. A file device.fb is removed from the old directory, so that it is not taken for the device again.

Example: drain and exchange a disk of a served store without losing anything:
  forebay device drain --connect tcp://daq01:7440 1 --wait
  forebay device exchange --connect tcp://daq01:7440 1 /disk7/warm
  systemctl restart forebay";

const ADD_HELP: &str = "\
Add a directory as one more device, while data is taken: more space, and more bandwidth. The directory, on a disk of its own, gets \
containers of the size that the store has, and the decision log; its full size is allocated at once. It takes data from the next opening \
of the store on: restart the server when it suits. No data moves: the new device is preferred while it has more free containers.

Without a size it gets as many containers as device 0. For a served store the path is one of the server's machine. The directory may \
exist, but may hold no containers. One that is a device already is refused, and nothing is changed. After the next opening the device \
cannot be removed again, only drained and exchanged.

Example: 2 TiB more for a served store, and the same as device 0 for one that nobody serves:
  forebay device add --connect tcp://daq01:7440 /disk8/warm:2TiB
  systemctl restart forebay
  forebay device add /tmp/two /var/tmp/two-more";

/// How often `--wait` looks, and how often it says how far it is.
const LOOK: Duration = Duration::from_millis(100);
const PROGRESS: Duration = Duration::from_secs(5);

/// The devices of the warm level: list them, drain, exchange or add one.
#[derive(clap::Args)]
pub(crate) struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Ls(Ls),
    Drain(Drain),
    Exchange(Exchange),
    Add(Add),
}

/// Show the devices of the warm level.
#[derive(clap::Args)]
#[command(long_about = LS_HELP)]
struct Ls {
    #[command(flatten)]
    store: Place,
}

/// Take a device out of use: what lives on it moves to the others.
#[derive(clap::Args)]
#[command(long_about = DRAIN_HELP)]
struct Drain {
    #[command(flatten)]
    store: Place,
    /// The device, by its number (`forebay device ls`).
    device: u32,
    /// It takes data again.
    #[arg(long)]
    undo: bool,
    /// Waits until nothing is on it any more.
    #[arg(long, conflicts_with = "undo")]
    wait: bool,
}

/// Replace a drained device by another directory.
#[derive(clap::Args)]
#[command(long_about = EXCHANGE_HELP)]
struct Exchange {
    #[command(flatten)]
    store: Place,
    /// The device, by its number (`forebay device ls`).
    device: u32,
    /// The new directory, on the machine of the store.
    #[arg(value_name = "NEW")]
    to: PathBuf,
}

/// Add a directory as one more device.
#[derive(clap::Args)]
#[command(long_about = ADD_HELP)]
struct Add {
    #[command(flatten)]
    store: Place,
    /// The new directory, on the machine of the store, perhaps with a size: `/disk8/warm:2TiB`.
    #[arg(value_name = "NEW[:SIZE]", value_parser = parse_dir)]
    to: WarmDir,
}

impl Command {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        match &self.what {
            What::Ls(ls) => ls.run(out),
            What::Drain(drain) => drain.run(out),
            What::Exchange(exchange) => exchange.run(out),
            What::Add(add) => add.run(out),
        }
    }
}

impl Ls {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let (devices, added) = (devices(&store)?, added(&store)?);
        store.close()?;
        let known = devices.iter().map(Seen::as_json);
        out.json(&known.chain(added.iter().map(|name| added_json(name))).collect::<Vec<_>>())?;
        for device in &devices {
            out.line(device.line())?;
        }
        for name in &added {
            out.line(added_line(name))?;
        }
        if devices.is_empty() {
            out.note("forebay: this store has no warm level (`forebay create DIR --warm DIR` makes one with it)");
        }
        Ok(Answer::found(!devices.is_empty()))
    }
}

impl Drain {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let answer = self.change(&store, out)?;
        store.close()?;
        Ok(answer)
    }

    fn change(&self, store: &Opened, out: &mut Output) -> Result<Answer> {
        if self.undo {
            store.undo_drain(self.device)?;
        } else {
            store.drain_device(self.device)?;
        }
        let stop = signal::stop_flag()?;
        let mut told = Instant::now();
        loop {
            let device = devices(store)?.into_iter().find(|device| device.number == self.device);
            let device = device.ok_or_else(|| Error::internal("a device that was just there"))?;
            let interrupted = stop.load(Ordering::Relaxed);
            if !self.wait || device.status.drained || interrupted {
                out.line(device.line())?;
                out.json(&device.as_json())?;
                let over = !self.wait || device.status.drained;
                return Ok(if over { Answer::Yes } else { Answer::Interrupted });
            }
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                out.note(format!("forebay: {}", device.line()));
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Exchange {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let to = from_here(&self.to)?;
        store.exchange_device(self.device, &to)?;
        let device = devices(&store)?.into_iter().find(|device| device.number == self.device);
        store.close()?;
        let device = device.ok_or_else(|| Error::internal("a device that was just there"))?;
        out.line(device.line())?;
        out.json(&device.as_json())?;
        Ok(Answer::Yes)
    }
}

impl Add {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let to = from_here(&self.to.path)?;
        store.add_device(&to, self.to.bytes)?;
        store.close()?;
        let name = to.display().to_string();
        out.line(added_line(&name))?;
        out.json(&added_json(&name))?;
        Ok(Answer::Yes)
    }
}

/// The path as it is from here: a server has a working directory of its own.
fn from_here(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::invalid(format!("{}: no path", path.display())).with_source(error))
}

/// Directories that become devices at the next opening.
fn added(store: &Opened) -> Result<Vec<String>> {
    Ok(store.stats()?.warm.map(|warm| warm.added).unwrap_or_default())
}

fn added_line(name: &str) -> String {
    format!("added {name}: it takes data from the next opening of the store on")
}

fn added_json(name: &str) -> Value {
    json!({ "device": null, "name": name, "state": "added" })
}

/// A device with what its containers say.
struct Seen {
    number: u32,
    status: DeviceStatus,
    containers: usize,
    live_bytes: u64,
}

fn devices(store: &Opened) -> Result<Vec<Seen>> {
    let Some(warm) = store.stats()?.warm else { return Ok(Vec::new()) };
    let containers = store.containers()?;
    let seen = |(number, status): (u32, DeviceStatus)| {
        // Containers of a missing device are on none.
        let own = || containers.iter().filter(|one| one.device == number && one.state != "lost");
        Seen { number, status, containers: own().count(), live_bytes: own().map(live_bytes).sum() }
    };
    Ok((0..).zip(warm.devices).map(seen).collect())
}

/// Bytes of a container that would have to move, estimated from the fragments that live.
fn live_bytes(container: &ContainerStatus) -> u64 {
    let share = f64::from(container.live_fragments) / container.fragments.max(1) as f64;
    (container.used_bytes as f64 * share.min(1.0)) as u64
}

impl Seen {
    fn state(&self) -> &'static str {
        match &self.status {
            status if status.method == "missing" => "missing",
            status if status.exchanged.is_some() => "exchanged",
            status if status.drained => "drained",
            status if status.leaving => "leaving",
            _ => "in use",
        }
    }

    /// Share of its containers that are empty, in percent.
    fn empty_percent(&self) -> u64 {
        u64::from(self.status.free) * 100 / (self.containers as u64).max(1)
    }

    fn line(&self) -> String {
        let state = self.state();
        let percent = if state == "leaving" { format!(" {} %", self.empty_percent()) } else { String::new() };
        let (status, live) = (&self.status, units::bytes(self.live_bytes));
        let mut line = format!(
            "device {} {} · {} · {} of {} free · {live} live · {state}{percent}",
            self.number, status.name, status.method, status.free, self.containers
        );
        if let Some(to) = &status.exchanged {
            line.push_str(&format!(": {to} has its place from the next opening on"));
        }
        if status.stalled {
            line.push_str(" · STALLED: it does not answer");
        }
        if status.poisoned > 0 {
            line.push_str(&format!(" · {} POISONED", status.poisoned));
        }
        line
    }

    fn as_json(&self) -> Value {
        json!({
            "device": self.number,
            "name": self.status.name,
            "method": self.status.method,
            "containers": self.containers,
            "free": self.status.free,
            "live_bytes": self.live_bytes,
            "state": self.state(),
            "empty_percent": self.empty_percent(),
            "exchanged": self.status.exchanged,
            "stalled": self.status.stalled,
            "poisoned": self.status.poisoned,
        })
    }
}
