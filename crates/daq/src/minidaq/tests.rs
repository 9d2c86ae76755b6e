//! Error bits to the tick, on a real ring and store: what a request handler makes of each sort of window, and that the
//! check of a filter takes what is right and nothing else.

use super::builder::{Builder, record_header};
use super::config::MiniDaqConfig;
use super::inspect;
use super::plan::{Plan, RUN};
use super::requests::{Request, errors, read};
use super::shared::MiniDaqShared;
use super::trigger::Trigger;
use crate::directory::Directory;
use crate::dune::{FRAGMENT_HEADER_BYTES, FragmentErrors, SourceId, TriggerRecordHeader};
use crate::frames::wibeth;
use crate::meter::Latency;
use forebay_core::{Error, Kind, Result};
use forebay_ring::{Ring, RingOutcome, RingPut, RingSources};
use forebay_store::{PutOutcome, Store};
use std::time::{Duration, Instant};

const NONE: FragmentErrors = FragmentErrors(0);
const DATA_NOT_FOUND: FragmentErrors = FragmentErrors::DATA_NOT_FOUND;
const INCOMPLETE: FragmentErrors = FragmentErrors::INCOMPLETE;
const INVALID_WINDOW: FragmentErrors = FragmentErrors::INVALID_WINDOW;

fn config() -> MiniDaqConfig {
    MiniDaqConfig {
        links: 2,
        readout_threads: 1,
        filter_threads: 1,
        history: Duration::from_millis(50),
        hot_bytes: Some(128 << 20),
        busy_at: 4,
        free_below: 2,
        ..MiniDaqConfig::default()
    }
}

/// A ring and a store of a plan, without threads.
fn with(config: &MiniDaqConfig, test: impl FnOnce(&Bench<'_, '_>)) {
    let plan = Plan::new(config).unwrap();
    let directory = Directory::prepare(None, plan.ring_bytes + plan.hot_bytes).unwrap();
    let ring =
        Ring::create(&directory.path().join(super::RING_DIR), &plan.ring_keyspace().unwrap(), plan.ring_config())
            .unwrap();
    let store = Store::create(directory.path(), &plan.keyspace().unwrap(), plan.store_config()).unwrap();
    store.run_open(RUN.into(), &plan.run_config().unwrap()).unwrap();
    let shared = MiniDaqShared::new(&plan, &ring, &store);
    test(&Bench { shared: &shared, next: std::cell::Cell::new(1) });
}

struct Bench<'s, 'a> {
    shared: &'s MiniDaqShared<'a>,
    next: std::cell::Cell<u64>,
}

/// A fragment as the store has it.
struct Answer {
    errors: FragmentErrors,
    /// Chunks by number.
    chunks: Vec<u64>,
    bytes: Vec<u8>,
    record: TriggerRecordHeader,
}

impl Bench<'_, '_> {
    fn plan(&self) -> &Plan {
        self.shared.plan
    }

    /// First tick of a chunk.
    fn at(&self, chunk: u64) -> u64 {
        self.plan().timestamp(chunk)
    }

    fn put(&self, link: u32, chunks: impl IntoIterator<Item = u64>) {
        let plan = self.plan();
        let source = plan.ring_source(self.shared.ring.keyspace(), link).unwrap();
        let mut bytes = vec![0; plan.chunk_bytes];
        for chunk in chunks {
            plan.frames.fill(chunk, link, &mut bytes);
            let put = RingPut { run: RUN, status: 0 };
            let outcome = self.shared.ring.put(&source, self.at(chunk), plan.chunk_ticks as u32, &bytes, &put).unwrap();
            assert_eq!(outcome, RingOutcome::Stored);
        }
    }

    /// Asks link 0 for a window as a trigger does.
    fn ask(&self, window_begin: u64, window_end: u64, timeout: Duration) -> Answer {
        let plan = self.plan();
        let number = self.next.replace(self.next.get() + 1);
        let trigger = Trigger { number, timestamp: window_begin, window_begin, window_end };
        let builder = Builder::new(self.shared, "test");
        builder.announce(&trigger).unwrap();
        let sources = RingSources::Only(vec![plan.ring_source(self.shared.ring.keyspace(), 0).unwrap()]);
        let request = Request { trigger, issued: Instant::now() };
        let window = read(self.shared.ring, &sources, &request, timeout, &mut Latency::new().unwrap()).unwrap();
        let part = window.as_ref().and_then(|window| window.sources.first());
        let errors = errors(part);
        let (outcome, _) = builder.fragment(&trigger, SourceId::link(0), errors, part).unwrap();
        assert_eq!(outcome, PutOutcome::Stored);
        let stored = self.shared.store.get(&plan.key(number, SourceId::link(0)).unwrap()).unwrap().unwrap();
        stored.verify().unwrap();
        assert_eq!(stored.status(), errors.0);
        let first = self.at(0);
        let chunks = stored[FRAGMENT_HEADER_BYTES..]
            .chunks(plan.chunk_bytes)
            .map(|chunk| (plan.frames.kind().timestamp(chunk).wrapping_sub(first)) / plan.chunk_ticks)
            .collect();
        let header = self.shared.store.get(&plan.key(number, SourceId::BUILDER).unwrap()).unwrap().unwrap();
        let record = inspect::record(plan, number, &header).unwrap();
        assert_eq!(record, record_header(&trigger, plan.links));
        let answer = Answer { errors, chunks, bytes: stored.to_vec(), record };
        assert_eq!(self.check(&answer, &answer.bytes).unwrap(), errors);
        answer
    }

