//! Tests of the container engine.
