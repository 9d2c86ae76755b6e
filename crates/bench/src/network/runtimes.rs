//! What a server's threads could be made of, doing nothing but to send 64 bytes back: what chose the server's runtime.
//!
//! ```text
//! threads   a thread for each connection, blocking
//! loop      one event loop on one thread, tasks that stay there: what the server has
//! stealing  an event loop whose tasks move between threads
//! ```

use super::{Measurement, pin};
use crate::Result;
use hdrhistogram::Histogram;
use std::future::Future;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

const BYTES: usize = 64;

/// All of them: one connection with a round trip at a time, and a hundred connections at once.
pub(super) fn measure(on: &mut Measurement<'_>) -> Result<()> {
    for (name, serve) in
        [("threads", threads as fn(UnixListener, oneshot::Receiver<()>)), ("loop", one_loop), ("stealing", stealing)]
    {
        let path = on.plan.dir.join(format!("forebay-echo-{}-{name}", std::process::id()));
        let listener = UnixListener::bind(&path)?;
        let (stop, stopped) = oneshot::channel();
        let server = std::thread::spawn(move || {
            let _ = pin::this_thread(pin::SERVER);
            serve(listener, stopped);
        });
        let measured = load(on, name, &path);
        let _ = stop.send(());
        // Wakes the thread that waits for a connection.
        let _ = UnixStream::connect(&path);
        let _ = server.join();
        std::fs::remove_file(&path)?;
        measured?;
    }
    Ok(())
}

fn load(on: &mut Measurement<'_>, name: &str, path: &Path) -> Result<()> {
    let mut times = Histogram::<u64>::new_with_bounds(1, 10_000_000_000, 3)?;
    pin::this_thread(pin::SERVER)?;
    let mut stream = UnixStream::connect(path)?;
    for _ in 0..on.plan.round_trips {
        let from = Instant::now();
        round(&mut stream)?;
        times.record(from.elapsed().as_nanos() as u64)?;
    }
    pin::this_thread(pin::LOAD)?;
    on.results.record(&format!("echo.{name}.p50"), BYTES, times.value_at_quantile(0.5) as f64 / 1000.0);
    let mut streams = (0..100).map(|_| UnixStream::connect(path)).collect::<std::io::Result<Vec<_>>>()?;
    let (mut done, from) = (0_u64, Instant::now());
    while done < 5 * on.plan.round_trips as u64 {
        for stream in &mut streams {
            stream.write_all(&[1; BYTES])?;
        }
        for stream in &mut streams {
            stream.read_exact(&mut [0; BYTES])?;
        }
        done += streams.len() as u64;
    }
    on.results.record(&format!("echo.{name}.rate"), BYTES, done as f64 / from.elapsed().as_secs_f64());
    Ok(())
}

fn round(stream: &mut UnixStream) -> std::io::Result<()> {
    stream.write_all(&[1; BYTES])?;
    stream.read_exact(&mut [0; BYTES])
}

fn threads(listener: UnixListener, mut stopped: oneshot::Receiver<()>) {
    for mut stream in listener.incoming().flatten() {
        if stopped.try_recv().is_ok() {
            return;
        }
        std::thread::spawn(move || {
            let mut bytes = [0; BYTES];
            while stream.read_exact(&mut bytes).and_then(|()| stream.write_all(&bytes)).is_ok() {}
        });
    }
}

async fn echo(mut stream: tokio::net::UnixStream) {
    let mut bytes = [0; BYTES];
    while stream.read_exact(&mut bytes).await.is_ok() && stream.write_all(&bytes).await.is_ok() {}
}

async fn accept<F: Future<Output = ()>>(
    listener: UnixListener,
    stopped: oneshot::Receiver<()>,
    spawn: impl Fn(tokio::net::UnixStream) -> F,
) {
    let Ok(()) = listener.set_nonblocking(true) else { return };
    let Ok(listener) = tokio::net::UnixListener::from_std(listener) else { return };
    let taking = async {
        while let Ok((stream, _)) = listener.accept().await {
            spawn(stream).await;
        }
    };
    tokio::select! { () = taking => {}, _ = stopped => {} }
}

fn one_loop(listener: UnixListener, stopped: oneshot::Receiver<()>) {
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
    LocalSet::new().block_on(
        &runtime,
        accept(listener, stopped, |stream| async {
            drop(tokio::task::spawn_local(echo(stream)));
        }),
    );
}

fn stealing(listener: UnixListener, stopped: oneshot::Receiver<()>) {
    let Ok(runtime) = Builder::new_multi_thread().worker_threads(2).enable_all().build() else { return };
    runtime.block_on(accept(listener, stopped, |stream| async {
        drop(tokio::spawn(echo(stream)));
    }));
}
