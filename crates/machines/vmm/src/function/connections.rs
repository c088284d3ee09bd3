//! Programs that connect to a function's socket for handlers.

use super::{FunctionEnd, tell};
use ringway_host::PollFd;
use ringway_tiny::channel::{CONNECTIONS, CONTENTS, Channel, ToGuest, WINDOW};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};

/// A program's connection.
struct Connection {
    stream: UnixStream,
    /// Bytes for the program. Attack: a guest that sends more than the window.
    output: VecDeque<u8>,
    /// Bytes that the guest has not taken.
    sent: u32,
    /// The program sends nothing more; the program is gone, as the guest was told.
    ended: bool,
    gone: bool,
    /// The guest has ended the connection: the rest of the output is sent.
    closed: bool,
}

/// All connections, by number.
pub(super) struct Connections<'a> {
    listener: &'a UnixListener,
    all: BTreeMap<u16, Connection>,
}

const UNKNOWN: FunctionEnd = FunctionEnd::Channel("a connection that does not exist");

impl<'a> Connections<'a> {
    pub fn new(listener: &'a UnixListener) -> io::Result<Connections<'a>> {
        listener.set_nonblocking(true)?;
        Ok(Connections { listener, all: BTreeMap::new() })
    }

    /// The connection that the guest means.
    fn open(&mut self, number: u16) -> Result<&mut Connection, FunctionEnd> {
        self.all.get_mut(&number).filter(|connection| !connection.closed).ok_or(UNKNOWN)
    }

    /// The guest sends bytes to a program.
    pub fn data(&mut self, number: u16, bytes: &[u8]) -> Result<(), FunctionEnd> {
        let connection = self.open(number)?;
        if connection.output.len() + bytes.len() > WINDOW as usize {
            return Err(FunctionEnd::Channel("more bytes than a connection's window"));
        }
        connection.output.extend(bytes);
        Ok(())
    }

    /// The guest has taken bytes of a program.
    pub fn taken(&mut self, number: u16, bytes: u32) -> Result<(), FunctionEnd> {
        let connection = self.open(number)?;
        connection.sent =
            connection.sent.checked_sub(bytes).ok_or(FunctionEnd::Channel("more bytes taken than sent"))?;
        Ok(())
    }

    /// The guest has ended a connection.
    pub fn closed(&mut self, number: u16) -> Result<(), FunctionEnd> {
        self.open(number)?.closed = true;
        Ok(())
    }

    /// Accepts programs, and passes bytes on in both directions; whether there may be more.
    pub fn serve(&mut self, channel: &mut Channel) -> bool {
        let mut more = false;
        // Attack: programs that connect without end wait in the socket's queue.
        while let Some(number) = (0..CONNECTIONS).find(|number| !self.all.contains_key(number)) {
            let Ok((stream, _)) = self.listener.accept() else { break };
            // A connection that can't be made non-blocking is none.
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let (output, sent) = (VecDeque::new(), 0);
            let connection = Connection { stream, output, sent, ended: false, gone: false, closed: false };
            self.all.insert(number, connection);
            tell(channel, &ToGuest::Opened(number));
        }
        for (number, connection) in &mut self.all {
            connection.write(*number, channel);
            more |= connection.read(*number, channel);
        }
        self.all.retain(|_, connection| !connection.closed || !connection.output.is_empty());
        more
    }

    /// What to wait for.
    pub fn watch(&self, poll_fds: &mut Vec<PollFd>) {
        if self.all.len() < usize::from(CONNECTIONS) {
            let descriptor = self.listener.as_raw_fd();
            poll_fds.push(PollFd { descriptor, readable: true, writable: false });
        }
        for connection in self.all.values() {
            let (readable, writable) = (connection.wants_input(), !connection.output.is_empty());
            if readable || writable {
                let descriptor = connection.stream.as_raw_fd();
                poll_fds.push(PollFd { descriptor, readable, writable });
            }
        }
    }
}

impl Connection {
    fn wants_input(&self) -> bool {
        !self.ended && !self.closed && self.sent < WINDOW
    }

    /// Passes a part of the program's bytes to the guest; whether there may be more.
    fn read(&mut self, number: u16, channel: &mut Channel) -> bool {
        let mut buffer = [0; CONTENTS];
        if !self.wants_input() {
            return false;
        }
        let room = buffer.len().min((WINDOW - self.sent) as usize);
        match self.stream.read(&mut buffer[..room]) {
            Ok(count) if count > 0 => {
                self.sent += count as u32;
                tell(channel, &ToGuest::Data(number, &buffer[..count]));
                return true;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => {
                self.ended = true;
                tell(channel, &ToGuest::Ended(number, false));
            }
        }
        false
    }

    /// Passes the guest's bytes to the program.
    fn write(&mut self, number: u16, channel: &mut Channel) {
        let mut taken = 0;
        while !self.output.is_empty() {
            let (part, _) = self.output.as_slices();
            match self.stream.write(part) {
                Ok(count) if count > 0 => {
                    self.output.drain(..count);
                    taken += count as u32;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Nobody reads it any more.
                Ok(_) | Err(_) => {
                    taken += self.output.len() as u32;
                    self.output.clear();
                    if !std::mem::replace(&mut self.gone, true) && !self.closed {
                        tell(channel, &ToGuest::Ended(number, true));
                    }
                }
            }
        }
        if taken > 0 && !self.closed {
            tell(channel, &ToGuest::Taken(number, taken));
        }
    }
}
