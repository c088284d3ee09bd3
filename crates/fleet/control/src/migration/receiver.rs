//! `ringway guest receive`: serves the source of a migration on another host, over standard input and output.
//!
//! It permits only what the arrival of a guest needs, so that a key of ssh that is restricted to this command gives no
//! more. Messages are JSON, one a line.

use super::ArrivalView;
use super::limit::Limit;
use super::remote::{Answer, Remote, http};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The first line: who answers, and the version of the messages.
pub const GREETING: &str = "ringway guest receive 1";
/// How long the source may take for a line, and to take one: longer than it waits itself. In each such time it sends
/// [`LEAST`] of memory.
const IDLE: Duration = Duration::from_secs(90);
/// Longest time for an answer of the fabric, in seconds.
const LONGEST: u64 = 120;
/// Attack: a source that sends a byte now and then, and keeps a guest here from its operator. The least bytes of memory
/// in [`IDLE`], which any connection takes.
const LEAST: usize = 1 << 20;
/// Bytes of memory that are passed on at a time.
const PIECE: usize = 1 << 20;

/// What the source wants.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// A request to the fabric.
    Request {
        /// HTTP's method.
        method: String,
        /// The path.
        path: String,
        /// The body; none if it is null.
        body: Value,
        /// The most seconds until the answer.
        limit: u64,
    },
    /// Everything that follows the reply is the memory of a guest that arrives.
    Memory {
        /// The guest.
        guest: String,
        /// The attempt.
        ticket: String,
    },
}

/// The reply to a call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The fabric answers.
    Answered {
        /// HTTP's status.
        status: u16,
        /// The body.
        body: String,
        /// Which fabric answers, if it says so.
        #[serde(default)]
        fabric: Option<String>,
    },
    /// Memory is expected.
    Ready,
    /// It can't be done.
    Failed(String),
}

/// Whether the arrival of a guest needs this request.
///
/// Attack: another request is hidden in a path by a line's end or a query. Only characters of names are taken.
fn is_permitted(method: &str, path: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let words: Vec<&str> = path.split('/').collect();
    match (method, words.as_slice()) {
        ("POST", ["", "v1", "guest-arrivals"]) => true,
        ("GET" | "DELETE", ["", "v1", "guest-arrivals", guest, ticket])
        | ("POST", ["", "v1", "guest-arrivals", guest, ticket, "activate"]) => {
            is_word(guest) && is_word(ticket)
        }
        _ => false,
    }
}

/// Serves the source on standard input and output, for the fabric with this control socket, until the source leaves.
///
/// # Errors
/// The source is gone, or says something else.
pub fn serve(socket: &Path) -> io::Result<()> {
    let [input, output] = [rustix::stdio::stdin(), rustix::stdio::stdout()].map(|it| it.try_clone_to_owned());
    serve_on(socket, input?, output?)
}

fn serve_on(socket: &Path, input: OwnedFd, output: OwnedFd) -> io::Result<()> {
    let (mut input, mut output) = (BufReader::new(File::from(input)), File::from(output));
    let there = Remote::socket(socket);
    // Attack: a source that says nothing any more or takes no reply, because its host or the network is gone. Otherwise
    // this process would stay, and so would a guest whose memory does not come.
    let limit = || Limit::from(IDLE);
    limit().write(&mut output, format!("{GREETING}\n").as_bytes())?;
    loop {
        let Some(line) = limit().read_line(&mut input)? else { return Ok(()) };
        let (reply, memory) = match serde_json::from_str(&line)? {
            Call::Request { method, path, body, limit } => {
                (request(socket, (&method, &path), &body, limit), None)
            }
            Call::Memory { guest, ticket } => match connect(&there, &guest, &ticket) {
                Ok(stream) => (Reply::Ready, Some(stream)),
                Err(why) => (Reply::Failed(why), None),
            },
        };
        let mut line = serde_json::to_string(&reply)?;
        line.push('\n');
        limit().write(&mut output, line.as_bytes())?;
        if let Some(to) = memory {
            return pass(&mut input, to);
        }
    }
}

fn request(socket: &Path, (method, path): (&str, &str), body: &Value, limit: u64) -> Reply {
    if !is_permitted(method, path) {
        return Reply::Failed("only the requests of guests that arrive are permitted".into());
    }
    match http(socket, (method, path), body, Duration::from_secs(limit.clamp(1, LONGEST)).into()) {
        Ok(Some(Answer { status, body, fabric })) => Reply::Answered { status, body, fabric },
        Ok(None) => Reply::Failed(format!("{} is no control socket", socket.display())),
        Err(error) => Reply::Failed(format!("no fabric answers on {}: {error}", socket.display())),
    }
}

/// Connects to the socket for the memory of a guest that arrives.
fn connect(there: &Remote, guest: &str, ticket: &str) -> Result<UnixStream, String> {
    let path = format!("/v1/guest-arrivals/{guest}/{ticket}");
    if !is_permitted("GET", &path) {
        return Err("it has no such name".into());
    }
    let limit = Duration::from_secs(LONGEST);
    let view: ArrivalView =
        there.ask(("GET", &path), &Value::Null, limit).map_err(|error| error.to_string())?;
    if view.state != "receiving" {
        return Err(format!("guest {guest} is {} already", view.state));
    }
    UnixStream::connect(&view.stream).map_err(|error| error.to_string())
}

