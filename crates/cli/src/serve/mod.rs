//! `forebay serve`: configuration, stores, listeners, run; then everything back in order.
//!
//! ```text
//! file or DIR ──▶ Settings ──▶ stores and rings open ──▶ listeners ──▶ READY ──▶ until a signal ──▶ sessions end ──▶ all close
//!                              marks: open                                                          marks: empty or live
//! ```
//!
//! *On failure*: nothing is listened at before every store is open. A store that was served and is gone is not created again
//! unless an operator says so: exit code 11 (`forebay_server::Gone`). A second signal ends the process at once, as kill
//! would: nothing that was acknowledged is lost by that, the stores are only not clean.

mod cluster;
mod files;
mod log;
mod notify;
mod reload;
mod report;

use crate::open::{explain, holds_ring, holds_store, no_store};
use crate::output::{Answer, Output};
use crate::serving;
use crate::signal::{Waiting, wait_for_stop};
use forebay_core::{Error, Result};
use forebay_server::{
    ClusterSettings, Endpoint, KeyspaceSettings, Protocol, RingSettings, Served, Server, Settings, Started,
};
use notify::Notify;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

const HELP: &str = "\
Serve stores and rings over the network: Forebay's own protocol, Redis's protocol, metrics over HTTP.

Example: a new store, served with the defaults, on this machine only:
  forebay create /tmp/first
  forebay serve /tmp/first
  redis-cli -p 7441 SET 1/42/0 hello

By a configuration file, as a service does; docs/server.toml explains every value:
  forebay serve --config /etc/forebay/server.toml --check
  forebay serve --config /etc/forebay/server.toml --print-config
  forebay serve --config /etc/forebay/server.toml

