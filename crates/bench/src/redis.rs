//! Redis, started here without persistence, driven by its own benchmark.

use super::engine::Scratch;
use super::options::Plan;
use super::results::Results;
use crate::{Result, child};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Requests per key before the first measurement: `redis-benchmark` draws keys at random, and 1 - e^-4 of them are then
/// there to be got.
const PRELOAD: u64 = 4;

/// A private server, ended (by its process id) when this is dropped.
pub(super) struct Server {
    process: Child,
    socket: PathBuf,
    /// Of TCP, where it listens there as well.
    port: u16,
    _scratch: Scratch,
}

impl Server {
    /// Starts one on a Unix socket, and on a free TCP port if wanted; waits until it answers.
    pub(super) fn start(dir: &Path, tcp: bool) -> Result<Server> {
        let scratch = Scratch::new(dir)?;
        let socket = scratch.path().join("redis.sock");
        let port = if tcp { TcpListener::bind("127.0.0.1:0")?.local_addr()?.port() } else { 0 };
        let process = Command::new("redis-server")
            .args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--daemonize", "no"])
            .args(["--port", &port.to_string(), "--maxclients", "20000", "--unixsocket"])
            .arg(&socket)
            .current_dir(scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server: {error}"))?;
        let server = Server { process, socket, port, _scratch: scratch };
        let from = Instant::now();
        while !server.answers() {
            if from.elapsed() > Duration::from_secs(10) {
                return Err("redis-server does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Where it listens.
    pub(super) fn address(&self, transport: &str) -> String {
        match transport {
            "unix" => format!("unix:{}", self.socket.display()),
            _ => format!("tcp://127.0.0.1:{}", self.port),
        }
    }

    fn answers(&self) -> bool {
        let ask = || -> std::io::Result<bool> {
            let mut stream = UnixStream::connect(&self.socket)?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"PING\r\n")?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer)?;
            Ok(&answer == b"+PONG")
        };
        ask().unwrap_or(false)
    }

    /// Measures SET and GET at pipelines 1 and 32 for one size, in the database of that size.
    pub(super) fn measure(&self, plan: &Plan, database: usize, bytes: usize, results: &mut Results) -> Result<()> {
        let keys = plan.redis.keys_max.min(plan.redis.value_bytes_max / bytes as u64).max(1);
        let run = |test: &str, pipeline: u64, requests: u64| {
            self.benchmark(test, database, bytes, Some(keys), pipeline, requests.max(100))
        };
        // Fills the keyspace the first time; computes each time how many requests fit the wanted time.
        let first = results.median("redis.set.32", bytes).is_none();
        let set_rate = run("set", 32, if first { PRELOAD * keys } else { keys })?;
        let pipelined = (set_rate * plan.redis.pipelined.as_secs_f64()) as u64;
        for (test, pipeline) in [("set", 1), ("set", 32), ("get", 1), ("get", 32)] {
            let requests = if pipeline == 1 { plan.redis.requests_single } else { pipelined };
            results.record(&format!("redis.{test}.{pipeline}"), bytes, run(test, pipeline, requests)?);
        }
        let one_key = self.benchmark("set", database, bytes, None, 32, pipelined.max(100))?;
        results.record("redis.set.32.one", bytes, one_key);
        Ok(())
    }

    /// One run of `redis-benchmark` on random keys, or on a single one.
    fn benchmark(
        &self,
        test: &str,
        database: usize,
        bytes: usize,
        keys: Option<u64>,
        pipeline: u64,
        requests: u64,
    ) -> Result<f64> {
        let mut command = Command::new("redis-benchmark");
        command.arg("-s").arg(&self.socket).args(["-c", "1", "--csv", "-t", test]);
        for (option, value) in [("-P", pipeline), ("-n", requests), ("-d", bytes as u64)] {
            command.args([option, &value.to_string()]);
        }
        if let Some(keys) = keys {
            command.args(["-r", &keys.to_string()]);
        }
        command.args(["--dbnum", &database.to_string()]);
        rate_in(&child::output(&mut command)?, test)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The requests per second in lines such as `"SET","657894.75","0.040",…`.
fn rate_in(csv: &str, test: &str) -> Result<f64> {
    let fields = |line: &str| line.split(',').map(|field| field.trim_matches('"').to_owned()).collect::<Vec<_>>();
    let row = csv.lines().map(fields).find(|row| row.first().is_some_and(|name| name.eq_ignore_ascii_case(test)));
    let rate = row.and_then(|row| row.get(1)?.parse().ok());
    rate.ok_or_else(|| format!("redis-benchmark says nothing of {test}: {csv}").into())
}

#[cfg(test)]
mod tests {
    use super::rate_in;

    #[test]
    fn reads_what_redis_benchmark_says() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"657894.75\",\"0.040\"\n";
        assert_eq!(rate_in(csv, "set").unwrap(), 657_894.75);
        assert!(rate_in(csv, "get").is_err());
    }
}
