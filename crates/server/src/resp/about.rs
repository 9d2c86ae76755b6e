//! What a client asks before and beside its work: who is there, who am I, which keyspace, how full.

use super::failure::Failure;
use super::parse::Command;
use super::table::{COMMANDS, Spec};
use super::turn::{Answer, Flow, Turn};
use super::{glob, keys};
use crate::served::Served;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// The version of Redis whose words are spoken; clients look at it before they use newer ones.
const REDIS_VERSION: &str = "7.0.15";
/// Longest name that a client may give itself or its library.
const NAME_BYTES_MAX: usize = 256;

/// PING [message]
pub(super) fn ping(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    match command.len() {
        1 => turn.replies.simple("PONG"),
        2 => turn.replies.bulk(command.part(1)),
        _ => return Err(Failure::err("wrong number of arguments for 'ping' command")),
    }
    Ok(Flow::Done)
}

/// ECHO message
pub(super) fn echo(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    turn.replies.bulk(command.part(1));
    Ok(Flow::Done)
}

/// QUIT
pub(super) fn quit(turn: &mut Turn<'_>, _command: Command<'_>) -> Answer {
    turn.replies.ok();
    Ok(Flow::End("goodbye"))
}

/// RESET
pub(super) fn reset(turn: &mut Turn<'_>, _command: Command<'_>) -> Answer {
    turn.client.reset(turn.shared);
    turn.replies.set_protocol(false);
    turn.replies.simple("RESET");
    Ok(Flow::Done)
}

/// HELLO [2 | 3 [AUTH user secret] [SETNAME name]]
pub(super) fn hello(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
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
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        replies.text(name);
        replies.text(value);
    }
    replies.text("modules");
    replies.array(0);
    Ok(Flow::Done)
}

/// AUTH [user] secret
pub(super) fn auth(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    match command.len() {
        2 => log_in(turn, None, command.part(1))?,
        3 => log_in(turn, Some(command.part(1)), command.part(2))?,
        _ => return Err(Failure::syntax()),
    }
    turn.replies.ok();
    Ok(Flow::Done)
}

fn log_in(turn: &mut Turn<'_>, user: Option<&[u8]>, secret: &[u8]) -> Result<(), Failure> {
    turn.client.log_in(turn.shared, user, secret)
}

/// SELECT number | name
pub(super) fn select(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    turn.client.select(turn.shared, command.part(1))?;
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

/// CLIENT ID | GETNAME | SETNAME name | SETINFO LIB-NAME | LIB-VER text | LIST | INFO | NO-EVICT on | off
pub(super) fn client(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
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
        (b"SETINFO", 4) => {
            let which = match command.part(2).to_ascii_uppercase().as_slice() {
                b"LIB-NAME" => 0,
                b"LIB-VER" => 1,
                _ => return Err(Failure::err(format!("Unrecognized option '{}'", keys::lossy(command.part(2))))),
            };
            turn.client.library[which] = client_name(command.part(3)).map_err(|_| {
                Failure::err("lib-name and lib-ver cannot contain spaces, newlines or special characters.")
            })?;
            turn.replies.ok();
        }
        (b"LIST" | b"INFO", _) => {
            let text = describe(turn);
            turn.replies.verbatim(&text);
        }
        (b"NO-EVICT" | b"NO-TOUCH", 3) => turn.replies.ok(),
        (b"ID" | b"GETNAME" | b"SETNAME" | b"SETINFO" | b"NO-EVICT" | b"NO-TOUCH", _) => {
            let word = keys::lossy(&word).to_lowercase();
            return Err(Failure::err(format!("wrong number of arguments for 'client|{word}' command")));
        }
        _ => return unknown_subcommand(command, "CLIENT"),
    }
    Ok(Flow::Done)
}

/// This client in a line: others are nobody's business.
fn describe(turn: &Turn<'_>) -> String {
    let client = &turn.client;
    let text = String::from_utf8_lossy;
    format!(
        "id={} name={} age={} idle=0 db={} user={} lib-name={} lib-ver={} resp={}\n",
        client.id,
        text(&client.name),
        client.since.elapsed().as_secs(),
        client.keyspace(),
        client.user(),
        text(&client.library[0]),
        text(&client.library[1]),
        turn.replies.protocol()
    )
}

