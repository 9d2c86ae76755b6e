//! A fixed life of one store, one call after the other, with a cut at every step of each call: what is found is exactly
//! what an opening after the call before finds, or after the call itself. Never half of it.

use super::{REGION_BYTES, number, on_two_threads, sampled};
use crate::common::fixture::RUN;
use crate::common::key;
use forebay_store::core::{
    AttributeSchema, Attributes, Bounds, Completeness, Keyspace, LiveState, ManualClock, PrescaleFactor, Primary,
    Source, Token,
};
use forebay_store::{Accept, Config, OpenEvent, PutOptions, PutOutcome, ResultFragment, RunState, Sources, Store};
use forebay_testkit::media::SimMedium;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(10);

fn keyspace() -> Keyspace {
    let mut keyspace = Keyspace::events("directed", 2).opening_runs();
    keyspace.attributes = AttributeSchema::parse(&["lumi:u32", "class"], &["physics", "calib"]).unwrap();
    keyspace.run.classes = vec![("calib".to_owned(), Completeness::Count(1))];
    keyspace.run.complete_within = Duration::from_secs(24 * 3600);
    keyspace.stages = ["fast", "final"].map(str::to_owned).into();
    keyspace.deliveries_max = 1;
    keyspace.ledger_by = Some("lumi".to_owned());
    keyspace
}

/// One life: the store, its clock, and the tokens of its leases by event.
struct Life {
    store: Store,
    clock: Arc<ManualClock>,
    tokens: Vec<(u64, Token)>,
}

fn config(clock: &Arc<ManualClock>) -> Config {
    Config { clock: clock.clone(), lease: LEASE, ..super::config() }
}

impl Life {
    fn new(medium: Arc<SimMedium>) -> Life {
        let clock = Arc::new(ManualClock::default());
        let store = Store::create_on(medium, &keyspace(), config(&clock)).unwrap();
        Life { store, clock, tokens: Vec::new() }
    }

    fn name(&self, event: u64) -> Primary {
        self.store.schema().primary(&[RUN, event]).unwrap()
    }

    fn put(&self, event: u64, source: u64, pairs: &[&str]) {
        let attributes = Attributes::parse(&self.store.keyspace().attributes, pairs).unwrap();
        let options = PutOptions { attributes: Some(&attributes), ..PutOptions::default() };
        let _ = self.store.put(&key(RUN, event, source), &[source as u8; 700], &options).unwrap();
    }

    fn lease(&mut self, event: u64) {
        let lease = self.store.lease(&self.name(event), None).unwrap().expect("a ready event");
        self.tokens.push((event, lease.token));
    }

    fn announce(&self, event: u64, sources: &[u32]) {
        let own: Vec<Source> = sources.iter().map(|number| source(*number)).collect();
        let how = OpenEvent { sources: Some(&own), attributes: None };
        assert_eq!(self.store.open_event(&self.name(event), &how).unwrap(), PutOutcome::Stored);
    }

    fn change_class(&self, event: u64, class: &str) {
        let class = Attributes::parse(&self.store.keyspace().attributes, &[format!("class={class}")]).unwrap();
        self.store.update_attributes(&self.name(event), &class, None).unwrap();
    }

    fn token(&self, event: u64) -> Token {
        self.tokens.iter().rev().find(|(leased, _)| *leased == event).unwrap().1
    }
}

fn source(number: u32) -> Source {
    Source::from_packed(&number.to_be_bytes())
}

fn only(sources: &[u32]) -> Sources {
    Sources::Only(sources.iter().map(|number| source(*number)).collect())
}

type Call = fn(&mut Life);

