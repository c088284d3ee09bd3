//! A program that shares a stack, as the tests need it: it serves one connection to port 9, whose bytes it returns.
//!
//! `direct-program ROLE`. `echo` uses the connection in the shared stack until its end. `option` sets an option after
//! 100,000 bytes, `leave` asks to leave then. `exit` ends the process without closing anything when all is
//! returned, `killed` is killed within its turn, `stopped` stops there until it is continued, and `corrupt` writes
//! nonsense to the shared memory, and serves another connection.

use ringway_direct::requests::LEVEL;
use ringway_direct::{DirectError, LockError, Member, enter, leave};
use ringway_host::{HostError, ask_socket_for_descriptor};
use ringway_netstack::{SocketError, SocketId};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// After so many bytes something happens.
const LATER: usize = 100_000;

/// A connection, and what it is in the shared stack.
struct Connection {
    stream: TcpStream,
    shared: Option<(Member, SocketId)>,
    /// Bytes that were received.
    count: usize,
}

impl Connection {
    /// Enters the shared stack, after what has come before was returned.
    fn new(stream: TcpStream) -> Result<Connection, Box<dyn Error>> {
        let mut connection = Connection { stream, shared: None, count: 0 };
        loop {
            match enter(connection.stream.as_fd()) {
                Ok(entry) => {
                    let member = Member::join(connection.stream.as_fd(), &entry)?;
                    connection.shared = Some((member, entry.socket));
                    return Ok(connection);
                }
                Err(DirectError::Host(HostError::Call { error: Errno::AGAIN, .. })) => {
                    connection.turn(&mut [0; 1000])?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Does a call in the shared stack; `None`: the connection is not there any more.
    fn shared<T>(
        &mut self,
        call: impl FnOnce(&Member, SocketId) -> Result<Result<T, SocketError>, LockError>,
    ) -> io::Result<Option<T>> {
        let Some((member, socket)) = &self.shared else { return Ok(None) };
        match call(member, *socket) {
            Ok(Ok(value)) => return Ok(Some(value)),
            Ok(Err(SocketError::BadSocket)) | Err(_) => {}
            Ok(Err(error)) => return Err(io::Error::other(error)),
        }
        self.shared = None;
        Ok(None)
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.shared(|member, socket| member.recv(socket, bytes, None))? {
            Some(count) => Ok(count),
            None => self.stream.read(bytes),
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.shared(|member, socket| member.send(socket, bytes, None))? {
                Some(count) => bytes = &bytes[count..],
                None => return self.stream.write_all(bytes),
            }
        }
        Ok(())
    }

    /// Returns what has come; whether there was something.
    fn turn(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        let count = self.read(bytes)?;
        self.count += count;
        self.write(&bytes[..count])?;
        Ok(count > 0)
    }

    /// Returns bytes until there are so many, or to the end.
    fn echo(&mut self, most: usize) -> io::Result<()> {
        let mut bytes = vec![0; 20_000];
        while self.count < most && self.turn(&mut bytes)? {}
        Ok(())
    }

    /// Takes this process's turn, and sends a signal to itself.
    fn signal_within(&self, signal: Signal) -> Result<(), Box<dyn Error>> {
        let (member, _) = self.shared.as_ref().ok_or("not in the shared stack")?;
        let locked = member.image().lock()?;
        println!("held");
        kill_process(getpid(), signal)?;
        drop(locked);
        Ok(())
    }
}

/// Continues this process after a while.
fn continue_later(process: Pid) -> io::Result<()> {
    let script = format!("sleep 0.5; kill -CONT {}", process.as_raw_nonzero());
    std::process::Command::new("sh").arg("-c").arg(script).spawn().map(drop)
}

fn main() -> Result<(), Box<dyn Error>> {
    let role = std::env::args().nth(1).ok_or("a role is needed")?;
    let listener = TcpListener::bind(("0.0.0.0", 9))?;
    println!("ready");
    let (stream, _) = listener.accept()?;
    let mut connection = Connection::new(stream)?;
    println!("shared");
    // The client waits for it, so that nothing comes before.
    connection.write(b"!")?;
    match role.as_str() {
        "echo" | "exit" => connection.echo(usize::MAX)?,
        "option" => {
            connection.echo(LATER)?;
            connection.stream.set_nodelay(true)?;
            connection.echo(usize::MAX)?;
            println!("{}", connection.shared.is_none());
            // It does not enter again.
            println!("{}", enter(connection.stream.as_fd()).is_err());
        }
        "leave" => {
            connection.echo(LATER)?;
            leave(connection.stream.as_fd())?;
            connection.echo(usize::MAX)?;
            println!("{}", connection.shared.is_none());
        }
        "killed" => {
            connection.echo(LATER)?;
            connection.signal_within(Signal::KILL)?;
        }
        "stopped" => {
            connection.echo(LATER)?;
            continue_later(getpid())?;
            connection.signal_within(Signal::STOP)?;
            connection.echo(usize::MAX)?;
        }
        "corrupt" => {
            connection.echo(LATER)?;
            let data = ask_socket_for_descriptor(connection.stream.as_fd(), (LEVEL, 1))?;
            let nonsense = [0xa5; 1 << 20];
            std::fs::File::from(data).write_all_at(&nonsense, 4096)?;
            // The attendant runs it; this process does not.
            connection.shared = None;
            println!("{}", connection.turn(&mut [0; 1000]).is_err());
            // Another connection is served by the agent.
            let (stream, _) = listener.accept()?;
            let mut other = Connection { stream, shared: None, count: 0 };
            println!("{}", enter(other.stream.as_fd()).is_err());
            other.write(b"!")?;
            other.echo(usize::MAX)?;
        }
        _ => return Err("no such role".into()),
    }
    if role == "exit" {
        std::process::exit(0);
    }
    Ok(())
}
