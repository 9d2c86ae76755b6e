//! `forebay cluster`: the map of a cluster, and how its nodes stand.

use crate::open::{Opened, Place};
use crate::output::{Answer, Output};
use crate::part::{LOOK, Part, look};
use forebay_client::{Address, Client, ClusterClient, Expected, Member, Options};
use forebay_cluster::Status;
use forebay_core::map::{Change, ClusterMap, Hex128, Node, NodeState};
use forebay_core::{Either, Error, Kind, Random, Result, SystemRandom};
use forebay_store::{Stats, Store};
use serde_json::json;
use std::path::{Path, PathBuf};

const NEW_HELP: &str = "\
Write the map of a new cluster: which node has which part of the events. Every node serves with the same file. A node is given as \
NAME=ADDRESS=STORE: its name, where it listens, and its store, as a directory of this machine that nobody serves or as the number that \
`forebay cluster id DIR` prints on the machine of the node. All stores have the same keyspace.

Example: three nodes on this machine, and what became of the first run on all of them:
  for n in 1 2 3; do forebay create /tmp/n$n --sources-per-event 2; done
  forebay cluster new /tmp/map.json --node n1=unix:/tmp/n1.sock=/tmp/n1 \\
      --node n2=unix:/tmp/n2.sock=/tmp/n2 --node n3=unix:/tmp/n3.sock=/tmp/n3
  for n in 1 2 3; do
    forebay serve /tmp/n$n --native unix:/tmp/n$n.sock --resp unix:/tmp/r$n.sock --http 127.0.0.1:750$n --cluster /tmp/map.json &
  done
  forebay run unix:/tmp/n1.sock,unix:/tmp/n2.sock open 1
  forebay put unix:/tmp/n1.sock,unix:/tmp/n2.sock 1/42/0 hello
  forebay ledger unix:/tmp/n1.sock,unix:/tmp/n2.sock 1";

const CHANGE_HELP: &str = "\
Write the next map: a node is taken out of new runs, or gets a share of them, or a look-up table says which nodes hold the bytes of which \
sources (`--table`, for each range of sources: each source once, in ascending order). Name every source that will be put: a put of one that the \
table lacks is refused (`Invalid`). Runs that have begun stay where they are, so `--from-run` is \
a number that no node has begun: choose it well above the next run. Give the new file to one node in place of its old one, and send that \
node SIGHUP (or restart it): the others learn it from there. A node that is away learns it when it is back.

Example: node 2 is broken; runs from 120 on are taken without it, and node 4 is added:
  forebay cluster change map.json map-2.json --take-out 2 --from-run 120
  forebay cluster change map-2.json map-3.json --add n4=tcp://daq04:7440=7f3a…  --from-run 120
Example: what readout nodes 1 and 2 read out stays with them, wherever the homes of the events are:
  forebay cluster change map.json map-2.json --table 0..49=1 --table 50..99=2 --from-run 120
Example: a ring on both, of which readers see one:
  forebay cluster change map.json map-2.json --ring links --table 0..49=1 --table 50..99=2 --from-run 0
  forebay window tcp://daq01:7440,tcp://daq02:7440 --keyspace links --last 10ms";

const CHECK_HELP: &str = "\
Check a file with a map: its rules, and with ADDRESSES whether every node of the cluster may adopt it, and answers at each address that the \
map has for it. A node that gets no slots and no sources of new runs need not answer. What is wrong is named, with exit code 1.

Example:
  forebay cluster check map-2.json
  forebay cluster check map-2.json tcp://daq01:7440,tcp://daq02:7440";

const STATUS_HELP: &str = "\
Show each node of a cluster: whether it answers, the epoch of the map that it goes by, its runs and fill, and which other nodes it cannot \
reach. Of a node that does not answer it says which slots it leads in new runs, and which sources it holds. The exit code is 1 where a node does not answer, is behind, or goes by another map than the others.

Example:
  forebay cluster status tcp://daq01:7440,tcp://daq02:7440";

const HELP: &str = "\
Several servers share the events of a keyspace by one map, a file that all of them have: which node is the home of which events.

Example: write it, check a change of it, and see how the nodes stand (`forebay cluster new --help` begins with the stores):
  forebay cluster new map.json --node n1=tcp://daq01:7440=ID1 --node n2=tcp://daq02:7440=ID2
  forebay cluster check map-2.json tcp://daq01:7440,tcp://daq02:7440
  forebay cluster status tcp://daq01:7440,tcp://daq02:7440";

/// The map of a cluster, and how its nodes stand.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    New(New),
    Change(Changed),
    Check(Check),
    Status(Nodes),
    Id(Id),
}

