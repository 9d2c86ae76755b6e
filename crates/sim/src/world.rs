//! One simulation: nodes, producers, workers, an operator, faults; all on one thread, in time that nobody waits for.

use crate::books::{Books, Checked};
use crate::budget::{What, metered};
use crate::clock::NodeClock;
use crate::faults::{Fault, schedule};
use crate::net::{Net, Place};
use crate::node::{self, Death, Door, Life, Media, Ways};
use crate::process::Process;
use crate::route;
use crate::trace::Trace;
use crate::{archive, operate, verify, work};
use forebay_core::map::ClusterMap;
use forebay_core::{Keyspace, Result, mutants};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::Arguments;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinSet, LocalSet, spawn_local};
use tokio::time::{Instant, sleep, sleep_until};

/// Producers, each with a source of its own.
pub(crate) const SOURCES: u64 = 3;
const WORKERS: u64 = 2;
/// Most nodes.
pub const NODES_MAX: usize = 3;
/// Within this time a stream that is to be reset after some bytes is, or goes on.
const RESET: Duration = Duration::from_secs(5);
/// Longest time of a client's call, beside what it asks to wait.
pub(crate) const CALL: Duration = Duration::from_secs(10);
/// All calls of a simulation that is over have ended by then.
const LAST_CALLS: Duration = Duration::from_secs(600);
/// After this time without a fault all that it held up is done.
pub(crate) const CALM: Duration = Duration::from_secs(20);

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All that is drawn is drawn from it.
    pub seed: u64,
    /// Length, in the simulation's time.
    pub length: Duration,
    /// Nodes, up to [`NODES_MAX`]; one is a server without a cluster.
    pub nodes: usize,
    /// A look-up table says where the bytes of each source are.
    pub has_table: bool,
    /// The planted fault, one of [`forebay_core::mutants::MUTANTS`].
    pub mutant: &'static str,
    /// Faults that are left out, by their number.
    pub without: BTreeSet<usize>,
    /// Print what happens.
    pub is_shown: bool,
}

impl Plan {
    /// All nodes.
    pub(crate) fn places(&self) -> Range<Place> {
        1..self.nodes.clamp(1, NODES_MAX) + 1
    }

    /// Devices of the warm level of each node: one seed of three has none, and no store whose bytes may be elsewhere.
    pub(crate) fn devices(&self) -> usize {
        if self.has_table { 0 } else { (self.seed % 3) as usize }
    }

    /// Whether runs mask sources themselves: in one cluster of four, since their nodes are asked all the time.
    pub(crate) fn has_policy(&self) -> bool {
        self.nodes > 1 && (self.seed / 2).is_multiple_of(4)
    }
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            seed: 0,
            length: Duration::ZERO,
            nodes: 1,
            has_table: false,
            mutant: "",
            without: BTreeSet::new(),
            is_shown: false,
        }
    }
}

/// What a simulation found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Hash of all that happened.
    pub hash: u64,
    /// What was wrong, first of all, and when.
    pub wrong: Option<(Duration, String)>,
    /// Simulated time.
    pub length: Duration,
    /// Faults that came.
    pub faults: usize,
    /// Calls of clients, grants, runs that were closed.
    pub calls: u64,
    /// Events that were given to workers.
    pub grants: u64,
    /// Runs that were closed.
    pub runs: u64,
    /// Looks at several nodes after a while without faults.
    pub quiet: u64,
    /// Looks at accounts of closed runs that no fault has met.
    pub accounts: u64,
    /// Claims of movers that were proved.
    pub proved: u64,
}

