//! A server in this process that speaks Redis's protocol, over TCP and over a Unix socket: bytes, commands, real clients.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod access;
mod bed;
mod clients;
mod commands;
mod events;
mod hostile;
mod operate;
mod pipelines;
mod rings;