/// CONFIG GET pattern [pattern …]
pub(super) fn config(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    if !command.part(1).eq_ignore_ascii_case(b"get") {
        return unknown_subcommand(command, "CONFIG");
    }
    if command.len() < 3 {
        return Err(Failure::err("wrong number of arguments for 'config|get' command"));
    }
    let limits = &turn.shared.limits;
    let known = [
        ("appendonly", "no".to_owned()),
        ("databases", turn.shared.keyspaces.len().to_string()),
        ("maxclients", limits.connections_max.to_string()),
        ("maxmemory", "0".to_owned()),
        ("proto-max-bulk-len", limits.window_bytes.to_string()),
        ("save", String::new()),
        ("timeout", "0".to_owned()),
    ];
    let asked =
        |name: &str| command.from(2).any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()));
    let found: Vec<_> = known.iter().filter(|(name, _)| asked(name)).collect();
    turn.replies.map(found.len());
    for (name, value) in found {
        turn.replies.text(name);
        turn.replies.text(value);
    }
    Ok(Flow::Done)
}

/// COMMAND [COUNT | LIST | INFO [name …] | DOCS [name …]]
pub(super) fn command(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
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

/// DBSIZE: fragments of the keyspace.
pub(super) fn dbsize(turn: &mut Turn<'_>, _command: Command<'_>) -> Answer {
    let fragments = turn.client.store()?.stats().events.iter().map(|tally| tally.fragments).sum();
    turn.replies.number(fragments);
    Ok(Flow::Done)
}

/// INFO [section …]
pub(super) fn info(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    let everything =
        |word: &[u8]| [&b"all"[..], b"default", b"everything"].iter().any(|all| word.eq_ignore_ascii_case(all));
    let wanted = |section: &str| {
        let mut words = command.from(1);
        words.len() == 0 || words.any(|word| everything(word) || word.eq_ignore_ascii_case(section.as_bytes()))
    };
    let mut text = String::new();
    for (section, write) in SECTIONS {
        if wanted(section) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {section}\r\n");
            write(turn, &mut text);
        }
    }
    turn.replies.verbatim(&text);
    Ok(Flow::Done)
}

type Section = fn(&Turn<'_>, &mut String);

const SECTIONS: [(&str, Section); 5] = [
    ("Server", |_, out| {
        let _ = write!(
            out,
            "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nforebay_version:{}\r\nprocess_id:{}\r\n",
            env!("CARGO_PKG_VERSION"),
            std::process::id()
        );
    }),
    ("Clients", |turn, out| {
        let _ = write!(
            out,
            "connected_clients:{}\r\nmaxclients:{}\r\n",
            turn.shared.connections.load(Ordering::Relaxed),
            turn.shared.limits.connections_max
        );
    }),
    ("Memory", |turn, out| {
        let (mut used, mut total) = (0, 0);
        for (_, store) in turn.shared.stores() {
            let stats = store.stats();
            let all = u64::from(stats.segments) * stats.segment_bytes;
            total += all;
            used += (all as f64 * stats.fill) as u64;
        }
        let _ = write!(out, "used_memory:{used}\r\nmaxmemory:{total}\r\nmaxmemory_policy:noeviction\r\n");
    }),
    ("Forebay", |turn, out| {
        for (name, store) in turn.shared.stores() {
            let stats = store.stats();
            let events = stats.events.map(|tally| tally.events);
            let _ = write!(
                out,
                "keyspace_{name}:fill={:.3},open={},ready={},leased={},debug={},accepted={},inhibit={}\r\n",
                stats.fill,
                events[0],
                events[1],
                events[2],
                events[3],
                events[4],
                stats.inhibit.map_or("no", |inhibit| inhibit.class.name())
            );
        }
        let _ = write!(out, "resp_clients_since_start:{}\r\n", turn.shared.resp.clients());
    }),
    ("Keyspace", |turn, out| {
        for (at, served) in turn.shared.keyspaces.values().enumerate() {
            let fragments = match served {
                Served::Events(store) => store.stats().events.iter().map(|tally| tally.fragments).sum(),
                Served::Ring(ring) => ring.stats().fragments,
            };
            if fragments > 0 {
                let _ = write!(out, "db{at}:keys={fragments},expires=0,avg_ttl=0\r\n");
            }
        }
    }),
];
