//! Connections, by TLS or, from this host alone, without. The handshake is a part of the first read, so that it delays
//! no other client, and is within the time that a client has for its first request.

use super::tokens::{Hash, hash};
use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// A client that has connected.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub address: SocketAddr,
    /// The hash of its certificate, once the handshake has ended, if it has one.
    pub certificate: Arc<OnceLock<Hash>>,
}

/// A listener, before it is in a runtime.
pub(super) struct TlsListener {
    socket: std::net::TcpListener,
    config: Option<Arc<ServerConfig>>,
}

impl TlsListener {
    /// Accepts clients of this socket, by this certificate, or without TLS.
    pub fn new(socket: std::net::TcpListener, config: Option<Arc<ServerConfig>>) -> io::Result<TlsListener> {
        socket.set_nonblocking(true)?;
        Ok(TlsListener { socket, config })
    }

    /// Begins to listen in this runtime.
    pub fn start(self) -> io::Result<Incoming> {
        let acceptor = self.config.map(TlsAcceptor::from);
        Ok(Incoming { listener: TcpListener::from_std(self.socket)?, acceptor })
    }
}

/// What listens.
pub(super) struct Incoming {
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
}

impl Listener for Incoming {
    type Io = Connection;
    type Addr = Arrived;

    async fn accept(&mut self) -> (Connection, Arrived) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            // Without a descriptor left the client is refused.
            let Ok(socket) = stream.as_fd().try_clone_to_owned() else { continue };
            // Answers are small; without this one waits for the client's acknowledgement of the one before.
            let _ = stream.set_nodelay(true);
            let certificate = Arc::<OnceLock<Hash>>::default();
            let stage = match &self.acceptor {
                Some(acceptor) => Stage::Handshake(Box::new(acceptor.accept(stream))),
                None => Stage::Plain(stream),
            };
            let connection = Connection { socket, stage, certificate: certificate.clone() };
            return (connection, Arrived { address, certificate });
        }
    }

    fn local_addr(&self) -> io::Result<Arrived> {
        Ok(Arrived { address: self.listener.local_addr()?, certificate: Arc::default() })
    }
}

enum Stage {
    Handshake(Box<Accept<TcpStream>>),
    Open(Box<TlsStream<TcpStream>>),
    Plain(TcpStream),
    Failed,
}

/// A connection, before, in and after its handshake.
pub(super) struct Connection {
    /// For options of the socket.
    socket: OwnedFd,
    stage: Stage,
    certificate: Arc<OnceLock<Hash>>,
}

/// What a connection is read from and written to.
trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

impl Connection {
    /// The stream, once the handshake has ended.
    fn stream(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Pin<&mut dyn Stream>>> {
        if let Stage::Handshake(accept) = &mut self.stage {
            match ready!(Pin::new(accept).poll(context)) {
                Ok(stream) => {
                    let certificates = stream.get_ref().1.peer_certificates();
                    if let Some(own) = certificates.and_then(<[_]>::first) {
                        // Set once only.
                        let _ = self.certificate.set(hash(own));
                    }
                    self.stage = Stage::Open(Box::new(stream));
                }
                Err(error) => {
                    self.stage = Stage::Failed;
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(match &mut self.stage {
            Stage::Open(stream) => Ok(Pin::new(&mut **stream)),
            Stage::Plain(stream) => Ok(Pin::new(stream)),
            Stage::Handshake(_) | Stage::Failed => Err(io::ErrorKind::ConnectionAborted.into()),
        })
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.get_mut().stream(context))?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.get_mut().stream(context))?.poll_write(context, data)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.get_mut().stream(context))?.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stage {
            Stage::Open(stream) => Pin::new(&mut **stream).poll_shutdown(context),
            Stage::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            // Nothing was sent.
            Stage::Handshake(_) | Stage::Failed => Poll::Ready(Ok(())),
        }
    }
}
