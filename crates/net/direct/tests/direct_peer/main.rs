//! A process that shares a stack with others, for the tests.
//!
//! `direct-peer ROLE SOCKET TEXT DATA PORT AGENT PORT-LENGTH AGENT-LENGTH`, with the numbers of descriptors. Roles:
//! `echo` returns what the connection receives; `hold` says `held` within its turn, and stays there; `idle` says `idle`
//! outside of it, and stays there. It ends with 3 if the stack is lost.

use ringway_direct::{Files, Image, LockError, Locked, RingPlace};
use ringway_host::Clock;
use ringway_netstack::{SocketError, SocketId};
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [role, socket, text, data, port, agent, port_len, agent_len] = &words[..] else {
        return Err("eight arguments are needed".into());
    };
    let open =
        |number: &String| OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{number}"));
    let text = File::open(format!("/proc/self/fd/{text}"))?;
    let image = Image::map(&Files { text: text.into(), data: open(data)?.into() })?;
    image.map_ring(RingPlace::Port, open(port)?, port_len.parse()?)?;
    image.map_ring(RingPlace::Agent, open(agent)?, agent_len.parse()?)?;
    match role.as_str() {
        "echo" => echo(&image, SocketId::from_bits(socket.parse()?)),
        "hold" => {
            let _locked = image.lock()?;
            stay("held")
        }
        _ => stay("idle"),
    }
}

/// Says a word, and ends only if it is killed.
fn stay(word: &str) -> ! {
    println!("{word}");
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// Returns what a connection receives, until its end.
fn echo(image: &Image, socket: SocketId) -> Result<ExitCode, Box<dyn Error>> {
    let (clock, mut bytes, mut waiting) = (Clock::new(), vec![0; 20_000], 0..0);
    loop {
        let mut locked = match image.lock() {
            Ok(locked) => locked,
            Err(LockError::Lost) => return Ok(3.into()),
            Err(error) => return Err(error.into()),
        };
        if waiting.is_empty() {
            match locked.recv(clock.now(), socket, &mut bytes).0 {
                Ok(0) => return end(locked, clock.now(), socket),
                Ok(count) => waiting = 0..count,
                Err(SocketError::WouldBlock) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let before = waiting.start;
        match locked.send(clock.now(), socket, &bytes[waiting.clone()]).0 {
            Ok(count) => waiting.start += count,
            Err(SocketError::WouldBlock) => {}
            Err(error) => return Err(error.into()),
        }
        drop(locked);
        if waiting.start == before {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

fn end(mut locked: Locked<'_>, now: u64, socket: SocketId) -> Result<ExitCode, Box<dyn Error>> {
    locked.shutdown(now, socket).0?;
    locked.close(now, socket).0?;
    Ok(ExitCode::SUCCESS)
}
