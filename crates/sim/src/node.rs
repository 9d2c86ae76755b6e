//! A node: the store on media that forget, its sessions, its ticks, its part in a cluster; killed at any step and opened again.
//!
//! ```text
//! open ─▶ live ─▶ armed: before some step of the medium the image is taken, and the node is dead ─▶ down ─▶ open from the image
//! ```
//!
//! *Invariant*: once it is dead nothing that it does is seen: its bytes go nowhere, its medium is another one.

use crate::books::{Checked, LEASE};
use crate::budget::{What, metered, timed};
use crate::clock::NodeClock;
use crate::net::{End, Net, OUTSIDE, Place};
use forebay_client::{AsyncClient, Connector, Options, Reader, Writer};
use forebay_cluster::Node;
use forebay_core::map::ClusterMap;
use forebay_core::{Clock, Error, Keyspace, Result, SeededRandom};
use forebay_server::{Limits, Served, Sessions};
use forebay_store::{Config, Store, WarmDevice};
use forebay_testkit::media::{FaultyDevice, SimDevice, SimMedium};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet, spawn_local};
use tokio::time::{Instant, sleep, sleep_until};

/// Bytes of the medium: small, so that images are cheap and it can be full.
const MEDIUM_BYTES: u64 = 1 << 20;
const SEGMENT_BYTES: u64 = 32 << 10;
/// Between two looks whether a store has something to do.
const TICK: Duration = Duration::from_millis(100);

/// Bytes of each warm device that a store may use, of which containers are a part.
const WARM_BYTES: u64 = 1 << 20;
const CONTAINER_BYTES: u64 = 64 << 10;
/// Bytes of requests that a node takes from a client at once, and bytes of answers that a client takes: few, so that they are used up.
pub(crate) const WINDOW_BYTES: u32 = 64 << 10;
/// Bytes of copies in conflict that a store keeps: `conflict_share` of its medium.
const CONFLICT_BYTES: u64 = MEDIUM_BYTES / 64;
/// How long events stay in custody that the archive has.
const CUSTODY: Duration = Duration::from_secs(10);

/// What a store is on: memory, and the devices of its warm level, if it has one.
#[derive(Clone)]
pub(crate) struct Media {
    medium: Arc<SimMedium>,
    devices: Vec<Arc<SimDevice>>,
    /// The same as the store has them, in one life.
    faulty: Vec<Arc<FaultyDevice>>,
}

impl Media {
    pub(crate) fn new(devices: usize) -> Media {
        let device = |number| SimDevice::new(&format!("warm {number}"), 2 * WARM_BYTES);
        Media::over(SimMedium::new(MEDIUM_BYTES), (0..devices).map(device).collect())
    }

    fn over(medium: Arc<SimMedium>, devices: Vec<Arc<SimDevice>>) -> Media {
        let faulty = devices.iter().map(|device| FaultyDevice::new(device.clone())).collect();
        Media { medium, devices, faulty }
    }

    /// What a death leaves now.
    fn left(&self, death: Death) -> Left {
        // A device keeps all of its writes by the seed 1.
        let (image, seed) = match death {
            Death::Kill => (self.medium.killed_now(), 1),
            Death::PowerLoss(seed) => (self.medium.crash_now(seed), seed),
        };
        (image, self.devices.iter().map(|device| device.power_off(seed)).collect())
    }
}

/// What a death left: the image of a medium, and devices.
type Left = (Vec<u8>, Vec<Arc<SimDevice>>);

/// A store, and what it is on.
pub(crate) type Opened = (Media, Store);

/// Makes a store.
pub(crate) fn create(keyspace: &Keyspace, clock: &Arc<NodeClock>, seed: u64, media: Media) -> Result<Opened> {
    let store = Store::create_on(media.medium.clone(), keyspace, config(clock, seed, &media))?;
    Ok((media, store))
}

/// Opens what a life left, under the map that it went by.
pub(crate) fn open(
    keyspace: &Keyspace,
    clock: &Arc<NodeClock>,
    seed: u64,
    media: Media,
    map: Option<Arc<ClusterMap>>,
) -> Result<Opened> {
    let config = Config { map, ..config(clock, seed, &media) };
    let store = Store::open_on(media.medium.clone(), keyspace, config)?;
    Ok((media, store))
}