/// Write the map of a new cluster.
#[derive(clap::Args)]
#[command(long_about = NEW_HELP)]
struct New {
    /// The file to write.
    file: PathBuf,
    /// The keyspace of the stores.
    #[arg(long, value_name = "NAME", default_value = "events")]
    keyspace: String,
    /// A node, as NAME=ADDRESS=STORE; repeated.
    #[arg(long = "node", value_name = "NAME=ADDRESS=STORE", required = true)]
    nodes: Vec<String>,
}

/// Write the next map: without a node, with one more, or with a look-up table, from a run on.
#[derive(clap::Args)]
#[command(long_about = CHANGE_HELP)]
struct Changed {
    /// The present map.
    file: PathBuf,
    /// The file to write.
    to: PathBuf,
    /// Number of the node that gets no new runs.
    #[arg(long, value_name = "NODE", conflicts_with_all = ["add", "table"])]
    take_out: Option<u16>,
    /// A node that gets its share, as NAME=ADDRESS=STORE.
    #[arg(long, value_name = "NAME=ADDRESS=STORE", conflicts_with = "table")]
    add: Option<String>,
    /// Sources and the number of the node that holds their bytes, as SOURCES=NODE; repeated.
    #[arg(long, value_name = "SOURCES=NODE", required_unless_present_any = ["take_out", "add"])]
    table: Vec<String>,
    /// The keyspace of the table; not needed where the map has one.
    #[arg(long, value_name = "NAME", requires = "table")]
    keyspace: Option<String>,
    /// A ring, whose sources are on the nodes that the table says; the map need not have it yet.
    #[arg(long, value_name = "NAME", requires = "table", conflicts_with = "keyspace")]
    ring: Option<String>,
    /// First run of the new map.
    #[arg(long, value_name = "RUN")]
    from_run: u64,
}

/// Check a map, and whether the nodes of a cluster may adopt it.
#[derive(clap::Args)]
#[command(long_about = CHECK_HELP)]
struct Check {
    /// The file with the map.
    file: PathBuf,
    /// Addresses of nodes, with commas between them.
    #[arg(value_name = "ADDRESSES")]
    nodes: Option<String>,
    #[command(flatten)]
    identity: crate::connect::Identity,
}

/// Show how the nodes of a cluster stand.
#[derive(clap::Args)]
#[command(long_about = STATUS_HELP)]
struct Nodes {
    #[command(flatten)]
    place: Place,
}

/// Print the number of a store, as a map admits it.
#[derive(clap::Args)]
struct Id {
    /// Directory of a store that nobody serves.
    dir: PathBuf,
}

impl Command {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        match &self.what {
            What::New(new) => new.run(out),
            What::Change(change) => change.run(out),
            What::Check(check) => check.run(out),
            What::Status(nodes) => nodes.run(out),
            What::Id(Id { dir }) => {
                let (store, lost_in) = Store::holding_of(dir)?;
                out.line(number(store, lost_in))?;
                out.json(&json!({ "store": format!("{store:?}"), "lost_in": lost_in }))?;
                Ok(Answer::Yes)
            }
        }
    }
}

/// A store as people write it: its number, and behind a point the boot generation of its last accepted loss, where there is one.
fn number(store: Hex128, lost_in: u32) -> String {
    if lost_in == 0 { format!("{store:?}") } else { format!("{store:?}.{lost_in}") }
}

/// Reads a map.
pub(crate) fn read(file: &Path) -> Result<ClusterMap> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::invalid(format!("{}: the map cannot be read", file.display())).with_source(error))?;
    ClusterMap::from_json(&text).map_err(|error| Error::invalid(format!("{}: {}", file.display(), error.message())))
}

fn write(file: &Path, map: &ClusterMap) -> Result<()> {
    let write = || {
        let mut new = std::fs::File::create_new(file)?;
        std::io::Write::write_all(&mut new, map.to_json().as_bytes())?;
        new.sync_all()
    };
    write().map_err(|error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Error::invalid(format!(
            "{}: this file is there already, and no map is written over another: name a new file, or remove this one",
            file.display()
        )),
        _ => Error::invalid(format!("{}: the map cannot be written", file.display())).with_source(error),
    })
}

