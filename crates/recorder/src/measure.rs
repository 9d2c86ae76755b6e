//! Measures the rate of a device by writing to it as the recording does.

use super::config::RecordingConfig;
use forebay_core::{Error, Result};
use forebay_media::warm::{Buffer, Device, Done};
use std::io;
use std::time::{Duration, Instant};

const FILE: &str = "measure.fb";
/// Length of the file; less where there is not so much room.
const FILE_BYTES: u64 = 256 << 20;
/// How long one answer of the device is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes per second over `time`, the last sync included.
pub(super) fn rate(device: &dyn Device, config: &RecordingConfig, time: Duration) -> Result<u64> {
    let failed = |error: io::Error| {
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let message = format!("{}: its rate cannot be measured", device.name());
        if full { Error::full(message) } else { Error::unavailable(message) }.with_source(error)
    };
    let io_bytes = config.io_bytes as u64;
    // Half of what is free: measuring must not take the space of the recording's own files, the manifest among them.
    let room = device.free_bytes().map_err(failed)? / 2;
    let writes = FILE_BYTES.min(room) / io_bytes;
    if writes == 0 {
        let message = format!("{}: no room to measure its rate, {} bytes are free", device.name(), 2 * room);
        return Err(Error::full(message));
    }
    let measured = write(device, config, writes, time);
    // Also where it failed: nothing stays behind.
    let removed = device.remove(FILE).and_then(|()| device.sync_names());
    let rate = measured.map_err(failed)?;
    removed.map_err(failed)?;
    Ok(rate)
}

fn write(device: &dyn Device, config: &RecordingConfig, writes: u64, time: Duration) -> io::Result<u64> {
    let file = device.create(FILE, writes * config.io_bytes as u64)?;
    // As the recording will write: same size and depth, and bytes that a disk cannot compress to nothing.
    let mut queue = device.queue(config.depth)?;
    let buffer = || {
        let mut buffer = Buffer::new(config.io_bytes);
        buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 31 + at / 251) as u8);
        buffer
    };
    let mut buffers: Vec<Buffer> = (0..config.depth).map(|_| buffer()).collect();
    let answer = |done: Option<Done>| match done {
        Some(Done { result: Ok(bytes), buffer, .. }) => Ok((bytes as u64, buffer)),
        Some(Done { result: Err(error), .. }) => Err(error),
        None => Err(io::Error::new(io::ErrorKind::TimedOut, "it answers nothing")),
    };
    let start = Instant::now();
    let (mut written, mut number) = (0, 0);
    while start.elapsed() < time || queue.in_flight() > 0 {
        while start.elapsed() < time
            && let Some(buffer) = buffers.pop()
        {
            let offset = number % writes * config.io_bytes as u64;
            queue.write(number, file, offset, buffer, config.io_bytes);
            number += 1;
        }
        if queue.in_flight() > 0 {
            let (bytes, buffer) = answer(queue.complete(PATIENCE))?;
            written += bytes;
            buffers.extend(buffer);
        }
    }
    // Inside of the measured time: what is only in a cache was not taken yet.
    queue.sync(number, file);
    answer(queue.complete(PATIENCE))?;
    Ok((written as f64 / start.elapsed().as_secs_f64()) as u64)
}
