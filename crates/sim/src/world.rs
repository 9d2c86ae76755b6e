//! One simulation: a server, producers, workers, an operator, faults; all on one thread, in time that nobody waits for.

use crate::books::{Books, Checked};
use crate::clock::NodeClock;
use crate::faults::{Fault, schedule};
use crate::net::Net;
use crate::node::{self, Death, Door, Life, Way};
use crate::trace::Trace;
use crate::work;
use forebay_client::{AsyncClient, Options};
use forebay_core::{Keyspace, mutants};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::Arguments;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, sleep_until};

/// Producers, each with a source of its own.
pub(crate) const SOURCES: u64 = 3;
const WORKERS: u64 = 2;
/// Within this time a stream that is to be reset after some bytes is, or goes on.
const RESET: Duration = Duration::from_secs(5);
/// Longest time of a client's call, beside what it asks to wait.
pub(crate) const CALL: Duration = Duration::from_secs(10);

/// What is simulated.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// All that is drawn is drawn from it.
    pub seed: u64,
    /// Length, in the simulation's time.
    pub length: Duration,
    /// The planted fault, one of [`forebay_core::mutants::MUTANTS`].
    pub mutant: &'static str,
    /// Faults that are left out, by their number.
    pub without: BTreeSet<usize>,
    /// Print what happens.
    pub is_shown: bool,
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
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) net: Arc<Net>,
    pub(crate) door: Arc<Door>,
    pub(crate) books: RefCell<Books>,
    trace: RefCell<Trace>,
    pub(crate) life: RefCell<Option<Rc<Life>>>,
    pub(crate) keyspace: Keyspace,
    /// The run that takes events, and when it was opened.
    pub(crate) run: Cell<Option<(u64, Instant)>>,
    start: Instant,
    /// When the last fault is over.
    calm: Cell<Instant>,
    wrong: RefCell<Option<(Duration, String)>>,
    pub(crate) figures: [Cell<u64>; 3],
}

impl World {
    pub(crate) fn note(&self, what: Arguments<'_>) {
        self.trace.borrow_mut().note(what);
    }

    /// The first thing that is wrong ends the simulation.
    pub(crate) fn check(&self, checked: Checked) {
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
        Instant::now().saturating_duration_since(self.calm.get())
    }

    pub(crate) fn count(&self, what: usize) {
        self.figures[what].set(self.figures[what].get() + 1);
    }

    /// The node's life, unless it is down, paused or dead.
    pub(crate) fn life(&self) -> Option<Rc<Life>> {
        let is_paused = self.door.paused_until.lock().is_some_and(|until| until > Instant::now());
        self.life.borrow().clone().filter(|life| !is_paused && !life.is_dead())
    }

    pub(crate) fn client(&self, number: u64) -> AsyncClient {
        let way = Way::new(&self.net, &self.door, self.plan.seed.wrapping_mul(31).wrapping_add(number));
        let options = Options { name: format!("client {number}"), deadline: CALL, ..Options::default() };
        AsyncClient::over(way, self.keyspace.clone(), options)
    }

    /// A call has ended; it must have ended in time.
    pub(crate) fn ended(&self, what: &str, began: Instant, wait: Duration) {
        self.count(0);
        let took = began.elapsed();
        // Twice the rounding of tokio's timers, and the time of the last piece.
        if took > CALL + wait + Duration::from_secs(1) {
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

async fn run(plan: Plan) -> Report {
    let net = Net::new(plan.seed);
    let world = Rc::new(World {
        net,
        door: Door::new(),
        books: RefCell::default(),
        trace: RefCell::new(Trace::new(plan.is_shown)),
        life: RefCell::new(None),
        keyspace: work::keyspace(),
        run: Cell::new(None),
        start: Instant::now(),
        calm: Cell::new(Instant::now()),
        wrong: RefCell::new(None),
        figures: Default::default(),
        plan,
    });
    let seed = world.plan.seed;
    let clock = Arc::new(NodeClock::new((seed % 20_001) as i64 - 10_000));
    match node::start(&world.door, &world.keyspace, &clock, seed, None) {
        Ok(life) => *world.life.borrow_mut() = Some(life),
        Err(error) => world.check(Err(format!("a new store: {error}"))),
    }
    for source in 0..SOURCES {
        spawn_local(work::produce(world.clone(), source));
    }
    for worker in 0..WORKERS {
        spawn_local(work::select(world.clone(), worker));
    }
    spawn_local(work::operate(world.clone()));
    let faults = schedule(seed, world.plan.length);
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
        happen(&world, &clock, fault).await;
    }
    while !world.is_over() {
        sleep(Duration::from_secs(1)).await;
    }
    *world.life.borrow_mut() = None;
    let [calls, grants, runs] = [0, 1, 2].map(|at| world.figures[at].get());
    let trace = world.trace.borrow();
    Report {
        hash: trace.hash(),
        wrong: world.wrong.borrow().clone(),
        length: world.start.elapsed(),
        faults: came,
        calls,
        grants,
        runs,
    }
}

/// Lets a fault come, and go again.
async fn happen(world: &Rc<World>, clock: &Arc<NodeClock>, fault: Fault) {
    let now = Instant::now();
    // Until it is over.
    let before = world.calm.replace(now + Duration::from_secs(86_400));
    let lasts = match fault {
        Fault::Pause(time) | Fault::Stall(_, time) | Fault::Cut(time) => time,
        _ => Duration::ZERO,
    };
    match fault {
        Fault::Kill { step, down } => die(world, clock, Death::Kill, step, down).await,
        Fault::PowerLoss { step, seed, down } => die(world, clock, Death::PowerLoss(seed), step, down).await,
        Fault::Pause(time) => {
            *world.door.paused_until.lock() = Some(now + time);
            world.net.change_weather(|weather| weather.stalled_until[0] = Some(now + time));
        }
        Fault::Stall(way, time) => world.net.change_weather(|weather| weather.stalled_until[way] = Some(now + time)),
        Fault::Cut(time) => {
            world.net.change_weather(|weather| weather.cut_until = Some(now + time));
            world.net.reset(None);
        }
        Fault::Reset(after) => {
            world.net.reset(after);
            sleep(RESET).await;
            world.net.spare();
        }
        Fault::SlowDrain(bytes, time) => {
            world.net.change_weather(|weather| weather.piece_bytes = Some(bytes));
            sleep(time).await;
            world.net.change_weather(|weather| weather.piece_bytes = None);
        }
        Fault::StepCalendar(by_ms) => clock.step(by_ms),
    }
    world.calm.set(before.max(Instant::now()).max(now + lasts));
}

async fn die(world: &Rc<World>, clock: &Arc<NodeClock>, death: Death, step: u64, down: Duration) {
    let Some(life) = world.life.borrow().clone() else { return };
    let left = node::end(life, &world.net, &world.door, death, step).await;
    *world.life.borrow_mut() = None;
    world.note(format_args!("dead: {death:?}"));
    sleep(down).await;
    match node::start(&world.door, &world.keyspace, clock, world.plan.seed, Some(left)) {
        Ok(life) => *world.life.borrow_mut() = Some(life),
        Err(error) => world.check(Err(format!("the store does not open: {error}"))),
    }
    world.note(format_args!("up again"));
    work::verify(world);
}
