//! Captures: the socket by which clients ask for copies of ports' frames.
//!
//! A client sends a [`CaptureRequest`] and gets a [`CaptureAnswer`], with the memory that `data` writes the copies to;
//! messages are those of [`MessageStream`]. The capture ends when the client closes its connection.

use crate::engine::{EngineRequest, Inbox};
use crate::open::Watched;
use ringway_fabric::MessageStream;
use ringway_fabric::capture::CAPTURES;
use ringway_fabric::proto::Capture;
use ringway_host::listener::Listener;
use ringway_spec::LineLimit;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Longest request in bytes.
const LONGEST: usize = 1 << 20;
/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay after a temporary error, such as a lack of file descriptors.
const PAUSE: Duration = Duration::from_secs(1);
/// Attack: clients that use up what there is of descriptors or threads. Lines about that within a period.
const REPORTED: u32 = 20;
const REPORT_PERIOD: Duration = Duration::from_secs(60);

/// What a client wants to capture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaptureRequest {
    /// What is captured.
    pub capture: Capture,
    /// Bytes of memory for copies that the client has not read.
    pub buffer: u64,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaptureAnswer {
    /// The capture has begun; its memory comes with the answer.
    Begun,
    /// The reason why it has not, for people.
    Refused(String),
}

/// A capture that has begun.
#[derive(Debug)]
pub struct Begun {
    /// Its number.
    pub number: u64,
    /// Its memory.
    pub memory: OwnedFd,
}

/// Serves clients, each in a thread.
pub async fn serve(listener: Listener, inbox: Inbox) -> io::Result<()> {
    let mut listener = Watched::new(listener)?;
    let clients = Arc::new(AtomicUsize::new(0));
    let mut limit = LineLimit::new(REPORTED, REPORT_PERIOD);
    let mut report = |error: &dyn std::fmt::Display| {
        if let Some(suppressed) = limit.take(Instant::now()) {
            tracing::warn!(%error, suppressed, "a client can't capture");
        }
    };
    loop {
        let accepted = listener.until(|listener| listener.accept().map_err(io::Error::other)).await;
        let socket = match accepted {
            Ok(socket) => socket,
            Err(error) => {
                report(&error);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Attack: connections without end. One more than there are captures gets a reason from the engine.
        if clients.load(Relaxed) > CAPTURES {
            continue;
        }
        clients.fetch_add(1, Relaxed);
        let (inbox, runtime, count) = (inbox.clone(), Handle::current(), clients.clone());
        let client = move || {
            if let Err(error) = client(socket, &inbox, &runtime) {
                tracing::debug!(%error, "a client that captures");
            }
            count.fetch_sub(1, Relaxed);
        };
        if let Err(error) = std::thread::Builder::new().name("capture".into()).spawn(client) {
            clients.fetch_sub(1, Relaxed);
            report(&error);
        }
    }
}

fn client(socket: OwnedFd, inbox: &Inbox, runtime: &Handle) -> Result<(), Box<dyn std::error::Error>> {
    let socket = UnixStream::from(socket);
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    let times = socket.try_clone()?;
    let stream = MessageStream::new(socket.into());
    let request: CaptureRequest = stream.receive_plain(LONGEST)?;
    let Begun { number, memory } =
        match runtime.block_on(inbox.ask(|answer| EngineRequest::Capture(Box::new(request), answer))) {
            Ok(begun) => begun,
            Err(failure) => return Ok(stream.send(&CaptureAnswer::Refused(failure.reason()), &[])?),
        };
    let sent = stream.send(&CaptureAnswer::Begun, &[memory.as_fd()]);
    drop(memory);
    times.set_read_timeout(None)?;
    if sent.is_ok() {
        // Returns when the client has closed its end, or sends what is no message.
        let _ = stream.receive_plain::<()>(0);
    }
    // Fails only if the fabric is going down.
    let _ = runtime.block_on(inbox.ask(|answer| EngineRequest::EndCapture(number, answer)));
    Ok(())
}
