//! Commands about the connection and the server: identity, login, choice of the keyspace, fill.

use super::failure::Failure;
use super::keys;
use super::parse::Command;
use super::table::{COMMANDS, Spec};
use super::turn::{Answer, Flow, Turn};
use forebay_core::ServedStore;
use std::sync::atomic::Ordering;

/// The version of Redis whose words are spoken; clients look at it before they use newer ones.
const REDIS_VERSION: &str = "7.0.15";
/// Longest name that a client may give itself or its library.
const NAME_BYTES_MAX: usize = 256;

/// PING [message]
pub(super) fn ping<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    match command.len() {
        1 => turn.replies.simple("PONG"),
        2 => turn.replies.bulk(command.part(1)),
        _ => return Err(Failure::err("wrong number of arguments for 'ping' command")),
    }
    Ok(Flow::Done)
}

/// ECHO message
pub(super) fn echo<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    turn.replies.bulk(command.part(1));
    Ok(Flow::Done)
}

/// QUIT
pub(super) fn quit<S: ServedStore>(turn: &mut Turn<'_, S>, _command: Command<'_>) -> Answer {
    turn.replies.ok();
    Ok(Flow::End("goodbye"))
}

/// HELLO [2 | 3 [AUTH user secret] [SETNAME name]]
pub(super) fn hello<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let mut words = command.from(1);
    let three = match words.next() {
        None => None,
        Some(b"2") => Some(false),
        Some(b"3") => Some(true),
        Some(word) if !word.is_empty() && word.iter().all(u8::is_ascii_digit) => {
            return Err(Failure::coded("NOPROTO", "unsupported protocol version"));
        }
        Some(_) => return Err(Failure::err("Protocol version is not an integer or out of range")),
    };
    let mut name = None;
    while let Some(word) = words.next() {
        let wrong = || Failure::err(format!("Syntax error in HELLO option '{}'", keys::lossy(word)));
        match word.to_ascii_uppercase().as_slice() {
            b"AUTH" => {
                let (user, secret) = (words.next().ok_or_else(wrong)?, words.next().ok_or_else(wrong)?);
                log_in(turn, Some(user), secret)?;
            }
            b"SETNAME" => name = Some(client_name(words.next().ok_or_else(wrong)?)?),
            _ => return Err(wrong()),
        }
    }
    // Before anything of the connection is changed: a refused HELLO leaves it as it was.
    if turn.client.is_stranger() {
        return Err(Failure::coded(
            "NOAUTH",
            "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
             <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        turn.client.name = name;
    }
    if let Some(three) = three {
        turn.replies.set_protocol(three);
    }
    let (id, protocol) = (turn.client.id, turn.replies.protocol());
    let replies = &mut *turn.replies;
    replies.map(7);
    for (name, value) in [("server", "forebay"), ("version", env!("CARGO_PKG_VERSION"))] {
        replies.text(name);
        replies.text(value);
    }
    replies.text("proto");
    replies.number(u64::from(protocol));
    replies.text("id");
    replies.number(id);
    // What clients of a single Redis server expect: other values make them look for replicas.
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        replies.text(name);
        replies.text(value);
    }
    replies.text("modules");
    replies.array(0);
    Ok(Flow::Done)
}

/// AUTH [user] secret
pub(super) fn auth<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    match command.len() {
        2 => log_in(turn, None, command.part(1))?,
        3 => log_in(turn, Some(command.part(1)), command.part(2))?,
        _ => return Err(Failure::syntax()),
    }
    turn.replies.ok();
    Ok(Flow::Done)
}

fn log_in<S: ServedStore>(turn: &mut Turn<'_, S>, user: Option<&[u8]>, secret: &[u8]) -> Result<(), Failure> {
    turn.client.log_in(turn.shared, user, secret)
}

/// SELECT number | name
pub(super) fn select<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    turn.client.select(command.part(1))?;
    turn.replies.ok();
    Ok(Flow::Done)
}

fn client_name(name: &[u8]) -> Result<Vec<u8>, Failure> {
    if name.len() > NAME_BYTES_MAX || !name.iter().all(u8::is_ascii_graphic) {
        return Err(Failure::err("Client names cannot contain spaces, newlines or special characters."));
    }
    Ok(name.to_vec())
}

