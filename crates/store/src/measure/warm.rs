//! The warm level by itself: its writer fed from memory, its reader, its counters.

use forebay_core::{Error, KeySchema, Primary, Result};
use forebay_media::bytes::{CONTAINER_BLOCK_BYTES, ContainerKind, EntryFlags, ExtentKind, ImageMarks, Stream};
use forebay_media::hot::{self, copy_checksum_append, will_copy};
use forebay_media::sync::deadline_after;
use forebay_media::warm::{
    Buffer, Device, DirectoryDevice, EntryDraft, ImageDraft, ImagePlace, IoMethod, Placed, Target, Ticket, Warm,
    WarmShape, Writer,
};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long anything here is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
/// Commits that a writer may have under way.
const COMMITS_MAX: usize = 4;
/// The run of every event.
const RUN: u64 = 1;

/// How a warm level for measurements is cut.
#[derive(Clone, Debug)]
pub struct WarmPlan {
    /// Empty directories, one for each device.
    pub dirs: Vec<PathBuf>,
    /// Containers of each device.
    pub containers: u64,
    /// Bytes of each.
    pub container_bytes: u64,
    /// Bytes of one write.
    pub operation_bytes: usize,
    /// Writes under way per writer.
    pub depth: usize,
    /// Payload after which durability is asked for, in bytes; 0 asks after every extent.
    pub commit_bytes: u64,
}

/// A fragment's bytes and the checksum that they have.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Their CRC-32C.
    pub checksum: u32,
}

/// Where an event is.
#[derive(Clone, Copy, Debug)]
pub struct EventPlace {
    place: ImagePlace,
    /// What its image takes at most, in bytes.
    hint_bytes: u64,
}

/// Bytes that went through the devices, as they count them.
#[derive(Clone, Copy, Debug, Default)]
pub struct WarmCounters {
    /// All bytes written: events, padding, directories, headers.
    pub bytes_written: u64,
    /// Payload that was appended, in bytes.
    pub payload_bytes: u64,
    /// Read operations.
    pub reads: u64,
    /// Syncs that made something durable.
    pub commits: u64,
}

/// A warm level and nothing around it.
pub struct WarmLevel {
    warm: Arc<Warm>,
    schema: KeySchema,
    commit_bytes: u64,
}

/// One thread's writer.
pub struct Writing<'a> {
    level: &'a WarmLevel,
    writer: Writer,
    kind: ExtentKind,
    commits: VecDeque<(Ticket, usize)>,
    placed: Vec<EventPlace>,
    durable: usize,
    /// Payload appended since the last commit, in bytes.
    pending: u64,
}

/// CRC-32C of a payload.
pub fn checksum(bytes: &[u8]) -> u32 {
    hot::checksum(bytes)
}

impl WarmLevel {
    /// Makes a level in these directories, for keys of run, event and source.
    ///
    /// # Errors
    /// As the creation of a store's.
    pub fn create(plan: &WarmPlan) -> Result<WarmLevel> {
        let schema = KeySchema::run_event_source();
        let shape = WarmShape {
            container_bytes: plan.container_bytes,
            log_bytes: 1 << 20,
            io_bytes: plan.operation_bytes,
            depth: plan.depth,
            ..WarmShape::default()
        };
        let bytes = plan.containers * plan.container_bytes + 2 * shape.log_bytes + 2 * CONTAINER_BLOCK_BYTES;
        let device = |dir: &PathBuf| -> Result<Arc<dyn Device>> {
            let device = DirectoryDevice::open(dir, IoMethod::Auto, true);
            let name = dir.display();
            Ok(Arc::new(device.map_err(|error| Error::unavailable(format!("device {name}")).with_source(error))?))
        };
        let devices = plan.dirs.iter().map(device).collect::<Result<Vec<_>>>()?;
        let sizes = vec![bytes; devices.len()];
        let widths = (schema.primary_bytes(), schema.rest_bytes());
        let warm = Warm::create(devices, sizes, [7; 16], widths, shape)?;
        Ok(WarmLevel { warm: Arc::new(warm), schema, commit_bytes: plan.commit_bytes })
    }

    /// How its devices are written.
    pub fn method(&self) -> String {
        self.warm.devices().into_iter().map(|device| device.method).collect::<Vec<_>>().join("; ")
    }

