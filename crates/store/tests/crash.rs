//! Kills a process that writes, updates, removes, leases and decides, again and again over one store, and checks after
//! each kill that every promise it had been given still holds.
//!
//! ```text
//! parent ──spawns──▶ child: this test binary with FOREBAY_CRASH_CHILD set
//!   ▲  │                │ two threads, each on its own lane of events
//!   │  └────SIGKILL────▶│ says each operation before it calls, and the answer after it returned
//!   └──────stdout───────┘
//! ```
//!
//! What was answered must hold; the one operation per thread that was not may have either outcome. The parent follows
//! with a model (`common/model.rs`), so that 30 rounds make one long history. `FOREBAY_CRASH_ROUNDS` makes more of them,
//! `FOREBAY_CRASH_SEED` others.

use crate::common::driver::STAGES;
use crate::common::driver::{Driver, execute, keyspace};
use crate::common::fixture::RUN;
use crate::common::model::{EventModel, FragmentModel, Model, State};
use crate::common::ops::{Answer, Op};
use crate::common::settle::{check_ledger, lane_bounds};
use crate::common::{TempDir, genuine, tag_of};
use forebay_store::core::{Kind, LiveState};
use forebay_store::{Config, GetAny, RunState, Sources, Store, WarmDevice};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const CHILD: &str = "FOREBAY_CRASH_CHILD";
const ROUND: &str = "FOREBAY_CRASH_ROUND";
/// Set for a child whose store has two levels.
const BOTH: &str = "FOREBAY_CRASH_BOTH";
const LANES: u64 = 2;
const COUNT: usize = 3;
const BYTES_MAX: usize = 3000;
/// Events numbered by one round; tags follow event numbers 64 to 1 and stay within 32 bits.
const EVENTS_PER_ROUND: u64 = 20_000;

/// With a warm level to which much goes that is not decided yet, or with the hot one alone.
fn config(dir: &Path, both_levels: bool) -> Config {
    let device = |number| WarmDevice::directory(dir.with_file_name(format!("warm-{number}")), 12 << 20);
    Config {
        warm: if both_levels { (0..2).map(device).collect() } else { Vec::new() },
        container_bytes: 512 << 10,
        device_log_bytes: 512 << 10,
        demote_high: 0.2,
        demote_low: 0.1,
        hot_bytes: 4 << 20,
        segment_bytes: Some(64 << 10),
        write_heads: 2,
        put_deadline: Duration::from_millis(50),
        lease: Duration::from_secs(3600),
        max_hold: Duration::from_secs(7200),
        ..Config::default()
    }
}

fn both_levels() -> bool {
    std::env::var_os(BOTH).is_some()
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Not a test by itself: what the parent starts. Without the variable that the parent sets there is nothing to do.
#[test]
fn child_role() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let round = number(ROUND, 0);
    let store = Store::open(Path::new(&dir), config(Path::new(&dir), both_levels())).unwrap();
    std::thread::scope(|scope| {
        for lane in 0..LANES {
            let store = store.named(&format!("lane-{lane}"));
            scope.spawn(move || child_lane(&store, lane, round));
        }
    });
}

/// One line to the parent in one write; without a parent there is no reason to go on.
fn say(lane: u64, what: &str, line: &str) {
    let line = format!("\n@ {lane} {what} {line}\n");
    let mut out = std::io::stdout().lock();
    if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(3);
    }
}

fn child_lane(store: &Store, lane: u64, round: u64) {
    let mut model = adopt(store, lane);
    model.persists = both_levels();
    let first = model.base() + 1 + round * EVENTS_PER_ROUND;
    let mut driver = Driver::new(round * LANES + lane, first, 60);
    let mut pressure = false;
    for _ in 0..EVENTS_PER_ROUND {
        let op = driver.next_op(&model, pressure);
        say(lane, "begin", &op.line());
        let answer = execute(store, &model, &op);
        say(lane, "end", &answer.line());
        pressure = answer == Answer::Failed(Kind::Full);
        // Of earlier rounds the child knows what is live, not which keys were removed: the parent judges the answers.
        if !matches!(op, Op::Put { .. }) || answer == Answer::Stored {
            model.apply(&op, &answer).ok();
        }
    }
    // The parent kills before this is reached; it would take the silence for a hang otherwise.
    say(lane, "done", "");
}

