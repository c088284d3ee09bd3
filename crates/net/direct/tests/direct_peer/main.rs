//! A process that shares a stack with others, for the tests.
//!
//! `direct-peer ROLE SOCKET PORT-LENGTH AGENT-LENGTH`, with a socket as standard input by which the files come, and the
//! descriptors that notify. Roles: `echo` returns what the connection receives; `wait` does so and sleeps while there
//! is nothing; `watch` does it in an event loop. `send` sends a megabyte, and then says `idle`; `hold` says `held`
//! within its turn; `idle` says `idle` outside of it. These three stay then. It ends with 3 if the stack is lost.

use ringway_direct::{Files, Image, LockError, Member, Notifiers, RingPeer, Watch, bit};
use ringway_host::{Clock, receive_with};
use ringway_netstack::{SocketError, SocketId};
use std::error::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

/// Bytes of the role `send`.
const SENT: usize = 1_000_000;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [role, socket, port_len, agent_len] = &words[..] else {
        return Err("four arguments are needed".into());
    };
    let (_, files) = receive_with(std::io::stdin().as_fd(), &mut [0], 9)?;
    let [text, data, port, agent, notifiers @ ..]: [OwnedFd; 9] =
        files.try_into().map_err(|_| "not the descriptors")?;
    let image = Image::map(&Files { text, data })?;
    image.map_ring(RingPeer::Port, port, port_len.parse()?)?;
    image.map_ring(RingPeer::Agent, agent, agent_len.parse()?)?;
    let member = Member::new(image, Notifiers::from(notifiers), Clock::new());
    let socket = SocketId::from_bits(socket.parse()?);
    let played = match role.as_str() {
        "echo" => echo(&member, socket, Some(Duration::ZERO)),
        "wait" => echo(&member, socket, None),
        "watch" => watch(&member, socket),
        "send" => send(&member, socket),
        "hold" => {
            let _locked = member.image().lock()?;
            stay("held")
        }
        _ => stay("idle"),
    };
    match played {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if matches!(error.downcast_ref(), Some(LockError::Lost)) => Ok(3.into()),
        Err(error) => Err(error),
    }
}

/// Says a word, and ends only if it is killed.
fn stay(word: &str) -> ! {
    println!("{word}");
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// Returns what a connection receives, until its end; sleeps while there is nothing, or looks again and again.
fn echo(member: &Member, socket: SocketId, timeout: Option<Duration>) -> Result<(), Box<dyn Error>> {
    let mut bytes = vec![0; 20_000];
    let pause = || std::thread::sleep(Duration::from_micros(100));
    loop {
        let mut rest = match member.recv(socket, &mut bytes, timeout)? {
            Ok(0) => break,
            Ok(count) => &bytes[..count],
            Err(SocketError::WouldBlock) => {
                pause();
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        while !rest.is_empty() {
            match member.send(socket, rest, timeout)? {
                Ok(sent) => rest = &rest[sent..],
                Err(SocketError::WouldBlock) => pause(),
                Err(error) => return Err(error.into()),
            }
        }
    }
    member.turn(|locked, now| locked.shutdown(now, socket))??;
    Ok(member.turn(|locked, now| locked.close(now, socket))??)
}

/// As `echo`, with calls that don't wait, when the connection became ready.
fn watch(member: &Member, socket: SocketId) -> Result<(), Box<dyn Error>> {
    let (mut bytes, mut waiting, mut watch) = (vec![0; 20_000], 0..0, Watch::default());
    loop {
        let now = Some(Duration::ZERO);
        if waiting.is_empty() {
            match member.recv(socket, &mut bytes, now)? {
                Ok(0) => break,
                Ok(count) => waiting = 0..count,
                Err(SocketError::WouldBlock) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match member.send(socket, &bytes[waiting.clone()], now)? {
            Ok(sent) if sent > 0 => {
                waiting.start += sent;
                continue;
            }
            Ok(_) | Err(SocketError::WouldBlock) => {}
            Err(error) => return Err(error.into()),
        }
        member.watch(&mut watch, 1 << bit(socket), None)?;
    }
    member.turn(|locked, now| locked.shutdown(now, socket))??;
    Ok(member.turn(|locked, now| locked.close(now, socket))??)
}

/// Sends zeros, and does nothing more with the stack.
fn send(member: &Member, socket: SocketId) -> Result<(), Box<dyn Error>> {
    let (bytes, mut sent) = (vec![0; SENT], 0);
    while sent < SENT {
        sent += member.send(socket, &bytes[sent..], None)??;
    }
    stay("idle")
}