    /// What went through all devices so far.
    pub fn counters(&self) -> WarmCounters {
        self.warm.devices().into_iter().fold(WarmCounters::default(), |sum, device| WarmCounters {
            bytes_written: sum.bytes_written + device.counts.written(),
            payload_bytes: sum.payload_bytes + device.counts.payload,
            reads: sum.reads + device.counts.reads,
            commits: sum.commits + device.counts.commits,
        })
    }

    /// A writer for the calling thread: demoted events of this stream, to the named device or any.
    ///
    /// # Errors
    /// `Full` where no container is free.
    pub fn writing(&self, stream: u8, device: Option<u32>) -> Result<Writing<'_>> {
        let (stream, kind) = (Stream::Accepted(stream), ContainerKind::Events);
        let writer = self.warm.writer(&Target { run: RUN, stream, kind, device, moving: false })?;
        let (commits, placed) = (VecDeque::new(), Vec::new());
        Ok(Writing { level: self, writer, kind: ExtentKind::Demoted, commits, placed, durable: 0, pending: 0 })
    }

    /// Reads an event whole, its table verified and its payload untouched; answers the bytes of payload.
    ///
    /// # Errors
    /// `Corrupt` where something does not verify.
    pub fn read(&self, event: &EventPlace) -> Result<u64> {
        Ok(self.warm.read(event.place, event.hint_bytes)?.head.payload_bytes)
    }

    /// Reads an event whole and verifies each fragment; answers the bytes of payload.
    ///
    /// # Errors
    /// `Corrupt` where something does not verify.
    pub fn read_verified(&self, event: &EventPlace) -> Result<u64> {
        let image = self.warm.read(event.place, event.hint_bytes)?;
        let table = image.table().ok_or_else(|| Error::internal("an image without a table"))?;
        table.map(|(entry, offset)| image.payload(&entry, offset).map(|payload| payload.len() as u64)).sum()
    }

    /// Closes the containers that nobody writes, each with its directory.
    ///
    /// # Errors
    /// `Unavailable` where a device fails.
    pub fn close(&self) -> Result<()> {
        self.warm.close_filling(Duration::ZERO, deadline_after(PATIENCE))
    }

    /// Ends these events of this many fragments each, and empties every container that holds nothing else.
    ///
    /// # Errors
    /// `Unavailable` where a device fails.
    pub fn recycle(&self, events: &[EventPlace], fragments: u32) -> Result<()> {
        self.close()?;
        for event in events {
            self.warm.ended(event.place, fragments);
        }
        self.warm.reclaim_empty(None).map(drop)
    }
}

