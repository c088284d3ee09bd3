//! Who comes to the extender's address: at most so many at a time, each for as long as it says something.

use super::{Place, extender_router};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// Attack: connections without end, which would take every descriptor that this process may have. More wait.
const VISITORS: usize = 64;
/// How long somebody is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Attack: a connection that says nothing, for ever. How long one stays on which nothing moves.
    pub idle: Duration,
    /// Attack: a connection that says a byte now and then, for ever. How long a request may take from its first byte
    /// to its answer's, and the answer from there.
    pub whole: Duration,
}

impl Default for Patience {
    /// Idle ones stay longer than clients written in Go keep one that they don't use; kube-scheduler itself waits five
    /// seconds for an answer.
    fn default() -> Patience {
        Patience { idle: Duration::from_secs(100), whole: Duration::from_secs(60) }
    }
}

/// Serves the extender of kube-scheduler until it is dropped; a connection that takes too long is closed.
pub async fn serve_extender(listener: TcpListener, place: Place, patience: Patience) -> io::Result<()> {
    let door = Door { listener, room: Arc::new(Semaphore::new(VISITORS)), patience };
    axum::serve(door, extender_router(place)).await
}

struct Door {
    listener: TcpListener,
    room: Arc<Semaphore>,
    patience: Patience,
}

impl axum::serve::Listener for Door {
    type Io = Visitor;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visitor, SocketAddr) {
        // Nobody closes it.
        let room = self.room.clone().acquire_owned().await.ok();
        let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
        let sleep = |time| Box::pin(tokio::time::sleep(time));
        let (idle, turn) = (sleep(self.patience.idle), sleep(self.patience.whole));
        (Visitor { stream, idle, turn, way: None, patience: self.patience, _room: room }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Which way bytes go: first a request comes in, then its answer goes out.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    In,
    Out,
}

struct Visitor {
    stream: TcpStream,
    /// When it is over with nothing moving.
    idle: Pin<Box<Sleep>>,
    /// When it is over with bytes going the same way.
    turn: Pin<Box<Sleep>>,
    way: Option<Way>,
    patience: Patience,
    _room: Option<OwnedSemaphorePermit>,
}

impl Visitor {
    /// What comes of an attempt to go on, in bytes: it may have to wait, but not for ever.
    fn patiently(
        &mut self,
        context: &mut Context<'_>,
        way: Way,
        attempt: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let done = attempt(Pin::new(&mut self.stream), context);
        if matches!(done, Poll::Ready(Ok(1..))) {
            self.idle.as_mut().reset(Instant::now() + self.patience.idle);
            if self.way.replace(way) != Some(way) {
                self.turn.as_mut().reset(Instant::now() + self.patience.whole);
            }
        }
        // Between an answer and the next request it is only idle.
        let late = self.way == Some(way) && self.turn.as_mut().poll(context).is_ready();
        if let (Poll::Ready(done), false) = (done, late) {
            return Poll::Ready(done);
        }
        if !late {
            ready!(self.idle.as_mut().poll(context));
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Visitor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.patiently(context, Way::In, |stream, context| {
            let before = into.filled().len();
            ready!(stream.poll_read(context, into))?;
            Poll::Ready(Ok(into.filled().len() - before))
        });
        read.map_ok(drop)
    }
}

impl AsyncWrite for Visitor {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.patiently(context, Way::Out, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed =
            self.patiently(context, Way::Out, |stream, context| stream.poll_flush(context).map_ok(|()| 0));
        flushed.map_ok(drop)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut =
            self.patiently(context, Way::Out, |stream, context| stream.poll_shutdown(context).map_ok(|()| 0));
        shut.map_ok(drop)
    }
}
