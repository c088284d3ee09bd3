//! The other fabric's API. Requests are few, and made by threads that may block.

use super::identity::{FabricIdentity, HEADER};
use super::limit::Limit;
use super::receiver::{Call, Reply};
use super::ssh::{SCHEME, Session, Ssh, SshAddress};
use super::{ArrivalView, MigrationError, Progress};
use crate::api::ErrorBody;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a connection to another host may be silent: well below the time after which the program there ends.
const SILENCE: Duration = Duration::from_secs(20);
/// How long the program there may take to connect to the socket for memory.
const CONNECT: Duration = Duration::from_secs(30);

/// Why the other fabric did not do something.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// Nobody answers.
    #[error("no fabric answers on {0}: {1}")]
    Unreachable(String, #[source] io::Error),
    /// The answer is not one.
    #[error("what answers on {0} is no fabric; name api.sock of a run directory, or a host that has one")]
    Foreign(String),
    /// The program on the other host can't ask the fabric there.
    #[error("{0}: {1}")]
    There(String, String),
    /// It does not say which fabric it is.
    #[error("the fabric of {0} does not say which one it is: upgrade it, its ringway is older than this one")]
    Nameless(String),
    /// Another fabric answers than the one that prepared the guest.
    #[error("{to} answers as fabric {found}, not {expected}: what became of the guest there is not known")]
    Another {
        /// The socket or address.
        to: String,
        /// Who answers.
        found: String,
        /// Who prepared the guest.
        expected: FabricIdentity,
    },
    /// It refuses.
    #[error("the fabric of {to} refuses it: {reason}")]
    Refused {
        /// Its socket or address.
        to: String,
        /// HTTP's status.
        status: u16,
        /// Its reason.
        reason: String,
    },
}

impl RemoteError {
    /// Whether the other fabric has no such object.
    pub fn is_unknown(&self) -> bool {
        matches!(self, RemoteError::Refused { status: 404, .. })
    }

    /// Whether it has answered at all, so that it has done nothing.
    pub fn is_refusal(&self) -> bool {
        matches!(self, RemoteError::Refused { .. })
    }
}

/// How the other fabric is reached.
#[derive(Debug)]
enum Way {
    /// The control socket of a fabric of this host.
    Socket(PathBuf),
    /// Another host.
    Ssh(SshAddress, Mutex<Connection>),
}

/// A connection to another host.
#[derive(Debug)]
struct Connection {
    /// What the last call was made by, if that did not fail.
    session: Option<Session>,
    /// When it was used, or tried, last.
    used: Instant,
    /// Whether there was ever one.
    has_answered: bool,
}

/// The other fabric.
#[derive(Debug)]
pub struct Remote {
    way: Way,
    /// The only fabric whose answers count, once it is known.
    expected: OnceLock<FabricIdentity>,
}

/// An answer of the API.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP's status.
    pub status: u16,
    /// The body.
    pub body: String,
    /// Which fabric answers, as it says.
    pub fabric: Option<String>,
}

/// The connection for a guest's memory.
#[derive(Debug)]
pub struct MemoryStream {
    /// Its end here, for QEMU.
    pub descriptor: OwnedFd,
    /// What carries the memory to another host. Nothing is lost if this is dropped once the guest is loaded there.
    pub carrier: Option<Ssh>,
}

impl Remote {
    /// The fabric of this host with this control socket.
    pub fn socket(socket: &Path) -> Remote {
        Remote { way: Way::Socket(socket.into()), expected: OnceLock::new() }
    }

    /// The fabric that an operator names: a control socket of this host, or an address of another host.
    ///
    /// # Errors
    /// It is an address that is wrong.
    pub fn find(to: &str) -> Result<Remote, MigrationError> {
        let way = match to.starts_with(SCHEME) {
            true => {
                let none = Connection { session: None, used: Instant::now(), has_answered: false };
                Way::Ssh(SshAddress::parse(to)?, Mutex::new(none))
            }
            false => Way::Socket(to.into()),
        };
        Ok(Remote { way, expected: OnceLock::new() })
    }

    /// Only the answers of this fabric count from now on. The first call decides.
    pub fn expect(&self, fabric: FabricIdentity) {
        let _ = self.expected.set(fabric);
    }

