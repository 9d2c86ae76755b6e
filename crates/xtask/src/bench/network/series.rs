//! What the benchmark of the network measures.

use crate::bench::results::{Series, series};

/// Every series, by transport.
pub(crate) const SERIES: &[Series] = series! {
    "unix.put" PerSecond "put, Unix socket";
    "unix.put.limit" PerSecond "limit: the same frames into nothing, Unix socket";
    "unix.put.share" Share "put by limit, Unix socket";
    "unix.get" PerSecond "get, Unix socket";
    "unix.get.limit" PerSecond "limit: the same frames from nowhere, Unix socket";
    "unix.get.share" Share "get by limit, Unix socket";
    "unix.event.share" Share "events of 100 fragments in one call by limit, Unix socket";
    "unix.redis.set" PerSecond "Redis SET, pipeline 32, Unix socket";
    "unix.redis.get" PerSecond "Redis GET, pipeline 32, Unix socket";
    "unix.resp.set" PerSecond "Forebay by Redis's protocol, SET, pipeline 32, Unix socket";
    "unix.resp.custom" PerSecond "Forebay, redis-benchmark SET 1/__rand_int__/1, pipeline 32, Unix socket";
    "unix.redis.custom" PerSecond "Redis, redis-benchmark SET 1/__rand_int__/1, pipeline 32, Unix socket";
    "unix.select" PerSecond "get_any and verdict, 64 events in a frame, one connection, Unix socket";
    "unix.latency.one.p50" Micros "round trip, put 64 B, one core, median, Unix socket";
    "unix.latency.one.p99" Micros "round trip, put 64 B, one core, 99 %, Unix socket";
    "unix.latency.two.p50" Micros "round trip, put 64 B, two cores, median, Unix socket";
    "unix.latency.two.p99" Micros "round trip, put 64 B, two cores, 99 %, Unix socket";
    "unix.redis.latency.one.p50" Micros "Redis round trip, SET 64 B, one core, median, Unix socket";
    "unix.redis.latency.one.p99" Micros "Redis round trip, SET 64 B, one core, 99 %, Unix socket";
    "unix.redis.latency.two.p50" Micros "Redis round trip, SET 64 B, two cores, median, Unix socket";
    "unix.redis.latency.two.p99" Micros "Redis round trip, SET 64 B, two cores, 99 %, Unix socket";
    "tcp.put" PerSecond "put, TCP";
    "tcp.put.limit" PerSecond "limit: the same frames into nothing, TCP";
    "tcp.put.share" Share "put by limit, TCP";
    "tcp.get" PerSecond "get, TCP";
    "tcp.get.limit" PerSecond "limit: the same frames from nowhere, TCP";
    "tcp.get.share" Share "get by limit, TCP";
    "tcp.event.share" Share "events of 100 fragments in one call by limit, TCP";
    "tcp.redis.set" PerSecond "Redis SET, pipeline 32, TCP";
    "tcp.redis.get" PerSecond "Redis GET, pipeline 32, TCP";
    "tcp.resp.custom" PerSecond "Forebay, redis-benchmark SET 1/__rand_int__/1, pipeline 32, TCP";
    "tcp.redis.custom" PerSecond "Redis, redis-benchmark SET 1/__rand_int__/1, pipeline 32, TCP";
    "tcp.select" PerSecond "get_any and verdict, 64 events in a frame, one connection, TCP";
    "tcp.latency.one.p50" Micros "round trip, put 64 B, one core, median, TCP";
    "tcp.latency.one.p99" Micros "round trip, put 64 B, one core, 99 %, TCP";
    "tcp.latency.two.p50" Micros "round trip, put 64 B, two cores, median, TCP";
    "tcp.latency.two.p99" Micros "round trip, put 64 B, two cores, 99 %, TCP";
    "tcp.redis.latency.one.p50" Micros "Redis round trip, SET 64 B, one core, median, TCP";
    "tcp.redis.latency.one.p99" Micros "Redis round trip, SET 64 B, one core, 99 %, TCP";
    "tcp.redis.latency.two.p50" Micros "Redis round trip, SET 64 B, two cores, median, TCP";
    "tcp.redis.latency.two.p99" Micros "Redis round trip, SET 64 B, two cores, 99 %, TCP";
    "echo.threads.p50" Micros "64 B back, one core, a thread for each connection, median";
    "echo.loop.p50" Micros "64 B back, one core, one event loop, median";
    "echo.stealing.p50" Micros "64 B back, one core, tasks that move between threads, median";
    "echo.threads.rate" PerSecond "64 B back, 100 connections, a thread for each";
    "echo.loop.rate" PerSecond "64 B back, 100 connections, one event loop";
    "echo.stealing.rate" PerSecond "64 B back, 100 connections, tasks that move between threads";
    "idle.bytes" Bytes "memory of the server per idle connection";
    "active.few" PerSecond "put 64 B, few active connections, sum";
    "active.many" PerSecond "put 64 B, many active connections, sum";
    "active.share" Share "the same, many by few";
};
