//! A host of WebAssembly modules: `PUT /` on port 80 loads one, and `GET /FUNCTION/NUMBER/...` calls a function that it
//! exports with numbers, and answers with its results.
//!
//! A module may import `host.log`, which takes a number of 64 bits and writes it to the fabric's log. It has no other
//! way out; its memory and the steps of a call are bounded.
#![no_std]
#![no_main]

extern crate alloc;

mod module;

use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use module::{Host, MODULE};
use ringway_tiny_program::{Error, Program, TcpStream, log};

/// How long a peer may take for a request, and for room for the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of a request's head.
const HEAD: usize = 4 << 10;

ringway_tiny_program::main!(main);

/// What connections share.
struct Shared {
    host: RefCell<Host>,
    /// A module is on the way. Attack: many connections that send parts of modules fill the memory.
    loads: Cell<bool>,
}

async fn main(program: Program) -> Result<(), Error> {
    let mut listener = program.network()?.listen(80)?;
    let shared = Rc::new(Shared { host: RefCell::new(Host::new(program.clone())), loads: Cell::new(false) });
    log!(program, "PUT a module");
    loop {
        let stream = listener.accept().await?;
        let (own, shared) = (program.clone(), shared.clone());
        // Where there are as many tasks as there may be, the connection is closed.
        let _ = program.spawn(async move {
            // An error is the peer's, or it is late.
            let _ = own.timeout(REQUEST_TIMEOUT, serve(stream, &shared)).await;
        });
    }
}

/// Status and text of an answer.
type Answer = (&'static str, String);

fn refusal(why: String) -> Answer {
    ("422 Unprocessable Content", why)
}

/// What the host found.
fn done(result: Result<String, String>) -> Answer {
    result.map_or_else(refusal, |text| ("200 OK", text))
}

/// Answers one request.
async fn serve(mut stream: TcpStream, shared: &Shared) -> Result<(), Error> {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        match stream.read(&mut part).await? {
            0 => return Ok(()),
            // Attack: a head without end.
            _ if bytes.len() >= HEAD => {
                return answer(&mut stream, refusal("the head is too long".into())).await;
            }
            count => bytes.extend_from_slice(&part[..count]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let body = bytes.split_off(end);
    let mut words = head.split(' ');
    let answered = match (words.next(), words.next()) {
        (Some("GET"), Some(path)) => done(shared.host.borrow_mut().call(path)),
        (Some("PUT"), Some("/")) => match length(&head) {
            Some(_) if shared.loads.get() => {
                ("503 Service Unavailable", "another module is on the way".into())
            }
            Some(len) if len <= MODULE => load(&mut stream, shared, &head, body, len).await?,
            _ => refusal(format!("a module has a Content-Length of at most {MODULE} bytes")),
        },
        _ => refusal("use PUT / and GET /FUNCTION/NUMBER/...".into()),
    };
    answer(&mut stream, answered).await
}

/// Says that no module is on the way, also if the peer is late.
struct Loads<'a>(&'a Cell<bool>);

impl Drop for Loads<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Receives a module of so many bytes, which begins with `body`, and runs it.
async fn load(
    stream: &mut TcpStream,
    shared: &Shared,
    head: &str,
    mut body: Vec<u8>,
    len: usize,
) -> Result<Answer, Error> {
    shared.loads.set(true);
    let _loads = Loads(&shared.loads);
    if header(head, "expect").is_some() {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    let mut part = [0; 4096];
    // The memory grows with what came, not with what the peer announces.
    while body.len() < len {
        let most = part.len().min(len - body.len());
        match stream.read(&mut part[..most]).await? {
            0 => return Err(Error::Ended),
            count => body.extend_from_slice(&part[..count]),
        }
    }
    body.truncate(len);
    Ok(done(shared.host.borrow_mut().load(&body)))
}

/// The value of a header.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn length(head: &str) -> Option<usize> {
    header(head, "content-length")?.parse().ok()
}

async fn answer(stream: &mut TcpStream, (status, body): Answer) -> Result<(), Error> {
    let len = body.len() + 1;
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}\n");
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown()
}