The first lines on stdout say what it serves and where (with --json one line: {\"listening\": …}); logs go to stderr. SIGTERM or Ctrl-C ends it in \
order: no new connections, requests under way are answered, stores are closed, and a report says what they hold. A second \
one ends it at once. SIGHUP has it read tokens and certificates again; it does so by itself where their files change. With --cluster \
it is a node of a cluster (`forebay cluster new` explains it), and SIGHUP has it read the map as well.

Beyond this machine it listens only with TLS and tokens, or where the configuration says that it may do without. \
`forebay cert` makes certificates for a first start.";

/// How often a server that no watchdog asks is looked after.
const LOOK: Duration = Duration::from_secs(5);

/// Serve stores over the network.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Serve {
    /// Directory of a store or of a ring, served with the defaults.
    #[arg(value_name = "DIR", required_unless_present = "config", conflicts_with = "config")]
    dir: Option<PathBuf>,
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only check: configuration, secrets, certificates, and whether there is what it serves. Nothing is opened.
    #[arg(long, conflicts_with = "print_config")]
    check: bool,
    /// Only print the configuration in force, defaults written out, without secrets.
    #[arg(long)]
    print_config: bool,
    /// Addresses for Forebay's own protocol, in place of those configured: tcp://IP:PORT, tls://IP:PORT or unix:/PATH;
    /// may be repeated. Port 0 lets the system choose.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_endpoint)]
    native: Vec<Endpoint>,
    /// Addresses for Redis's protocol, in place of those configured; may be repeated.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_endpoint)]
    resp: Vec<Endpoint>,
    /// Map of the cluster that it is a node of, in place of the one configured (`forebay cluster new` writes one).
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// Address for metrics and probes, in place of the one configured.
    #[arg(long, value_name = "IP:PORT")]
    http: Option<SocketAddr>,
}

fn parse_endpoint(text: &str) -> std::result::Result<Endpoint, String> {
    text.parse().map_err(|error: Error| error.message().to_owned())
}

impl Serve {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let mut settings = self.settings(out)?;
        if self.print_config {
            if !out.json {
                out.bytes(settings.to_toml()?.as_bytes())?;
            }
            out.json(&settings)?;
            return Ok(Answer::Yes);
        }
        let config = settings.server()?;
        if self.check {
            settings.check_start(&config)?;
            if self.config.is_some() {
                settings.check_marks()?;
            }
            out.line("the configuration can be served")?;
            out.json(&serde_json::json!({ "check": "the configuration can be served" }))?;
            return Ok(Answer::Yes);
        }
        let log = log::install(&settings.log)?;
        let served = self.serve(out, &mut settings, config);
        log.finish();
        served
    }

    fn serve(&self, out: &mut Output, settings: &mut Settings, config: forebay_server::ServerConfig) -> Result<Answer> {
        // Before anything is opened: a signal during a long opening must end the server in order, not kill it.
        let waiting = wait_for_stop()?;
        let mut reload = reload::Reload::begin(self.config.as_deref(), settings)?;
        let notify = Notify::from_environment();
        files::raise_limit(config.limits.connections_max);
        // Before a store is opened, or made: a node without its map serves nothing.
        let map = settings.cluster.as_ref().map(|cluster| crate::cluster::read(&cluster.map)).transpose()?;
        notify.say("STATUS=opening keyspaces");
        let mut started = self.open(settings)?;
        let served: Vec<Served> = started.iter().map(|started| started.served().clone()).collect();
        // All stores first: a server that listens must be able to serve each of its keyspaces.
        if map.is_none() {
            cluster::stores(&served).try_for_each(|store| cluster::needs_no_map(&store))?;
        }
        let node = settings.cluster.as_ref().zip(map);
        let node = node.map(|(cluster, map)| cluster::join(cluster, map, &served)).transpose()?;
        let server = match &node {
            Some((node, options)) => forebay_cluster::serve(served.clone(), config, node, options)?,
            None => Server::start(served.clone(), config)?,
        };
        // On stdout before systemd is told: a program that reads the line finds the listeners open.
        let _notes = serving::Notes::write(&addresses(&server, Protocol::Native), places(settings, &served));
        announce(out, &server, &served)?;
        notify.say("READY=1\nSTATUS=serving");
        let ended = look_after(&waiting, &server, &notify, || {
            let asked = reload.look(&server, settings);
            if let (true, Some((node, _)), Some(cluster)) = (asked, &node, &settings.cluster) {
                cluster::reload(cluster, node);
            }
        });
        notify.say("STOPPING=1\nSTATUS=ending sessions");
        tracing::info!(connections = server.connections(), "stopping");
        // Sessions end before stores close: their reservations and guards would keep a store from being clean.
        let cut = server.stop(settings.stop_grace);
        notify.say("STATUS=closing keyspaces");
        // Read before the close: a closed store has no figures.
        let report = report::Report::of(cut, &served);
        // Each is closed, even if another one fails.
        let closed: Vec<Result<()>> = started.iter_mut().map(Started::close).collect();
        report.write(out)?;
        closed.into_iter().collect::<Result<()>>()?;
        tracing::info!(connections_cut = cut, "stopped");
        ended.map(|()| Answer::Yes)
    }

    /// The file's, or the defaults for a directory; with what the command line says in place of it.
    fn settings(&self, out: &Output) -> Result<Settings> {
        let mut settings = match (&self.config, &self.dir) {
            (Some(file), _) => Settings::read(file)?,
            (None, Some(dir)) if holds_ring(dir) => {
                Settings::of_ring(RingSettings { path: dir.clone(), ..RingSettings::default() })
            }
            (None, Some(dir)) => Settings::of(KeyspaceSettings::new(dir)),
            (None, None) => return Err(Error::invalid("a directory or --config is needed")),
        };
        if !self.native.is_empty() {
            settings.listen.native = self.native.clone();
        }
        if !self.resp.is_empty() {
            settings.listen.resp = self.resp.clone();
        }
        settings.listen.http = self.http.or(settings.listen.http);
        if let Some(map) = &self.cluster {
            match &mut settings.cluster {
                Some(cluster) => cluster.map = map.clone(),
                None => settings.cluster = Some(ClusterSettings { map: map.clone(), token_file: None, ca: None }),
            }
        }
        settings.keyspace.iter_mut().for_each(|keyspace| keyspace.accept_loss |= out.accept_loss);
        settings.ring.iter_mut().for_each(|ring| ring.accept_loss |= out.accept_loss);
        // After the command line has replaced values: what is in force is what must hold.
        settings.check()?;
        Ok(settings)
    }

    /// Opens all that is served. What a configuration names has a mark; a store of `serve DIR` has none.
    fn open(&self, settings: &Settings) -> Result<Vec<Started>> {
        let marks = self.config.is_some().then(|| settings.marks());
        let mut all = Vec::new();
        for keyspace in &settings.keyspace {
            let started = match &self.dir {
                Some(dir) if !holds_store(dir) => return Err(no_store(dir)),
                _ => keyspace.start(marks.as_ref()).map_err(|error| explain(&keyspace.path, error))?,
            };
            say_begun(&started, &keyspace.path);
            all.push(started);
        }
        for settings in &settings.ring {
            let started = settings.start(marks.as_ref()).map_err(|error| explain(&settings.path, error))?;
            say_begun(&started, &settings.path);
            all.push(started);
        }
        Ok(all)
    }
}

