use forebay_core::*;
use std::sync::Arc;
use std::time::Instant;
pub(crate) struct Warm;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImagePlace {
    pub container: u32,
    pub position: u64,
}
pub(crate) struct ReadImage;
impl ReadImage {
    pub(crate) fn entry(&self, _i: u32) -> Result<Entry> {
        todo!()
    }
    pub(crate) fn payload(&self, _i: u32) -> Result<&[u8]> {
        todo!()
    }
}
impl Warm {
    pub(crate) fn create(
        _d: Vec<Arc<dyn super::Device>>,
        _b: Vec<u64>,
        _s: [u8; 16],
        _w: (usize, usize),
        _sh: WarmShape,
    ) -> Result<Warm> {
        todo!()
    }
    pub(crate) fn open(
        _d: Vec<Arc<dyn super::Device>>,
        _s: [u8; 16],
        _w: (usize, usize),
        _sh: WarmShape,
        _a: bool,
    ) -> Result<(Warm, Found)> {
        todo!()
    }
    pub(crate) fn store_of(_d: &[Arc<dyn super::Device>]) -> Result<[u8; 16]> {
        todo!()
    }
    pub(crate) fn images(&self, _f: &Found, _e: &mut dyn FnMut(ImagePlace, &Image<'_>) -> Result<()>) -> Result<()> {
        todo!()
    }
    pub(crate) fn images_of(&self, _c: u32, _e: &mut dyn FnMut(ImagePlace, &Image<'_>) -> Result<()>) -> Result<()> {
        todo!()
    }
    pub(crate) fn writer(self: &Arc<Warm>, _t: &Target) -> Result<Writer> {
        todo!()
    }
    pub(crate) fn maintain(&self) {}
    pub(crate) fn close_filling(&self) -> Result<()> {
        Ok(())
    }
    pub(crate) fn victim(&self, _f: f64) -> Option<u32> {
        None
    }
    pub(crate) fn begin_drain(&self, _s: Stream) -> Result<Option<u32>> {
        todo!()
    }
    pub(crate) fn end_drain(&self, _c: u32) -> Result<()> {
        todo!()
    }

    pub(crate) fn pin(&self, _c: u32) {}
    pub(crate) fn unpin(&self, _c: u32) {}
    pub(crate) fn ended(&self, _c: ImagePlace, _n: u32) {}
    pub(crate) fn adopt(&self, _c: ImagePlace, _n: u32) {}
    pub(crate) fn read(&self, _c: ImagePlace, _h: u64) -> Result<Arc<ReadImage>> {
        todo!()
    }
}
pub(crate) use forebay_core::ExtentKind;
pub(crate) struct Found {
    pub losses: Vec<String>,
}
pub(crate) struct Writer;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub run: u64,
    pub stream: Stream,
    pub kind: ContainerKind,
    pub device: Option<u32>,
    pub moving: bool,
}
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(pub u64);
pub(crate) enum Placed {
    At(ImagePlace),
    Rotten(Vec<usize>),
    TooLarge,
}
pub(crate) use forebay_core::ImageRecord as RecordPlan;
pub(crate) struct ImagePlan<'a> {
    pub primary: &'a [u8],
    pub marks: ImageMarks,
    pub entries: Vec<EntryPlan<'a>>,
    pub record: Option<RecordPlan<'a>>,
}
pub(crate) struct EntryPlan<'a> {
    pub rest: &'a [u8],
    pub payload: &'a [u8],
    pub crc: u32,
    pub status: u32,
    pub version: u16,
    pub flags: EntryFlags,
}
impl Writer {
    pub(crate) fn append(&mut self, _i: &[ImagePlan<'_>], _k: ExtentKind) -> Result<Vec<Placed>> {
        todo!()
    }
    pub(crate) fn commit(&mut self) -> Result<Ticket> {
        todo!()
    }
    pub(crate) fn poll(&mut self) -> Result<Ticket> {
        todo!()
    }
    pub(crate) fn durable(&self) -> Ticket {
        todo!()
    }
    pub(crate) fn wait(&mut self, _t: Ticket, _d: Instant) -> Result<()> {
        todo!()
    }
}
#[derive(Default)]
pub(crate) struct WarmShape {
    pub container_bytes: u64,
    pub log_bytes: u64,
    pub io_bytes: usize,
    pub depth: usize,
    pub stall: std::time::Duration,
    pub open_max: usize,
}