impl Writing<'_> {
    /// Appends events of `per_event` fragments each, numbered from `first`, as one extent, and asks for durability after
    /// `WarmPlan::commit_bytes`. Waits only where too many commits are under way.
    ///
    /// # Errors
    /// `Full` without a free container; `Unavailable` where the device fails; `Internal` for payloads that do not verify.
    pub fn append(&mut self, first: u64, fragments: &[Payload<'_>], per_event: usize) -> Result<()> {
        let schema = &self.level.schema;
        let keys = (0..per_event as u64).map(|source| schema.key(&[RUN, 0, source])).collect::<Result<Vec<_>>>()?;
        let rests: Vec<&[u8]> = keys.iter().map(|key| &key.as_bytes()[schema.primary_bytes()..]).collect();
        let events = fragments.chunks_exact(per_event);
        let primaries = (first..first + events.len() as u64)
            .map(|event| schema.primary(&[RUN, event]))
            .collect::<Result<Vec<_>>>()?;
        let images: Vec<ImageDraft<'_>> =
            events.zip(&primaries).map(|(event, primary)| plan(primary, &rests, event)).collect();
        for (placed, image) in self.writer.append(&images, self.kind)?.into_iter().zip(&images) {
            let Placed::At(place) = placed else {
                return Err(Error::internal(format!("an event was answered {placed:?}")));
            };
            let payload: usize = image.entries.iter().map(|entry| entry.payload.len() + 8).sum();
            let table = image.entries.iter().map(|entry| entry.rest.len() + 18).sum::<usize>();
            self.placed.push(EventPlace { place, hint_bytes: (payload + table) as u64 + 128 });
        }
        self.pending += fragments.iter().map(|fragment| fragment.bytes.len() as u64).sum::<u64>();
        if self.pending >= self.level.commit_bytes {
            self.commit()?;
        }
        while self.commits.len() > COMMITS_MAX {
            self.wait_for_first()?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        let ticket = self.writer.commit()?;
        self.commits.push_back((ticket, self.placed.len()));
        self.pending = 0;
        Ok(())
    }

    /// Appends as [`Writing::append`] does, as puts that are acknowledged: returns once they are durable.
    ///
    /// # Errors
    /// As there.
    pub fn put_persisted(&mut self, first: u64, fragments: &[Payload<'_>], per_event: usize) -> Result<()> {
        self.kind = ExtentKind::Persisted;
        self.append(first, fragments, per_event)?;
        self.wait()
    }

    /// The events that are durable by now, in the order in which they were appended.
    ///
    /// # Errors
    /// `Unavailable` where the device has failed.
    pub fn durable(&mut self) -> Result<&[EventPlace]> {
        let durable = self.writer.poll()?;
        while let Some((_, count)) = self.commits.pop_front_if(|commit| commit.0 <= durable) {
            self.durable = count;
        }
        Ok(&self.placed[..self.durable])
    }

    /// Waits until everything is durable; answers all events.
    ///
    /// # Errors
    /// `Unavailable` where the device fails.
    pub fn finish(mut self) -> Result<Vec<EventPlace>> {
        self.wait()?;
        Ok(self.placed)
    }

    /// Commits what is pending and waits for all commits.
    fn wait(&mut self) -> Result<()> {
        if self.pending > 0 {
            self.commit()?;
        }
        while !self.commits.is_empty() {
            self.wait_for_first()?;
        }
        Ok(())
    }

    fn wait_for_first(&mut self) -> Result<()> {
        let Some((ticket, count)) = self.commits.pop_front() else { return Ok(()) };
        self.writer.wait(ticket, deadline_after(PATIENCE))?;
        self.durable = count;
        Ok(())
    }
}

fn plan<'a>(primary: &'a Primary, rests: &[&'a [u8]], fragments: &[Payload<'a>]) -> ImageDraft<'a> {
    let entry = |(rest, payload): (&&'a [u8], &Payload<'a>)| EntryDraft {
        rest,
        payload: payload.bytes,
        crc: payload.checksum,
        status: 0,
        version: 0,
        flags: EntryFlags::FRAGMENT,
    };
    ImageDraft {
        primary: primary.as_bytes(),
        marks: ImageMarks { ready: true, ..ImageMarks::default() },
        record: None,
        entries: rests.iter().zip(fragments).map(entry).collect(),
    }
}

/// Copies these payloads, over and over until `bytes` are copied, into buffers of `buffer_bytes` used in turn, as the
/// writer does, and compares the checksums; answers the bytes copied.
///
/// # Errors
/// `Corrupt` for a payload without its checksum.
pub fn copy_bare(payloads: &[Payload<'_>], bytes: u64, buffer_bytes: usize, buffers: usize) -> Result<u64> {
    let mut buffers: Vec<Buffer> = (0..buffers.max(1)).map(|_| Buffer::new(buffer_bytes)).collect();
    let (mut copied, mut current, mut fill) = (0, 0, 0);
    for at in (0..payloads.len()).cycle() {
        if copied >= bytes {
            break;
        }
        will_copy(payloads[(at + 1) % payloads.len()].bytes);
        let (mut left, mut crc) = (payloads[at].bytes, 0);
        while !left.is_empty() {
            let room = &mut buffers[current][fill..];
            let length = left.len().min(room.len());
            crc = copy_checksum_append(crc, &mut room[..length], &left[..length]);
            (left, fill) = (&left[length..], fill + length);
            if fill == buffer_bytes {
                (current, fill) = ((current + 1) % buffers.len(), 0);
            }
        }
        if crc != payloads[at].checksum {
            return Err(Error::corrupt("a payload does not have its checksum"));
        }
        copied += payloads[at].bytes.len() as u64;
    }
    Ok(copied)
}
