//! The other fabric's API. Requests are few, and made by threads that may block.

use crate::api::ErrorBody;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Attack: an answer without end.
const LARGEST: u64 = 1 << 20;

/// Why the other fabric did not do something.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// Nobody answers.
    #[error("no fabric answers on {0}: {1}")]
    Unreachable(String, #[source] io::Error),
    /// The answer is not one.
    #[error("{0} is no control socket; name api.sock of a run directory")]
    Foreign(String),
    /// It refuses.
    #[error("the fabric of {to} refuses it: {reason}")]
    Refused {
        /// Its socket.
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

/// The other fabric.
#[derive(Clone, Debug)]
pub struct Remote {
    socket: PathBuf,
}

impl Remote {
    /// The fabric with this control socket.
    pub fn new(socket: &Path) -> Remote {
        Remote { socket: socket.into() }
    }

    /// Its socket, for people.
    pub fn name(&self) -> String {
        self.socket.display().to_string()
    }

    /// Sends a request, with a body unless it is null, and returns the answer; null if it has none.
    ///
    /// # Errors
    /// It is refused, or there is no answer in time.
    pub fn ask<T: DeserializeOwned>(
        &self,
        (method, path): (&str, &str),
        body: &Value,
        limit: Duration,
    ) -> Result<T, RemoteError> {
        let failed = |error| RemoteError::Unreachable(self.name(), error);
        let text = self.exchange((method, path), body, limit).map_err(failed)?;
        let foreign = || RemoteError::Foreign(self.name());
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(foreign)?;
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
        let status: u16 = status.and_then(|status| status.parse().ok()).ok_or_else(foreign)?;
        if !(200..300).contains(&status) {
            let reason = serde_json::from_str::<ErrorBody>(body);
            let reason = reason.map_or_else(|_| format!("it answers {status}"), |body| body.error);
            return Err(RemoteError::Refused { to: self.name(), status, reason });
        }
        let body = if body.is_empty() { "null" } else { body };
        serde_json::from_str(body).map_err(|_| foreign())
    }

    fn exchange(&self, (method, path): (&str, &str), body: &Value, limit: Duration) -> io::Result<String> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: ringway\r\ncontent-type: application/json\r\n\
             connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(LARGEST).read_to_end(&mut answer)?;
        if answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Asks a server that says `answer`.
    fn asked(name: &str, answer: &'static str) -> Result<Value, RemoteError> {
        let path = std::env::temp_dir().join(format!("ringway-remote-{name}-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 4096];
            let read = stream.read(&mut bytes).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&bytes[..read]).into_owned()
        });
        let answered = Remote::new(&path).ask(("POST", "/v1/x"), &Value::from(7), Duration::from_secs(30));
        let request = server.join().unwrap();
        assert!(
            request.starts_with("POST /v1/x HTTP/1.1\r\n") && request.ends_with("\r\n\r\n7"),
            "{request}"
        );
        std::fs::remove_file(&path).unwrap();
        answered
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
}
