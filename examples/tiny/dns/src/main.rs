//! A DNS responder (RFC 1035) on port 53, by UDP and TCP.
//!
//! Each argument is a record: `NAME=ADDRESS`, with an IPv4 or IPv6 address; a name may have several. Other names are
//! refused, or do not exist if they are below the parameter `ZONE`.
#![no_std]
#![no_main]

extern crate alloc;

mod message;

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use message::{Zone, answer};
use ringway_tiny_program::{Error, Program, TcpListener, TcpStream, log};

/// How long a peer of a TCP connection may take for a question (RFC 7766, 6.2.3).
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);

ringway_tiny_program::main!(main);

fn zone(program: &Program) -> Result<Zone, Error> {
    let mut records: Vec<(String, IpAddr)> = Vec::new();
    for argument in program.arguments() {
        let record = argument.split_once('=').and_then(|(name, address)| Some((name, address.parse().ok()?)));
        let (name, address) = record.ok_or_else(|| Error::setting("arguments", "use NAME=ADDRESS"))?;
        records.push((name.trim_end_matches('.').to_ascii_lowercase(), address));
    }
    let name = program.parameter("ZONE").map(|zone| zone.trim_matches('.').to_ascii_lowercase());
    Ok(Zone { records, name })
}

async fn main(program: Program) -> Result<(), Error> {
    let zone = Rc::new(zone(&program)?);
    let network = program.network()?;
    let (mut socket, listener) = (network.bind(53)?, network.listen(53)?);
    program.spawn(streams(program.clone(), listener, zone.clone()))?;
    log!(program, "{} records", zone.records.len());
    loop {
        let (question, from) = socket.recv_from().await?;
        if let Some(answer) = answer(&question, &zone, message::DATAGRAM) {
            // One that finds no room is lost, and is asked for again.
            let _ = socket.send_to(&answer, from);
        }
    }
}

async fn streams(program: Program, mut listener: TcpListener, zone: Rc<Zone>) {
    while let Ok(stream) = listener.accept().await {
        // Where there are as many tasks as there may be, the connection is closed.
        let _ = program.spawn(stream_of(program.clone(), stream, zone.clone()));
    }
}

async fn stream_of(program: Program, mut stream: TcpStream, zone: Rc<Zone>) {
    while let Some(Ok(true)) = program.timeout(QUESTION_TIMEOUT, one(&mut stream, &zone)).await {}
}

/// Answers a question of a stream; `false`: it was none.
async fn one(stream: &mut TcpStream, zone: &Zone) -> Result<bool, Error> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).await?;
    // At most 64 KB.
    let mut question = vec![0; u16::from_be_bytes(len).into()];
    stream.read_exact(&mut question).await?;
    let Some(answer) = answer(&question, zone, message::LARGEST) else { return Ok(false) };
    let mut whole = (answer.len() as u16).to_be_bytes().to_vec();
    whole.extend_from_slice(&answer);
    stream.write_all(&whole).await?;
    Ok(true)
}
