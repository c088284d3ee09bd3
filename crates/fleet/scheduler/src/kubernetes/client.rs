//! HTTP/1.1 to an API server: a few reused connections, and a separate one for each watch.

use super::api::Status;
use super::kubeconfig::{Access, KubeconfigError, Token, token};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Largest number of concurrent connections for requests; further requests wait.
const CONNECTIONS: usize = 32;
/// Time limit for connecting, and for a request.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(30);
/// Time without data after which the connection is probed; a vanished host is detected within a minute.
const SILENCE: Duration = Duration::from_secs(30);
/// Attack: an endless answer. Largest size in bytes of one to GET, which may be a page of a list, and of others.
const LARGEST: usize = 32 << 20;
const LARGEST_REPLY: usize = 4 << 20;

/// Why a request to the API server failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The API server can't be reached.
    #[error("{0}: {1}")]
    Connect(String, io::Error),
    /// The connection broke.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The answer takes too long.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    /// The answer is too long.
    #[error("the answer is too long")]
    TooLong,
    /// The list is too long.
    #[error("the list has more than {0} objects")]
    TooMany(usize),
    /// The server refused.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// The API server's message.
        message: String,
    },
    /// The answer is invalid.
    #[error("the answer can't be read: {0}")]
    Answer(#[from] serde_json::Error),
    /// The token can't be read.
    #[error(transparent)]
    Token(#[from] KubeconfigError),
}

impl ClientError {
    /// Whether the request certainly had no effect.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            ClientError::Refused { code: 400..500, .. } | ClientError::Connect(..) | ClientError::Token(_)
        )
    }

    /// Whether a revision has expired, so that everything must be listed again.
    pub fn is_gone(&self) -> bool {
        matches!(self, ClientError::Refused { code: 410, .. })
    }
}

type Sender = SendRequest<Full<Bytes>>;

/// An API server.
pub struct Client {
    access: Access,
    idle: Mutex<Vec<Sender>>,
    room: Semaphore,
}

impl Client {
    /// A client for the API server in `access`; it does not connect yet.
    pub fn new(access: Access) -> Client {
        Client { access, idle: Mutex::default(), room: Semaphore::new(CONNECTIONS) }
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("{}:{}", self.access.host, self.access.port)
    }

    async fn connect(&self) -> Result<Sender, ClientError> {
        let failed = |error| ClientError::Connect(self.address(), error);
        let reach = async {
            let stream = TcpStream::connect((self.access.host.as_str(), self.access.port)).await?;
            stream.set_nodelay(true)?;
            watch_over(&stream)?;
            let Some((config, name)) = &self.access.tls else { return Ok(start(stream).await) };
            let stream = TlsConnector::from(config.clone()).connect(name.clone(), stream).await?;
            Ok(start(stream).await)
        };
        match timeout(CONNECT, reach).await {
            Ok(Ok(started)) => Ok(started?),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(failed(io::ErrorKind::TimedOut.into())),
        }
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        let wrong = |error: &dyn std::fmt::Display| {
            ClientError::Connect(
                self.address(),
                io::Error::new(io::ErrorKind::InvalidInput, error.to_string()),
            )
        };
        let path = format!("{}{path}", self.access.prefix);
        *request.uri_mut() = path.parse().map_err(|error| wrong(&error))?;
        let host = match self.access.host.contains(':') {
            true => format!("[{}]:{}", self.access.host, self.access.port),
            false => self.address(),
        };
        let bearer = match &self.access.token {
            None => None,
            Some(Token::Text(text)) => Some(format!("Bearer {text}")),
            Some(Token::File(path)) => Some(format!("Bearer {}", token(path)?)),
        };
        let fixed = |text: &'static str| Some(text.to_string());
        let headers = [
            (HOST, Some(host)),
            (ACCEPT, fixed("application/json")),
            (CONTENT_TYPE, fixed("application/json")),
            (USER_AGENT, fixed(concat!("ringway/", env!("CARGO_PKG_VERSION")))),
            (AUTHORIZATION, bearer),
        ];
        for (name, value) in headers {
            if let Some(value) = value {
                request.headers_mut().insert(name, value.try_into().map_err(|error| wrong(&error))?);
            }
        }
        Ok(request)
    }

