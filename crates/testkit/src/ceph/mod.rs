//! A real Ceph on loopback: a monitor, a manager, one OSD in memory and a RADOS Gateway with a user.
//!
//! ```text
//! configuration, keys ─▶ monitor ─▶ manager, OSD ─▶ user, placements ─▶ gateway ─▶ buckets
//! ```
//!
//! All of it is in one temporary folder and on ports that were free. *Lifecycle*: ends when it is dropped, and with the thread
//! that started it, also where the test is killed.
//!
//! *On failure*: the message has the end of the log of what failed. Packages: `ceph-mon ceph-mgr ceph-osd radosgw ceph-common`.

mod configuration;
mod request;

use crate::TempDir;
use rustix::process::{Pid, Signal};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Programs and the packages that have them.
const PROGRAMS: [(&str, &str); 6] = [
    ("ceph-mon", "ceph-mon"),
    ("ceph-mgr", "ceph-mgr"),
    ("ceph-osd", "ceph-osd"),
    ("radosgw", "radosgw"),
    ("radosgw-admin", "radosgw"),
    ("ceph", "ceph-common"),
];

const GATEWAY: &str = "radosgw";
const OSD: &str = "ceph-osd";

/// The user.
pub const USER: &str = "test";
/// The user's key.
pub const ACCESS_KEY: &str = "FOREBAYTESTKEY000000";
/// The user's secret.
pub const SECRET_KEY: &str = "secret-key-for-tests-on-loopback-only-00";
/// The placement of buckets that have an index.
pub const INDEXED: &str = "default-placement";
/// The placement of buckets that have none: nothing is listed there.
pub const INDEX_LESS: &str = "index-less";

/// What went wrong, in words.
pub type Result<T> = std::result::Result<T, String>;

/// A running Ceph.
pub struct Ceph {
    // Clients end before what they use.
    daemons: Vec<(String, Child)>,
    folder: TempDir,
    port: u16,
}

impl Ceph {
    /// Starts one, with buckets of these names and placements.
    ///
    /// # Errors
    /// Where a package is missing, or something does not start in time.
    pub fn start(buckets: &[(&str, &str)]) -> Result<Ceph> {
        Ceph::start_with(configuration::MEMORY, buckets)
    }

    /// As [`Ceph::start`], with an OSD whose death loses nothing that it answered.
    ///
    /// # Errors
    /// As for [`Ceph::start`].
    pub fn start_on_disk(buckets: &[(&str, &str)]) -> Result<Ceph> {
        Ceph::start_with(configuration::DISK, buckets)
    }

    fn start_with(osd: &str, buckets: &[(&str, &str)]) -> Result<Ceph> {
        check_programs()?;
        // A port that was free may be somebody else's by now.
        Ceph::try_start(osd, buckets).or_else(|_| Ceph::try_start(osd, buckets))
    }

    fn try_start(osd: &str, buckets: &[(&str, &str)]) -> Result<Ceph> {
        let [monitor, gateway] = free_ports()?;
        let mut ceph = Ceph { daemons: vec![], folder: TempDir::new(), port: gateway };
        configuration::write(ceph.folder.path(), osd, monitor, gateway)?;
        ceph.make_monitor(monitor)?;
        ceph.daemon("ceph-mon", &["-i", "a"])?;
        ceph.wait("monitor", |ceph| ceph.run("ceph", &["--connect-timeout", "5", "-s"]).is_ok())?;
        ceph.daemon("ceph-mgr", &["-i", "x"])?;
        ceph.make_osd()?;
        ceph.start_osd()?;
        ceph.wait("OSD", |ceph| ceph.run("ceph", &["osd", "stat"]).is_ok_and(|stat| stat.contains("1 up")))?;
        ceph.make_gateway()?;
        ceph.start_gateway()?;
        for (bucket, placement) in buckets {
            request::make_bucket(ceph.port, bucket, placement, PATIENCE)?;
        }
        Ok(ceph)
    }

    /// The gateway's address, as `AWS_ENDPOINT_URL` has it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Kills the gateway: nobody answers at [`Ceph::endpoint`] any more.
    ///
    /// # Errors
    /// Where it does not run.
    pub fn stop_gateway(&mut self) -> Result<()> {
        self.kill(GATEWAY)
    }

    fn kill(&mut self, daemon: &str) -> Result<()> {
        let at = self.daemons.iter().position(|(name, _)| name == daemon).ok_or(format!("no {daemon} runs"))?;
        let (_, mut child) = self.daemons.remove(at);
        child.kill().and_then(|()| child.wait()).map(drop).map_err(|error| format!("{daemon}: {error}"))
    }

    /// Kills the OSD: nothing that needs it is answered until [`Ceph::start_osd`]. One in memory loses everything.
    ///
    /// # Errors
    /// Where it does not run.
    pub fn stop_osd(&mut self) -> Result<()> {
        self.kill(OSD)
    }

    /// Starts the OSD, with what it had when it was killed.
    ///
    /// # Errors
    /// Where the program does not start.
    pub fn start_osd(&mut self) -> Result<()> {
        self.daemon(OSD, &["-i", "0"])
    }

    /// Starts the gateway, at the same address after [`Ceph::stop_gateway`].
    ///
    /// # Errors
    /// Where it does not start in time.
    pub fn start_gateway(&mut self) -> Result<()> {
        self.daemon(GATEWAY, &["-n", "client.rgw"])?;
        self.wait("gateway", |ceph| TcpStream::connect(("127.0.0.1", ceph.port)).is_ok())
    }

    /// Changes the gateway's users, quotas and the like, with `radosgw-admin`; what it said.
    ///
    /// # Errors
    /// Where it fails.
    pub fn admin(&self, arguments: &[&str]) -> Result<String> {
        self.run("radosgw-admin", arguments)
    }