    /// The only fabric whose answers count, if it is known.
    pub fn expected(&self) -> Option<&FabricIdentity> {
        self.expected.get()
    }

    /// Its socket or address, for people.
    pub fn name(&self) -> String {
        match &self.way {
            Way::Socket(path) => path.display().to_string(),
            Way::Ssh(address, _) => address.to_string(),
        }
    }

    /// Whether a request may have reached it.
    pub fn was_reached(&self) -> bool {
        match &self.way {
            Way::Socket(_) => true,
            Way::Ssh(_, kept) => lock(kept).has_answered,
        }
    }

    /// Whether its clock is this host's.
    pub fn is_here(&self) -> bool {
        matches!(self.way, Way::Socket(_))
    }

    /// Sends a request, with a body unless it is null, and returns the answer; null if it has none. Only the fabric
    /// that does what is asked is expected to answer from then on.
    ///
    /// # Errors
    /// As `ask`; or it does not say which fabric it is.
    pub fn ask_first<'l, T: DeserializeOwned>(
        &self,
        request: (&str, &str),
        body: &Value,
        limit: impl Into<Limit<'l>>,
    ) -> Result<T, RemoteError> {
        let answer = self.answer(request, body, limit.into())?;
        let fabric = answer.fabric.as_deref().and_then(FabricIdentity::read);
        let value = self.value(&answer)?;
        self.expect(fabric.ok_or_else(|| RemoteError::Nameless(self.name()))?);
        Ok(value)
    }

    /// Sends a request, with a body unless it is null, and returns the answer; null if it has none.
    ///
    /// # Errors
    /// It is refused, there is no answer in time, or another fabric answers.
    pub fn ask<'l, T: DeserializeOwned>(
        &self,
        request: (&str, &str),
        body: &Value,
        limit: impl Into<Limit<'l>>,
    ) -> Result<T, RemoteError> {
        let answer = self.answer(request, body, limit.into())?;
        if let Some(expected) = self.expected.get() {
            let found = answer.fabric.as_deref().and_then(FabricIdentity::read);
            if found.as_ref() != Some(expected) {
                let found = found.map_or_else(|| "without a name".into(), |found| found.to_string());
                return Err(RemoteError::Another { to: self.name(), found, expected: expected.clone() });
            }
        }
        self.value(&answer)
    }

    /// The value of an answer that is no refusal.
    fn value<T: DeserializeOwned>(&self, Answer { status, body, .. }: &Answer) -> Result<T, RemoteError> {
        let status = *status;
        if !(200..300).contains(&status) {
            let reason = serde_json::from_str::<ErrorBody>(body);
            let reason = reason.map_or_else(|_| format!("it answers {status}"), |body| body.error);
            return Err(RemoteError::Refused { to: self.name(), status, reason });
        }
        let body = if body.is_empty() { "null" } else { body };
        serde_json::from_str(body).map_err(|_| RemoteError::Foreign(self.name()))
    }

    fn answer(
        &self,
        (method, path): (&str, &str),
        body: &Value,
        limit: Limit<'_>,
    ) -> Result<Answer, RemoteError> {
        let failed = |error| RemoteError::Unreachable(self.name(), error);
        let foreign = || RemoteError::Foreign(self.name());
        match &self.way {
            Way::Socket(socket) => {
                http(socket, (method, path), body, limit).map_err(failed)?.ok_or_else(foreign)
            }
            Way::Ssh(address, kept) => {
                let call = Call::Request {
                    method: method.into(),
                    path: path.into(),
                    body: body.clone(),
                    limit: limit.left().as_secs(),
                };
                // The program there notices first that there is no answer.
                let limit = limit.and(Duration::from_secs(1));
                match call_by(kept, address, &call, limit).map_err(failed)? {
                    Reply::Answered { status, body, fabric } => Ok(Answer { status, body, fabric }),
                    Reply::Failed(why) => Err(RemoteError::There(self.name(), why)),
                    Reply::Ready => Err(foreign()),
                }
            }
        }
    }

    /// Connects to the socket for the memory of a guest that arrives there.
    ///
    /// # Errors
    /// It can't be reached in time, or the operator has cancelled.
    pub fn memory(&self, arrival: &ArrivalView, progress: &Progress) -> io::Result<MemoryStream> {
        let Way::Ssh(address, _) = &self.way else {
            let stream = UnixStream::connect(&arrival.stream)?;
            return Ok(MemoryStream { descriptor: stream.into(), carrier: None });
        };
        let limit = Limit::or_cancelled(CONNECT, progress);
        let mut session = Session::open(address, limit)?;
        let call = Call::Memory { guest: arrival.guest.clone(), ticket: arrival.ticket.clone() };
        match session.call(&call, limit)? {
            Reply::Ready => {
                let (descriptor, ssh) = session.into_stream();
                Ok(MemoryStream { descriptor, carrier: Some(ssh) })
            }
            Reply::Failed(why) => Err(io::Error::other(why)),
            Reply::Answered { .. } => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Connects to another host, unless there is a connection. If that fails, the next request says why.
    pub fn connect(&self, limit: Duration) {
        let Way::Ssh(address, kept) = &self.way else { return };
        if lock(kept).session.is_some() {
            return;
        }
        if let Ok(session) = Session::open(address, Limit::from(limit)) {
            let mut kept = lock(kept);
            kept.used = Instant::now();
            kept.session.get_or_insert(session);
        }
    }

    /// Uses the connection to another host if it was silent for a while, by the request for `path`; what comes of it
    /// does not matter. So the next request does not wait for a new connection. None is made for it.
    pub fn keep(&self, path: &str, limit: Duration) {
        let Way::Ssh(_, kept) = &self.way else { return };
        let mut session = {
            let mut kept = lock(kept);
            if kept.used.elapsed() <= SILENCE {
                return;
            }
            kept.used = Instant::now();
            let Some(session) = kept.session.take() else { return };
            session
        };
        let limit = Limit::from(limit);
        let (method, path, body) = ("GET".into(), path.into(), Value::Null);
        let call = Call::Request { method, path, body, limit: limit.left().as_secs() };
        if session.call(&call, limit).is_ok() {
            // Unless a request that could not wait has made another one.
            lock(kept).session.get_or_insert(session);
        }
    }
}

fn lock(kept: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a call by the connection that is there, or by a new one. A connection whose call failed is closed: it is not
/// known what became of the call, and it is not made again.
fn call_by(
    kept: &Mutex<Connection>,
    address: &SshAddress,
    call: &Call,
    limit: Limit<'_>,
) -> io::Result<Reply> {
    let session = {
        let mut kept = lock(kept);
        kept.used = Instant::now();
        kept.session.take()
    };
    let mut session = match session {
        Some(session) => session,
        None => Session::open(address, limit)?,
    };
    lock(kept).has_answered = true;
    let reply = session.call(call, limit)?;
    lock(kept).session = Some(session);
    Ok(reply)
}

/// Sends a request to the API on a control socket, with a body unless it is null, and returns the answer; `None` if it
/// is not HTTP's.
///
/// # Errors
/// There is no answer in time.
pub fn http(
    socket: &Path,
    (method, path): (&str, &str),
    body: &Value,
    limit: Limit<'_>,
) -> io::Result<Option<Answer>> {
    let mut stream = UnixStream::connect(socket)?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: ringway\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    limit.write(&mut stream, request.as_bytes())?;
    let answer = limit.read_all(stream)?;
    if answer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let text = String::from_utf8_lossy(&answer);
    Ok(text.split_once("\r\n\r\n").and_then(|(head, body)| {
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3))?;
        let mut named = head.lines().filter_map(|line| line.split_once(':'));
        let fabric = named.find(|(name, _)| name.eq_ignore_ascii_case(HEADER));
        let fabric = fabric.map(|(_, value)| value.trim().into());
        Some(Answer { status: status.parse().ok()?, body: body.to_string(), fabric })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    /// Asks a server that says `answer` by `how`.
    fn asked_by(
        name: &str,
        answer: &'static str,
        how: impl FnOnce(&Remote, &Value) -> Result<Value, RemoteError>,
    ) -> Result<Value, RemoteError> {
        let path = std::env::temp_dir().join(format!("ringway-remote-{name}-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 4096];
            let read = stream.read(&mut bytes).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&bytes[..read]).into_owned()
        });
        let answered = how(&Remote::socket(&path), &Value::from(7));
        let request = server.join().unwrap();
        assert!(
            request.starts_with("POST /v1/x HTTP/1.1\r\n") && request.ends_with("\r\n\r\n7"),
            "{request}"
        );
        std::fs::remove_file(&path).unwrap();
        answered
    }

    const REQUEST: (&str, &str) = ("POST", "/v1/x");
    const TIME: Duration = Duration::from_secs(30);

    fn asked(name: &str, answer: &'static str) -> Result<Value, RemoteError> {
        asked_by(name, answer, |remote, body| remote.ask(REQUEST, body, TIME))
    }

    #[test]
    fn answers_are_values_and_refusals_have_their_reason() {
        let value = asked("value", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n42");
        assert_eq!(value.unwrap(), Value::from(42));
        assert_eq!(asked("none", "HTTP/1.1 204 No Content\r\n\r\n").unwrap(), Value::Null);
        let refused =
            asked("not", "HTTP/1.1 409 Conflict\r\n\r\n{\"error\":\"no\",\"problems\":[]}").unwrap_err();
        assert!(refused.is_refusal() && refused.to_string().ends_with("refuses it: no"), "{refused}");
        assert!(asked("gone", "HTTP/1.1 404 Not Found\r\n\r\n").unwrap_err().is_unknown());
        let broken = asked("broken", "").unwrap_err();
        assert!(!broken.is_refusal() && broken.to_string().contains("no fabric answers on"), "{broken}");
        assert!(matches!(asked("foreign", "220 mail\r\n"), Err(RemoteError::Foreign(_))));
    }

    #[test]
    fn only_the_fabric_that_did_the_first_thing_is_believed() {
        let known = "HTTP/1.1 200 OK\r\nRingway-Fabric: lab 1f\r\n\r\n42";
        let first = |remote: &Remote, body: &Value| remote.ask_first(REQUEST, body, TIME);
        let kept = asked_by("first", known, |remote, body| {
            let value = first(remote, body);
            assert_eq!(remote.expected(), Some(&FabricIdentity::new("lab", "1f")));
            value
        });
        assert_eq!(kept.unwrap(), Value::from(42));
        // A refusal is nobody's promise.
        let refused = "HTTP/1.1 409 Conflict\r\nringway-fabric: lab 1f\r\n\r\n";
        let kept = asked_by("refused", refused, |remote, body| {
            let value = first(remote, body);
            assert_eq!(remote.expected(), None);
            value
        });
        assert!(kept.unwrap_err().is_refusal());
        let older = asked_by("older", "HTTP/1.1 200 OK\r\n\r\n42", first).unwrap_err();
        assert!(matches!(&older, RemoteError::Nameless(_)), "{older}");

        let as_lab = |remote: &Remote, body: &Value| {
            remote.expect(FabricIdentity::new("lab", "1f"));
            remote.ask(REQUEST, body, TIME)
        };
        assert_eq!(asked_by("same", known, as_lab).unwrap(), Value::from(42));
        let gone = "HTTP/1.1 404 Not Found\r\nringway-fabric: lab 1f\r\n\r\n";
        assert!(asked_by("gone-there", gone, as_lab).unwrap_err().is_unknown());
        // Brought up anew; another one; none that says who it is. All of them, whatever they say.
        for (name, answer, found) in [
            ("anew", "HTTP/1.1 404 Not Found\r\nringway-fabric: lab 2e\r\n\r\n", "as fabric lab 2e"),
            ("other", "HTTP/1.1 404 Not Found\r\nringway-fabric: tab 1f\r\n\r\n", "as fabric tab 1f"),
            ("other-did", "HTTP/1.1 204 No Content\r\nringway-fabric: tab 1f\r\n\r\n", "as fabric tab 1f"),
            ("nameless", "HTTP/1.1 404 Not Found\r\n\r\n", "without a name"),
            ("forged", "HTTP/1.1 404 Not Found\r\nringway-fabric: lab \x1b[1f\r\n\r\n", "without a name"),
            ("body", "HTTP/1.1 404 Not Found\r\n\r\nringway-fabric: lab 1f\r\n", "without a name"),
        ] {
            let error = asked_by(name, answer, as_lab).unwrap_err();
            assert!(!error.is_unknown() && !error.is_refusal(), "{name}: {error}");
            assert!(error.to_string().contains(found), "{name}: {error}");
        }
    }
}
