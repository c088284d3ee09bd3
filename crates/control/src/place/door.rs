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
/// Attack: a connection that says nothing, for ever. Longer than clients written in Go keep one that they don't use.
pub const PATIENCE: Duration = Duration::from_secs(100);

/// Serves the extender of kube-scheduler until it is dropped; a connection on which nothing moves for `patience` is
/// closed.
pub async fn serve_extender(listener: TcpListener, place: Place, patience: Duration) -> io::Result<()> {
    let door = Door { listener, room: Arc::new(Semaphore::new(VISITORS)), patience };
    axum::serve(door, extender_router(place)).await
}

struct Door {
    listener: TcpListener,
    room: Arc<Semaphore>,
    patience: Duration,
}

impl axum::serve::Listener for Door {
    type Io = Visitor;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visitor, SocketAddr) {
        // Nobody closes it.
        let room = self.room.clone().acquire_owned().await.ok();
        let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
        let idle = Box::pin(tokio::time::sleep(self.patience));
        (Visitor { stream, idle, patience: self.patience, _room: room }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

struct Visitor {
    stream: TcpStream,
    idle: Pin<Box<Sleep>>,
    patience: Duration,
    _room: Option<OwnedSemaphorePermit>,
}

impl Visitor {
    /// What comes of an attempt to go on: it may have to wait, but not for ever.
    fn patiently<T>(
        &mut self,
        context: &mut Context<'_>,
        attempt: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(done) = attempt(Pin::new(&mut self.stream), context) {
            self.idle.as_mut().reset(Instant::now() + self.patience);
            return Poll::Ready(done);
        }
        ready!(self.idle.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Visitor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.patiently(context, |stream, context| stream.poll_read(context, into))
    }
}

impl AsyncWrite for Visitor {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.patiently(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.patiently(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.patiently(context, |stream, context| stream.poll_shutdown(context))
    }
}
