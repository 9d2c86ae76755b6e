//! Forebay's own protocol from outside: bytes that a well-behaved client sends, and those that none would.
//!
//! Each test has a server of its own, in this process, and speaks to it over sockets, frame by frame.

mod end;
mod flood;
mod half_open;
mod pieces;
mod raw;
mod ring;
mod scene;
mod slow;
mod waiting;
mod wrong;
