//! Many connections: what idle ones cost, and what active ones do to each other.

use super::Measurement;
use super::moving::{client, end_run};
use super::peer::Peer;
use crate::Result;
use forebay_core::{Call, Report, crc32c};
use forebay_wire::{FRAME_HEAD_BYTES, FrameFlags, FrameHead, FrameKind, Hello, WirePut};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

const BYTES: usize = 64;
/// Fragments that each active connection has under way, few connections as many: what differs is their number alone.
const UNDER_WAY: usize = 16;
/// Hot level of the server with idle connections alone.
const IDLE_HOT_BYTES: u64 = 64 << 20;

/// Both.
pub(super) fn measure(on: &mut Measurement<'_>) -> Result<()> {
    idle(on)?;
    let path = path(on.forebay)?;
    let mut rates = Vec::new();
    for (word, links) in ["few", "many"].into_iter().zip(on.plan.active) {
        let run = on.next_run();
        let rate = active(on, &path, links, run)?;
        on.results.record(&format!("active.{word}"), BYTES, rate);
        rates.push(rate);
        end_run(&client(on.forebay, "unix")?, run)?;
    }
    on.results.record("active.share", BYTES, rates[1] / rates[0]);
    Ok(())
}

/// What idle connections cost a server that has no memory left over from others.
fn idle(on: &mut Measurement<'_>) -> Result<()> {
    let fresh = Peer::start("forebay", &on.plan.dir, IDLE_HOT_BYTES)?;
    let path = path(&fresh)?;
    let before = resident(fresh.id())?;
    let idle = (0..on.plan.idle).map(|_| Link::open(&path)).collect::<Result<Vec<_>>>()?;
    let each = (resident(fresh.id())?.saturating_sub(before)) as f64 / idle.len() as f64;
    on.results.record("idle.bytes", 0, each);
    Ok(())
}

fn path(peer: &Peer) -> Result<String> {
    Ok(peer.address("native", "unix")?.trim_start_matches("unix:").to_owned())
}

/// Bytes of memory of a process that are its own: neither of files nor of mapped stores.
fn resident(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).ok_or("no RssAnon")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<u64>()? << 10)
}

/// Puts some fragments on each connection, then takes the answers of each, round after round; fragments a second.
fn active(on: &Measurement<'_>, path: &str, links: usize, run: u64) -> Result<f64> {
    let client = client(on.forebay, "unix")?;
    let mut links = (0..links).map(|_| Link::open(path)).collect::<Result<Vec<_>>>()?;
    let value = [3; BYTES];
    let (mut number, from) = (0_u64, Instant::now());
    while from.elapsed() < on.plan.active_for {
        for link in &mut links {
            let mut frames = Vec::new();
            for _ in 0..UNDER_WAY {
                let key = super::moving::key(&client, run, number)?;
                number += 1;
                let put = WirePut {
                    key,
                    length: BYTES as u32,
                    checksum: crc32c(&value),
                    status: 0,
                    attributes: None,
                    deadline: None,
                    persisted: false,
                    level: None,
                    report: Report::Prompt,
                };
                let meta = WirePut::encode_all(&[put], &client.keyspace().attributes)?;
                let mut head = FrameHead::new(Call::Put, FrameFlags::REQUEST, number).with(&meta, BYTES as u32);
                head.credit = std::mem::take(&mut link.owed);
                frames.extend_from_slice(&head.encode());
                frames.extend_from_slice(&meta);
                frames.extend_from_slice(&value);
            }
            link.stream.write_all(&frames)?;
        }
        for link in &mut links {
            for _ in 0..UNDER_WAY {
                link.answer()?;
            }
        }
    }
    Ok(number as f64 / from.elapsed().as_secs_f64())
}

/// A connection without a client's comforts: a thousand of them cost one thread.
struct Link {
    stream: UnixStream,
    /// Bytes that were received and not yet granted again.
    owed: u32,
}

impl Link {
    fn open(path: &str) -> Result<Link> {
        let mut link = Link { stream: UnixStream::connect(path)?, owed: 0 };
        let hello = Hello {
            features: 0,
            window_bytes: 1 << 20,
            token: Vec::new(),
            keyspace: String::new(),
            name: "link".to_owned(),
        };
        let meta = hello.encode()?;
        let head = FrameHead::new(FrameKind::Hello, FrameFlags::REQUEST, 0).with(&meta, 0);
        link.stream.write_all(&[&head.encode()[..], &meta].concat())?;
        link.answer()?;
        link.owed = 0;
        Ok(link)
    }

    fn answer(&mut self) -> Result<()> {
        let mut head = [0; FRAME_HEAD_BYTES];
        self.stream.read_exact(&mut head)?;
        let head = FrameHead::decode(&head, 1 << 20)?;
        self.owed += head.frame_bytes() as u32;
        let mut rest = vec![0; head.meta_bytes as usize + head.payload_bytes as usize];
        self.stream.read_exact(&mut rest)?;
        if head.flags.is_error() {
            return Err("an error on a link".into());
        }
        Ok(())
    }
}
