//! Writing images: one thread's way to the devices.
//!
//! ```text
//! append ─▶ extent: head | image | image | … | zeros        commit ─▶ ticket ─▶ poll, wait: durable in order
//! ```
//!
//! *Invariants*: every byte is copied once, and compared with its checksum in that pass; an append that finds no room
//! writes nothing at all; an image whose bytes do not verify is void there.
//!
//! *On failure*: `Unavailable`, from then on for every call; [`Writer::durable`] says what is durable. What was placed and
//! is not durable is the caller's to end (`Warm::ended`) and to write again with another writer.

use super::pipeline::{Bytes, Pipeline};
use super::request::{ImageDraft, ImagePlace, Placed, Target, Ticket};
use super::space::{Filling, Warm};
use crate::bytes::{
    CONTAINER_BLOCK_BYTES, CONTAINER_DATA_OFFSET, DirectoryBuilder, ExtentHead, ExtentKind, IMAGE_ALIGN,
};
use crate::hot::will_copy;
use forebay_core::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Writes images of one target; belongs to one thread.
pub struct Writer {
    pipeline: Pipeline,
    target: Target,
    meta: Vec<u8>,
}

/// What an image takes.
#[derive(Clone, Copy)]
struct Size {
    bytes: u64,
    entry_bytes: u64,
    too_large: bool,
}

/// Images that go into one container, and the container where it is not the one before.
struct Share {
    next: Option<Filling>,
    images: Range<usize>,
}

impl Warm {
    /// A writer for this target: it goes on with a container that is being filled for it, or takes a free one.
    ///
    /// # Errors
    /// `Full` where none is free; `Unavailable` where no device is there.
    pub fn writer(self: &Arc<Warm>, target: &Target) -> Result<Writer> {
        let filling = self.take(target)?;
        Writer::over(self, *target, filling)
    }

    /// Closes containers that nobody has written for the time `idle`, or whose device leaves, each with its directory. With zero
    /// all that no writer has.
    ///
    /// # Errors
    /// `Unavailable` where a device fails, or does not answer by the deadline; the others are closed.
    pub fn close_filling(self: &Arc<Warm>, idle: Duration, deadline: Instant) -> Result<()> {
        self.close_all(
            self.take_parked(|filling| self.age(filling.touched) >= idle || self.is_leaving(filling.device)),
            deadline,
        )
    }

    /// The same for those of decided events that began to be filled this long ago, or whose run is over.
    ///
    /// # Errors
    /// Those of [`Warm::close_filling`].
    pub fn close_begun(
        self: &Arc<Warm>,
        age: Duration,
        is_over: &dyn Fn(u64) -> bool,
        deadline: Instant,
    ) -> Result<()> {
        self.close_all(self.take_parked(|filling| self.is_due(filling, age, is_over)), deadline)
    }

    fn age(&self, moment: Instant) -> Duration {
        self.clock.timer().now().saturating_duration_since(moment)
    }

    /// Whether a container is closed for movers, although it has room.
    fn is_due(&self, filling: &Filling, age: Duration, is_over: &dyn Fn(u64) -> bool) -> bool {
        filling.stream.is_decided() && (self.age(filling.begun) >= age || is_over(filling.run))
    }

    fn close_all(self: &Arc<Warm>, fillings: Vec<Filling>, deadline: Instant) -> Result<()> {
        let mut failed = None;
        for filling in fillings {
            let target = Target {
                run: filling.run,
                stream: filling.stream,
                kind: filling.kind,
                device: Some(filling.device),
                moving: false,
            };
            let closed = Writer::over(self, target, filling).and_then(|writer| writer.finish(deadline));
            failed = closed.err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }
}

impl Writer {
    /// Whether it has what movers wait for: a container that [`Warm::close_begun`] would close, or one that takes no more and waits
    /// for this writer's next call to become full. Whatever it writes itself: a shared one may have come to it from another writer.
    pub fn keeps_from_movers(&self, age: Duration, is_over: &dyn Fn(u64) -> bool) -> bool {
        let (warm, mut all) = (&self.pipeline.warm, self.pipeline.fillings());
        all.any(|(filling, is_closing)| warm.is_due(filling, if is_closing { Duration::ZERO } else { age }, is_over))
    }