    /// Stops the OSD where it is, or lets it go on: in between nothing that needs it is answered.
    ///
    /// # Errors
    /// Where it does not run.
    pub fn stall_osd(&self, stalled: bool) -> Result<()> {
        let (_, child) = self.daemons.iter().find(|(name, _)| name == OSD).ok_or("no OSD runs")?;
        let signal = if stalled { Signal::STOP } else { Signal::CONT };
        let pid = Pid::from_raw(child.id().cast_signed()).ok_or("an OSD without a process")?;
        rustix::process::kill_process(pid, signal).map_err(|error| format!("{OSD}: {error}"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn make_monitor(&self, port: u16) -> Result<()> {
        let map = self.path("monmap").display().to_string();
        let keyring = self.path("keyring").display().to_string();
        let address = format!("[v2:127.0.0.1:{port}]");
        let fsid = configuration::FSID;
        self.run("monmaptool", &["--create", "--clobber", "--fsid", fsid, "--addv", "a", &address, &map])?;
        self.run("ceph-mon", &["-i", "a", "--mkfs", "--monmap", &map, "--keyring", &keyring]).map(drop)
    }

    fn make_osd(&self) -> Result<()> {
        fs::create_dir_all(self.path("osd")).map_err(|error| error.to_string())?;
        self.run("ceph", &["osd", "new", configuration::OSD, "0"])?;
        self.run("ceph-osd", &["-i", "0", "--mkfs", "--osd-uuid", configuration::OSD]).map(drop)
    }

    /// The user's creation makes the zone too, to which the placement without an index is added.
    fn make_gateway(&self) -> Result<()> {
        let admin = |arguments: &[&str]| self.admin(arguments).map(drop);
        let keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY];
        admin(&[&["user", "create", "--uid", USER, "--display-name", USER], &keys[..]].concat())?;
        admin(&["zonegroup", "placement", "add", "--rgw-zonegroup", "default", "--placement-id", INDEX_LESS])?;
        let pools = [
            ["--data-pool", "default.rgw.buckets.data"],
            ["--index-pool", "default.rgw.buckets.index"],
            ["--data-extra-pool", "default.rgw.buckets.non-ec"],
            ["--placement-index-type", "indexless"],
        ];
        let zone = ["zone", "placement", "add", "--rgw-zone", "default", "--placement-id", INDEX_LESS];
        admin(&[&zone[..], &pools.concat()].concat())
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.arg("-c").arg(self.path("ceph.conf")).args(arguments).stdin(Stdio::null());
        // Else it would be another cluster's.
        command.env_remove("CEPH_CONF").env_remove("CEPH_ARGS");
        // Reading a map makes no use of a configuration.
        if program == "monmaptool" {
            command = Command::new(program);
            command.args(arguments).stdin(Stdio::null());
        }
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = self.command(program, arguments).output().map_err(|error| format!("{program}: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(said),
            false => {
                Err(format!("{program} {}: {said}{}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)))
            }
        }
    }

    fn daemon(&mut self, program: &str, arguments: &[&str]) -> Result<()> {
        let failed = |error: std::io::Error| format!("{program}: {error}");
        let log = fs::File::create(self.path(&format!("{program}.out"))).map_err(failed)?;
        let errors = log.try_clone().map_err(failed)?;
        // A killed test has no time to stop it: the kernel does.
        let mut command = Command::new("setpriv");
        let own = self.command(program, arguments);
        command.args(["--pdeathsig", "KILL"]).arg(program).args(own.get_args()).arg("-f");
        command.env_remove("CEPH_CONF").env_remove("CEPH_ARGS").process_group(0);
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().map_err(failed)?;
        self.daemons.push((program.to_owned(), child));
        Ok(())
    }

    fn wait(&mut self, what: &str, is_there: impl Fn(&Ceph) -> bool) -> Result<()> {
        let from = Instant::now();
        while !is_there(self) {
            let ended = self.daemons.iter_mut().find_map(|(name, child)| match child.try_wait() {
                Ok(Some(status)) => Some(format!("{name} ended: {status}")),
                _ => None,
            });
            if ended.is_some() || from.elapsed() > PATIENCE {
                let why = ended.unwrap_or_else(|| format!("no {what} after {PATIENCE:?}"));
                return Err(format!("{why}\n{}", tails(self.folder.path())));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        // Everything is in memory or in a folder that goes: nothing has to end in order.
        for (_, mut child) in self.daemons.drain(..).rev() {
            if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
                rustix::process::kill_process(pid, Signal::KILL).ok();
            }
            child.wait().ok();
        }
    }
}

fn check_programs() -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let missing: Vec<&str> =
        PROGRAMS.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => {
            Err(format!("Ceph is not installed here: apt-get install --no-install-recommends {}", missing.join(" ")))
        }
    }
}

fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let bound: std::io::Result<Vec<TcpListener>> = (0..N).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    let port = |listener: TcpListener| listener.local_addr().map(|address| address.port());
    let ports: std::io::Result<Vec<u16>> = bound.and_then(|bound| bound.into_iter().map(port).collect());
    ports.map_err(|error| error.to_string())?.try_into().map_err(|_| "no ports".to_owned())
}

/// The ends of the logs, for a message.
fn tails(folder: &Path) -> String {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let logs = entries.filter(|path| path.extension().is_some_and(|ending| ending == "out" || ending == "log"));
    let tail = |path: PathBuf| {
        let text = fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(1500)..]).into_owned();
        format!("--- {}\n{text}\n", path.display())
    };
    logs.map(tail).collect()
}
