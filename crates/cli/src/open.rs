//! Opens the store of a command: in this process, or on the server that has it.
//!
//! ```text
//! DIR ──▶ nobody has it: opened here │ a server has it (served.json): connected │ another program has it: said so
//! tcp://… tls://… unix:… (or --connect): connected
//! DIR with a ring ──▶ read in memory that is thrown away, or connected as above
//! ```

use crate::connect::{Identity, client_of, nodes_of};
use crate::output::Output;
use crate::serving;
use forebay_client::{Client, ClusterClient, ClusterRing, Connected, Options, RingClient};
use forebay_core::{Either, Error, EventStore, Kind, Result};
use forebay_ring::{Ring, RingConfig, RingLook};
use forebay_store::{Config, Store};
use rustix::io::Errno;
use std::error::Error as _;
use std::path::{Path, PathBuf};

/// A store in this process, on a server, or on the nodes of a cluster.
pub(crate) type Opened = Either<Store, Either<Client, ClusterClient>>;

/// A ring that nobody serves, one on a server, or one on the nodes of a cluster.
pub(crate) type OpenedRing = Either<RingLook, Either<RingClient, ClusterRing>>;

/// What a command looks at.
pub(crate) enum Kept {
    /// A store of events.
    Events(Opened),
    /// A ring.
    Ring(OpenedRing),
}

/// Where the store of a command is.
#[derive(clap::Args)]
pub(crate) struct Place {
    /// Directory of the store, or the address of its server: tcp://HOST:PORT, tls://HOST:PORT or unix:/PATH. Addresses of several nodes, with
    /// commas between them, stand for their whole cluster.
    #[arg(value_name = "PLACE")]
    place: PathBuf,
    /// The address of a server, in place of PLACE.
    // Only for the help: `main` puts the address where PLACE is, before anything is parsed.
    #[arg(long, value_name = "ADDRESS", help_heading = "On a server")]
    connect: Option<String>,
    #[command(flatten)]
    identity: Identity,
}

impl Place {
    /// A place among several.
    pub(crate) fn of(place: &Path, identity: &Identity) -> Place {
        Place { place: place.to_owned(), connect: None, identity: identity.clone() }
    }

    /// The store that is there.
    pub(crate) fn open(&self, out: &Output) -> Result<Opened> {
        match self.address() {
            Some(address) => self.connected(address),
            None if !holds_store(&self.place) => Err(no_store(&self.place)),
            None => {
                let config = Config { accept_loss: out.accept_loss, ..Config::default() };
                self.here_or_there(Store::open(&self.place, config))
            }
        }
    }

    /// The store or the ring that is there. A ring in a directory is read, never changed.
    pub(crate) fn kept(&self, out: &Output) -> Result<Kept> {
        let connected = match self.address() {
            Some(address) if address.contains(',') => {
                let options = self.identity.options("forebay")?;
                return Ok(match Connected::cluster(&nodes_of(address), &options)? {
                    Either::Here(cluster) => Kept::Events(Either::There(Either::There(cluster))),
                    Either::There(ring) => Kept::Ring(Either::There(Either::There(ring))),
                });
            }
            Some(address) => Connected::connect(address, self.identity.options("forebay")?)?,
            None if !holds_ring(&self.place) => return self.open(out).map(Kept::Events),
            None => {
                let config = RingConfig { accept_loss: out.accept_loss, ..RingConfig::default() };
                match Ring::look(&self.place, config) {
                    Ok(ring) => return Ok(Kept::Ring(Either::Here(ring))),
                    Err(error) => self.served_by(error, Connected::connect)?,
                }
            }
        };
        Ok(match connected {
            Connected::Events(client) => Kept::Events(of_one(client)),
            Connected::Ring(ring) => Kept::Ring(Either::There(Either::Here(ring))),
        })
    }

    /// The ring that is there.
    pub(crate) fn ring(&self, out: &Output) -> Result<OpenedRing> {
        match self.kept(out)? {
            Kept::Ring(ring) => Ok(ring),
            Kept::Events(store) => {
                let name = store.keyspace().name.clone();
                Err(Error::invalid(format!("{}: keyspace `{name}` has events and is no ring", self.place.display())))
            }
        }
    }

    /// Whether a directory with a ring is meant.
    pub(crate) fn ring_dir(&self) -> Option<&Path> {
        self.dir().filter(|dir| holds_ring(dir))
    }

