//! A producer: puts fragments of its events, the same bytes again, other bytes under taken keys, and much too late; writes
//! down what each call answered.

use super::books::{Books, EventName, Finished};
use super::scene::{SOURCES, Scene, payload};
use forebay_core::{Attributes, Error, Kind, Result, Tally};
use forebay_media::warm::DirectoryDevice;
use forebay_store::{OpenEvent, Producer, PutOptions, PutOutcome, Store};
use forebay_testkit::TempDir;
use forebay_testkit::media::{Fault, FaultyDevice, Operation};
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::HashMap;
use std::sync::Arc;
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

/// A put to be persisted is stored on the hot level, and no device took it. Only the words tell it from a put that waited
/// in vain for a run that is being closed, or for another put of its key: the kind is the same, because the caller's next move
/// is.
fn is_stored_only(error: &Error) -> bool {
    error.kind() == Kind::Unavailable && error.message().starts_with("stored on the hot level, but not persisted")
}

/// A put waited in vain: nothing is stored or booked.
fn is_not_stored(error: &Error) -> bool {
    error.kind() == Kind::Unavailable && !is_stored_only(error)
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
        while answer.as_ref().is_err_and(is_not_stored) && Instant::now() < patience {
            answer = self.store.put(&key, bytes, options);
        }
        if options.persisted {
            self.books.count("puts to be persisted");
            // Of a first put: it is on the hot level, and no device had room for it.
            if answer.as_ref().is_err_and(is_stored_only) {
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

/// What the books say of a put to be persisted is what the store has, whether it waited in vain or no device took it.
#[test]
fn a_put_to_be_persisted_is_booked_as_stored_only_where_it_is() -> Result<()> {
    let dir = TempDir::new();
    let scene = Scene::new(7, dir.path().join("warm"))?;
    std::fs::create_dir_all(&scene.warm_dir).map_err(|error| Error::unavailable("a directory").with_source(error))?;
    let inner = DirectoryDevice::open(&scene.warm_dir, Default::default(), false)
        .map_err(|error| Error::unavailable("the device").with_source(error))?;
    let device = FaultyDevice::new(Arc::new(inner));
    let mut config = scene.config();
    config.warm = vec![forebay_store::WarmDevice::device(device.clone(), 4 << 20)];
    let store = Store::create(&dir.path().join("events"), &scene.keyspace, config)?;
    store.run_open(1, &scene.keyspace.run)?;
    let (books, producers, name) = (Books::default(), HashMap::new(), "readout".to_owned());
    let mut offers = Offers { scene: &scene, store: &store, books, producers, name };
    let options = PutOptions { persisted: true, ..PutOptions::default() };
    // Another put of the key is in flight for longer than a put waits: this one is answered `Unavailable` until then.
    let waited_for = store.reserve(&scene.key((1, 1), 0)?, 10, &options)?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            drop(waited_for);
        });
        offers.put((1, 1), 0, b"some bytes", &options)
    })?;
    assert_eq!(offers.books.problems, [] as [String; 0]);
    assert_eq!(offers.books.run(1).stored.fragments, 1);
    assert!(store.get(&scene.key((1, 1), 0)?)?.is_some(), "booked as stored, and it is not");
    // No device takes this one.
    let so_far = device.count(Operation::Sync);
    (1..=8).for_each(|nth| device.inject(Some(Operation::Sync), so_far + nth, Fault::Fails));
    offers.put((1, 1), 1, b"more bytes", &options)?;
    assert_eq!(offers.books.faults.get("puts stored, but not persisted"), Some(&1));
    assert_eq!(offers.books.problems, [] as [String; 0]);
    assert_eq!(offers.books.run(1).stored.fragments, 2);
    assert!(store.get(&scene.key((1, 1), 1)?)?.is_some());
    assert_eq!(store.ledger(1)?.stored, offers.books.run(1).stored);
    store.close()
}
