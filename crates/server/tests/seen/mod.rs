//! What people and monitors see of a server: its page of metrics, probes, dashboard and alerts, each read by the program
//! that reads it at work.

mod alerts;
mod dashboard;
mod http;
mod metrics;
mod prometheus;
mod scene;