/// Each is one call that changes something durable, or what leads to the next one.
const CALLS: &[Call] = &[
    |life| life.store.run_open(RUN, &keyspace().run).unwrap(),
    |life| {
        let own = [0, 1, 9].map(source);
        let lumi = Attributes::parse(&keyspace().attributes, &["lumi=5"]).unwrap();
        let how = OpenEvent { sources: Some(&own), attributes: Some(&lumi) };
        let _ = life.store.open_event(&life.name(1), &how).unwrap();
    },
    |life| life.put(1, 0, &[]),
    |life| life.put(1, 1, &[]),
    |life| life.store.mask(RUN, &source(9), None).unwrap(),
    |life| life.put(2, 0, &["lumi=6"]),
    |life| life.put(2, 1, &[]),
    |life| life.put(3, 0, &["class=calib"]),
    |life| life.store.unmask(RUN, &source(9), None).unwrap(),
    |life| life.store.prescale(RUN, "mu-4", PrescaleFactor::parse("off").unwrap(), None).unwrap(),
    |life| life.lease(1),
    |life| {
        let sources = [source(100), source(101)];
        let results = [ResultFragment::new(&sources[0], &[1; 900]), ResultFragment::new(&sources[1], b"")];
        life.store.pass(&life.name(1), &life.token(1), "final", &results).unwrap();
    },
    |life| life.put(1, 9, &[]),
    |life| life.lease(1),
    |life| {
        let streams = [("express", only(&[0])), ("main", Sources::All)];
        let found = source(102);
        let accept = Accept { streams: &streams, results: &[ResultFragment::new(&found, b"vertex")] };
        life.store.accept_into(&life.name(1), &life.token(1), &accept).unwrap();
    },
    |life| assert_eq!(life.store.hold(None, &["lumi=6"]).unwrap(), 1),
    |life| {
        let hold = life.store.holds()[0].id;
        assert!(life.store.release_hold(hold).unwrap());
    },
    |life| life.lease(2),
    |life| {
        life.clock.advance_ns(2 * LEASE.as_nanos() as u64);
        life.store.tick();
    },
    |life| assert!(life.store.replay(&life.name(2)).unwrap()),
    |life| life.lease(2),
    |life| {
        life.store.pass(&life.name(2), &life.token(2), "final", &[ResultFragment::new(&source(100), b"track")]).unwrap()
    },
    |life| life.lease(2),
    |life| assert_eq!(life.store.update(&key(RUN, 2, 100), b"better", Some(&life.token(2))).unwrap(), 1),
    |life| life.store.reject(&life.name(2), &life.token(2)).unwrap(),
    |life| {
        let pairs = Attributes::parse(&keyspace().attributes, &["class=physics"]).unwrap();
        life.store.update_attributes(&life.name(3), &pairs, None).unwrap();
    },
    |life| {
        let how = OpenEvent { sources: Some(&[source(4)]), attributes: None };
        let _ = life.store.open_event(&life.name(4), &how).unwrap();
    },
    |life| assert!(life.store.seal(&life.name(4)).unwrap()),
    |life| life.store.run_pause(RUN).unwrap(),
    |life| life.store.run_resume(RUN).unwrap(),
    |life| drop(life.store.producer(RUN, "readout").unwrap()),
    |life| assert!(life.store.remove(&key(RUN, 1, 101)).unwrap()),
    |life| assert!(life.store.release(&life.name(1)).unwrap()),
    |life| life.lease(3),
    |life| life.store.accept(&life.name(3), &life.token(3), &["main"]).unwrap(),
    // Events that wait no more get another rule: by it they are incomplete (11), or complete with a mask (12, 14), or have all
    // (13).
    |life| life.put(12, 0, &[]),
    |life| assert!(life.store.seal(&life.name(12)).unwrap()),
    |life| life.store.mask(RUN, &source(1), None).unwrap(),
    |life| life.put(11, 0, &[]),
    |life| life.put(13, 0, &[]),
    |life| life.put(14, 0, &["class=calib"]),
    |life| life.announce(11, &[0, 3]),
    |life| life.announce(12, &[0, 1]),
    |life| life.change_class(13, "calib"),
    |life| life.change_class(14, "physics"),
    |life| life.store.unmask(RUN, &source(1), None).unwrap(),
    |life| life.change_class(14, "calib"),
    |life| assert!(life.store.remove_event(&life.name(11)).unwrap()),
    |life| assert!(life.store.remove_event(&life.name(12)).unwrap()),
    |life| assert!(life.store.remove_event(&life.name(13)).unwrap()),
    |life| assert!(life.store.remove_event(&life.name(14)).unwrap()),
    |life| life.store.run_stop(RUN).unwrap(),
    |life| drop(life.store.run_close(RUN).unwrap()),
];