    fn over(warm: &Arc<Warm>, target: Target, filling: Filling) -> Result<Writer> {
        let mut pipeline = Pipeline::new(warm.clone());
        pipeline.begin(filling)?;
        Ok(Writer { pipeline, target, meta: Vec::new() })
    }

    /// Writes images, one extent for each container that they reach; answers for each where it is. Durable after
    /// the next commit.
    ///
    /// # Errors
    /// `Invalid` for keys of another length or payloads past 4 GiB; `Full` where another container is needed and none is
    /// free: nothing was written then; `Unavailable` where the device fails.
    pub fn append(&mut self, images: &[ImageDraft<'_>], kind: ExtentKind) -> Result<Vec<Placed>> {
        self.pipeline.check()?;
        // All sizes and all containers first: an append that finds no room must write nothing at all, or its caller would have
        // images that count beside the error.
        let sizes = images.iter().map(|image| self.size(image)).collect::<Result<Vec<Size>>>()?;
        let mut shares = self.share(&sizes)?.into_iter();
        let mut placed = Vec::with_capacity(images.len());
        placed.resize(images.len(), Placed::TooLarge);
        let mut result = Ok(());
        for share in shares.by_ref() {
            let written = self.write_share(share, images, &sizes, kind, &mut placed);
            if written.is_err() {
                result = written;
                break;
            }
        }
        // Containers that were taken for the rest go back; nobody will adopt what was placed.
        for next in shares.filter_map(|share| share.next) {
            self.pipeline.warm.park(next);
        }
        if let Err(error) = result {
            for (place, image) in placed.iter().zip(images) {
                if let Placed::At(place) = place {
                    self.pipeline.warm.ended(*place, image.entries.len() as u32);
                }
            }
            return Err(error);
        }
        Ok(placed)
    }

    /// Asks that all appended so far become durable. Does not wait for it: writing goes on meanwhile.
    ///
    /// # Errors
    /// `Unavailable` where the device fails.
    pub fn commit(&mut self) -> Result<Ticket> {
        self.pipeline.commit().map(Ticket)
    }

    /// The last commit that is durable, and with it all before it. Does not wait.
    ///
    /// # Errors
    /// `Unavailable` where the device has failed.
    pub fn poll(&mut self) -> Result<Ticket> {
        self.pipeline.reap();
        self.pipeline.check()?;
        Ok(self.durable())
    }

    /// The last commit that was found durable; also after a failure.
    pub fn durable(&self) -> Ticket {
        Ticket(self.pipeline.durable())
    }

    /// Waits until a commit is durable.
    ///
    /// # Errors
    /// `Unavailable` where the device fails, or at the deadline: the commit may still become durable then.
    pub fn wait(&mut self, ticket: Ticket, deadline: Instant) -> Result<()> {
        if self.pipeline.wait_for(Some(deadline), |pipeline| pipeline.durable() >= ticket.0)? {
            return Ok(());
        }
        Err(Error::unavailable(format!("commit {} is not durable by its deadline", ticket.0)))
    }

    /// After a failure: waits until nothing is under way any more; answers the last durable commit.
    pub fn settle(&mut self, deadline: Instant) -> Ticket {
        self.pipeline.wait_idle(deadline);
        self.durable()
    }

    /// Closes the container with its directory, and waits until that is durable.
    ///
    /// # Errors
    /// `Unavailable` where the device fails, or at the deadline.
    pub fn finish(mut self, deadline: Instant) -> Result<()> {
        self.pipeline.close_active()?;
        if !self.pipeline.wait_idle(deadline) {
            return Err(Error::unavailable("a container is not closed by the deadline".to_owned()));
        }
        self.pipeline.check()
    }

    /// Whether a container that it fills or closes is on a device that leaves.
    pub fn is_on_leaving(&self) -> bool {
        self.pipeline.is_on_leaving()
    }

    fn size(&self, image: &ImageDraft<'_>) -> Result<Size> {
        let layout = self.pipeline.warm.layout;
        let keys = image.primary.len() == layout.primary_bytes()
            && image.entries.iter().all(|entry| entry.rest.len() == layout.rest_bytes());
        if !keys {
            return Err(Error::invalid(format!(
                "an image with keys of other lengths than {} + {}",
                layout.primary_bytes(),
                layout.rest_bytes()
            )));
        }
        if let Some(entry) = image.entries.iter().find(|entry| u32::try_from(entry.payload.len()).is_err()) {
            return Err(Error::invalid(format!("a fragment of {} bytes: 4 GiB is too much", entry.payload.len())));
        }
        let bytes = layout.image_bytes(image.entries.iter().map(|entry| entry.payload.len()), image.record_bytes());
        let entry_bytes = DirectoryBuilder::entry_bytes(layout.meta_bytes(image.entries.len(), image.record_bytes()));
        // As the first image of an empty container: what does not fit there fits nowhere.
        let end = CONTAINER_DATA_OFFSET + ExtentHead::BYTES as u64 + bytes;
        let directory = DirectoryBuilder::new().len() + entry_bytes;
        let too_large = !Filling::fits(self.pipeline.warm.shape.container_bytes, 0, end, directory);
        Ok(Size { bytes, entry_bytes, too_large })
    }

    /// Deals the images out over the container that is being filled and as many more as they need.
    fn share(&mut self, sizes: &[Size]) -> Result<Vec<Share>> {
        let warm = self.pipeline.warm.clone();
        let mut shares = Vec::new();
        let mut share = Share { next: None, images: 0..0 };
        let room_of = |filling: &Filling| (filling.images, filling.position, filling.directory.len());
        // Computed without writing: the containers that are taken here go back if one of them is not available.
        // On a device that leaves nothing begins any more: what is filled there has no room.
        let mut room = match self.pipeline.filling().filter(|filling| !warm.is_leaving(filling.device)) {
            Some(filling) => room_of(filling),
            None => {
                let filling = warm.take(&self.target)?;
                let room = room_of(&filling);
                share.next = Some(filling);
                room
            }
        };
        let mut end = room.1 + ExtentHead::BYTES as u64;
        for (at, size) in sizes.iter().enumerate() {
            if size.too_large {
                share.images.end = at + 1;
                continue;
            }
            while !Filling::fits(warm.shape.container_bytes, room.0, end + size.bytes, room.2 + size.entry_bytes) {
                let next = match warm.take(&self.target) {
                    Ok(next) => next,
                    Err(error) => {
                        shares.push(share);
                        shares.into_iter().filter_map(|share| share.next).for_each(|next| warm.park(next));
                        return Err(error);
                    }
                };
                room = room_of(&next);
                end = room.1 + ExtentHead::BYTES as u64;
                shares.push(std::mem::replace(&mut share, Share { next: Some(next), images: at..at }));
            }
            end += size.bytes;
            room = (room.0 + 1, room.1, room.2 + size.entry_bytes);
            share.images.end = at + 1;
        }
        shares.push(share);
        Ok(shares)
    }

    fn write_share(
        &mut self,
        share: Share,
        images: &[ImageDraft<'_>],
        sizes: &[Size],
        kind: ExtentKind,
        placed: &mut [Placed],
    ) -> Result<()> {
        if let Some(next) = share.next {
            if let Err(error) = self.pipeline.close_active() {
                self.pipeline.warm.park(next);
                return Err(error);
            }
            self.pipeline.begin(next)?;
        }
        let taken: Vec<usize> = share.images.filter(|at| !sizes[*at].too_large).collect();
        if taken.is_empty() { Ok(()) } else { self.write_extent(&taken, images, sizes, kind, placed) }
    }

    fn write_extent(
        &mut self,
        taken: &[usize],
        images: &[ImageDraft<'_>],
        sizes: &[Size],
        kind: ExtentKind,
        placed: &mut [Placed],
    ) -> Result<()> {
        // The header of this filling goes out before its first byte: recovery looks for extents of a generation only where a
        // header, or a torn copy of one, says that it began.
        self.pipeline.announce();
        let (seed, start) =
            self.pipeline.place().ok_or_else(|| Error::internal("a writer without a container to fill"))?;
        let entries = || taken.iter().flat_map(|at| &images[*at].entries);
        let whole = ExtentHead::BYTES as u64 + taken.iter().map(|at| sizes[*at].bytes).sum::<u64>();
        let payload_bytes = entries().map(|entry| entry.payload.len() as u64).sum();
        let filling = self.pipeline.filling().ok_or_else(|| Error::internal("a writer without a container to fill"))?;
        let head = ExtentHead {
            bytes: whole.next_multiple_of(CONTAINER_BLOCK_BYTES),
            images: taken.len() as u32,
            fragments: entries().count() as u32,
            // Recovery's proof: everything before this point was durable when this extent was written. So a hole in front of it
            // is a loss, and one behind it may never have been acknowledged.
            committed: filling.durable,
            number: filling.extents,
            kind,
            payload_bytes,
        };
        filling.extents += 1;
        let device = filling.device;
        self.pipeline.put(&head.encode(seed, start), Bytes::Data)?;
        for at in taken {
            placed[*at] = self.write_image(&images[*at])?;
        }
        // Padded to the block: the next extent never rewrites a block that holds acknowledged bytes.
        self.pipeline.align(CONTAINER_BLOCK_BYTES, Bytes::Padding)?;
        let end = self.pipeline.place().map(|(_, end)| end);
        debug_assert_eq!(end, Some(start + head.bytes), "an extent of another length than its head says");
        self.pipeline.end_extent();
        self.pipeline.warm.devices[device as usize].counters.appended(payload_bytes);
        Ok(())
    }

    fn write_image(&mut self, image: &ImageDraft<'_>) -> Result<Placed> {
        let layout = self.pipeline.warm.layout;
        let (seed, position) =
            self.pipeline.place().ok_or_else(|| Error::internal("a writer without a container to fill"))?;
        self.meta.clear();
        let entries = image.entries.iter().map(|entry| entry.meta());
        let head = layout.encode(image.marks, image.primary, entries, image.record, seed, position, &mut self.meta);
        // Its payloads are compared while they are copied: the head must not leave memory before all of them have verified.
        self.pipeline.hold(position..position + layout.void_bytes() as u64);
        self.pipeline.put(&self.meta, Bytes::Data)?;
        let mut rotten = Vec::new();
        for (at, entry) in image.entries.iter().enumerate() {
            // The next payload is on its way from memory while this one is copied.
            if let Some(next) = image.entries.get(at + 1) {
                will_copy(next.payload);
            }
            if self.pipeline.put_payload(entry.payload)? != entry.crc {
                rotten.push(at);
            }
            self.pipeline.align(8, Bytes::Data)?;
        }
        self.pipeline.align(IMAGE_ALIGN, Bytes::Data)?;
        let end = self.pipeline.place().map(|(_, end)| end);
        debug_assert_eq!(end, Some(position + head.bytes), "an image of another length than its head says");
        // A void image of the same length: the images behind it keep their places, and a scan steps over it.
        if !rotten.is_empty() {
            self.pipeline.patch(position, &layout.encode_void(head.bytes, seed, position));
        }
        self.pipeline.release()?;
        if !rotten.is_empty() {
            return Ok(Placed::Rotten(rotten));
        }
        let Some(filling) = self.pipeline.filling() else { return Ok(Placed::TooLarge) };
        filling.directory.push(position, &self.meta);
        filling.images += 1;
        filling.fragments += u64::from(head.fragments);
        filling.payload_bytes += head.payload_bytes;
        let place = ImagePlace { container: filling.container, position };
        self.pipeline.warm.containers[place.container as usize].append(position + head.bytes, head.fragments);
        Ok(Placed::At(place))
    }
}
