//! What happened to an undecided event (its stage, its deliveries, that it is ready) outlives a kill, whatever of its
//! fragments comes, goes and moves meanwhile: each case by itself, and random lives.

use crate::common::fixture::{Fixture, RUN};
use crate::common::{key, sealed_events};
use forebay_store::core::{Keyspace, LiveState};
use forebay_store::{PutOptions, PutOutcome, Reservation};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;

const EVENT: u64 = 1;

fn staged() -> Keyspace {
    let mut keyspace = sealed_events();
    keyspace.stages = ["fast", "final"].map(str::to_owned).into();
    keyspace.deliveries_max = 15;
    keyspace
}

fn begin(fixture: &Fixture, event: u64, source: u64) -> Reservation {
    let mut place = fixture.reserve(&key(RUN, event, source), 8, &PutOptions::default()).unwrap();
    place.copy_from_slice(&source.to_le_bytes());
    place
}

/// What came of an event, each by a call that was answered.
#[derive(Clone, Copy, Debug)]
enum Past {
    Sealed,
    Failed,
    Passed,
}

/// Readies the event and lets it have its past, with one fragment visible.
fn past(fixture: &Fixture, past: Past) {
    fixture.stored(EVENT, 0, b"first");
    fixture.seal(&fixture.primary(EVENT)).unwrap();
    match past {
        Past::Sealed => {}
        Past::Failed => {
            drop(fixture.take(EVENT));
            fixture.advance(fixture.config.lease * 2);
        }
        Past::Passed => fixture.take(EVENT).pass("final", &[]).unwrap(),
    }
}

fn marks(fixture: &Fixture) -> (LiveState, u8, u8) {
    let info = fixture.info(EVENT);
    (info.state, info.stage, info.deliveries)
}

#[test]
fn marks_outlive_the_only_visible_fragment_while_another_is_being_put() {
    for what in [Past::Sealed, Past::Failed, Past::Passed] {
        for later in [false, true] {
            let mut fixture = Fixture::new(&staged());
            fixture.run_open(RUN, &fixture.keyspace().run.clone()).unwrap();
            // Under way before the event is ready, or once it is.
            let early = (!later).then(|| begin(&fixture, EVENT, 1));
            past(&fixture, what);
            let place = early.unwrap_or_else(|| begin(&fixture, EVENT, 1));
            let before = marks(&fixture);
            assert!(fixture.remove(&key(RUN, EVENT, 0)).unwrap());
            assert_eq!(place.commit().unwrap(), PutOutcome::Stored);
            assert_eq!(marks(&fixture), before);
            fixture.in_every_life(|fixture| assert_eq!(marks(fixture), before, "{what:?}, reserved later: {later}"));
        }
    }
}

#[test]
fn marks_outlive_a_kill_that_leaves_no_fragment() {
    for what in [Past::Sealed, Past::Failed, Past::Passed] {
        let mut fixture = Fixture::new(&staged());
        fixture.run_open(RUN, &fixture.keyspace().run.clone()).unwrap();
        past(&fixture, what);
        let place = begin(&fixture, EVENT, 1);
        let before = marks(&fixture);
        assert!(fixture.remove(&key(RUN, EVENT, 0)).unwrap());
        fixture.crash();
        drop(place);
        fixture.reopen();
        // The put is repeated, as its caller was not answered.
        fixture.stored(EVENT, 1, b"again");
        assert_eq!(marks(&fixture), before, "{what:?}");
        fixture.in_every_life(|fixture| assert_eq!(marks(fixture), before, "{what:?}"));
    }
}

/// What answered calls say of one event.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    fragments: u8,
    pending: u8,
    ready: bool,
    stage: u8,
    deliveries: u8,
}

struct Lives {
    fixture: Fixture,
    rng: SmallRng,
    said: BTreeMap<u64, Said>,
    under_way: Vec<(u64, u64, Reservation)>,
    next: u64,
}

impl Lives {
    fn new(seed: u64) -> Lives {
        // Short of space by its settings: what is mostly dead is moved together in each round.
        let fixture = Fixture::on_hot_alone(&staged(), |config| {
            (config.hot_low, config.hot_high) = (0.001, 0.95);
            config.segment_bytes = Some(16 << 10);
        });
        fixture.run_open(RUN, &fixture.keyspace().run.clone()).unwrap();
        Lives { fixture, rng: SmallRng::seed_from_u64(seed), said: BTreeMap::new(), under_way: Vec::new(), next: 0 }
    }

    fn is_under_way(&self, event: u64, source: u64) -> bool {
        self.under_way.iter().any(|(of, what, _)| (*of, *what) == (event, source))
    }

