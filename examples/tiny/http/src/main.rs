//! An HTTP/1.1 server on port 80: a page, the request's headers, and bytes to measure with.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the fabric file's parameter `GREETING` |
//! | `/status` | connections, requests, time, memory |
//! | `/headers` | the headers of the request |
//! | `/bytes/N` | N bytes |
#![no_std]
#![no_main]

extern crate alloc;

mod request;

use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::Cell;
use core::time::Duration;
use request::{Head, MOST, Method};
use ringway_tiny_program::{Error, Program, TcpStream, log};

/// How long a peer may take for a request. Attack: connections that send nothing, or a byte now and then, keep those of
/// others out.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a peer may take for an answer, or for 16 KB of a long one. Attack: one that asks, and takes nothing.
const STALL: Duration = Duration::from_secs(60);
/// The most bytes of `/bytes/N`.
const BYTES: u64 = 1 << 40;

ringway_tiny_program::main!(main);

/// What `/status` shows.
#[derive(Default)]
struct Counts {
    open: Cell<u64>,
    connections: Cell<u64>,
    requests: Cell<u64>,
}

async fn main(program: Program) -> Result<(), Error> {
    let network = program.network()?;
    let mut listener = network.listen(80)?;
    let counts = Rc::new(Counts::default());
    for address in network.addresses() {
        log!(program, "http://{}/", address.address);
    }
    loop {
        let stream = listener.accept().await?;
        let (own, counted) = (program.clone(), counts.clone());
        counts.connections.set(counts.connections.get() + 1);
        // Where there are as many tasks as there may be, the connection is closed.
        let _ = program.spawn(async move {
            counted.open.set(counted.open.get() + 1);
            // An error is the peer's, or it has gone.
            let _ = serve(&own, stream, &counted).await;
            counted.open.set(counted.open.get() - 1);
        });
    }
}

/// Answers requests until one side ends the connection.
async fn serve(program: &Program, mut stream: TcpStream, counts: &Counts) -> Result<(), Error> {
    stream.set_nodelay(true)?;
    let (mut buffer, mut filled) = ([0; MOST], 0);
    loop {
        // One deadline for the whole head.
        let read = program.timeout(REQUEST_TIMEOUT, head(&mut stream, &mut buffer, &mut filled)).await;
        let Some(read) = read.transpose()? else { return Ok(()) };
        let end = match read {
            Read::Head(end) => end,
            Read::TooLong => {
                return refuse(program, &mut stream, "431 Request Header Fields Too Large", "too long\n")
                    .await;
            }
            Read::End => return Ok(()),
        };
        counts.requests.set(counts.requests.get() + 1);
        let Some(head) = Head::parse(&buffer[..end]) else {
            return refuse(program, &mut stream, "400 Bad Request", "no request\n").await;
        };
        if head.method == Method::Other || head.has_body {
            return refuse(program, &mut stream, "405 Method Not Allowed", "only GET and HEAD\n").await;
        }
        let goes_on = head.keeps_alive;
        match head.path.strip_prefix("/bytes/").map(str::parse) {
            Some(Ok(count)) if count <= BYTES => bytes(program, &mut stream, &head, count).await?,
            _ => {
                let answered = program.timeout(STALL, respond(program, &mut stream, &head, counts)).await;
                answered.unwrap_or(Err(Error::Ended))?;
            }
        }
        if !goes_on {
            return stream.shutdown();
        }
        buffer.copy_within(end..filled, 0);
        filled -= end;
    }
}

/// What was read.
enum Read {
    /// A head of so many bytes.
    Head(usize),
    /// More than a head may have.
    TooLong,
    /// The end of the connection.
    End,
}

/// Reads until there is a head.
async fn head(stream: &mut TcpStream, buffer: &mut [u8; MOST], filled: &mut usize) -> Result<Read, Error> {
    loop {
        if let Some(end) = request::end(&buffer[..*filled]) {
            return Ok(Read::Head(end));
        }
        if *filled == MOST {
            return Ok(Read::TooLong);
        }
        match stream.read(&mut buffer[*filled..]).await? {
            0 => return Ok(Read::End),
            count => *filled += count,
        }
    }
}

/// Answers a request.
async fn respond(
    program: &Program,
    stream: &mut TcpStream,
    head: &Head<'_>,
    counts: &Counts,
) -> Result<(), Error> {
    let body: String = match head.path {
        "/" => format!("{}\n", program.parameter("GREETING").unwrap_or("a tiny VM greets you")),
        "/status" => format!(
            "open {}\nconnections {}\nrequests {}\nseconds {}\nmemory {}\n",
            counts.open.get(),
            counts.connections.get(),
            counts.requests.get(),
            program.now().as_secs(),
            program.memory()
        ),
        "/headers" => format!("{}\n", head.headers),
        _ => return finish(stream, head, "404 Not Found", "there is no such page\n").await,
    };
    finish(stream, head, "200 OK", &body).await
}

/// Sends so many bytes.
async fn bytes(
    program: &Program,
    stream: &mut TcpStream,
    head: &Head<'_>,
    mut count: u64,
) -> Result<(), Error> {
    let begun = begin(stream, "200 OK", "application/octet-stream", count, head.keeps_alive);
    program.timeout(STALL, begun).await.unwrap_or(Err(Error::Ended))?;
    let part = [b'x'; 16 << 10];
    while head.method == Method::Get && count > 0 {
        let most = usize::try_from(count).unwrap_or(usize::MAX).min(part.len());
        let written = program.timeout(STALL, stream.write_all(&part[..most])).await;
        written.unwrap_or(Err(Error::Ended))?;
        count -= most as u64;
    }
    Ok(())
}

async fn begin(
    stream: &mut TcpStream,
    status: &str,
    kind: &str,
    len: u64,
    keeps_alive: bool,
) -> Result<(), Error> {
    let connection = if keeps_alive { "keep-alive" } else { "close" };
    let head = format!(
        "HTTP/1.1 {status}\r\nServer: ringway\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n\
         Connection: {connection}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await
}

async fn finish(stream: &mut TcpStream, head: &Head<'_>, status: &str, body: &str) -> Result<(), Error> {
    begin(stream, status, "text/plain", body.len() as u64, head.keeps_alive).await?;
    match head.method {
        Method::Head => Ok(()),
        _ => stream.write_all(body.as_bytes()).await,
    }
}

/// Answers what is no request for a page, and ends the connection.
async fn refuse(program: &Program, stream: &mut TcpStream, status: &str, body: &str) -> Result<(), Error> {
    let answer = async {
        begin(stream, status, "text/plain", body.len() as u64, false).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown()
    };
    program.timeout(STALL, answer).await.unwrap_or(Err(Error::Ended))
}