fn config(clock: &Arc<NodeClock>, seed: u64, media: &Media) -> Config {
    Config {
        hot_bytes: MEDIUM_BYTES,
        segment_bytes: Some(SEGMENT_BYTES),
        write_heads: 2,
        maintenance: false,
        put_deadline: Duration::ZERO,
        lease: LEASE,
        max_hold: Duration::from_secs(20),
        conflict_share: CONFLICT_BYTES as f64 / MEDIUM_BYTES as f64,
        warm: media.faulty.iter().map(|device| WarmDevice::device(device.clone(), WARM_BYTES)).collect(),
        container_bytes: CONTAINER_BYTES,
        device_log_bytes: CONTAINER_BYTES,
        custody_min: CUSTODY,
        clock: clock.clone(),
        random: Arc::new(SeededRandom::new(seed)),
        ..Config::default()
    }
}

/// One life of a node.
pub(crate) struct Life {
    pub(crate) store: Store,
    pub(crate) node: Option<Arc<Node>>,
    is_dead: Arc<AtomicBool>,
    /// Connections that are served; those that are over, with how.
    connections: Rc<RefCell<JoinSet<&'static str>>>,
    media: Media,
    /// What its death left.
    left: Arc<Mutex<Option<Left>>>,
    tasks: [JoinHandle<()>; 2],
}

impl Life {
    /// Begins a life, as a node of a cluster if there is a map.
    pub(crate) fn begin(
        ways: &Ways,
        place: Place,
        (media, store): Opened,
        map: Option<&Arc<ClusterMap>>,
        clock: &Arc<NodeClock>,
    ) -> Result<Rc<Life>> {
        let is_dead = Arc::<AtomicBool>::default();
        let door = ways.doors[place - 1].clone();
        let (sender, mut arriving) = unbounded_channel::<End>();
        let limits = Limits { window_bytes: WINDOW_BYTES, ..Limits::default() };
        let mut sessions = Sessions::new(Served::from(store.clone()), limits);
        let mut node = None;
        if let Some(map) = map {
            let (ways, dead) = (ways.clone(), is_dead.clone());
            let to_others = move |node: &forebay_core::map::Node, expected, deadline| {
                let from = Some((place, dead.clone()));
                let options =
                    Options { name: format!("node {place}"), node: Some(expected), deadline, ..Options::default() };
                Ok(ways.client(from, usize::from(node.id), options))
            };
            let within = node.insert(Node::within(store.clone(), map, to_others)?);
            sessions = sessions.on(within.clone());
        }
        *door.listening.lock() = Some((sender, is_dead.clone()));
        let sessions = Rc::new(sessions);
        let connections = Rc::<RefCell<JoinSet<&'static str>>>::default();
        let served = connections.clone();
        let accepting = spawn_local(async move {
            while let Some(end) = arriving.recv().await {
                let sessions = sessions.clone();
                let serving = async move { sessions.serve(end).await };
                served.borrow_mut().spawn_local(metered(What::Sessions, serving));
            }
        });
        let (ticked, dead, time) = (store.clone(), is_dead.clone(), clock.clone());
        let ticking = spawn_local(async move {
            while !dead.load(Ordering::SeqCst) {
                match door.paused_until() {
                    Some(until) => sleep_until(until).await,
                    // Not before: what the store says of its next round is tried here.
                    None if ticked.next_due_ns().is_some_and(|due| due <= time.now_ns()) => {
                        timed(What::Ticks, || ticked.tick());
                    }
                    None => {}
                }
                sleep(TICK).await;
            }
        });
        let left = Arc::default();
        Ok(Rc::new(Life { store, node, is_dead, connections, media, left, tasks: [accepting, ticking] }))
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::SeqCst)
    }

    /// No session has panicked, and the store keeps no more copies in conflict than it may.
    pub(crate) fn check(&self) -> Checked {
        let kept: u64 = self.store.conflicts().iter().map(|conflict| u64::from(conflict.bytes)).sum();
        if kept > CONFLICT_BYTES {
            return Err(format!("{kept} bytes of copies in conflict are kept, of at most {CONFLICT_BYTES}"));
        }
        let mut connections = self.connections.borrow_mut();
        while let Some(over) = connections.try_join_next() {
            over.map_err(|error| format!("a session ended: {error}"))?;
        }
        Ok(())
    }

    /// All writes and syncs of its devices fail from now on, or none.
    pub(crate) fn fail_devices(&self, fail: bool) {
        self.media.faulty.iter().for_each(|device| if fail { device.refuse_writes("") } else { device.heal() });
    }

    /// Ends before this step of its medium, or of a device, from now on, or soon; answers what the next life is on.
    pub(crate) async fn end(&self, ways: &Ways, place: Place, death: Death, step: u64) -> Media {
        let (media, left, is_dead) = (self.media.clone(), self.left.clone(), self.is_dead.clone());
        let dies = Arc::new(move || die(&media, death, &left, &is_dead));
        let now = dies.clone();
        self.media.medium.before_step(self.media.medium.steps() + step, move || now());
        for device in &self.media.devices {
            let now = dies.clone();
            device.before_step(device.steps() + step, move |_| now());
        }
        for _ in 0..200 {
            if self.is_dead() {
                break;
            }
            sleep(Duration::from_millis(5)).await;
        }
        dies();
        // Hooks that no step has met hold their media for ever.
        self.media.medium.before_step(u64::MAX, || {});
        self.media.devices.iter().for_each(|device| device.before_step(u64::MAX, |_| {}));
        *ways.doors[place - 1].listening.lock() = None;
        self.tasks.iter().for_each(JoinHandle::abort);
        self.connections.borrow_mut().abort_all();
        ways.net.reset(place, None);
        let (image, devices) = self.left.lock().take().unwrap_or_default();
        let medium = match death {
            Death::Kill => self.media.medium.after_kill(image),
            Death::PowerLoss(_) => self.media.medium.after_power_loss(image),
        };
        Media::over(medium, devices)
    }
}

