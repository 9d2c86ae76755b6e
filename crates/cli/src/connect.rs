//! Connects a command to a server.

use forebay_client::{Client, ClusterClient, Options, Tls};
use forebay_core::{Either, Error, Result};
use std::path::PathBuf;

/// The address of a server, and the identity of the client.
#[derive(clap::Args)]
pub(crate) struct Connect {
    /// The server: tcp://HOST:PORT, tls://HOST:PORT or unix:/PATH. Addresses of several nodes, with commas between them,
    /// stand for their whole cluster.
    #[arg(long, value_name = "ADDRESS", env = "FOREBAY_CONNECT")]
    connect: String,
    #[command(flatten)]
    identity: Identity,
}

/// The identity of a client, and what it wants of a server.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "On a server")]
pub(crate) struct Identity {
    /// Keyspace; needed where the server has several.
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// File with the token; FOREBAY_TOKEN has it otherwise, where the server wants one.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// For tls://: the certificate of the CA that made the server's, PEM.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// For tls://: the client's certificate, where the server wants one, PEM.
    #[arg(long, value_name = "FILE", requires = "certificate_key")]
    certificate: Option<PathBuf>,
    /// For tls://: the key of the client's certificate, PEM.
    // An id of its own: commands have keys of fragments as well.
    #[arg(id = "certificate_key", long = "key", value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

impl Connect {
    /// A client of the server or cluster, under a name.
    pub(crate) fn client(&self, name: &str) -> Result<Either<Client, ClusterClient>> {
        client_of(&self.connect, self.identity.options(name)?)
    }
}

/// A client of one server, or of a whole cluster where addresses have commas between them.
pub(crate) fn client_of(address: &str, options: Options) -> Result<Either<Client, ClusterClient>> {
    if !address.contains(',') {
        return Client::connect(address, options).map(Either::Here);
    }
    ClusterClient::connect(&nodes_of(address), options).map(Either::There)
}

/// Addresses of nodes that have commas between them.
pub(crate) fn nodes_of(addresses: &str) -> Vec<&str> {
    addresses.split(',').filter(|address| !address.is_empty()).collect()
}

impl Identity {
    /// The keyspace that was named.
    pub(crate) fn keyspace(&self) -> Option<&str> {
        self.keyspace.as_deref()
    }

    /// How to connect, under a name.
    pub(crate) fn options(&self, name: &str) -> Result<Options> {
        let token = match &self.token_file {
            Some(file) => std::fs::read(file).map_err(|error| {
                Error::invalid(format!("the token in {} cannot be read", file.display())).with_source(error)
            })?,
            None => std::env::var("FOREBAY_TOKEN").unwrap_or_default().into_bytes(),
        };
        let token = token.trim_ascii().to_vec();
        let name = format!("{name} ({})", std::process::id());
        let tls = Tls { ca: self.ca.clone(), certificate: self.certificate.clone(), key: self.key.clone() };
        Ok(Options { name, token, tls, keyspace: self.keyspace.clone().unwrap_or_default(), ..Options::default() })
    }
}