fn unknown_subcommand(command: Command<'_>, container: &str) -> Answer {
    Err(Failure::err(format!("unknown subcommand '{}'. Try {container} HELP.", keys::lossy(command.part(1)))))
}

/// CLIENT ID | GETNAME | SETNAME name | SETINFO LIB-NAME | LIB-VER text
pub(super) fn client<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let word = command.part(1).to_ascii_uppercase();
    match (word.as_slice(), command.len()) {
        (b"ID", 2) => turn.replies.number(turn.client.id),
        (b"GETNAME", 2) => match turn.client.name.as_slice() {
            [] => turn.replies.nothing(),
            name => turn.replies.bulk(name),
        },
        (b"SETNAME", 3) => {
            turn.client.name = client_name(command.part(2))?;
            turn.replies.ok();
        }
        // Libraries say who they are when they connect; nobody asks for it.
        (b"SETINFO", 4) => turn.replies.ok(),
        (b"ID" | b"GETNAME" | b"SETNAME" | b"SETINFO", _) => {
            let word = keys::lossy(&word).to_lowercase();
            return Err(Failure::err(format!("wrong number of arguments for 'client|{word}' command")));
        }
        _ => return unknown_subcommand(command, "CLIENT"),
    }
    Ok(Flow::Done)
}

/// CONFIG GET name [name …]: what `redis-benchmark` asks before it begins.
pub(super) fn config<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    if !command.part(1).eq_ignore_ascii_case(b"get") {
        return unknown_subcommand(command, "CONFIG");
    }
    if command.len() < 3 {
        return Err(Failure::err("wrong number of arguments for 'config|get' command"));
    }
    let known = [("appendonly", "no"), ("save", "")];
    let asked = |name: &str| command.from(2).any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    let found: Vec<_> = known.into_iter().filter(|(name, _)| asked(name)).collect();
    turn.replies.map(found.len());
    for (name, value) in found {
        turn.replies.text(name);
        turn.replies.text(value);
    }
    Ok(Flow::Done)
}

/// COMMAND [COUNT | LIST | INFO [name …] | DOCS [name …]]
pub(super) fn command<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let named = |name: &[u8]| COMMANDS.iter().find(|spec| name.eq_ignore_ascii_case(spec.name.as_bytes()));
    let replies = &mut *turn.replies;
    match (command.part(1).to_ascii_uppercase().as_slice(), command.len()) {
        (b"COUNT", 2) => replies.number(COMMANDS.len() as u64),
        (b"LIST", 2) => replies.texts(COMMANDS.iter().map(|spec| spec.name)),
        (b"", 1) | (b"INFO", 2) => {
            replies.array(COMMANDS.len());
            COMMANDS.iter().for_each(|spec| spec.write_info(replies));
        }
        (b"INFO", _) => {
            replies.array(command.len() - 2);
            for name in command.from(2) {
                match named(name) {
                    Some(spec) => spec.write_info(replies),
                    None => replies.nothing(),
                }
            }
        }
        (b"DOCS", length) => {
            let chosen: Vec<&Spec> = match length {
                2 => COMMANDS.iter().collect(),
                _ => command.from(2).filter_map(named).collect(),
            };
            replies.map(chosen.len());
            chosen.into_iter().for_each(|spec| spec.write_docs(replies));
        }
        _ => return unknown_subcommand(command, "COMMAND"),
    }
    Ok(Flow::Done)
}

/// INFO [section …]: what clients look for before they send anything; figures are on the page of metrics.
pub(super) fn info<S: ServedStore>(turn: &mut Turn<'_, S>, _command: Command<'_>) -> Answer {
    let (version, process) = (env!("CARGO_PKG_VERSION"), std::process::id());
    let connections = turn.shared.connections.load(Ordering::Relaxed);
    turn.replies.verbatim(&format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nforebay_version:{version}\r\n\
         process_id:{process}\r\nloading:0\r\n\r\n# Clients\r\nconnected_clients:{connections}\r\n"
    ));
    Ok(Flow::Done)
}