/// How a life ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Death {
    /// The process alone.
    Kill,
    /// The machine: what was not flushed is lost as this seed says.
    PowerLoss(u64),
}

/// Takes what is left now, if nobody has.
fn die(media: &Media, death: Death, left: &Mutex<Option<Left>>, is_dead: &AtomicBool) {
    let mut left = left.lock();
    if left.is_none() {
        *left = Some(media.left(death));
        is_dead.store(true, Ordering::SeqCst);
    }
}

/// Where a node is found.
#[derive(Default)]
pub(crate) struct Door {
    listening: Mutex<Option<(UnboundedSender<End>, Arc<AtomicBool>)>>,
    paused_until: Mutex<Option<Instant>>,
}

impl Door {
    /// The node does nothing before then.
    pub(crate) fn pause(&self, until: Instant) {
        let mut paused = self.paused_until.lock();
        *paused = (*paused).max(Some(until));
    }

    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.paused_until.lock().filter(|until| *until > Instant::now())
    }
}

/// How nodes are reached.
#[derive(Clone)]
pub(crate) struct Ways {
    pub(crate) net: Arc<Net>,
    pub(crate) doors: Arc<[Arc<Door>]>,
    pub(crate) keyspace: Keyspace,
    pub(crate) seed: u64,
}

/// A process that opens connections: where it is, and whether it is dead.
pub(crate) type Process = (Place, Arc<AtomicBool>);

impl Ways {
    /// A client of a node, for calls of at most this length.
    pub(crate) fn client(&self, from: Option<Process>, to: Place, options: Options) -> AsyncClient {
        let way = Way { ways: self.clone(), from, to, random: self.random(&options.name, to) };
        AsyncClient::over(Arc::new(way), self.keyspace.clone(), options)
    }

    /// What a client of this name draws.
    pub(crate) fn random(&self, name: &str, to: Place) -> Mutex<SmallRng> {
        let number: u64 = name.bytes().map(u64::from).fold(to as u64, |hash, byte| hash.wrapping_mul(31) ^ byte);
        Mutex::new(SmallRng::seed_from_u64(self.seed ^ number))
    }

    /// The client's end of a new connection.
    pub(crate) async fn connect(&self, from: Option<&Process>, to: Place) -> Result<End> {
        sleep(self.net.latency()).await;
        if let Some(until) = self.net.cut_until(to) {
            sleep_until(until).await;
        }
        let refused = || Error::unavailable(format!("node {to} does not answer: refused"));
        let (place, own) = match from {
            None => (OUTSIDE, None),
            Some((_, is_dead)) if is_dead.load(Ordering::SeqCst) => return Err(refused()),
            Some((place, is_dead)) => (*place, Some(is_dead.clone())),
        };
        let listening = self.doors[to - 1].listening.lock().clone();
        let (sender, is_dead) = listening.ok_or_else(refused)?;
        let (client, server) = self.net.stream([place, to], [own, Some(is_dead)]);
        sender.send(server).map_err(|_| refused())?;
        Ok(client)
    }
}

/// The way of one async client to a node.
struct Way {
    ways: Ways,
    from: Option<Process>,
    to: Place,
    random: Mutex<SmallRng>,
}

impl Connector for Way {
    fn name(&self) -> String {
        format!("sim://{}", self.to)
    }

    fn connect(&self) -> Pin<Box<dyn Future<Output = Result<(Reader, Writer)>> + Send + '_>> {
        Box::pin(async {
            let end = self.ways.connect(self.from.as_ref(), self.to).await?;
            let (reader, writer) = tokio::io::split(end);
            Ok((Box::pin(reader) as Reader, Box::pin(writer) as Writer))
        })
    }

    fn draw(&self) -> f64 {
        self.random.lock().random()
    }
}
