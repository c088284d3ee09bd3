//! `ChatterSocket(TYPE, PORT, GREETING, LOCALHOST)`: sends the router's chatter to programs that connect.
//!
//! Ports: none.
//!
//! Arguments:
//! - `TYPE`: `TCP`, or `UNIX`.
//! - `PORT` (or `FILENAME`): a port, with a `+` suffix this or a later free one; or a socket file.
//! - `CHANNEL`: the channel of IPPrint and ARPPrint that clients get, instead of all other messages.
//! - `QUIET_CHANNEL`: whether these are not printed to standard error, too; true by default.
//! - `RETRIES`, `RETRY_WARNINGS`: ignored.
//! - `GREETING`: whether the protocol version is sent as a greeting; true by default.
//! - `LOCALHOST`: whether only programs of this machine may connect; true by default. Click's ChatterSocket
//!   accepts all.
//!
//! The protocol is Click's, version 1.0: lines to read, nothing to write. A program that is 500,000 bytes
//! behind is disconnected. When another configuration with the same ChatterSocket replaces this one, its
//! connections continue there.
//!
//! Handlers: `port`, `connections` (read).
use super::listener::{ListeningSocket, Stream, Where};
use ringway_click::arg::{Args, Word};
use ringway_click::{ChatterLines, Class, Context, Element, Failed, Handler, Reach, Task};
use std::io::ErrorKind;

pub static CLASS: Class = Class::new("ChatterSocket", || Box::<ChatterSocket>::default()).reach(Reach::Whole);

/// Attack: a program that connects and does not read. Largest number of bytes waiting for it.
const WAITING: usize = 500_000;
const GREETING: &[u8] = b"Click::ChatterSocket/1.0\r\n";

struct Connection {
    stream: Box<dyn Stream>,
    waiting: Vec<u8>,
}

impl Connection {
    /// Sends what can be sent without blocking; false if the connection has ended.
    fn send(&mut self) -> bool {
        let (sent, lives) = self.stream.send(&self.waiting);
        self.waiting.drain(..sent);
        lives && self.waiting.len() <= WAITING
    }

    /// Whether the other end is still connected. Its input is ignored.
    fn is_there(&mut self) -> bool {
        let mut buffer = [0; 4096];
        for _ in 0..16 {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }
}

#[derive(Default)]
pub struct ChatterSocket {
    listening: ListeningSocket,
    greeting: bool,
    channel: String,
    quiet: bool,
    connections: Vec<Connection>,
    chatter: Option<ChatterLines>,
}

impl ChatterSocket {
    fn accept(&mut self, cx: &mut Context<'_>) {
        while let Some(stream) = self.listening.accept(self.connections.len()) {
            let waiting = if self.greeting { GREETING.to_vec() } else { Vec::new() };
            self.connections.push(Connection { stream, waiting });
            self.serve(self.connections.len() - 1, false, cx);
        }
    }

    fn serve(&mut self, at: usize, readable: bool, cx: &mut Context<'_>) {
        let connection = &mut self.connections[at];
        let lives = connection.send() && (!readable || connection.is_there());
        let (descriptor, waits) = (connection.stream.descriptor(), !connection.waiting.is_empty());
        cx.select(descriptor, lives, lives && waits);
        if !lives {
            self.connections.swap_remove(at);
        }
    }
}

impl Element for ChatterSocket {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.greeting = true;
        let place = Where::read(args, |args| {
            args.read("GREETING", &mut self.greeting);
        });
        let mut channel = Word::default();
        self.quiet = true;
        args.read("CHANNEL", &mut channel);
        args.read("QUIET_CHANNEL", &mut self.quiet);
        args.complete()?;
        self.channel = channel.0;
        self.listening = place.listening(cx)?;
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let task = cx.new_task(false);
        self.chatter = Some(cx.listen_to_chatter(task, &self.channel, self.quiet));
        if cx.has_predecessor() { Ok(()) } else { self.listening.open(cx) }
    }

    fn run_task(&mut self, _: Task, cx: &mut Context<'_>) -> bool {
        let lines = self.chatter.as_ref().map(ChatterLines::take).unwrap_or_default();
        for at in (0..self.connections.len()).rev() {
            self.connections[at].waiting.extend_from_slice(lines.as_bytes());
            self.serve(at, false, cx);
        }
        !lines.is_empty()
    }

    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>().filter(|old| old.listening.is_like(&self.listening))
        else {
            // Errors have been reported.
            let _ = self.listening.open(cx);
            return;
        };
        self.listening.take_over(&mut from.listening, cx);
        self.connections = std::mem::take(&mut from.connections);
        for at in (0..self.connections.len()).rev() {
            self.serve(at, false, cx);
        }
    }

    fn selected(&mut self, descriptor: i32, readable: bool, _: bool, cx: &mut Context<'_>) {
        match self.connections.iter().position(|connection| connection.stream.descriptor() == descriptor) {
            Some(at) => self.serve(at, readable, cx),
            None => self.accept(cx),
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("port", |e: &Self| e.listening.port()),
            Handler::read("connections", |e: &Self| e.connections.len()),
        ]
        .into()
    }

    fn shares(&self) -> Option<String> {
        (!self.channel.is_empty()).then(|| format!("chatter channel {}", self.channel))
    }

    fn cleanup(&mut self, _: &mut Context<'_>) {
        // The last lines, as far as they can be sent without blocking.
        let lines = self.chatter.take().map(|chatter| chatter.take()).unwrap_or_default();
        for connection in &mut self.connections {
            connection.waiting.extend_from_slice(lines.as_bytes());
            connection.send();
        }
        self.listening.close();
    }
}
