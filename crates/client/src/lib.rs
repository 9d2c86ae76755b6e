//! The API of a store over the network.
