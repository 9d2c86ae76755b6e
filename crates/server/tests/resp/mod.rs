//! A server in this process that speaks Redis's protocol, over TCP and over a Unix socket: bytes, commands, real clients.

mod access;
pub(crate) mod bed;
mod clients;
mod commands;
mod events;
mod hostile;
mod operate;
mod pipelines;
mod rings;
