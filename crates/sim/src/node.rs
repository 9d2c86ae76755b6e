//! The server's node: the store on a medium that forgets, its sessions, its ticks; killed at any step and opened again.
//!
//! ```text
//! start ─▶ up ─▶ armed: before some step of the medium the image is taken, and the node is dead ─▶ down ─▶ start from the image
//! ```
//!
//! *Invariant*: once it is dead nothing that it does is seen: its bytes go nowhere, its medium is another one.

use crate::books::{Checked, LEASE};
use crate::clock::NodeClock;
use crate::net::{End, Net};
use forebay_client::{Connector, Reader, Writer};
use forebay_core::{Clock, Error, Keyspace, Result, SeededRandom};
use forebay_server::{Limits, Served, Sessions};
use forebay_store::{Config, Store};
use forebay_testkit::media::SimMedium;
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
const MEDIUM_BYTES: u64 = 2 << 20;
const SEGMENT_BYTES: u64 = 32 << 10;
/// Between two looks whether a store has something to do.
const TICK: Duration = Duration::from_millis(100);

/// One life of the node.
pub(crate) struct Life {
    pub(crate) store: Store,
    pub(crate) is_dead: Arc<AtomicBool>,
    /// Connections that are served; those that are over, with how.
    connections: Rc<RefCell<JoinSet<&'static str>>>,
    medium: Arc<SimMedium>,
    /// What its death left.
    image: Arc<Mutex<Option<Vec<u8>>>>,
    tasks: [JoinHandle<()>; 2],
}

impl Life {
    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::SeqCst)
    }

    /// No session has panicked.
    pub(crate) fn check(&self) -> Checked {
        let mut connections = self.connections.borrow_mut();
        while let Some(over) = connections.try_join_next() {
            over.map_err(|error| format!("a session ended: {error}"))?;
        }
        Ok(())
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

/// Where clients find the node.
pub(crate) struct Door {
    listening: Mutex<Option<(UnboundedSender<End>, Arc<AtomicBool>)>>,
    /// The node does nothing before then.
    pub(crate) paused_until: Mutex<Option<Instant>>,
}

impl Door {
    pub(crate) fn new() -> Arc<Door> {
        Arc::new(Door { listening: Mutex::default(), paused_until: Mutex::default() })
    }
}

/// Starts a life: from nothing, or from what the last one left.
pub(crate) fn start(
    door: &Arc<Door>,
    keyspace: &Keyspace,
    clock: &Arc<NodeClock>,
    seed: u64,
    left: Option<Arc<SimMedium>>,
) -> Result<Rc<Life>> {
    let config = Config {
        hot_bytes: MEDIUM_BYTES,
        segment_bytes: Some(SEGMENT_BYTES),
        write_heads: 2,
        maintenance: false,
        put_deadline: Duration::ZERO,
        lease: LEASE,
        max_hold: Duration::from_secs(20),
        clock: clock.clone(),
        random: Arc::new(SeededRandom::new(seed)),
        ..Config::default()
    };
    let (medium, store) = match left {
        None => {
            let medium = SimMedium::new(MEDIUM_BYTES);
            let store = Store::create_on(medium.clone(), keyspace, config)?;
            (medium, store)
        }
        Some(medium) => {
            let store = Store::open_on(medium.clone(), keyspace, config)?;
            (medium, store)
        }
    };
    let is_dead = Arc::<AtomicBool>::default();
    let (sender, mut arriving) = unbounded_channel::<End>();
    *door.listening.lock() = Some((sender, is_dead.clone()));
    let sessions = Rc::new(Sessions::new(Served::from(store.clone()), Limits::default()));
    let connections = Rc::<RefCell<JoinSet<&'static str>>>::default();
    let served = connections.clone();
    let accepting = spawn_local(async move {
        while let Some(end) = arriving.recv().await {
            let sessions = sessions.clone();
            served.borrow_mut().spawn_local(async move { sessions.serve(end).await });
        }
    });
    let (ticked, dead, gate, time) = (store.clone(), is_dead.clone(), door.clone(), clock.clone());
    let ticking = spawn_local(async move {
        while !dead.load(Ordering::SeqCst) {
            let paused = *gate.paused_until.lock();
            match paused.filter(|until| *until > Instant::now()) {
                Some(until) => sleep_until(until).await,
                // Not before: what the store says of its next round is tried here.
                None if ticked.next_due_ns().is_some_and(|due| due <= time.now_ns()) => ticked.tick(),
                None => {}
            }
            sleep(TICK).await;
        }
    });
    let image = Arc::default();
    Ok(Rc::new(Life { store, is_dead, connections, medium, image, tasks: [accepting, ticking] }))
}

/// Takes the image now, if nobody has.
fn die(medium: &SimMedium, death: Death, image: &Mutex<Option<Vec<u8>>>, is_dead: &AtomicBool) {
    let mut image = image.lock();
    if image.is_none() {
        *image = Some(match death {
            Death::Kill => medium.killed_now(),
            Death::PowerLoss(seed) => medium.crash_now(seed),
        });
        is_dead.store(true, Ordering::SeqCst);
    }
}

/// Ends a life before this step of its medium from now on, or soon; answers the medium of the next one.
pub(crate) async fn end(life: Rc<Life>, net: &Net, door: &Door, death: Death, step: u64) -> Arc<SimMedium> {
    let (weak, image, is_dead) = (Arc::downgrade(&life.medium), life.image.clone(), life.is_dead.clone());
    life.medium.before_step(life.medium.steps() + step, move || {
        if let Some(medium) = weak.upgrade() {
            die(&medium, death, &image, &is_dead);
        }
    });
    for _ in 0..200 {
        if life.is_dead() {
            break;
        }
        sleep(Duration::from_millis(5)).await;
    }
    die(&life.medium, death, &life.image, &life.is_dead);
    *door.listening.lock() = None;
    life.tasks.iter().for_each(JoinHandle::abort);
    life.connections.borrow_mut().abort_all();
    net.reset(None);
    let image = life.image.lock().take().unwrap_or_default();
    match death {
        Death::Kill => life.medium.after_kill(image),
        Death::PowerLoss(_) => life.medium.after_power_loss(image),
    }
}

/// The way of one client to the node.
pub(crate) struct Way {
    net: Arc<Net>,
    door: Arc<Door>,
    random: Mutex<SmallRng>,
}

impl Way {
    pub(crate) fn new(net: &Arc<Net>, door: &Arc<Door>, seed: u64) -> Arc<Way> {
        Arc::new(Way { net: net.clone(), door: door.clone(), random: Mutex::new(SmallRng::seed_from_u64(seed)) })
    }
}

impl Connector for Way {
    fn name(&self) -> String {
        "sim://node".to_owned()
    }

    fn connect(&self) -> Pin<Box<dyn Future<Output = Result<(Reader, Writer)>> + Send + '_>> {
        Box::pin(async {
            sleep(self.net.latency()).await;
            if let Some(until) = self.net.weather().cut_until.filter(|until| *until > Instant::now()) {
                sleep_until(until).await;
            }
            let refused = || Error::unavailable("sim://node does not answer: refused");
            let listening = self.door.listening.lock().clone();
            let (sender, is_dead) = listening.ok_or_else(refused)?;
            let (client, server) = self.net.stream(is_dead);
            sender.send(server).map_err(|_| refused())?;
            let (reader, writer) = tokio::io::split(client);
            Ok((Box::pin(reader) as Reader, Box::pin(writer) as Writer))
        })
    }

    fn draw(&self) -> f64 {
        self.random.lock().random()
    }
}
