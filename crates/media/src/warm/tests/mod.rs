//! Tests of the container engine, on devices in memory that forget, fail, tear, shift and stall.

mod bounds;
mod cuts;
mod faults;
mod fixture;
mod recovery;
mod round_trip;
mod space;

use super::*;
use crate::bytes::{ContainerKind, EntryFlags, ExtentKind, ImageMarks, ImageState, Stream};
use crate::sim::SimDevice;
use forebay_core::{Kind, Result, crc32c};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const STORE: [u8; 16] = [42; 16];
const WIDTHS: (usize, usize) = (9, 3);

/// Small enough that containers fill and buffers run out within a few events.
const SHAPE: WarmShape = WarmShape {
    container_bytes: 256 << 10,
    log_bytes: 64 << 10,
    io_bytes: 16 << 10,
    depth: 4,
    stall: Duration::from_secs(2),
    open_max: 4,
};

fn bytes_for(containers: u64) -> u64 {
    containers * SHAPE.container_bytes + 2 * SHAPE.log_bytes + 2 * BLOCK_BYTES as u64
}

fn sim(name: &str) -> Arc<SimDevice> {
    SimDevice::new(name, 1 << 30)
}

fn create(devices: &[Arc<dyn Device>], containers: u64) -> Arc<Warm> {
    let sizes = vec![bytes_for(containers); devices.len()];
    Arc::new(Warm::create(devices.to_vec(), sizes, STORE, WIDTHS, SHAPE).unwrap())
}

fn open(devices: &[Arc<dyn Device>], accept_loss: bool) -> Result<(Arc<Warm>, Found)> {
    let (warm, found) = Warm::open(devices.to_vec(), STORE, WIDTHS, SHAPE, accept_loss)?;
    Ok((Arc::new(warm), found))
}

fn target(run: u64) -> Target {
    Target { run, stream: Stream::Undecided, kind: ContainerKind::Events, device: None, moving: false }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// An event as a test makes it: named by its number, with payloads of these lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    number: u64,
    payloads: Vec<Vec<u8>>,
}

impl Event {
    fn new(number: u64, lengths: &[usize]) -> Event {
        let fill = |at: usize, length: usize| {
            (0..length)
                .map(|byte| (byte as u64 * 31 + number * 7 + at as u64 * 131 + (byte as u64 >> 8)) as u8)
                .collect()
        };
        Event { number, payloads: lengths.iter().enumerate().map(|(at, length)| fill(at, *length)).collect() }
    }

    fn primary(&self) -> [u8; 9] {
        let mut primary = [7; 9];
        primary[1..].copy_from_slice(&self.number.to_be_bytes());
        primary
    }

    fn marks(&self) -> ImageMarks {
        ImageMarks {
            state: if self.number.is_multiple_of(2) { ImageState::Accepted } else { ImageState::Undecided },
            stage: 1,
            deliveries: (self.number % 3) as u8,
            ready: true,
            masked: false,
            detail: self.number as u32,
        }
    }

    fn fragments(&self) -> u32 {
        self.payloads.len() as u32
    }
}

fn rest(at: usize) -> [u8; 3] {
    [(at >> 16) as u8, (at >> 8) as u8, at as u8]
}

/// Appends events as one batch.
fn append(writer: &mut Writer, events: &[Event]) -> Result<Vec<Placed>> {
    let keys: Vec<[u8; 9]> = events.iter().map(Event::primary).collect();
    let rests: Vec<[u8; 3]> =
        (0..events.iter().map(|event| event.payloads.len()).max().unwrap_or(0)).map(rest).collect();
    let plans: Vec<ImageDraft<'_>> = events
        .iter()
        .zip(&keys)
        .map(|(event, primary)| ImageDraft {
            primary,
            marks: event.marks(),
            record: None,
            entries: event
                .payloads
                .iter()
                .zip(&rests)
                .map(|(payload, rest)| EntryDraft {
                    rest,
                    payload,
                    crc: crc32c(payload),
                    status: 5,
                    version: 0,
                    flags: EntryFlags::FRAGMENT,
                })
                .collect(),
        })
        .collect();
    writer.append(&plans, ExtentKind::Demoted)
}

fn place_of(placed: &Placed) -> ImagePlace {
    let Placed::At(place) = placed else { panic!("not placed: {placed:?}") };
    *place
}

/// Appends events, one batch each, and waits until they are durable.
fn write_durably(writer: &mut Writer, events: &[Event]) -> Vec<ImagePlace> {
    let mut places = Vec::new();
    for event in events {
        places.extend(append(writer, std::slice::from_ref(event)).unwrap().iter().map(place_of));
    }
    let ticket = writer.commit().unwrap();
    writer.wait(ticket, soon()).unwrap();
    places
}

/// Reads an event back, comparing every checksum.
fn read(warm: &Arc<Warm>, place: ImagePlace, hint: u64) -> Result<Event> {
    let image = warm.read(place, hint)?;
    let number = u64::from_be_bytes(image.primary()[1..].try_into().unwrap());
    let mut payloads = Vec::new();
    for (at, (entry, offset)) in image.table().unwrap().enumerate() {
        assert_eq!(entry.rest, rest(at));
        assert_eq!((entry.status, entry.flags), (5, EntryFlags::FRAGMENT));
        payloads.push(image.payload(&entry, offset)?.to_vec());
    }
    let event = Event { number, payloads };
    assert_eq!(image.head.marks, event.marks());
    Ok(event)
}

/// Takes in what an opening tells, adopting all of it.
fn adopt_all(warm: &Arc<Warm>, found: &mut Found) -> Result<BTreeMap<u64, ImagePlace>> {
    let mut told = BTreeMap::new();
    warm.images(found, &mut |place, image| {
        assert_eq!(image.table().len(), image.head.fragments as usize);
        let number = u64::from_be_bytes(image.primary[1..].try_into().unwrap());
        assert!(told.insert(number, place).is_none(), "event {number} told twice");
        warm.adopt(place, image.head.fragments);
        Ok(())
    })?;
    Ok(told)
}

/// Reopens and compares with what must be there, byte by byte.
fn reopen_and_compare(devices: &[Arc<dyn Device>], events: &[Event]) -> Arc<Warm> {
    let (warm, mut found) = open(devices, false).unwrap();
    let told = adopt_all(&warm, &mut found).unwrap();
    assert_eq!(found.losses, Vec::<String>::new());
    assert_eq!(told.keys().copied().collect::<Vec<_>>(), events.iter().map(|event| event.number).collect::<Vec<_>>());
    for event in events {
        assert_eq!(read(&warm, told[&event.number], 0).unwrap(), *event);
    }
    warm
}

fn end(warm: &Warm, place: ImagePlace, event: &Event) -> bool {
    warm.ended(place, event.fragments())
}

fn phase(warm: &Warm, container: u32) -> Phase {
    warm.containers()[container as usize].phase
}
