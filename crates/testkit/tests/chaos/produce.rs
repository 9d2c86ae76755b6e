//! A producer: puts fragments of its events, the same bytes again, other bytes under taken keys, and much too late; writes
//! down what each call answered.

use super::books::{Books, EventName, Finished};
use super::scene::{SOURCES, Scene, payload};
use engine::{OpenEvent, Producer, PutOptions, PutOutcome, Store};
use forebay_core::{Attributes, Kind, Result, Tally};
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Part of the first puts that are to be persisted.
const PERSISTED: f64 = 0.02;
/// Time after which a run that is being closed is a fault.
const CLOSING_MAX: Duration = Duration::from_secs(30);

struct Offers<'s> {
    scene: &'s Scene,
    store: &'s Store,
    books: Books,
    /// Producers by run, with what each has offered.
    producers: HashMap<u64, (Producer, u64, u64)>,
    name: String,
}

/// What a put met.
#[derive(PartialEq)]
enum Met {
    /// The bytes are stored under their key.
    Room,
    /// They are not.
    NoRoom,
    /// Its run takes no more.
    End,
}

/// The body of a producer thread, for one life of the store.
pub(super) fn run(scene: &Scene, store: &Store, life: u64, thread: u64) -> Books {
    let mut random = scene.random(life, thread);
    let name = format!("producer-{thread}-life-{life}");
    let mut offers = Offers { scene, store, books: Books::default(), producers: HashMap::new(), name };
    while !scene.over() {
        let Some(run) = scene.any_run(&mut random) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        if let Err(error) = offers.event(run, thread, &mut random) {
            offers.books.problem(format!("producer: {error}"));
        }
        if random.random_bool(0.1) {
            std::thread::sleep(Duration::from_micros(random.random_range(0..600)));
        }
    }
    offers.end(&mut random);
    offers.books
}

