//! The control API's client.

use crate::arguments::Target;
use crate::command_error::CommandError;
use crate::remote;
use crate::text;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::http::request::Builder;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use ringway_control::api::ErrorBody;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// A connection to a running fabric.
pub struct Client {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    /// Its socket, or the URL of its TCP address.
    place: String,
    /// The values of `Host`, and of `Authorization` at a TCP address.
    headers: (String, Option<String>),
    /// How long an answer takes that is in time.
    limit: Duration,
}

/// Time without an answer after which a query reports that the fabric does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

impl Client {
    /// Connects to the fabric that `target` selects.
    pub fn connect(target: &Target) -> Result<Client, CommandError> {
        let Some(url) = &target.api else { return Client::to(target.find()?) };
        if target.socket.is_some() || target.fabric.is_some() {
            let what = "--api names a fabric, as --socket and --fabric do; give one";
            return Err(CommandError::Failed(what.into()));
        }
        let runtime = runtime()?;
        let (sender, authorization) = runtime.block_on(async {
            let connected = remote::connect(url, target).await?;
            let (sender, connection) =
                handshake(TokioIo::new(connected.stream)).await.map_err(CommandError::because)?;
            tokio::spawn(connection);
            Ok::<_, CommandError>((sender, connected.authorization))
        })?;
        let headers = (url.authority(), authorization);
        Ok(Client { runtime, sender, place: url.to_string(), headers, limit: ANSWER_TIMEOUT })
    }

    /// Connects again to the fabric that was at this socket, or at the TCP address of `target`.
    pub fn again(target: &Target, socket: Option<&Path>) -> Result<Client, CommandError> {
        socket.map_or_else(|| Client::connect(target), |socket| Client::to(socket.into()))
    }

    /// Connects to a control socket.
    pub fn to(socket: PathBuf) -> Result<Client, CommandError> {
        let kind = std::fs::metadata(&socket).map(|seen| seen.file_type());
        if let Ok(kind) = kind
            && !kind.is_socket()
        {
            let place = socket.display();
            return Err(CommandError::Failed(match kind.is_dir() {
                true => format!("{place} is a folder; name the socket in it: {place}/api.sock"),
                false => format!("{place} is no socket; name api.sock of a run directory"),
            }));
        }
        let runtime = runtime()?;
        let sender = runtime.block_on(async {
            let stream = connected(&socket).await.map_err(|error| {
                let what = format!("no fabric answers on {}: {error}", socket.display());
                match error.kind() {
                    std::io::ErrorKind::PermissionDenied => {
                        CommandError::Failed(format!("{what}; it is another user's: be that user or root"))
                    }
                    _ => CommandError::NotUp(format!("{what}; `ringway up FILE` starts one")),
                }
            })?;
            let (sender, connection) =
                handshake(TokioIo::new(stream)).await.map_err(CommandError::because)?;
            tokio::spawn(connection);
            Ok::<_, CommandError>(sender)
        })?;
        let place = socket.display().to_string();
        Ok(Client { runtime, sender, place, headers: ("ringway".into(), None), limit: ANSWER_TIMEOUT })
    }

    /// Expects that an answer takes so many seconds.
    pub fn expect(&mut self, seconds: f64) {
        self.limit = ANSWER_TIMEOUT + Duration::try_from_secs_f64(seconds).unwrap_or_default();
    }

    fn request(&self, path: &str) -> Builder {
        let (host, authorization) = &self.headers;
        let request = Request::builder().uri(path).header("host", host);
        match authorization {
            Some(value) => request.header("authorization", value),
            None => request,
        }
    }

    fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<Bytes, CommandError> {
        let request = self
            .request(path)
            .method(method)
            .header("content-type", "application/json")
            .body(Full::new(body))
            .map_err(CommandError::because)?;
        let Client { runtime, sender, place, limit, .. } = self;
        let asks = *request.method() == Method::GET;
        let mut exchange = pin!(async {
            sender.ready().await?;
            let response = sender.send_request(request).await?;
            let status = response.status();
            Ok((status, response.into_body().collect().await?.to_bytes()))
        });
        let exchanged = runtime.block_on(async {
            let soon = timeout(*limit, exchange.as_mut()).await;
            if soon.is_err() && asks {
                let seconds = limit.as_secs();
                text::warn(&format!("{place} has not answered for {seconds} s; still waiting"));
            }
            match soon {
                Ok(exchanged) => exchanged,
                Err(_) => exchange.await,
            }
        });
        let (status, body) = exchanged.map_err(|error| gone(&error, place))?;
        if status.is_success() {
            return Ok(body);
        }
        let error_body = error_of(status, &body);
        Err(match status {
            StatusCode::NOT_FOUND => CommandError::Unknown(error_body.error),
            StatusCode::GATEWAY_TIMEOUT => CommandError::Late(error_body.error),
            _ => CommandError::Failed(error_body.error),
        })
    }

    /// GET `path`.
    pub fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, CommandError> {
        read(&self.send(Method::GET, path, Bytes::new())?)
    }

    /// GET `path`, as text.
    pub fn text(&mut self, path: &str) -> Result<String, CommandError> {
        let body = self.send(Method::GET, path, Bytes::new())?;
        String::from_utf8(body.into())
            .map_err(|error| CommandError::Failed(format!("the fabric's answer: {error}")))
    }