/// Everything durable that a store shows, in words.
fn told(image: Vec<u8>) -> Result<String, String> {
    let clock = Arc::new(ManualClock::default());
    let store = Store::open_on(SimMedium::from_image(image), &keyspace(), config(&clock));
    let store = store.map_err(|error| format!("cannot open: {error}"))?;
    let mut told = String::new();
    for run in store.runs() {
        let ledger = run.ledger;
        if let Some(imbalance) = ledger.imbalance() {
            return Err(imbalance);
        }
        let ended = (ledger.rejected, ledger.released, ledger.removed, ledger.superseded, ledger.stored);
        let counts = [ledger.complete, ledger.incomplete, ledger.never_seen, ledger.awaited];
        writeln!(told, "{:?} {:?} {:?}", run.state, run.masked, run.producers).unwrap();
        writeln!(told, "{:?} {ended:?} {counts:?}", ledger.live).unwrap();
        if run.state != RunState::Closed {
            // Without times, which each life has its own of.
            let summary = store.run_summary(run.run).map_err(|error| error.to_string())?;
            let masks = summary.masks.iter().map(|mask| (&mask.source, mask.masked, &mask.from, &mask.signature.by));
            let prescales = summary.prescales.iter().map(|known| (&known.name, known.factor, &known.signature.by));
            writeln!(told, "{:?} {:?}", masks.collect::<Vec<_>>(), prescales.collect::<Vec<_>>()).unwrap();
        }
    }
    for hold in store.holds() {
        writeln!(told, "hold {} {:?}", hold.id, hold.conditions).unwrap();
    }
    for event in store.debug_events() {
        writeln!(told, "debug {:?} {} {}", event.primary, event.reason, event.stage).unwrap();
    }
    for info in store.events(&Bounds::all(store.schema())).map_err(|error| error.to_string())? {
        let event = store.get_event(&info.primary, &Sources::All).map_err(|error| error.to_string())?;
        let event = event.ok_or("an event is listed and not there")?;
        // A replay clears the failures first: until it is decided the event stays in the debug stream.
        let failures = if info.state == LiveState::Debug { 0 } else { info.deliveries };
        let (state, outputs) = (info.state, store.outputs(&info.primary));
        writeln!(told, "{:?} {state:?} {} {failures} {outputs:?}", info.primary, event.stage).unwrap();
        writeln!(told, "{} {} {:?}", info.fragments, info.bytes, event.attributes).unwrap();
        let mut sources: Vec<_> = event.sources.iter().collect();
        sources.sort_unstable_by_key(|one| one.0);
        writeln!(told, "{sources:?} {:?}", event.missing).unwrap();
        for fragment in &event.fragments {
            fragment.verify().map_err(|error| error.to_string())?;
            writeln!(told, "{:?} {} {:?}", fragment.key(), fragment.version(), (fragment.len(), fragment.first()))
                .unwrap();
        }
    }
    Ok(told)
}