/// A node, and its life if it has one.
pub(crate) struct Member {
    pub(crate) place: Place,
    clock: Arc<NodeClock>,
    life: RefCell<Option<Rc<Life>>>,
    /// A death of it is under way.
    is_dying: Cell<bool>,
    /// Its file of the cluster's map.
    pub(crate) file: RefCell<Option<Arc<ClusterMap>>>,
    /// Of the map that it went by when it was looked at last.
    pub(crate) epoch: Cell<u32>,
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) ways: Ways,
    pub(crate) members: Vec<Member>,
    pub(crate) books: RefCell<Books>,
    trace: RefCell<Trace>,
    pub(crate) keyspace: Keyspace,
    /// The map of the cluster as its operator has written it last; none for one server.
    pub(crate) map: RefCell<Option<Arc<ClusterMap>>>,
    /// The run from which on it is in force.
    pub(crate) mapped_from: Cell<u64>,
    /// The run that takes events, and when it was opened.
    pub(crate) run: Cell<Option<(u64, Instant)>>,
    start: Instant,
    /// Faults that are there.
    faults: Cell<usize>,
    /// When the last one was over.
    calm_since: Cell<Instant>,
    /// Until when no worker asks for events.
    pub(crate) strike_until: Cell<Instant>,
    /// Until when no mover comes.
    pub(crate) away_until: Cell<Instant>,
    /// Until when new connections overtake others.
    pub(crate) overtaken_until: Cell<Instant>,
    wrong: RefCell<Option<(Duration, String)>>,
    figures: [Cell<u64>; 6],
    /// Processes of users.
    processes: RefCell<JoinSet<()>>,
}

impl World {
    pub(crate) fn note(&self, what: Arguments<'_>) {
        self.trace.borrow_mut().note(what);
    }

    /// The first thing that is wrong ends the simulation; once it is over, what ends then is of no account.
    pub(crate) fn check(&self, checked: Checked) {
        if !self.is_over() {
            self.must(checked);
        }
    }

