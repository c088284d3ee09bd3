//! Readiness in tokio for sockets of our own types.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as Plain;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// A non-blocking socket, with its readiness.
///
/// Tokio polls a duplicate descriptor, as if it were a stream. Only its readiness is used, so that listening sockets
/// work as well.
#[derive(Debug)]
pub struct Watched<T> {
    inner: T,
    watch: UnixStream,
}

impl<T: AsFd> AsFd for Watched<T> {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl<T: AsFd> Watched<T> {
    /// Registers `inner` with tokio.
    pub fn new(inner: T) -> io::Result<Watched<T>> {
        let watch = UnixStream::from_std(Plain::from(inner.as_fd().try_clone_to_owned()?))?;
        Ok(Watched { inner, watch })
    }

    /// Calls `look` each time the socket may be readable, until `look` returns a value.
    pub async fn until<R>(&mut self, mut look: impl FnMut(&mut T) -> io::Result<Option<R>>) -> io::Result<R> {
        loop {
            self.watch.readable().await?;
            let inner = &mut self.inner;
            let found = self
                .watch
                .try_io(Interest::READABLE, || look(inner)?.ok_or(io::ErrorKind::WouldBlock.into()));
            match found {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                found => return found,
            }
        }
    }

    /// Waits until the socket may be readable.
    pub async fn readable(&self) {
        // An error is found when the socket is read.
        let _ = self.watch.readable().await;
    }

    /// Deregisters the socket and returns it.
    pub fn into_inner(self) -> T {
        self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    #[tokio::test]
    async fn a_listener_and_a_stream_report_events() {
        let path = std::env::temp_dir().join(format!("ringway-watched-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut listener = Watched::new(listener).unwrap();
        let mut peer = Plain::connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (stream, _) = listener.until(|listener| listener.accept().map(Some)).await.unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut stream = Watched::new(stream).unwrap();
        let mut received = Vec::new();
        for word in ["one", "two"] {
            peer.write_all(word.as_bytes()).unwrap();
            let mut bytes = [0; 3];
            let read = |stream: &mut Plain| io::Read::read_exact(stream, &mut bytes).map(|()| Some(()));
            stream.until(read).await.unwrap();
            received.push(bytes);
        }
        assert_eq!(received, [*b"one", *b"two"]);
    }
}