/// A model of what the store shows of a lane.
fn adopt(store: &Store, lane: u64) -> Model {
    let mut model = Model::new(lane, COUNT, BYTES_MAX);
    model.may_mask = lane == LANES - 1;
    let held = store.holds().into_iter().find(|hold| hold.conditions == [format!("lane={lane}")]);
    model.hold = held.map(|hold| u64::from(hold.id));
    for info in store.events(&lane_bounds(store, lane)).unwrap() {
        let Some(event) = store.get_event(&info.primary, &Sources::All).unwrap() else { continue };
        let state = match event.state {
            LiveState::Open => State::Open,
            LiveState::Ready | LiveState::Leased => State::Ready,
            LiveState::Debug => State::Debug,
            LiveState::Accepted => State::Accepted,
        };
        let mut found = EventModel { state, failures: info.deliveries, ..EventModel::default() };
        (found.fuzzy, found.seen, found.stage) = (state == State::Open, true, info.stage);
        for fragment in &event.fragments {
            let source = store.schema().values(fragment.key().as_bytes())[2];
            let held = FragmentModel {
                tag: tag_of(fragment),
                version: fragment.version(),
                bytes: fragment.len() as u64,
                late: false,
                inherited: true,
            };
            found.fragments.insert(source, held);
        }
        if !found.fragments.is_empty() {
            model.events.insert(store.schema().values(info.primary.as_bytes())[1], found);
        }
    }
    model
}

/// What a lane of the child was doing.
#[derive(Default)]
struct Said {
    begun: Option<Op>,
    ended: u64,
}

/// When the parent kills.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// After this many lines.
    Lines(u64),
    /// So long after the start: most often while the store recovers.
    After(Duration),
}

fn one_life(dir: &Path, both: bool, round: u64, moment: Moment, models: &mut [Model]) -> Vec<Said> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .envs(both.then_some((BOTH, "1")))
        .args(["crash::child_role", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, dir)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    if let Moment::After(wait) = moment {
        std::thread::sleep(wait);
        child.kill().unwrap();
    }
    let mut said: Vec<Said> = (0..LANES).map(|_| Said::default()).collect();
    let (mut line, mut lines) = (String::new(), 0);
    // A line without its end was cut off by the kill: it was not said.
    while reader.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
        if let Some((lane, rest)) = line.trim_end().strip_prefix("@ ").and_then(|rest| rest.split_once(' ')) {
            let lane: usize = lane.parse().unwrap();
            let (what, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            match what {
                "begin" => said[lane].begun = Some(Op::parse(rest).unwrap()),
                "end" => {
                    let op = said[lane].begun.take().unwrap();
                    let answer = Answer::parse(rest).unwrap();
                    models[lane].apply(&op, &answer).unwrap_or_else(|wrong| panic!("round {round}: {wrong}"));
                    said[lane].ended += 1;
                }
                _ => panic!("round {round}: lane {lane} came to its end before the kill at {moment:?}"),
            }
            lines += 1;
            if let Moment::Lines(limit) = moment
                && lines == limit
            {
                child.kill().unwrap();
            }
        }
        line.clear();
    }
    let status = child.wait().unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert_eq!(signal, Some(9), "round {round}: the child ended by itself ({status}) before the kill at {moment:?}");
    said
}

fn check_promises(store: &Store, models: &[Model], said: &[Said], round: u64) {
    let all: Vec<&Model> = models.iter().collect();
    let in_flight: Vec<&Op> = said.iter().filter_map(|said| said.begun.as_ref()).collect();
    let wrong = |wrong: String| panic!("round {round}: {wrong}; in flight: {in_flight:?}");
    check_ledger(store, &all).unwrap_or_else(wrong);
    for model in models {
        model.probe(store, 24).unwrap_or_else(wrong);
        model.audit(store).unwrap_or_else(wrong);
    }
    check_ledger(store, &all).unwrap_or_else(wrong);
}

