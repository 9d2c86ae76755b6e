//! Connections: up to the limits, in total and from one address; floods end at the limit and leave nothing behind.
//! Silent clients of a TLS listener hold a connection until the handshake's deadline.

use crate::secure::certificates::{Authority, NOW, connect, refusal};
use crate::secure::{Temp, log};
use forebay_server::{Limits, Server, ServerConfig};
use rustix::net::{AddressFamily, SocketType, bind, connect as connect_socket, socket};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

fn guarded(temp: &Temp, ca: &Authority, limits: Limits) -> (Server, SocketAddr) {
    let tls = Some(temp.tls(&ca.server(NOW), None, false));
    let native = vec!["tls://127.0.0.1:0".parse().unwrap()];
    temp.server(ServerConfig { native, tls, limits, ..ServerConfig::default() })
}

/// Whether the other end has closed, asked without waiting for long.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    match stream.read(&mut [0; 1]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn connections_over_the_limit_are_closed_and_the_others_stay() {
    let (temp, ca, log) = (Temp::new(), Authority::new("ca"), log::collect());
    let limits = Limits { connections_max: 4, handshake_deadline: Duration::from_secs(60), ..Limits::default() };
    let (server, address) = guarded(&temp, &ca, limits);
    let mut held: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(address).unwrap()).collect();
    crate::secure::eventually("four are in", || server.connections() == 4);
    let mut fifth = TcpStream::connect(address).unwrap();
    assert!(is_closed(&mut fifth));
    log.refusal_of(fifth.local_addr().unwrap(), "limit");
    assert!(held.iter_mut().all(|stream| !is_closed(stream)));
    held.pop();
    crate::secure::eventually("there is room again", || server.connections() == 3);
    assert_eq!(refusal(connect(address, &ca, None).unwrap()), None);
}

#[test]
fn one_address_does_not_take_what_others_need() {
    let (temp, ca) = (Temp::new(), Authority::new("ca"));
    let limits = Limits {
        connections_max: 8,
        connections_per_peer_max: 3,
        handshake_deadline: Duration::from_secs(60),
        ..Limits::default()
    };
    let (server, address) = guarded(&temp, &ca, limits);
    let _held: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    crate::secure::eventually("three are in", || server.connections() == 3);
    let mut flood: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(flood.iter_mut().all(is_closed));
    let mut other = from_address(Ipv4Addr::new(127, 0, 0, 2), address);
    assert!(!is_closed(&mut other));
    assert_eq!(server.connections(), 4);
}

/// A connection from this address of the machine.
fn from_address(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from((from, 0))).unwrap();
    connect_socket(&socket, &to).unwrap();
    socket.into()
}

#[test]
fn a_flood_ends_at_the_limit_and_service_goes_on_after_it() {
    let (temp, ca, log) = (Temp::new(), Authority::new("ca"), log::collect());
    let limits = Limits { connections_max: 8, handshake_deadline: Duration::from_millis(300), ..Limits::default() };
    let (server, address) = guarded(&temp, &ca, limits);
    let mut most = 0;
    let flood: Vec<TcpStream> = (0..300)
        .map(|_| {
            most = most.max(server.connections());
            TcpStream::connect(address).unwrap()
        })
        .collect();
    assert!(most <= 8, "{most}");
    // The last of them may still wait to be taken, and refused.
    crate::secure::eventually("service goes on", || {
        connect(address, &ca, None).is_ok_and(|stream| refusal(stream).is_none())
    });
    crate::secure::eventually("the flood is out", || server.connections() == 0);
    // Not each of them has a line.
    let ours: Vec<String> = flood.iter().map(|stream| format!("peer=\"{}\"", stream.local_addr().unwrap())).collect();
    let text = log.text();
    let lines =
        text.lines().filter(|line| line.contains("refused") && ours.iter().any(|peer| line.contains(peer))).count();
    assert!((1..150).contains(&lines), "{lines}");
}