fn say_begun(started: &Started, path: &Path) {
    let (keyspace, path) = (started.served().name(), path.display());
    if started.is_made() {
        tracing::info!(keyspace, %path, "made");
    } else {
        tracing::info!(keyspace, %path, "opened");
    }
    for loss in started.served().losses().iter().take(report::LINES_MAX) {
        tracing::error!(keyspace, loss, "lost");
    }
}

fn addresses(server: &Server, wanted: Protocol) -> Vec<String> {
    let endpoints = server.endpoints().filter(|(protocol, _)| *protocol == wanted);
    endpoints.map(|(_, endpoint)| endpoint.to_string()).collect()
}

/// Directories of what is served, with the names of their keyspaces.
fn places<'a>(settings: &'a Settings, served: &'a [Served]) -> impl Iterator<Item = (&'a Path, &'a str)> {
    let keyspaces = settings.keyspace.iter().map(|keyspace| keyspace.path.as_path());
    // In the order in which they were opened.
    keyspaces.chain(settings.ring.iter().map(|ring| ring.path.as_path())).zip(served.iter().map(Served::name))
}

/// Says what it serves and where, first of all on stdout; as JSON in one line.
fn announce(out: &mut Output, server: &Server, served: &[Served]) -> Result<()> {
    let (native, resp) = (addresses(server, Protocol::Native), addresses(server, Protocol::Resp));
    let http = server.http().map(|address| format!("http://{address}"));
    let keyspaces: Vec<&str> = served.iter().map(Served::name).collect();
    tracing::info!(native = native.join(" "), resp = resp.join(" "), http, keyspaces = keyspaces.join(" "), "serving");
    out.line(format!("serving {}", keyspaces.join(", ")))?;
    for served in served {
        if let Served::Events(store) = served
            && store.keyspace().auto_open_runs
        {
            let (name, fragments) = (&store.keyspace().name, store.keyspace().auto_open_after);
            tracing::info!(keyspace = name.as_str(), fragments, "runs begin by themselves");
            let fragments = crate::units::plural(fragments.into(), "different fragment");
            out.line(format!("  {name}: runs open by themselves, after {fragments} (auto_open_runs)"))?;
        }
    }
    let lists = [("native", &native), ("resp", &resp), ("http", &http.iter().cloned().collect())];
    for (name, list) in lists {
        for endpoint in list {
            out.line(format!("  {name:<7} {endpoint}"))?;
        }
    }
    out.json(&serde_json::json!({
        "listening": { "native": native, "resp": resp, "http": http },
        "keyspaces": keyspaces,
        "pid": std::process::id(),
    }))?;
    out.finish()
}

/// Waits for a signal, and tells the watchdog meanwhile that every event loop goes round. `each` is done in each round.
fn look_after(waiting: &Waiting, server: &Server, notify: &Notify, mut each: impl FnMut()) -> Result<()> {
    // A third of the watchdog's time: two notices may be late.
    let every = notify.watchdog().map_or(LOOK, |watchdog| (watchdog / 3).min(LOOK));
    while !waiting.stopped_within(every) {
        each();
        if server.is_broken() {
            let message = "a thread of the server ended by itself; the log may say why. Start it again";
            tracing::error!(message);
            return Err(Error::internal(message));
        }
        if server.alive() {
            // Only while every loop turns: a server that hangs must be restarted by the service manager.
            notify.say("WATCHDOG=1");
        } else {
            tracing::error!("an event loop hangs");
        }
    }
    Ok(())
}