/// A node as people give it.
fn node(text: &str, id: u16) -> Result<Node> {
    let wrong = || Error::invalid(format!("`{text}` is no node: give NAME=ADDRESS=STORE"));
    let mut parts = text.splitn(3, '=');
    let (Some(name), Some(at), Some(store)) = (parts.next(), parts.next(), parts.next()) else { return Err(wrong()) };
    let holds = match Path::new(store).is_dir() {
        true => Store::holding_of(Path::new(store))?,
        false => {
            let (digits, lost_in) = store.split_once('.').unwrap_or((store, "0"));
            let value = (digits.len() == 32).then(|| u128::from_str_radix(digits, 16).ok()).flatten();
            let (Some(value), Ok(lost_in)) = (value, lost_in.parse()) else {
                let what = "neither a directory with a store nor the number of one (`forebay cluster id DIR`)";
                return Err(Error::invalid(format!("`{text}`: `{store}` is {what}")));
            };
            (Hex128(value), lost_in)
        }
    };
    at.parse::<Address>()?;
    // Without a better word each node fails alone.
    let (name, at, domain) = (name.to_owned(), vec![at.to_owned()], name.to_owned());
    Ok(Node { id, name, at, domain, holds, state: NodeState::Active })
}

impl New {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let nodes: Vec<Node> = self.nodes.iter().zip(1..).map(|(text, id)| node(text, id)).collect::<Result<_>>()?;
        let cluster = Hex128(u128::from_be_bytes(SystemRandom.id()));
        let change = Change::Keyspace { name: self.keyspace.clone(), copies: 1, copies_min: 1, block: 6 };
        let map = ClusterMap::new(cluster, nodes)?.next_map(&change)?;
        write(&self.file, &map)?;
        say(&map, &self.file, out)
    }
}

fn say(map: &ClusterMap, file: &Path, out: &mut Output) -> Result<Answer> {
    out.json(&json!({ "epoch": map.epoch(), "hash": format!("{:?}", map.hash()), "file": file }))?;
    out.line(format!(
        "{}: map of epoch {}, {} nodes, hash {:?}",
        file.display(),
        map.epoch(),
        map.nodes().len(),
        map.hash()
    ))?;
    Ok(Answer::Yes)
}

impl Changed {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let map = read(&self.file)?;
        let from_run = self.from_run;
        let change = match (self.take_out, &self.add) {
            (Some(node), _) => Change::TakeOut { node, from_run },
            (None, Some(text)) => {
                let free = map.nodes().last().map_or(1, |node| node.id + 1);
                let new = node(text, free)?;
                // One that was taken out comes back under its number.
                let known = map.nodes().iter().find(|known| known.holds == new.holds && known.state != NodeState::Gone);
                let id = known.map_or(free, |known| known.id);
                Change::Add { node: Node { id, ..new }, from_run }
            }
            (None, None) => Change::Table { keyspace: self.table_keyspace(&map)?, from_run, sources: self.sources()? },
        };
        let map = match &self.ring {
            Some(name) if map.keyspace(name).is_none() => {
                map.next_map(&Change::Keyspace { name: name.clone(), copies: 1, copies_min: 1, block: 6 })?
            }
            _ => map,
        };
        let next = map.next_map(&change)?;
        write(&self.to, &next)?;
        say(&next, &self.to, out)
    }

    fn table_keyspace(&self, map: &ClusterMap) -> Result<String> {
        let names: Vec<&str> = map.keyspaces().map(|(name, _)| name).collect();
        match (self.keyspace.as_ref().or(self.ring.as_ref()), &names[..]) {
            (Some(name), _) => Ok(name.clone()),
            (None, [name]) => Ok((*name).to_owned()),
            (None, _) => Err(Error::invalid(format!("say whose table it is: --keyspace {}", names.join(" or ")))),
        }
    }

    fn sources(&self) -> Result<Vec<(String, Vec<u16>)>> {
        let one = |text: &String| {
            let parts = text.rsplit_once('=').and_then(|(sources, node)| Some((sources, node.parse().ok()?)));
            let (sources, node) = parts.ok_or_else(|| {
                Error::invalid(format!("`{text}` is no part of a table: give SOURCES=NODE, such as 0..49=1"))
            })?;
            Ok((sources.to_owned(), vec![node]))
        };
        self.table.iter().map(one).collect()
    }
}