    fn check(&self, answer: &Answer, bytes: &[u8]) -> Result<FragmentErrors> {
        inspect::fragment(self.plan(), &answer.record, &answer.record.components[0], answer.errors.0, bytes)
    }

    fn expect(&self, window: (u64, u64), errors: FragmentErrors, chunks: &[u64]) {
        let answer = self.ask(window.0, window.1, Duration::ZERO);
        assert_eq!((answer.errors, answer.chunks.as_slice()), (errors, chunks), "{window:?}");
    }
}

#[test]
fn windows_are_cut_to_the_tick() {
    with(&config(), |bench| {
        bench.put(0, 0..10);
        let at = |chunk| bench.at(chunk);
        bench.expect((at(2), at(4)), NONE, &[2, 3]);
        bench.expect((at(2) - 1, at(4)), NONE, &[1, 2, 3]);
        bench.expect((at(2) + 1, at(4) + 1), NONE, &[2, 3, 4]);
        bench.expect((at(3) - 1, at(3)), NONE, &[2]);
        bench.expect((at(0), at(10)), NONE, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    });
}

#[test]
fn a_window_that_is_none_is_said_to_be_invalid() {
    with(&config(), |bench| {
        bench.put(0, 0..3);
        bench.expect((bench.at(1), bench.at(1)), INVALID_WINDOW, &[]);
        bench.expect((bench.at(2), bench.at(1)), INVALID_WINDOW, &[]);
    });
}

#[test]
fn before_the_first_frame_nothing_is_found() {
    with(&config(), |bench| {
        bench.put(0, 0..3);
        let first = bench.at(0);
        bench.expect((first - 5000, first), DATA_NOT_FOUND, &[]);
        bench.expect((first - 1, first + 1), DATA_NOT_FOUND.with(INCOMPLETE), &[0]);
    });
}

#[test]
fn what_has_not_arrived_is_waited_for_to_the_time_out() {
    with(&config(), |bench| {
        let timeout = Duration::from_millis(40);
        let start = Instant::now();
        assert_eq!(bench.ask(bench.at(0), bench.at(1), timeout).errors, DATA_NOT_FOUND, "a link never seen");
        assert!(start.elapsed() >= timeout);
        bench.put(0, 0..6);
        let start = Instant::now();
        let part = bench.ask(bench.at(5), bench.at(6) + 1, timeout);
        assert_eq!((part.errors, part.chunks), (INCOMPLETE, vec![5]));
        assert!(start.elapsed() >= timeout);
        assert_eq!(bench.ask(bench.at(8), bench.at(9), timeout).errors, DATA_NOT_FOUND);
        let whole = std::thread::scope(|scope| {
            let (shared, begin, end) = (bench.shared, bench.at(5), bench.at(8));
            let waiting = scope.spawn(move || {
                Bench { shared, next: std::cell::Cell::new(100) }.ask(begin, end, Duration::from_secs(20)).chunks
            });
            std::thread::sleep(Duration::from_millis(20));
            bench.put(0, 6..9);
            waiting.join().unwrap()
        });
        assert_eq!(whole, [5, 6, 7]);
    });
}

#[test]
fn a_gap_makes_a_fragment_incomplete() {
    with(&config(), |bench| {
        bench.put(0, (0..3).chain(6..8));
        let at = |chunk| bench.at(chunk);
        bench.expect((at(2), at(7)), INCOMPLETE, &[2, 6]);
        bench.expect((at(3) - 1, at(3) + 1), INCOMPLETE, &[2]);
        bench.expect((at(3), at(6)), DATA_NOT_FOUND, &[]);
        bench.expect((at(6), at(8)), NONE, &[6, 7]);
    });
}

#[test]
fn evicted_data_is_not_found_and_what_is_left_is_given() {
    let tiny = MiniDaqConfig { history: Duration::from_millis(2), ..config() };
    with(&tiny, |bench| {
        let chunks = 2 * bench.plan().ring_bytes / bench.plan().chunk_bytes as u64;
        bench.put(0, 0..chunks);
        let oldest = bench.shared.ring.sources()[0].oldest.unwrap();
        assert!(oldest > bench.at(2), "nothing was evicted");
        let first = (oldest - bench.at(0)) / bench.plan().chunk_ticks;
        bench.expect((bench.at(0), bench.at(1)), DATA_NOT_FOUND, &[]);
        bench.expect((oldest - 1, bench.at(first + 2)), DATA_NOT_FOUND.with(INCOMPLETE), &[first, first + 1]);
        bench.expect((oldest, bench.at(first + 2)), NONE, &[first, first + 1]);
    });
}

#[test]
fn what_is_not_as_asked_does_not_pass() {
    with(&config(), |bench| {
        bench.put(0, 0..10);
        let answer = bench.ask(bench.at(2) + 5, bench.at(6), Duration::ZERO);
        assert_eq!(answer.chunks, [2, 3, 4, 5]);
        let (head, frame) = (FRAGMENT_HEADER_BYTES, wibeth::FRAME_BYTES);
        let corrupt = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = answer.bytes.clone();
            change(&mut bytes);
            let size = bytes.len() as u64;
            bytes[8..16].copy_from_slice(&size.to_le_bytes());
            let error: Error = bench.check(&answer, &bytes).expect_err(what);
            assert_eq!(error.kind(), Kind::Corrupt, "{what}");
            assert!(error.message().contains("Detector_Readout_0x00000000"), "{error}");
        };
        corrupt("trigger number", &|bytes| bytes[16] ^= 1);
        corrupt("window", &|bytes| bytes[32] ^= 1);
        corrupt("run", &|bytes| bytes[48] ^= 1);
        corrupt("error bits", &|bytes| bytes[52] ^= 2);
        corrupt("fragment type", &|bytes| bytes[56] ^= 1);
        corrupt("source", &|bytes| bytes[68] ^= 1);
        corrupt("a frame's timestamp", &|bytes| bytes[head + frame + 8] ^= 1);
        corrupt("a frame's sequence number", &|bytes| wibeth::set_sequence(&mut bytes[head + frame..], 77));
        corrupt("a frame that is not there", &|bytes| drop(bytes.drain(head + frame..head + 2 * frame)));
        corrupt("the first frame is not there", &|bytes| drop(bytes.drain(head..head + frame)));
        corrupt("the last frame is not there", &|bytes| bytes.truncate(head + 3 * frame));
        corrupt("two frames exchanged", &|bytes| bytes[head..].rotate_left(frame));
        corrupt("a frame too many", &|bytes| {
            let mut more = vec![0; frame];
            bench.plan().frames.fill(6, 0, &mut more);
            bytes.extend(more);
        });
        corrupt("half a frame", &|bytes| bytes.truncate(head + 3 * frame + 100));
        corrupt("nothing", &|bytes| bytes.truncate(head));
        let header = answer.record.encode();
        for at in [8, 32, 56, 72, 76] {
            let mut wrong = header.clone();
            wrong[at] ^= 1;
            assert_eq!(inspect::record(bench.plan(), 1, &wrong).unwrap_err().kind(), Kind::Corrupt, "byte {at}");
        }
    });
}