    /// An event of five, or a new one.
    fn event(&mut self) -> u64 {
        if self.said.len() < 5 {
            self.next += 1;
            self.said.insert(self.next, Said::default());
        }
        let at = self.rng.random_range(0..self.said.len());
        *self.said.keys().nth(at).unwrap()
    }

    fn turn(&mut self) {
        let (event, source) = (self.event(), self.rng.random_range(0..6));
        let dice = self.rng.random_range(0..100);
        let key = key(RUN, event, source);
        let primary = self.fixture.primary(event);
        let said = self.said.get_mut(&event).unwrap();
        match dice {
            _ if dice < 30 && self.under_way.iter().any(|(of, what, _)| (*of, *what) == (event, source)) => {}
            0..12 => {
                // Other bytes than those that are there are a conflict, and change nothing.
                let put = self.fixture.put(&key, &[source as u8; 900], &PutOptions::default());
                said.fragments += u8::from(put.is_ok_and(|outcome| outcome == PutOutcome::Stored));
            }
            12..30 => {
                // A place for what is there or too late already is none of the event's.
                let place = self.fixture.reserve(&key, 8, &PutOptions::default()).unwrap();
                said.pending += 1;
                self.under_way.push((event, source, place));
            }
            30..42 if !self.under_way.is_empty() => {
                let at = self.rng.random_range(0..self.under_way.len());
                let (of, source, mut place) = self.under_way.swap_remove(at);
                let said = self.said.get_mut(&of);
                let there = self.fixture.get(&crate::common::key(RUN, of, source)).unwrap();
                if let Some(there) = there {
                    place.copy_from_slice(&there[..8]);
                }
                let kept = self.rng.random_bool(0.8);
                let stored = kept && place.commit().is_ok_and(|outcome| outcome == PutOutcome::Stored);
                if let Some(said) = said {
                    said.fragments += u8::from(stored);
                    said.pending -= 1;
                }
            }
            42..56 => {
                let gone = !self.is_under_way(event, source) && self.fixture.remove(&key).unwrap();
                self.said.get_mut(&event).unwrap().fragments -= u8::from(gone);
            }
            56..60 => drop(self.fixture.update(&key, &[9; 700], None)),
            60..68 => said.ready |= self.fixture.seal(&primary).unwrap() && said.fragments > 0,
            68..84 => {
                if let Some(lease) = self.fixture.lease(&primary, None).unwrap() {
                    assert!(
                        said.ready && (lease.stage, lease.delivery) == (said.stage, said.deliveries + 1),
                        "{said:?}"
                    );
                    match dice {
                        68..74 => {
                            drop(lease);
                            said.deliveries += 1;
                            self.fixture.advance(self.fixture.config.lease * 2);
                        }
                        _ if said.stage == 1 => lease.requeue().unwrap(),
                        74..79 => lease.requeue().unwrap(),
                        _ => {
                            lease.pass("final", &[]).unwrap();
                            (said.stage, said.deliveries) = (1, 0);
                        }
                    }
                    if said.deliveries > 13 {
                        assert!(self.fixture.remove_event(&primary).unwrap());
                        *said = Said { pending: said.pending, ..Said::default() };
                    }
                }
            }
            84..97 => self.fixture.tick(),
            _ => {
                self.fixture.crash();
                // What was being put was cut off with the process.
                self.under_way.clear();
                self.said.values_mut().for_each(|said| said.pending = 0);
            }
        }
        self.check(event);
    }

    /// What the store says of each event that has a fragment is what was answered.
    fn check(&mut self, touched: u64) {
        let live: BTreeMap<u64, _> = {
            let bounds = forebay_store::core::Bounds::parse(self.fixture.schema(), &format!("{RUN}")).unwrap();
            let all = self.fixture.events(&bounds).unwrap();
            all.into_iter().map(|info| (self.fixture.number(&info.primary), info)).collect()
        };
        self.said.retain(|event, said| {
            let Some(info) = live.get(event) else {
                assert!(said.fragments == 0, "{event} is gone: {said:?}");
                // One that never was may still come.
                return said.pending > 0;
            };
            if said.fragments > 0 {
                let found = (info.state == LiveState::Ready, info.stage, info.deliveries, info.fragments);
                let told = (said.ready, said.stage, said.deliveries, u32::from(said.fragments));
                assert_eq!(found, told, "event {event}, touched {touched}");
            }
            true
        });
    }
}

#[test]
fn marks_of_random_lives_are_kept() {
    for seed in 0..4 {
        let mut lives = Lives::new(seed);
        (0..2000).for_each(|_| lives.turn());
        assert!(lives.next > 50, "few events ended: {}", lives.next);
    }
}
