//! Both clients over TLS: what moves, what comes back after a restart, and what a refused certificate says.

mod certificates;
mod moving;
mod refused;
mod restart;
mod scene;
