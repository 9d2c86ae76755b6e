//! Names under which reports show what was measured of the warm level.

use crate::bench::results::{Series, series};

/// Every series of the warm level, in the order of the report.
pub(crate) const SERIES: &[Series] = series! {
    "write.1" BytesPerSecond "events of 16 fragments written, 1 thread, payload";
    "write.2" BytesPerSecond "events of 16 fragments written, 2 threads, payload";
    "amplification" Share "bytes to the device by bytes of payload, events of 16 fragments, 1 thread";
    "fio.blocks.1" BytesPerSecond "fio: blocks of this size written, 1 process";
    "fio.blocks.2" BytesPerSecond "fio: blocks of this size written, 2 processes";
    "operation.write" BytesPerSecond "10 KiB fragments written with device operations of this size, 1 thread";
    "operation.fio" BytesPerSecond "fio: written with operations of this size";
    "first.fio" BytesPerSecond "fio: sequential write, files never written before";
    "first.warm" BytesPerSecond "10 KiB fragments as events, 1 thread, containers never written before";
    "first.share" Share "the same, by fio's";
    "again.fio" BytesPerSecond "fio: sequential write, files written before";
    "again.warm" BytesPerSecond "10 KiB fragments as events, 1 thread, recycled containers";
    "again.share" Share "the same, by fio's";
    "synced.fio" BytesPerSecond "fio: sequential write, made durable as often as the writer does";
    "synced.share" Share "10 KiB fragments as events, recycled containers, by that";
    "read.fio.1" BytesPerSecond "fio: random read, 1 in flight";
    "read.warm.1" BytesPerSecond "whole events of 1 MiB read in random order, 1 thread";
    "read.share.1" Share "the same, by fio's";
    "read.fio.4" BytesPerSecond "fio: random read, 4 in flight";
    "read.warm.4" BytesPerSecond "whole events of 1 MiB read in random order, 4 threads";
    "read.share.4" Share "the same, by fio's";
    "read.operations" Share "device operations per event read";
    "mixed.fio.one" BytesPerSecond "fio: one file written, another read at the same time, sum";
    "mixed.warm.one" BytesPerSecond "one container written, another drained at the same time, sum";
    "mixed.share.one" Share "the same, by fio's";
    "mixed.fio.two" BytesPerSecond "fio: two loop devices, one written, the other read, sum";
    "mixed.warm.two" BytesPerSecond "two loop devices, one written, the other drained, sum";
    "mixed.share.two" Share "the same, by fio's";
    "mixed.warm.both" BytesPerSecond "two loop devices, both written and drained, sum";
    "mixed.warm.same" BytesPerSecond "one container written and read back at the same time, sum";
    "persisted.puts" PerSecond "persisted puts of 10 KiB, 1 thread, each acknowledged before the next";
    "persisted.grouped" PerSecond "persisted puts of 10 KiB, 16 to a commit";
    "persisted.delay" Micros "from append to durable, 1 thread, one at a time";
    "persisted.amplification" Share "bytes to the device by bytes of payload, one commit per put of 10 KiB";
    "cpu.whole" CoreSeconds "CPU of the whole process while writing 10 KiB fragments";
    "cpu.copy" CoreSeconds "CPU of the copy with its checksum alone";
    "cpu.beyond" CoreSeconds "CPU beyond the copy";
    "cpu.fio" CoreSeconds "CPU of fio for as many bytes";
    "pp.write" BytesPerSecond "`alice-pp` events (500 × 5 kB) written, 1 thread, payload";
    "pp.write.share" Share "the same, by fio's sequential write";
    "pp.read" BytesPerSecond "`alice-pp` events read whole, 4 threads";
    "pp.read.share" Share "the same, by fio's sequential read, 4 in flight";
    "pbpb.write" BytesPerSecond "`alice-pbpb` events (500 × 173 kB) written, 1 thread, payload";
    "pbpb.write.share" Share "the same, by fio's sequential write";
    "pbpb.read" BytesPerSecond "`alice-pbpb` events read whole, 4 threads";
    "pbpb.read.share" Share "the same, by fio's sequential read, 4 in flight";
    "memory.event" Bytes "memory per demoted event, everything counted";
    "open.tenth" Seconds "reopening with a tenth of the demoted events";
    "open.all" Seconds "reopening with all of them";
    "open.proportion" Share "time per event, all by a tenth";
};