/// What an opening tells after each call, and the step at which the call was over; first of the new store.
fn uncut() -> (Vec<String>, Vec<u64>) {
    let medium = SimMedium::new(REGION_BYTES);
    let mut life = Life::new(medium.clone());
    let mut after = vec![told(medium.crash_now(1)).unwrap()];
    let mut ends = vec![medium.steps()];
    for (number, call) in CALLS.iter().enumerate() {
        call(&mut life);
        // Answered is durable, no matter what else of the medium survives.
        let seen: Vec<_> = (0..3).map(|seed| told(medium.crash_now(seed)).unwrap()).collect();
        assert!(seen.iter().all(|one| *one == seen[0]), "call {number}: {seen:#?}");
        after.push(seen[0].clone());
        ends.push(medium.steps());
    }
    (after, ends)
}

/// The image of a life that a cut at this step ends, and the number of the call that it meets.
fn cut(step: u64, seed: u64, ends: &[u64]) -> Option<(Vec<u8>, usize)> {
    let medium = SimMedium::new(REGION_BYTES);
    medium.arm(step, seed ^ step);
    let mut life = Life::new(medium.clone());
    let call = ends.iter().position(|end| *end >= step).unwrap() - 1;
    CALLS[..=call].iter().for_each(|call| call(&mut life));
    medium.crash_image().map(|image| (image, call))
}

fn check(image: Vec<u8>, call: usize, after: &[String], what: &str) {
    let seen = told(image).unwrap_or_else(|wrong| panic!("call {call}, {what}: {wrong}"));
    let [before, done] = [&after[call], &after[call + 1]];
    assert!(seen == *before || seen == *done, "call {call}, {what}: found\n{seen}\nbefore\n{before}\nafter\n{done}");
}

#[test]
fn every_call_takes_effect_in_whole_or_not_at_all() {
    let (after, ends) = uncut();
    let steps = sampled(ends[0] + 1, ends[CALLS.len()], number("FOREBAY_POWER_STEPS", 1500));
    on_two_threads(&steps, |step| {
        for seed in 0..4 {
            let Some((image, call)) = cut(*step, seed, &ends) else { continue };
            check(image, call, &after, &format!("step {step}, seed {seed}"));
        }
    });
}

/// Found by the model: a cut after the snapshot that ends recovery, but before the versions ended that an update had
/// replaced without its record, had them counted twice.
#[test]
fn a_second_cut_during_recovery_counts_nothing_twice() {
    let (after, ends) = uncut();
    let steps = sampled(ends[0] + 1, ends[CALLS.len()], number("FOREBAY_POWER_STEPS", 1500));
    on_two_threads(&steps, |step| {
        let Some((image, call)) = cut(*step, 9, &ends) else { return };
        let clock = Arc::new(ManualClock::default());
        let recovery = SimMedium::from_image(image.clone());
        drop(Store::open_on(recovery.clone(), &keyspace(), config(&clock)).unwrap());
        // Every third, another third for the next step.
        for again in (1 + step % 3..=recovery.steps()).step_by(3) {
            let medium = SimMedium::from_image(image.clone());
            medium.arm(again, again ^ step);
            drop(Store::open_on(medium.clone(), &keyspace(), config(&clock)).unwrap());
            let Some(second) = medium.crash_image() else { continue };
            check(second, call, &after, &format!("step {step}, and {again} of recovery"));
        }
    });
}