impl Offers<'_> {
    fn event(&mut self, run: u64, thread: u64, random: &mut StdRng) -> Result<()> {
        let event = (run, self.scene.next_event(run, thread));
        let lumi = format!("lumi={}", event.1 / 100);
        let attributes = Attributes::parse(&self.scene.keyspace.attributes, &[lumi.as_str(), "class=physics"])?;
        if random.random_bool(0.3) {
            self.announce(event, &attributes)?;
        }
        if random.random_bool(0.02) {
            // Nobody sends anything for it.
            return Ok(());
        }
        let dead = self.scene.dead.load(Ordering::Relaxed);
        let options = PutOptions { attributes: Some(&attributes), ..PutOptions::default() };
        for source in (0..SOURCES).filter(|source| dead >> source & 1 == 0) {
            let bytes = payload(event, source, 0);
            let persisted = random.random_bool(PERSISTED);
            let met = self.put(event, source, &bytes, &PutOptions { persisted, ..options })?;
            if met == Met::End {
                std::thread::sleep(Duration::from_micros(300));
                return Ok(());
            }
            if random.random_bool(0.03) {
                self.put(event, source, &bytes, &options)?;
            }
            // Other bytes conflict only with those that are stored.
            if met == Met::Room && random.random_bool(0.005) {
                let other = [&bytes[..], b"!"].concat();
                self.put(event, source, &other, &options)?;
            }
        }
        if random.random_bool(0.02) {
            // An event of long ago.
            let back = event.1.saturating_sub(2 * random.random_range(1..500_u64));
            if back > 1 {
                let source = random.random_range(0..SOURCES);
                self.put((run, back), source, &payload((run, back), source, 0), &PutOptions::default())?;
            }
        }
        Ok(())
    }

    fn announce(&mut self, event: EventName, attributes: &Attributes) -> Result<()> {
        let how = OpenEvent { sources: None, attributes: Some(attributes) };
        match self.store.open_event(&self.scene.primary(event)?, &how) {
            Ok(PutOutcome::Stored | PutOutcome::Duplicate) => {
                self.books.announced.insert(event);
                self.books.count("events announced");
            }
            Ok(PutOutcome::Late | PutOutcome::LateUnknown) => self.books.count("announcements too late"),
            Err(error) if matches!(error.kind(), Kind::Full | Kind::Closed | Kind::Unavailable) => {
                self.books.count("announcements refused")
            }
            Err(error) => self.books.problem(format!("announcement of {event:?}: {error}")),
        }
        Ok(())
    }

    fn put(&mut self, event: EventName, source: u64, bytes: &[u8], options: &PutOptions<'_>) -> Result<Met> {
        let key = self.scene.key(event, source)?;
        let offered = Tally::fragment(bytes.len() as u64);
        self.offered(event.0, bytes.len() as u64);
        let mut answer = self.store.put(&key, bytes, options);
        // A run that is being closed takes longer than a put waits: nothing was booked, and the next answer is final.
        let patience = Instant::now() + CLOSING_MAX;
        let closing =
            |answer: &Result<PutOutcome>| answer.as_ref().is_err_and(|error| error.kind() == Kind::Unavailable);
        while !options.persisted && closing(&answer) && Instant::now() < patience {
            answer = self.store.put(&key, bytes, options);
        }
        if options.persisted {
            self.books.count("puts to be persisted");
            // Of a first put: it is on the hot level, and no device had room for it.
            if answer.as_ref().is_err_and(|error| error.kind() == Kind::Unavailable) {
                self.books.count("puts stored, but not persisted");
                answer = Ok(PutOutcome::Stored);
            }
        }
        let book = self.books.run(event.0);
        let term = match &answer {
            Ok(PutOutcome::Stored) => &mut book.stored,
            Ok(PutOutcome::Duplicate) => &mut book.duplicate,
            Ok(PutOutcome::Late | PutOutcome::LateUnknown) => &mut book.late,
            Err(error) if error.kind() == Kind::Conflict => &mut book.conflict,
            Err(error) if matches!(error.kind(), Kind::Full | Kind::Closed) => &mut book.refused,
            Err(error) => {
                let problem = format!("put of {event:?}/{source}: {error}");
                self.books.problem(problem);
                return Ok(Met::NoRoom);
            }
        };
        *term += offered;
        book.offered += offered;
        let stored = matches!(answer, Ok(PutOutcome::Stored | PutOutcome::Duplicate));
        match answer {
            Ok(PutOutcome::Stored) => *self.books.contents.entry(event).or_default() += offered,
            Err(error) if error.kind() == Kind::Full => {
                self.scene.full.store(true, Ordering::Relaxed);
                self.books.count("puts into a full store");
            }
            Err(error) if error.kind() == Kind::Closed => {
                self.books.count("puts into a run that takes no more");
                return Ok(Met::End);
            }
            _ => {}
        }
        Ok(if stored { Met::Room } else { Met::NoRoom })
    }

    /// Counts an offer by the producer of its run, which begins with the first one.
    fn offered(&mut self, run: u64, bytes: u64) {
        if !self.producers.contains_key(&run) {
            match self.store.producer(run, &self.name) {
                Ok(producer) => {
                    self.producers.insert(run, (producer, 0, 0));
                }
                // A closed run takes no producers; a full store no record of one.
                Err(error) if matches!(error.kind(), Kind::Closed | Kind::Full) => return,
                Err(error) => return self.books.problem(format!("producer of run {run}: {error}")),
            }
        }
        if let Some((producer, fragments, all)) = self.producers.get_mut(&run) {
            producer.offered(bytes);
            *fragments += 1;
            *all += bytes;
        }
    }

    /// Most producers end in order; some just go.
    fn end(&mut self, random: &mut StdRng) {
        for (run, (producer, fragments, bytes)) in std::mem::take(&mut self.producers) {
            if random.random_bool(0.2) {
                self.books.count("producers gone without a word");
                continue;
            }
            match producer.finish() {
                Ok(()) => self.books.finished.push(Finished { run, name: self.name.clone(), fragments, bytes }),
                Err(error) if matches!(error.kind(), Kind::Closed | Kind::Full) => {}
                Err(error) => self.books.problem(format!("last report of {} to run {run}: {error}", self.name)),
            }
        }
    }
}
