//! Answers whose body is sent as it comes, such as server-sent events.

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tokio::sync::{Notify, mpsc};

/// Marks an answer that is sent as it comes. It may last as long as its connection.
#[derive(Clone, Debug)]
pub(crate) struct IsStreamed;

/// Closes the connection of a request, of whose extensions it is, a moment later.
#[derive(Clone, Debug, Default)]
pub struct Cut(pub(crate) Arc<Notify>);

/// The sender's side of a body that is sent as it comes.
#[derive(Debug)]
pub struct Feed {
    parts: mpsc::Sender<Bytes>,
    last: Arc<OnceLock<Bytes>>,
    cut: Cut,
}

/// The client's side.
struct Streamed {
    parts: mpsc::Receiver<Bytes>,
    last: Arc<OnceLock<Bytes>>,
    has_ended: bool,
}

impl Feed {
    /// An answer of this type, and what sends its body. `cut` is of the request.
    pub fn new(cut: Cut, content_type: &'static str) -> (Feed, Response) {
        // Attack: a client that does not read. One part waits for it at a time.
        let (parts, receiver) = mpsc::channel(1);
        let last = Arc::new(OnceLock::new());
        let body = Streamed { parts: receiver, last: last.clone(), has_ended: false };
        let mut response = Response::new(Body::new(body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response.extensions_mut().insert(IsStreamed);
        (Feed { parts, last, cut }, response)
    }

    /// Sends a part once the client has read the one before; `false` if the client is gone.
    pub async fn send(&self, part: impl Into<Bytes>) -> bool {
        self.parts.send(part.into()).await.is_ok()
    }

    /// Returns when the client is gone.
    pub async fn gone(&self) {
        self.parts.closed().await;
    }

    /// Ends the body by `last`, and closes the connection, also if the client does not read.
    pub fn end(self, last: impl Into<Bytes>) {
        // Set once only.
        let _ = self.last.set(last.into());
        self.cut.0.notify_one();
    }
}

impl HttpBody for Streamed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let part = std::task::ready!(self.parts.poll_recv(context));
        self.has_ended = part.is_none();
        Poll::Ready(part.or_else(|| self.last.get().cloned()).map(Frame::data).map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn a_body_has_its_parts_and_the_last_one() {
        let cut = Cut::default();
        let (feed, response) = Feed::new(cut.clone(), "text/event-stream");
        assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
        let sender = tokio::spawn(async move {
            assert!(feed.send("one ").await && feed.send("two ").await);
            feed.end("end");
        });
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(&body[..], b"one two end");
        sender.await.unwrap();
        cut.0.notified().await;
    }

    #[tokio::test]
    async fn a_sender_notices_that_its_client_is_gone() {
        let (feed, response) = Feed::new(Cut::default(), "text/plain");
        assert!(feed.send("it waits").await);
        drop(response);
        feed.gone().await;
        assert!(!feed.send("nobody reads").await);
    }
}