    /// The same at any time.
    fn must(&self, checked: Checked) {
        if let Err(what) = checked {
            self.note(format_args!("WRONG {what}"));
            self.wrong.borrow_mut().get_or_insert((self.start.elapsed(), what));
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.start.elapsed() >= self.plan.length || self.wrong.borrow().is_some()
    }

    /// How long no fault has been there.
    pub(crate) fn calm(&self) -> Duration {
        if self.faults.get() > 0 { Duration::ZERO } else { self.calm_since.get().elapsed() }
    }

    pub(crate) fn count(&self, what: usize) {
        self.figures[what].set(self.figures[what].get() + 1);
    }

    /// The life of a node, unless it is down, paused or dead.
    pub(crate) fn life(&self, place: Place) -> Option<Rc<Life>> {
        let is_paused = self.ways.doors[place - 1].paused_until().is_some();
        self.members[place - 1].life.borrow().clone().filter(|life| !is_paused && !life.is_dead())
    }

    /// Whether all nodes have the file of the last map.
    pub(crate) fn is_mapped(&self) -> bool {
        let epoch = |map: &RefCell<Option<Arc<ClusterMap>>>| map.borrow().as_ref().map(|map| map.epoch());
        self.members.iter().all(|member| epoch(&member.file) == epoch(&self.map))
    }

    /// Nodes that are there, also those that are paused.
    pub(crate) fn processes(&self) -> Vec<(Place, Rc<Life>)> {
        let life = |member: &Member| Some((member.place, member.life.borrow().clone().filter(|life| !life.is_dead())?));
        self.members.iter().filter_map(life).collect()
    }

    /// Nodes that are up.
    pub(crate) fn lives(&self) -> Vec<(Place, Rc<Life>)> {
        self.members.iter().filter_map(|member| Some((member.place, self.life(member.place)?))).collect()
    }

    /// Begins a process of a user.
    pub(crate) fn begin(&self, what: What, code: impl FnOnce() + 'static) {
        self.has_processes();
        self.processes.borrow_mut().spawn_local(metered(what, Process::new(code)));
    }

    /// Whether a process goes on; those that are over must have come to their end.
    fn has_processes(&self) -> bool {
        let mut processes = self.processes.borrow_mut();
        while let Some(over) = processes.try_join_next() {
            self.must(over.map_err(|error| format!("a client's process ended: {error}")));
        }
        !processes.is_empty()
    }

    /// A call has ended; it must have ended in time.
    pub(crate) fn ended(&self, what: &str, began: Instant, most: Duration) {
        self.count(0);
        let took = began.elapsed();
        // Twice the rounding of tokio's timers, and the time of the last piece.
        if took > most + Duration::from_secs(1) {
            self.check(Err(format!("{what} took {took:?}, more than its deadline")));
        }
    }
}

/// Simulates; the same plan has the same report.
pub fn simulate(plan: &Plan) -> Report {
    mutants::plant(plan.mutant);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
    let tasks = LocalSet::new();
    let report = tasks.block_on(&runtime, run(plan.clone()));
    {
        // Stores close in the time in which they lived.
        let _in_time = runtime.enter();
        drop(tasks);
    }
    drop(runtime);
    mutants::plant("");
    report
}

/// Nodes, on their way to live.
fn begin(plan: Plan) -> Result<Rc<World>> {
    let keyspace = work::keyspace(&plan);
    let seed = plan.seed;
    let rate_ppm = |place: Place| ((seed + place as u64 * 7919) % 20_001) as i64 - 10_000;
    let members: Vec<Member> = plan
        .places()
        .map(|place| Member {
            place,
            clock: Arc::new(NodeClock::new(rate_ppm(place))),
            life: RefCell::default(),
            is_dying: Cell::default(),
            file: RefCell::default(),
            epoch: Cell::default(),
        })
        .collect();
    let open = |member: &Member| {
        let media = Media::new(plan.devices());
        node::create(&keyspace, &member.clock, seed ^ member.place as u64, media)
    };
    let opened = members.iter().map(open);
    let opened = opened.collect::<Result<Vec<_>>>()?;
    let map = match &opened[..] {
        [_] => None,
        all => Some(Arc::new(route::map(all.iter().map(|(_, store)| store.holding()), plan.has_table)?)),
    };
    let doors = members.iter().map(|_| Arc::<Door>::default()).collect();
    let ways = Ways { net: Net::new(seed, keyspace.clone()), doors, keyspace: keyspace.clone(), seed };
    for (member, opened) in members.iter().zip(opened) {
        member.file.borrow_mut().clone_from(&map);
        *member.life.borrow_mut() = Some(Life::begin(&ways, member.place, opened, map.as_ref(), &member.clock)?);
    }
    Ok(Rc::new(World {
        ways,
        members,
        books: RefCell::default(),
        trace: RefCell::new(Trace::new(plan.is_shown)),
        keyspace,
        map: RefCell::new(map),
        mapped_from: Cell::new(0),
        run: Cell::new(None),
        start: Instant::now(),
        faults: Cell::new(0),
        calm_since: Cell::new(Instant::now()),
        strike_until: Cell::new(Instant::now()),
        away_until: Cell::new(Instant::now()),
        overtaken_until: Cell::new(Instant::now()),
        wrong: RefCell::new(None),
        figures: Default::default(),
        processes: RefCell::default(),
        plan,
    }))
}

async fn run(plan: Plan) -> Report {
    let world = begin(plan).unwrap_or_else(|error| panic!("no nodes: {error}"));
    for source in 0..SOURCES {
        let of_it = world.clone();
        world.begin(What::Producers, move || work::produce(&of_it, source));
    }
    for worker in 0..WORKERS {
        let of_it = world.clone();
        world.begin(What::Workers, move || work::select(&of_it, worker));
    }
    let of_it = world.clone();
    world.begin(What::Operator, move || operate::operate(&of_it));
    if world.plan.devices() > 0 {
        spawn_local(metered(What::Movers, archive::archive(world.clone())));
    }
    let faults = schedule(&world.plan);
    let mut came = 0;
    for (number, (at, fault)) in faults.into_iter().enumerate() {
        if world.plan.without.contains(&number) {
            continue;
        }
        while world.start.elapsed() < at && !world.is_over() {
            sleep_until((world.start + at).min(Instant::now() + Duration::from_secs(1))).await;
        }
        if world.is_over() {
            break;
        }
        came += 1;
        world.note(format_args!("fault {number}: {fault:?}"));
        // Beside those that are there.
        spawn_local(metered(What::Openings, during(world.clone(), come(world.clone(), fault))));
    }
    while world.has_processes() || !world.is_over() {
        sleep(Duration::from_secs(1)).await;
        if world.start.elapsed() > world.plan.length + LAST_CALLS {
            world.must(Err("a call has not ended long after its deadline".to_owned()));
            break;
        }
    }
    world.must(world.ways.net.check());
    world.members.iter().for_each(|member| *member.life.borrow_mut() = None);
    let [calls, grants, runs, quiet, accounts, proved] = [0, 1, 2, 3, 4, 5].map(|at| world.figures[at].get());
    let trace = world.trace.borrow();
    Report {
        hash: trace.hash(),
        wrong: world.wrong.borrow().clone(),
        length: world.start.elapsed(),
        faults: came,
        calls,
        grants,
        runs,
        quiet,
        accounts,
        proved,
    }
}

/// Something goes wrong meanwhile.
pub(crate) async fn during(world: Rc<World>, fault: impl Future<Output = ()>) {
    world.faults.set(world.faults.get() + 1);
    fault.await;
    world.faults.set(world.faults.get() - 1);
    world.calm_since.set(Instant::now());
}

/// Lets a fault come, and go again.
async fn come(world: Rc<World>, fault: Fault) {
    let world = &world;
    let (net, now) = (&world.ways.net, Instant::now());
    match fault {
        Fault::Kill { node, step, down } => die(world, node, Death::Kill, step, down).await,
        Fault::PowerLoss { node, step, seed, down } => die(world, node, Death::PowerLoss(seed), step, down).await,
        Fault::Pause(node, time) => {
            world.ways.doors[node - 1].pause(now + time);
            net.change_weather(|weather| {
                weather.stall_into(node, now + time);
                weather.stall_out_of(node, now + time);
            });
            sleep(time).await;
        }
        Fault::Deaf(node, time) => {
            net.change_weather(|weather| weather.stall_into(node, now + time));
            sleep(time).await;
        }
        Fault::Mute(node, time) => {
            net.change_weather(|weather| weather.stall_out_of(node, now + time));
            sleep(time).await;
        }
        Fault::Overtaken(node, time) => {
            net.delay(node, now + time);
            world.overtaken_until.set(world.overtaken_until.get().max(now + time));
            sleep(time).await;
        }
        Fault::OneWay(from, to, time) => {
            net.change_weather(|weather| weather.stall(from, to, now + time));
            sleep(time).await;
        }
        Fault::Cut(node, time) => {
            net.change_weather(|weather| weather.cut(node, now + time));
            net.reset(node, None);
            sleep(time).await;
        }
        Fault::Reset(node, after) => {
            net.reset(node, after);
            sleep(RESET).await;
            net.spare(node);
        }
        Fault::SlowDrain(node, bytes, time) => {
            net.change_weather(|weather| weather.drain(node, Some(bytes)));
            sleep(time).await;
            net.change_weather(|weather| weather.drain(node, None));
        }
        Fault::StepCalendar(node, by_ms) => world.members[node - 1].clock.step(by_ms),
        Fault::DevicesFail(node, time) => {
            let life = || world.members[node - 1].life.borrow().clone();
            life().inspect(|life| life.fail_devices(true));
            sleep(time).await;
            life().inspect(|life| life.fail_devices(false));
        }
        Fault::ArchiveAway(time) => {
            world.away_until.set(world.away_until.get().max(now + time));
            sleep(time).await;
        }
        Fault::Strike(time) => {
            world.strike_until.set(world.strike_until.get().max(now + time));
            sleep(time).await;
        }
    }
}

async fn die(world: &Rc<World>, place: Place, death: Death, step: u64, down: Duration) {
    let member = &world.members[place - 1];
    let Some(life) = member.life.borrow().clone().filter(|_| !member.is_dying.replace(true)) else { return };
    let left = life.end(&world.ways, place, death, step).await;
    world.books.borrow_mut().died();
    // On its disk, from a file or from another node.
    let kept = life.store.adopted_map().map(|(map, _)| map);
    drop(life);
    *member.life.borrow_mut() = None;
    world.note(format_args!("node {place} is dead: {death:?}"));
    sleep(down).await;
    let map = member.file.borrow().clone();
    let begun = node::open(&world.keyspace, &member.clock, world.plan.seed ^ place as u64, left, kept)
        .and_then(|opened| Life::begin(&world.ways, place, opened, map.as_ref(), &member.clock));
    member.is_dying.set(false);
    match begun {
        Ok(life) => *member.life.borrow_mut() = Some(life),
        Err(error) => world.check(Err(format!("node {place} does not open: {error}"))),
    }
    world.note(format_args!("node {place} is up again"));
    verify::verify(world);
}
