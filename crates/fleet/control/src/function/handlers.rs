//! A function's handlers, over its ControlSocket (Click's protocol, version 1.3).

use ringway_spec::{printable, printable_lines};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// Largest value in bytes. Attack: a function that sends an endless answer.
const LARGEST: u64 = 16 << 20;
/// Longest line in bytes.
const LINE: u64 = 1 << 16;
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a handler was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// No handler has this name.
    #[error("{0}")]
    Unknown(String),
    /// The handler refused.
    #[error("{0}")]
    Refused(String),
    /// The function's socket can't be used.
    #[error("the function does not answer: {0}")]
    Silent(String),
}

impl From<std::io::Error> for HandlerError {
    fn from(error: std::io::Error) -> HandlerError {
        HandlerError::Silent(error.to_string())
    }
}

/// Reads a handler, such as `counter.count`; a space separates its name from parameters.
pub async fn read(socket: &Path, handler: &str) -> Result<Vec<u8>, HandlerError> {
    within(async {
        let (name, parameters) = handler.split_once(' ').unwrap_or((handler, ""));
        one_line(name)?;
        if parameters.chars().any(char::is_control) {
            return Err(unknown(handler));
        }
        let mut session = Session::open(socket).await?;
        session.say(format!("READ {handler}\r\n").as_bytes()).await?;
        session.answer().await?;
        let line = session.line().await?;
        let length = line.strip_prefix("DATA ").and_then(|length| length.trim().parse::<u64>().ok());
        let length = length.filter(|length| *length <= LARGEST);
        let length = length.ok_or_else(|| Session::unexpected(&line))?;
        let mut value = Vec::new();
        (&mut session.stream).take(length).read_to_end(&mut value).await?;
        Ok(value)
    })
    .await
}

/// Writes a handler.
pub async fn write(socket: &Path, handler: &str, value: &[u8]) -> Result<(), HandlerError> {
    within(async {
        let head = format!("WRITEDATA {} {}\r\n", one_line(handler)?, value.len());
        let mut session = Session::open(socket).await?;
        session.say(&[head.as_bytes(), value].concat()).await?;
        session.answer().await
    })
    .await
}

async fn within<T>(answer: impl Future<Output = Result<T, HandlerError>>) -> Result<T, HandlerError> {
    let late = |_| HandlerError::Silent(format!("nothing within {} s", ANSWER_TIMEOUT.as_secs()));
    tokio::time::timeout(ANSWER_TIMEOUT, answer).await.map_err(late)?
}

/// Attack: a handler name that contains a line feed, and so a second command.
fn one_line(handler: &str) -> Result<&str, HandlerError> {
    if handler.is_empty() || handler.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(unknown(handler));
    }
    Ok(handler)
}

fn unknown(handler: &str) -> HandlerError {
    HandlerError::Unknown(format!("\"{}\" is no handler", handler.escape_debug()))
}

struct Session {
    stream: BufReader<UnixStream>,
}

impl Session {
    async fn open(socket: &Path) -> Result<Session, HandlerError> {
        let mut session = Session { stream: BufReader::new(UnixStream::connect(socket).await?) };
        // The server's banner: protocol name and version.
        session.line().await?;
        Ok(session)
    }

    async fn say(&mut self, bytes: &[u8]) -> Result<(), HandlerError> {
        Ok(self.stream.get_mut().write_all(bytes).await?)
    }

    async fn line(&mut self) -> Result<String, HandlerError> {
        let mut bytes = Vec::new();
        (&mut self.stream).take(LINE).read_until(b'\n', &mut bytes).await?;
        if !bytes.ends_with(b"\n") {
            return Err(HandlerError::Silent("it ended".into()));
        }
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_string())
    }

    fn unexpected(line: &str) -> HandlerError {
        HandlerError::Silent(format!("it says \"{}\"", printable(line)))
    }

    /// Reads the lines of a response: a status of 2xx is success, any other an error with its message.
    async fn answer(&mut self) -> Result<(), HandlerError> {
        let mut lines: Vec<String> = Vec::new();
        loop {
            let line = self.line().await?;
            let (Some(code), Some(text)) = (line.get(..3), line.get(4..)) else {
                return Err(Session::unexpected(&line));
            };
            lines.push(text.into());
            if line.as_bytes()[3] == b'-' {
                // Attack: a response with endless lines.
                if lines.len() > 1000 {
                    return Err(HandlerError::Silent("its answer does not end".into()));
                }
                continue;
            }
            // The lines are shown to people.
            let lines = printable_lines(&lines.join("\n")).into_owned();
            return match code {
                "510" | "511" => Err(HandlerError::Unknown(lines)),
                _ if code.starts_with('2') => Ok(()),
                _ => Err(HandlerError::Refused(lines)),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves one connection: reads a line and answers with `answer`.
    fn answering(name: &str, answer: &'static str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("rw-handlers-{}-{name}", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            use std::io::{BufRead, Write};
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"Click::ControlSocket/1.3\r\n").unwrap();
            let mut line = String::new();
            std::io::BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        path
    }

    #[tokio::test]
    async fn replies_are_parsed_as_values_or_errors() {
        let good = answering("good", "200 Read handler 'c.count' OK\r\nDATA 3\r\n42\n");
        assert_eq!(read(&good, "c.count").await.unwrap(), b"42\n");
        let none = answering("none", "511 No handler named 'c.x'\r\n");
        assert!(matches!(read(&none, "c.x").await, Err(HandlerError::Unknown(_))));
        let wrong = answering("wrong", "520-Write handler 'hotconfig' error:\r\n520 no\r\n");
        let message = write(&wrong, "hotconfig", b"x").await.unwrap_err().to_string();
        assert_eq!(message, "Write handler 'hotconfig' error:\nno");
        let hostile = answering("hostile", "200 OK\r\nDATA 99999999999\r\n");
        assert!(matches!(read(&hostile, "c.x").await, Err(HandlerError::Silent(_))));
        assert!(matches!(read(&hostile, "c.x\r\nQUIT").await, Err(HandlerError::Unknown(_))));
        for path in [good, none, wrong, hostile] {
            std::fs::remove_file(path).unwrap();
        }
    }
}