/// Passes memory on until the source has sent all of it. Memory that ends early is noticed by QEMU.
fn pass(input: &mut BufReader<File>, mut to: UnixStream) -> io::Result<()> {
    to.set_nonblocking(true)?;
    let mut piece = vec![0; PIECE];
    loop {
        // The time for the next bytes, and for QEMU to take them.
        let (limit, mut passed) = (Limit::from(IDLE), 0);
        while passed < LEAST {
            limit.readable(input)?;
            let read = input.read(&mut piece)?;
            if read == 0 {
                return Ok(());
            }
            limit.write_at_once(&mut to, piece.get(..read).unwrap_or_default())?;
            passed += read;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, Write};
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_requests_of_arrivals_are_permitted() {
        for (method, path) in [
            ("POST", "/v1/guest-arrivals"),
            ("GET", "/v1/guest-arrivals/vm/1-2"),
            ("DELETE", "/v1/guest-arrivals/vm_1/a"),
            ("POST", "/v1/guest-arrivals/vm/a/activate"),
        ] {
            assert!(is_permitted(method, path), "{method} {path}");
        }
        for (method, path) in [
            ("GET", "/v1/guest-arrivals"),
            ("POST", "/v1/guests/vm/stop"),
            ("DELETE", "/v1/guest-arrivals/vm"),
            ("PUT", "/v1/guest-arrivals"),
            ("POST", "/v1/guest-arrivals/vm/a/activate/x"),
            ("GET", "/v1/guest-arrivals/../guests"),
            ("GET", "/v1/guest-arrivals/vm/a?x"),
            ("GET", "/v1/guest-arrivals/vm/a HTTP/1.1\r\n\r\nPOST /v1/down"),
            ("GET\r\n", "/v1/guest-arrivals/vm/a"),
            ("GET", "v1/guest-arrivals/vm/a"),
            ("GET", "/v1/guest-arrivals//a"),
        ] {
            assert!(!is_permitted(method, path), "{method} {path}");
        }
    }

    /// A fabric whose guest is in `state`; a receiver for it, and the source's end of its input and output.
    fn receiver(
        name: &str,
        state: &str,
    ) -> (UnixStream, UnixListener, std::thread::JoinHandle<io::Result<()>>) {
        let folder = std::env::temp_dir().join(format!("ringway-receive-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [api, stream] = ["api", "stream"].map(|name| folder.join(name));
        let [fabric, memory] = [&api, &stream].map(|path| UnixListener::bind(path).unwrap());
        let view = ArrivalView {
            guest: "vm".into(),
            ticket: "t".into(),
            state: state.into(),
            stream: stream.display().to_string(),
            reason: String::new(),
        };
        let body = serde_json::to_string(&view).unwrap();
        std::thread::spawn(move || {
            for client in fabric.incoming() {
                let (mut client, mut request) = (client.unwrap(), [0; 4096]);
                assert!(client.read(&mut request).unwrap() > 0);
                write!(client, "HTTP/1.1 200 OK\r\nringway-fabric: lab 1f\r\n\r\n{body}").unwrap();
            }
        });
        let (ours, theirs) = UnixStream::pair().unwrap();
        let served = std::thread::spawn(move || {
            let input = theirs.try_clone().unwrap().into();
            let served = serve_on(&api, input, theirs.into());
            std::fs::remove_dir_all(folder).unwrap();
            served
        });
        (ours, memory, served)
    }

    fn ask(stream: &mut BufReader<UnixStream>, call: &str) -> Reply {
        writeln!(stream.get_mut(), "{call}").unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn requests_are_answered_and_memory_follows() {
        let (ours, memory, served) = receiver("memory", "receiving");
        let mut ours = BufReader::new(ours);
        let mut line = String::new();
        ours.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), GREETING);
        let request = |path: &str| {
            format!("{{\"request\":{{\"method\":\"GET\",\"path\":\"{path}\",\"body\":null,\"limit\":5}}}}")
        };
        let reply = ask(&mut ours, &request("/v1/guest-arrivals/vm/t"));
        assert!(
            matches!(&reply, Reply::Answered { status: 200, body, .. } if body.contains("receiving")),
            "{reply:?}"
        );
        assert!(
            matches!(&reply, Reply::Answered { fabric: Some(fabric), .. } if fabric == "lab 1f"),
            "who answers is passed on: {reply:?}"
        );
        let reply = ask(&mut ours, &request("/v1/guests"));
        assert!(matches!(&reply, Reply::Failed(why) if why.contains("only")), "{reply:?}");
        let reply = ask(&mut ours, "{\"memory\":{\"guest\":\"vm\",\"ticket\":\"../t\"}}");
        assert!(matches!(&reply, Reply::Failed(_)), "{reply:?}");
        let reply = ask(&mut ours, "{\"memory\":{\"guest\":\"vm\",\"ticket\":\"t\"}}");
        assert!(matches!(reply, Reply::Ready), "{reply:?}");
        let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let sender = sent.clone();
        let source = std::thread::spawn(move || {
            let mut stream = ours.into_inner();
            stream.write_all(&sender).unwrap();
        });
        let mut got = Vec::new();
        memory.accept().unwrap().0.read_to_end(&mut got).unwrap();
        assert!(got == sent, "{} of {} bytes came", got.len(), sent.len());
        source.join().unwrap();
        served.join().unwrap().unwrap();
    }

    #[test]
    fn memory_of_a_guest_that_has_arrived_and_other_lines_are_refused() {
        let (ours, _memory, served) = receiver("late", "active");
        let mut ours = BufReader::new(ours);
        ours.read_line(&mut String::new()).unwrap();
        let reply = ask(&mut ours, "{\"memory\":{\"guest\":\"vm\",\"ticket\":\"t\"}}");
        assert!(matches!(&reply, Reply::Failed(why) if why.contains("active already")), "{reply:?}");
        writeln!(ours.get_mut(), "GET / HTTP/1.1").unwrap();
        assert!(served.join().unwrap().is_err());
    }
}