    /// What `look` makes of the directory, or a client, where a server has it.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Path) -> Result<T>) -> Result<Either<T, Client>> {
        let found = match self.address() {
            Some(address) => return self.client(address).map(Either::There),
            None if !holds_store(&self.place) => return Err(no_store(&self.place)),
            None => look(&self.place),
        };
        found.map(Either::Here).or_else(|error| self.served(error).map(Either::There))
    }

    /// The directory, where it is one.
    pub(crate) fn dir(&self) -> Option<&Path> {
        self.address().is_none().then_some(&self.place)
    }

    fn address(&self) -> Option<&str> {
        address(&self.place)
    }

    fn connected(&self, address: &str) -> Result<Opened> {
        // Several addresses are nodes of one cluster: it is meant as a whole.
        if address.contains(',') {
            return client_of(address, self.identity.options("forebay")?).map(Either::There);
        }
        self.client(address).map(of_one)
    }

    fn here_or_there(&self, opened: Result<Store>) -> Result<Opened> {
        opened.map(Either::Here).or_else(|error| self.served(error).map(of_one))
    }

    fn client(&self, address: &str) -> Result<Client> {
        if address.contains(',') {
            return Err(Error::invalid("this command looks at one server: give it one address"));
        }
        Client::connect(address, self.identity.options("forebay")?)
    }

    fn served(&self, error: Error) -> Result<Client> {
        self.served_by(error, Client::connect)
    }

    /// A client of the server that has the directory; or the error that opening gave.
    pub(crate) fn served_by<T>(&self, error: Error, connect: impl Fn(&str, Options) -> Result<T>) -> Result<T> {
        if !is_locked(&error) {
            return Err(error);
        }
        let Some(serving) = serving::read(&self.place)? else { return Err(explain(&self.place, error)) };
        let mut options = self.identity.options("forebay")?;
        if self.identity.keyspace().is_none() {
            options.keyspace = serving.keyspace.clone();
        }
        // Sockets of this machine first: they need no certificate.
        let mut addresses: Vec<&String> = serving.native.iter().collect();
        addresses.sort_by_key(|address| (!address.starts_with("unix:"), address.starts_with("tls:")));
        let mut refused = Vec::new();
        for address in addresses {
            match connect(address, options.clone()) {
                Ok(client) => return Ok(client),
                Err(error) => refused.push((address, error)),
            }
        }
        let kind = refused.first().map_or(Kind::Unavailable, |(_, error)| error.kind());
        let why: Vec<String> =
            refused.iter().map(|(address, error)| format!("{address}: {}", error.message())).collect();
        let why =
            if why.is_empty() { "it listens to nobody with Forebay's own protocol".to_owned() } else { why.join("; ") };
        Err(Error::new(
            kind,
            format!(
                "what is in {} is served by process {} as keyspace `{}`, which this command cannot use: {why}",
                self.place.display(),
                serving.pid,
                serving.keyspace
            ),
        ))
    }
}

/// The address of a server, or those of several nodes, in place of a directory.
pub(crate) fn address(place: &Path) -> Option<&str> {
    let text = place.to_str()?;
    ["tcp://", "tls://", "unix:"].iter().any(|scheme| text.starts_with(scheme)).then_some(text)
}

/// The store of one server.
pub(crate) fn of_one(client: Client) -> Opened {
    Either::There(Either::Here(client))
}

/// Refuses to change what all nodes of a cluster share in the store of one of them that nobody serves.
pub(crate) fn of_all_nodes(store: &Opened) -> Result<()> {
    match store {
        Either::Here(store) if store.adopted_map().is_some() => Err(Error::invalid(
            "this store is a node of a cluster, and runs, masks and holds are the matter of all its nodes: start its server, and give \
             the addresses of nodes instead of the directory",
        )),
        _ => Ok(()),
    }
}

/// The same store under the name of the person who calls: what it changes of runs is signed so. A server signs by the token.
pub(crate) fn signed(store: Opened) -> Opened {
    let person =
        ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()));
    match (store, person) {
        (Either::Here(store), Some(person)) => Either::Here(store.named(&person)),
        (store, _) => store,
    }
}

/// The store of a command, at its end.
pub(crate) trait Close {
    /// Closes a store of this process; a server's goes on.
    ///
    /// # Errors
    /// Those of closing a store.
    fn close(&self) -> Result<()>;
}

impl Close for Opened {
    fn close(&self) -> Result<()> {
        match self {
            Either::Here(store) => store.close(),
            Either::There(Either::Here(client)) => {
                client.close();
                Ok(())
            }
            Either::There(Either::There(cluster)) => {
                cluster.close();
                Ok(())
            }
        }
    }
}

/// Whether a directory has the files of a store.
pub(crate) fn holds_store(dir: &Path) -> bool {
    dir.join("hot.fb").exists() || dir.join("keyspace.toml").exists()
}

/// Whether a directory has the files of a ring.
pub(crate) fn holds_ring(dir: &Path) -> bool {
    dir.join("ring.fb").exists() || dir.join("ring.toml").exists()
}

/// What a command says where there is no store.
pub(crate) fn no_store(dir: &Path) -> Error {
    if holds_ring(dir) {
        return Error::invalid(format!(
            "{} holds a ring: stats, check, inspect, sources, window, record and pin are the commands for one",
            dir.display()
        ));
    }
    let what = if dir.is_dir() { "holds no store (no hot.fb)" } else { "is not a directory" };
    Error::invalid(format!("{} {what}; `forebay create {}` makes one", dir.display(), dir.display()))
}

/// Whether an error of opening says that somebody has the store.
fn is_locked(error: &Error) -> bool {
    let errno = error.source().and_then(|source| source.downcast_ref::<Errno>());
    error.kind() == Kind::Unavailable && errno == Some(&Errno::WOULDBLOCK)
}

/// An error of opening, with what a person can do about it.
pub(crate) fn explain(dir: &Path, error: Error) -> Error {
    // Every other error says itself what to do: a missing device is no other process.
    if !is_locked(&error) {
        return error;
    }
    Error::unavailable(format!(
        "another process has what is in {}, and is no server of it: it serves one process at a time, so wait for that process \
         to end, or stop it (a server is reached by its address, such as --connect tcp://127.0.0.1:7440)",
        dir.display()
    ))
    .with_source(error)
}