    /// GET `path`, a stream of server-sent events. `take` gets the name and the data of each, and returns whether there
    /// shall be more.
    pub fn events(
        &mut self,
        path: &str,
        mut take: impl FnMut(&str, &str) -> Result<bool, CommandError>,
    ) -> Result<(), CommandError> {
        let request = self.request(path).body(Full::default());
        let request = request.map_err(CommandError::because)?;
        let Client { runtime, sender, place, .. } = self;
        runtime.block_on(async {
            let lost = |error: hyper::Error| gone(&error, place);
            sender.ready().await.map_err(lost)?;
            let response = sender.send_request(request).await.map_err(lost)?;
            let (status, mut body) = (response.status(), response.into_body());
            if !status.is_success() {
                let body = body.collect().await.map_err(lost)?.to_bytes();
                return Err(CommandError::Failed(error_of(status, &body).error));
            }
            let mut begun = Vec::new();
            while let Some(frame) = body.frame().await {
                begun.extend_from_slice(frame.map_err(lost)?.data_ref().map_or(&[], |data| data));
                while let Some(end) = begun.windows(2).position(|pair| pair == b"\n\n") {
                    let event: Vec<u8> = begun.drain(..end + 2).collect();
                    let event = String::from_utf8_lossy(&event);
                    let field = |name: &str| {
                        event
                            .lines()
                            .find_map(|line| line.strip_prefix(name))
                            .unwrap_or_default()
                            .trim_start()
                    };
                    let data = field("data:");
                    if !data.is_empty() && !take(field("event:"), data)? {
                        return Ok(());
                    }
                }
            }
            Err(CommandError::NotUp(format!("the fabric on {place} went away")))
        })
    }

    /// POST `path` with a JSON body; the response has no body.
    pub fn post_only<B: Serialize>(&mut self, path: &str, body: &B) -> Result<(), CommandError> {
        let body = serde_json::to_vec(body).map_err(CommandError::because)?;
        self.send(Method::POST, path, body.into()).map(drop)
    }

    /// POST `path` without a body.
    pub fn post(&mut self, path: &str) -> Result<(), CommandError> {
        self.send(Method::POST, path, Bytes::new()).map(drop)
    }

    /// POST `path` without a body; returns the answer.
    pub fn answer<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, CommandError> {
        read(&self.send(Method::POST, path, Bytes::new())?)
    }

    /// POST `path` with a JSON body; returns the answer.
    pub fn ask<B: Serialize, T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &B,
    ) -> Result<T, CommandError> {
        self.exchange(Method::POST, path, body)
    }

    /// DELETE `path`.
    pub fn delete(&mut self, path: &str) -> Result<(), CommandError> {
        self.send(Method::DELETE, path, Bytes::new()).map(drop)
    }

    /// PUT `path` with a JSON body; the response has no body.
    pub fn put_only<B: Serialize>(&mut self, path: &str, body: &B) -> Result<(), CommandError> {
        let body = serde_json::to_vec(body).map_err(CommandError::because)?;
        self.send(Method::PUT, path, body.into()).map(drop)
    }

    /// PATCH `path` with a JSON body; returns the answer.
    pub fn patch<B: Serialize, T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &B,
    ) -> Result<T, CommandError> {
        self.exchange(Method::PATCH, path, body)
    }

    /// PUT `path` with a JSON body; returns the answer.
    pub fn put<B: Serialize, T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &B,
    ) -> Result<T, CommandError> {
        self.exchange(Method::PUT, path, body)
    }

    /// Sends a JSON body, and returns the answer.
    fn exchange<B: Serialize, T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: &B,
    ) -> Result<T, CommandError> {
        let body = serde_json::to_vec(body).map_err(CommandError::because)?;
        read(&self.send(method, path, body.into())?)
    }
}

/// The value of an answer.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, CommandError> {
    serde_json::from_slice(body)
        .map_err(|error| CommandError::Failed(format!("the fabric's answer: {error}")))
}

fn runtime() -> Result<Runtime, CommandError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CommandError::because)
}

/// Connects. While thousands connect at once the socket's backlog is full; it is tried again until it has room, or for
/// [`ANSWER_TIMEOUT`] if the fabric accepts nobody.
async fn connected(socket: &Path) -> std::io::Result<tokio::net::UnixStream> {
    let end = Instant::now() + ANSWER_TIMEOUT;
    loop {
        match tokio::net::UnixStream::connect(socket).await {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            done => return done,
        }
    }
}

/// The error of an answer.
fn error_of(status: StatusCode, body: &[u8]) -> ErrorBody {
    serde_json::from_slice(body).unwrap_or_else(|_| ErrorBody::new(format!("the fabric answers {status}")))
}

fn gone(error: &hyper::Error, place: &str) -> CommandError {
    CommandError::NotUp(match error.is_parse() {
        true => format!("{place} is no control socket; name api.sock of a run directory"),
        // The stage of the exchange at which the connection broke would not help the user.
        false => {
            let fix = "`ringway ps` shows whether it is up, and its log why not";
            format!("the fabric on {place} went away without an answer; {fix}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_full_backlog_is_waited_for() {
        let folder = std::env::temp_dir().join(format!("ringway-backlog-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("api.sock");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let first = UnixStream::connect(&path).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let joined = runtime.block_on(async {
            assert!(
                tokio::net::UnixStream::connect(&path)
                    .await
                    .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock),
                "the backlog is full"
            );
            let mut waiting = pin!(connected(&path));
            assert!(timeout(Duration::from_millis(30), waiting.as_mut()).await.is_err(), "it waits");
            listener.accept().unwrap();
            waiting.await
        });
        assert!(joined.is_ok() && first.peer_addr().is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