    /// Sends a request on an idle connection, or on a new one if there is no usable one.
    async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Sender, Response<Incoming>), ClientError> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(mut sender) = idle else { break };
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((sender, response)),
                Err(mut error) => match error.take_message() {
                    // The server closed the connection before it read anything.
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let mut sender = self.connect().await?;
        let response = sender.send_request(request).await?;
        Ok((sender, response))
    }

    /// Sends a request and reads the whole answer.
    pub async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, ClientError> {
        // The semaphore is never closed.
        let _room = self.room.acquire().await;
        let exchange = async {
            let most = if method == Method::GET { LARGEST } else { LARGEST_REPLY };
            let request = self.request(method, path, body)?;
            let (sender, response) = self.send(request).await?;
            let status = response.status();
            let body = whole(response, if status.is_success() { most } else { LARGEST_REPLY }).await?;
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
            if status.is_success() { Ok(body) } else { Err(refused(status, &body)) }
        };
        timeout(ANSWER, exchange).await.unwrap_or(Err(ClientError::Late(ANSWER)))
    }

    /// Begins to read a streamed answer, on a separate connection.
    pub async fn stream(&self, path: &str) -> Result<Stream, ClientError> {
        let begin = async {
            let request = self.request(Method::GET, path, Bytes::new())?;
            let mut sender = self.connect().await?;
            let response = sender.send_request(request).await?;
            let status = response.status();
            if !status.is_success() {
                return Err(refused(status, &whole(response, LARGEST_REPLY).await?));
            }
            let body = response.into_body();
            Ok(Stream { body, read: Vec::new(), from: 0, searched: 0, _sender: sender })
        };
        timeout(ANSWER, begin).await.unwrap_or(Err(ClientError::Late(ANSWER)))
    }
}

/// Speaks HTTP on a connection.
async fn start<S>(stream: S) -> Result<Sender, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // The user of the stream sees how it ends.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// Enables TCP keep-alive, to detect a vanished peer.
fn watch_over(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, SILENCE / 6)?;
    sockopt::set_tcp_keepcnt(stream, 6)?;
    Ok(())
}

async fn whole(response: Response<Incoming>, most: usize) -> Result<Bytes, ClientError> {
    let body = Limited::new(response.into_body(), most).collect().await;
    body.map(http_body_util::Collected::to_bytes).map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => ClientError::Http(*error),
        Err(error) => {
            debug_assert!(error.is::<LengthLimitError>());
            ClientError::TooLong
        }
    })
}

fn refused(status: StatusCode, body: &[u8]) -> ClientError {
    let answer: Status = serde_json::from_slice(body).unwrap_or_default();
    let message = match answer.message.as_str() {
        "" => format!("the API server answers {status}"),
        text => text.chars().take(500).collect(),
    };
    ClientError::Refused { code: status.as_u16(), message }
}

/// Attack: an endless line. An object has at most a few megabytes.
const LINE: usize = 16 << 20;

/// A streamed answer of lines.
pub struct Stream {
    body: Incoming,
    read: Vec<u8>,
    /// Offset of the next line.
    from: usize,
    /// End of the part that is known to contain no newline.
    searched: usize,
    /// Dropping it closes the connection.
    _sender: Sender,
}

impl Stream {
    /// The next line; none at the end.
    pub async fn line(&mut self) -> Result<Option<&[u8]>, ClientError> {
        loop {
            if let Some(at) = self.read[self.searched..].iter().position(|byte| *byte == b'\n') {
                let (from, end) = (self.from, self.searched + at);
                (self.from, self.searched) = (end + 1, end + 1);
                return Ok(Some(&self.read[from..end]));
            }
            self.read.drain(..self.from);
            (self.from, self.searched) = (0, self.read.len());
            if self.searched > LINE {
                return Err(ClientError::TooLong);
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}
