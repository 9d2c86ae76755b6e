//! Delays to a tenth of a millisecond, without CPU: the timers of tokio round up to the next millisecond, which is a fifth of
//! the delay that benchmarks use.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A thread that wakes requests in the order in which they came. It ends with the last of these.
#[derive(Clone, Debug)]
pub(super) struct Delays(Sender<(Instant, oneshot::Sender<()>)>);

impl Delays {
    pub(super) fn new() -> std::io::Result<Delays> {
        let (sender, receiver) = mpsc::channel();
        std::thread::Builder::new().name("s3-standin-delay".to_owned()).spawn(move || wake(&receiver))?;
        Ok(Delays(sender))
    }

    pub(super) async fn wait(&self, delay: Duration) {
        let (waker, woken) = oneshot::channel();
        if self.0.send((Instant::now() + delay, waker)).is_ok() {
            woken.await.ok();
        }
    }
}

fn wake(waiting: &Receiver<(Instant, oneshot::Sender<()>)>) {
    while let Ok((at, waker)) = waiting.recv() {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        // A client that is gone does not wait.
        waker.send(()).ok();
    }
}
