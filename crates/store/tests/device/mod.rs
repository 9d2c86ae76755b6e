//! Devices of the warm level: the real one in all its ways, and those that tests are made of.

mod conformance;
mod directory;
mod faults;
mod simulated;