impl Check {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let map = read(&self.file)?;
        let mut problems = Vec::new();
        for node in map.nodes().iter().filter(|node| node.state != NodeState::Gone) {
            let wrong = node.at.iter().filter_map(|at| at.parse::<Address>().err());
            problems.extend(wrong.map(|error| format!("node {} (`{}`): {}", node.id, node.name, error.message())));
        }
        if let Some(addresses) = self.nodes.as_ref().filter(|_| problems.is_empty()) {
            let options = Options { deadline: LOOK, ..self.identity.options("forebay")? };
            let cluster = ClusterClient::connect(&crate::connect::nodes_of(addresses), options.clone())?;
            let options = Options { keyspace: cluster.keyspace().name.clone(), ..options };
            let before = cluster.map();
            for node in map.nodes().iter().filter(|node| node.state != NodeState::Gone) {
                let name = format!("node {} (`{}`)", node.id, node.name);
                let has_part = map.keyspaces().any(|(_, keyspace)| keyspace.has_part(u64::MAX, node.id));
                let mut reached = None;
                for at in &node.at {
                    // One that is added is in no cluster yet.
                    let member = Member { cluster: before.cluster().0, node: node.id };
                    let expected = before.node(node.id).map(|_| Expected { member, keyspace: "".into() });
                    match Client::connect(at, Options { node: expected, ..options.clone() }) {
                        Ok(client) => reached = Some(client),
                        Err(error) if error.kind() == Kind::Unavailable && !has_part => {
                            let why = "the map gives it no part of new runs, so it need not answer; whether it has begun one of them is not known";
                            out.note(format!("note: {name}: {}; {why}", error.message()));
                        }
                        Err(error) => problems.push(format!("{name}: {}", error.message())),
                    }
                }
                // Where it listens by the map that is in force.
                let reached = reached.or_else(|| cluster.node(node.id).ok());
                let may = |client: Client| {
                    let own = ClusterMap::from_json(&client.map_text()?)?;
                    let has_table =
                        map.keyspace(&options.keyspace).is_some_and(|keyspace| !keyspace.tables().is_empty());
                    if has_table && client.stats()?.warm.is_some() {
                        return Err(Error::invalid(
                            "it has a warm level, and no store under a look-up table may have one",
                        ));
                    }
                    let last = client.runs()?.iter().map(|status| status.run).max();
                    own.succeeds(&map, Some(last.unwrap_or(0)))
                };
                // One that is added may be in no cluster yet.
                let asked = reached.filter(|_| before.node(node.id).is_some());
                if let Some(Err(error)) = asked.map(may) {
                    problems.push(format!("{name}: {}", error.message()));
                }
            }
        }
        if problems.is_empty() {
            return say(&map, &self.file, out);
        }
        out.json(&json!({ "file": self.file, "problems": problems }))?;
        out.problems(&problems)
    }
}

impl Nodes {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let cluster = match self.place.open(out)? {
            Opened::There(Either::There(cluster)) => cluster.within(LOOK),
            Opened::There(Either::Here(client)) => client.cluster()?.within(LOOK),
            Opened::Here(_) => return Err(Error::invalid("a directory is no cluster: give addresses of its nodes")),
        };
        let (map, keyspace) = (cluster.map(), &cluster.keyspace().name);
        let (mut rows, mut epochs, mut all_well) = (Vec::new(), Vec::new(), true);
        let seen = look(map.nodes(), |node| -> Result<(Status, Stats, usize)> {
            let client = cluster.node(node.id)?;
            let status = serde_json::from_str::<Status>(&client.cluster_text()?);
            let status = status.map_err(|error| Error::corrupt("no status of a node").with_source(error))?;
            Ok((status, client.stats()?, client.runs()?.len()))
        });
        for (node, seen) in seen {
            let name = format!("{:>3} {:<16}", node.id, node.name);
            let part = Part::of(&map, keyspace, u64::MAX, node.id);
            match seen {
                Ok((status, stats, runs)) => {
                    let troubles = status.troubles();
                    let inhibit = stats.inhibit.as_ref().map(|inhibit| format!("inhibit: {inhibit}"));
                    all_well &= troubles.is_empty();
                    epochs.push((status.epoch, status.hash.clone()));
                    let said: Vec<String> = troubles.into_iter().chain(inhibit).collect();
                    out.line(format!(
                        "{name} epoch {:<4} {runs:>4} runs  fill {:>4}  {}",
                        status.epoch,
                        format!("{:.0} %", stats.fill * 100.0),
                        said.join("; ")
                    ))?;
                    rows.push(json!({ "node": node.id, "name": node.name, "part": part, "status": status, "fill": stats.fill, "runs": runs }));
                }
                Err(error) => {
                    all_well = false;
                    out.line(format!(
                        "{name} does not answer: {}\n{:20} its part of new runs: {part}",
                        error.message(),
                        ""
                    ))?;
                    rows.push(json!({ "node": node.id, "name": node.name, "part": part, "error": error.message() }));
                }
            }
        }
        epochs.dedup();
        if epochs.len() > 1 {
            all_well = false;
            out.line("the nodes go by different maps")?;
        }
        out.json(&json!({ "epoch": map.epoch(), "nodes": rows, "well": all_well }))?;
        Ok(Answer::found(all_well))
    }
}