#[test]
fn every_promise_survives_kills() {
    many_lives(false);
}

#[test]
fn every_promise_survives_kills_over_both_levels() {
    many_lives(true);
}

fn many_lives(both: bool) {
    let dir = TempDir::new();
    let path = dir.store();
    let config = || config(&path, both);
    let store = Store::create(&path, &keyspace(COUNT), config()).unwrap();
    store.run_open(RUN, &store.keyspace().run.clone()).unwrap();
    store.close().unwrap();
    drop(store);
    let seed = number("FOREBAY_CRASH_SEED", 20_260_101);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut models: Vec<Model> = (0..LANES).map(|lane| Model::new(lane, COUNT, BYTES_MAX)).collect();
    models[LANES as usize - 1].may_mask = true;
    models.iter_mut().for_each(|model| model.persists = both);
    let (mut ended, mut demoted) = (0, 0);
    for round in 0..number("FOREBAY_CRASH_ROUNDS", 30) {
        let moment = match rng.random_range(0..6) {
            0 if round > 0 => Moment::After(Duration::from_micros(rng.random_range(0..40_000))),
            1 => Moment::Lines(rng.random_range(1..40)),
            _ => Moment::Lines(rng.random_range(200..6000)),
        };
        let said = one_life(&path, both, round, moment, &mut models);
        ended += said.iter().map(|said| said.ended).sum::<u64>();
        if round % 5 == 4 {
            let report = forebay_store::check(&path, true).unwrap();
            assert!(report.problems.is_empty(), "round {round}, killed at {moment:?}: {:?}", report.problems);
        }
        let store = Store::open(&path, config()).unwrap();
        models = models
            .into_iter()
            .zip(&said)
            .map(|(model, said)| {
                let settled = model.settle(&store, said.begun.as_slice());
                settled.unwrap_or_else(|wrong| panic!("round {round}, seed {seed}, killed at {moment:?}: {wrong}"))
            })
            .collect();
        check_promises(&store, &models, &said, round);
        demoted += store.containers().iter().map(|container| u64::from(container.live_fragments)).sum::<u64>();
        store.close().unwrap();
    }
    assert!(ended > 1000, "only {ended} operations were answered: this proves nothing");
    assert_eq!(demoted > 100, both, "{demoted} fragments were found on the warm level");
    finish(&path, config());
}

/// Decides everything that is left and closes the run.
fn finish(path: &Path, config: Config) {
    let store = Store::open(path, config).unwrap();
    store.run_stop(RUN).unwrap();
    for hold in store.holds() {
        assert!(store.release_hold(hold.id).unwrap());
    }
    for lane in 0..LANES {
        for info in store.events(&lane_bounds(&store, lane)).unwrap() {
            match info.state {
                LiveState::Debug | LiveState::Accepted => assert!(store.release(&info.primary).unwrap()),
                _ if info.fragments == 0 => assert!(store.remove_event(&info.primary).unwrap()),
                _ => assert!(store.seal(&info.primary).unwrap()),
            }
        }
    }
    for stage in STAGES.iter().flat_map(|stage| [stage; 40]) {
        let request = GetAny { n: 64, stage: Some((*stage).to_owned()), ..GetAny::default() };
        let leases = store.get_any(&request).unwrap();
        for lease in leases {
            for fragment in &lease.fragments {
                genuine(fragment, BYTES_MAX);
            }
            lease.reject().unwrap();
        }
    }
    let ledger = store.run_close(RUN).unwrap().ledger;
    assert_eq!(ledger.imbalance(), None);
    assert_eq!(ledger.live.total().fragments, 0, "{ledger:?}");
    assert!(store.runs().iter().any(|status| status.run == RUN && status.state == RunState::Closed));
    store.close().unwrap();
}