/// A kill at every step of many decisions; the next life decides once more and is killed as well. Where the first one took a
/// segment for the log and wrote nothing to it, the second one goes on in another.
#[test]
fn a_life_after_a_kill_at_any_step_of_a_decision_can_be_killed_as_well() {
    /// More than a segment has slots.
    const EVENTS: u64 = 300;
    /// Stays ready until the life after the kill.
    const LATER: u64 = EVENTS;
    let lives_after = |image: Vec<u8>, step: u64| {
        let next = SimMedium::from_image(image);
        let clock = Arc::new(ManualClock::default());
        let store = Store::open_on(next.clone(), &keyspace(), config(&clock)).unwrap();
        let later = store.schema().primary(&[RUN, LATER]).unwrap();
        assert!(store.remove_event(&later).unwrap());
        let second = SimMedium::from_image(next.killed_now());
        let again = Store::open_on(second, &keyspace(), config(&clock));
        let again = again.unwrap_or_else(|error| panic!("killed at step {step} and after one more decision: {error}"));
        assert_eq!(again.ledger(RUN).unwrap().imbalance(), None);
    };
    // The first steps of a decision that takes a segment make its header durable.
    for of_decision in 1..=3 {
        let medium = SimMedium::new(REGION_BYTES);
        let life = Life::new(medium.clone());
        life.store.run_open(RUN, &keyspace().run).unwrap();
        (0..2).for_each(|source| life.put(LATER, source, &[]));
        for event in 0..EVENTS {
            (0..2).for_each(|source| life.put(event, source, &[]));
            let (killed, step) = (medium.clone(), medium.steps() + of_decision);
            medium.before_step(step, move || {
                let image = killed.killed_now();
                // Not under the locks of the life that is killed.
                std::thread::spawn(move || lives_after(image, step)).join().unwrap();
            });
            assert!(life.store.remove_event(&life.name(event)).unwrap());
        }
    }
}

/// A mask is in the log, and the event that it makes ready has no mark yet: the next life makes it ready, and may give it
/// out. Once the mask is lifted, nothing but a mark of that life knows that it was.
#[test]
fn what_a_mask_makes_ready_in_the_life_after_a_cut_stays_ready() {
    let masks = |medium: &Arc<SimMedium>| {
        let life = Life::new(medium.clone());
        life.store.run_open(RUN, &keyspace().run).unwrap();
        life.put(1, 0, &[]);
        let before = medium.steps();
        life.store.mask(RUN, &source(1), None).unwrap();
        before + 1..=medium.steps()
    };
    let open = |image: Vec<u8>| {
        let (clock, medium) = (Arc::new(ManualClock::default()), SimMedium::from_image(image));
        let store = Store::open_on(medium.clone(), &keyspace(), config(&clock)).unwrap();
        let name = store.schema().primary(&[RUN, 1]).unwrap();
        let state = store.get_event(&name, &Sources::None).unwrap().unwrap().state;
        (store, medium, state)
    };
    let mut ready = 0;
    for step in masks(&SimMedium::new(REGION_BYTES)) {
        for seed in 0..8 {
            let medium = SimMedium::new(REGION_BYTES);
            medium.arm(step, seed);
            masks(&medium);
            let (store, medium, state) = open(medium.crash_image().unwrap());
            if state == LiveState::Ready {
                ready += 1;
                store.unmask(RUN, &source(1), None).unwrap();
                assert_eq!(open(medium.crash_now(seed)).2, LiveState::Ready, "power lost at step {step}, seed {seed}");
            }
        }
    }
    assert!(ready > 0, "no cut fell between the mask and the mark");
}

/// An event was ready when it was announced, and lacks two sources by that. One comes late, the other one is masked since:
/// its record, which is believed first, has to say that it is complete.
#[test]
fn a_late_fragment_that_a_mask_makes_the_last_completes_its_event_after_a_cut_as_well() {
    let medium = SimMedium::new(REGION_BYTES);
    let life = Life::new(medium.clone());
    life.store.run_open(RUN, &keyspace().run).unwrap();
    life.put(1, 0, &[]);
    assert!(life.store.seal(&life.name(1)).unwrap());
    life.announce(1, &[0, 3, 4]);
    life.store.mask(RUN, &source(4), None).unwrap();
    life.put(1, 3, &[]);
    let counts = |store: &Store| {
        let ledger = store.ledger(RUN).unwrap();
        (ledger.complete, ledger.incomplete)
    };
    assert_eq!(counts(&life.store), (1, 0));
    for seed in 0..8 {
        let clock = Arc::new(ManualClock::default());
        let image = SimMedium::from_image(medium.crash_now(seed));
        let store = Store::open_on(image, &keyspace(), config(&clock)).unwrap();
        assert_eq!(counts(&store), (1, 0), "seed {seed}");
    }
}
