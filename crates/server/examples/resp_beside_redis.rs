//! Redis's own benchmark against this server and against Redis, in turn: the same command, the same transport, server
//! and load each on a processor of its own; medians of rates.
//!
//! `cargo run --release -p forebay-server --example resp_beside_redis -- [rounds] [tcp|unix]`
#![expect(clippy::print_stdout, reason = "a program that prints its results")]

use forebay_core::Keyspace;
use forebay_server::{Endpoint, Server, ServerConfig};
use forebay_store::{Config, Store};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// One measurement: value bytes, pipeline, clients, requests of a round, keys that are drawn from.
struct Case {
    bytes: usize,
    pipeline: u32,
    clients: u32,
    requests: u64,
    keys: u64,
}

const CASES: [Case; 4] = [
    Case { bytes: 64, pipeline: 32, clients: 1, requests: 1_500_000, keys: 100_000_000 },
    Case { bytes: 64, pipeline: 32, clients: 50, requests: 1_500_000, keys: 100_000_000 },
    Case { bytes: 10 << 10, pipeline: 32, clients: 1, requests: 200_000, keys: 100_000_000 },
    Case { bytes: 10 << 10, pipeline: 32, clients: 50, requests: 200_000, keys: 100_000_000 },
];

/// A server in a process of its own, ended with this.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where a server listens, as `redis-benchmark` is told.
#[derive(Clone)]
enum At {
    Unix(PathBuf),
    Tcp(u16),
}

impl At {
    fn arguments(&self) -> Vec<String> {
        match self {
            At::Unix(path) => vec!["-s".to_owned(), path.display().to_string()],
            At::Tcp(port) => vec!["-p".to_owned(), port.to_string()],
        }
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "serve") {
        return serve(Path::new(&arguments[1]), &arguments[2]);
    }
    let rounds = arguments.first().map_or(Ok(5), |text| text.parse())?;
    let tcp = arguments.get(1).is_some_and(|word| word == "tcp");
    for case in CASES {
        let (mut ours, mut theirs, mut repeated) = (Vec::new(), Vec::new(), 0.0);
        for _ in 0..rounds {
            let scratch = Scratch::new()?;
            {
                let (_server, at) = start_redis(scratch.path(), tcp)?;
                theirs.push(benchmark(&at, &case)?);
            }
            let (_server, at) = start_ours(scratch.path(), tcp)?;
            ours.push(benchmark(&at, &case)?);
            repeated = 1.0 - fragments(&at)? as f64 / case.requests as f64;
        }
        let (ours, theirs) = (median(&mut ours), median(&mut theirs));
        println!(
            "SET {:>6} B, pipeline {}, {:>2} clients, {}: {ours:>8.0} /s, redis {theirs:>8.0} /s, {:.2} times; \
             repeated keys {:.2} %",
            case.bytes,
            case.pipeline,
            case.clients,
            if tcp { "tcp" } else { "unix" },
            ours / theirs,
            repeated * 100.0
        );
    }
    Ok(())
}

/// This program again, as the server: one thread that serves, on the processor that it was started on.
fn serve(dir: &Path, endpoint: &str) -> Outcome<()> {
    let config = Config { hot_bytes: 4 << 30, hot_high: 0.97, hot_low: 0.96, ..Config::default() };
    let store = Store::create(&dir.join("store"), &Keyspace::events("bench", 1), config)?;
    let endpoint: Endpoint = endpoint.parse()?;
    let server = ServerConfig { resp: vec![endpoint], threads: 1, ..ServerConfig::default() };
    let server = Server::start(vec![store], server)?;
    // Whoever started it ends it.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    drop(server);
    Ok(())
}

fn on_processor(processor: u32, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &processor.to_string()]).arg(program);
    command
}

fn start_ours(dir: &Path, tcp: bool) -> Outcome<(Process, At)> {
    let (at, endpoint) = match tcp {
        true => (At::Tcp(17_441), "tcp://127.0.0.1:17441".to_owned()),
        false => (At::Unix(dir.join("ours.sock")), format!("unix:{}", dir.join("ours.sock").display())),
    };
    let mut command = on_processor(0, &std::env::current_exe()?);
    let child = command.arg("serve").arg(dir).arg(endpoint).stdin(Stdio::piped()).spawn()?;
    let process = Process(child);
    await_ping(&at)?;
    Ok((process, at))
}

fn start_redis(dir: &Path, tcp: bool) -> Outcome<(Process, At)> {
    let at = if tcp { At::Tcp(17_442) } else { At::Unix(dir.join("redis.sock")) };
    let mut command = on_processor(0, Path::new("redis-server"));
    command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]).current_dir(dir);
    match &at {
        At::Unix(path) => command.args(["--port", "0", "--unixsocket"]).arg(path),
        At::Tcp(port) => command.args(["--port", &port.to_string()]),
    };
    let process = Process(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
    await_ping(&at)?;
    Ok((process, at))
}

fn await_ping(at: &At) -> Outcome<()> {
    let from = Instant::now();
    loop {
        let asked = Command::new("redis-cli").args(at.arguments()).arg("PING").stderr(Stdio::null()).output()?;
        if asked.stdout.starts_with(b"PONG") {
            return Ok(());
        }
        if from.elapsed() > Duration::from_secs(30) {
            return Err("a server does not answer".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Requests per second, as `redis-benchmark` says.
fn benchmark(at: &At, case: &Case) -> Outcome<f64> {
    let mut command = on_processor(1, Path::new("redis-benchmark"));
    command.args(at.arguments()).arg("--csv");
    let options =
        [("-c", u64::from(case.clients)), ("-P", u64::from(case.pipeline)), ("-n", case.requests), ("-r", case.keys)];
    for (option, value) in options {
        command.args([option.to_owned(), value.to_string()]);
    }
    let done = command.args(["SET", "1/__rand_int__/1", &"x".repeat(case.bytes)]).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8(done.stdout)?;
    let row = text.lines().nth(1).ok_or("redis-benchmark says nothing")?;
    // The command's own text may have commas: the rate is the first number after it.
    let numbers: Vec<f64> = row.rsplit(',').filter_map(|field| field.trim_matches('"').parse().ok()).collect();
    Ok(*numbers.last().ok_or("redis-benchmark says no rate")?)
}

fn fragments(at: &At) -> Outcome<u64> {
    let asked = Command::new("redis-cli").args(at.arguments()).arg("DBSIZE").output()?;
    Ok(String::from_utf8(asked.stdout)?.trim().parse()?)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A directory in memory, removed with this.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Outcome<Scratch> {
        let path = PathBuf::from(format!("/dev/shm/resp-beside-redis-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
