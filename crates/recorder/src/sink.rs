//! Images of a recording to the containers of one device: one extent each.

use super::image::Image;
use super::lane::Sink;
use forebay_core::{Error, Result};
use forebay_media::bytes::{ContainerKind, ExtentKind, ImageMarks, Stream};
use forebay_media::warm::{ImageDraft, Placed, Target, Ticket, Warm, Writer};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Writes to the containers of one device.
pub(super) struct ContainerSink {
    warm: Arc<Warm>,
    target: Target,
    writer: Option<Writer>,
    /// Tickets of writers before this one.
    before: u64,
    asked: u64,
    /// How long closing waits for the device.
    patience: Duration,
}

impl ContainerSink {
    pub(super) fn new(warm: Arc<Warm>, run: u64, device: u32, patience: Duration) -> ContainerSink {
        // Links of a device share its containers: with one for each link a disk would seek between them.
        let stream = Stream::Recording(device as u16 & Stream::RECORDING_MAX);
        // It may take the last free container: nothing here empties others, and a recording may use all it was given.
        let target = Target { run, stream, kind: ContainerKind::Recording, device: Some(device), moving: true };
        ContainerSink { warm, target, writer: None, before: 0, asked: 0, patience }
    }

    fn writer(&mut self) -> Result<&mut Writer> {
        match &mut self.writer {
            Some(writer) => Ok(writer),
            none => Ok(none.insert(self.warm.writer(&self.target)?)),
        }
    }

    fn ticket(&self, ticket: Ticket) -> u64 {
        self.before + ticket.0
    }
}

impl Sink for ContainerSink {
    fn append(&mut self, image: &Image) -> Result<()> {
        let mut entries = Vec::with_capacity(image.frames.len());
        entries.extend(image.frames.iter().map(|frame| frame.draft(image.payload(frame))));
        let draft = ImageDraft { primary: &image.primary, marks: ImageMarks::default(), entries, record: None };
        let placed = self.writer()?.append(std::slice::from_ref(&draft), ExtentKind::Recorded)?;
        match placed.first() {
            // The place is not kept: containers of a recording are never reclaimed, and playing back finds it by the tables.
            Some(Placed::At(_)) => Ok(()),
            Some(Placed::Rotten(entries)) => {
                Err(Error::corrupt(format!("{} frames changed in memory before they were written", entries.len())))
            }
            Some(Placed::TooLarge) | None => Err(Error::internal("an extent does not fit an empty container")),
        }
    }

    fn commit(&mut self) -> Result<u64> {
        let ticket = self.writer()?.commit()?;
        debug_assert!(self.ticket(ticket) > self.asked, "tickets grow over all writers");
        self.asked = self.ticket(ticket);
        Ok(self.asked)
    }

    fn poll(&mut self) -> Result<u64> {
        let ticket = self.writer()?.poll()?;
        Ok(self.ticket(ticket))
    }

    fn durable(&self) -> u64 {
        self.writer.as_ref().map_or(self.before, |writer| self.ticket(writer.durable()))
    }

    fn renew(&mut self) {
        // Tickets of the next writer begin again at one: behind all that were asked for, so that none is taken for durable.
        self.writer = None;
        self.before = self.asked;
    }

    fn close(&mut self) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        let finished = self.writer.take().map_or(Ok(()), |writer| writer.finish(deadline));
        finished.and(self.warm.close_filling(Duration::ZERO, deadline))
    }
}