#[test]
fn what_cannot_work_is_refused_with_numbers() {
    let refused = |change: &dyn Fn(&mut MiniDaqConfig)| {
        let mut config = config();
        change(&mut config);
        let error = Plan::new(&config).err().expect("refused");
        assert_eq!(error.kind(), Kind::Invalid);
        error.message().to_owned()
    };
    assert!(refused(&|config| config.free_below = 4).contains("free below 4 trigger records in flight, busy at 4"));
    assert!(refused(&|config| config.rate_scale = f64::NAN).contains("rate scale"));
    assert!(refused(&|config| config.rate_scale = 1e-9).contains("rate scale"));
    assert!(refused(&|config| config.links = 300).contains("links: 0 to 256, not 300"));
    assert!(refused(&|config| config.record_timeout = config.request_timeout).contains("no time for answers"));
    let none = super::Reach::Ticks(0);
    assert!(refused(&|config| (config.window_before, config.window_after) = (none, none)).contains("window"));
    let small = refused(&|config| config.hot_bytes = Some(16 << 20));
    let (_, least) = small.split_once("at least ").expect("the least is named");
    let least = least.split(' ').next().unwrap().parse().unwrap();
    assert!(Plan::new(&MiniDaqConfig { hot_bytes: Some(least), ..config() }).is_ok(), "{small}");
    assert!(refused(&|config| config.input = Some("/no/such/file".into())).contains("/no/such/file"));
}
