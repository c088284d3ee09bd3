//! `ControlSocket(TYPE, PORT, READONLY, VERBOSE, LOCALHOST)`: lets programs read and write handlers over a
//! connection.
//!
//! Ports: none.
//!
//! Arguments:
//! - `TYPE`: `TCP`, or `UNIX`.
//! - `PORT` (or `FILENAME`): a port, with a `+` suffix this or a later free one; or a socket file.
//! - `READONLY`: whether writing is refused; false by default.
//! - `VERBOSE`: whether connections are reported; false by default.
//! - `RETRIES`, `RETRY_WARNINGS`: ignored: a socket that can't be opened is an error.
//! - `LOCALHOST`: whether only programs of this machine may connect; true by default.
//!
//! The protocol is Click's, version 1.3: `READ`, `READDATA`, `READUNTIL`, `WRITE`, `WRITEDATA`, `WRITEUNTIL`,
//! `CHECKREAD`, `CHECKWRITE`, `LLRPC`, `HELP`, `QUIT`. At the limit of 64 connections, a new one replaces the
//! longest idle one; a connection that leaves a command unfinished, or an answer unread, for a minute counts
//! as idle. A handler call is completed even if the caller has disconnected. When another configuration with
//! the same ControlSocket replaces this one, its connections continue there.
//!
//! Handlers: `port` or `filename` (read).
use super::listener::{self, Where};
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Failed, Reach};
use ringway_elements::platform::control_socket::{self, ControlSocket, Input};
use std::io::ErrorKind;

pub static CLASS: Class =
    Class::new("ControlSocket", || Box::<ControlSocket<Socket>>::default()).reach(Reach::Whole);

/// A socket that listens.
#[derive(Default)]
struct Socket(listener::ListeningSocket);

/// A connection.
struct Stream(Box<dyn listener::Stream>);

impl control_socket::Stream for Stream {
    fn descriptor(&self) -> i32 {
        self.0.descriptor()
    }

    fn read(&mut self, buffer: &mut [u8]) -> Input {
        loop {
            return match self.0.read(buffer) {
                Ok(bytes) if bytes > 0 => Input::Bytes(bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => Input::Later,
                Ok(_) | Err(_) => Input::End,
            };
        }
    }

    fn send(&mut self, bytes: &[u8]) -> (usize, bool) {
        self.0.send(bytes)
    }
}

impl control_socket::Listener for Socket {
    fn configure(
        args: &mut Args,
        more: impl FnOnce(&mut Args),
        cx: &mut Context<'_>,
    ) -> Result<Self, Failed> {
        let place = Where::read(args, more);
        args.complete()?;
        Ok(Self(place.listening(cx)?))
    }

    fn open(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.0.open(cx)
    }

    fn accept(&self, connected: usize) -> Option<Box<dyn control_socket::Stream>> {
        Some(Box::new(Stream(self.0.accept(connected)?)))
    }

    fn is_like(&self, other: &Self) -> bool {
        self.0.is_like(&other.0)
    }

    fn take_over(&mut self, from: &mut Self, cx: &mut Context<'_>) {
        self.0.take_over(&mut from.0, cx);
    }

    fn port(&self) -> String {
        self.0.port()
    }

    fn close(&mut self) {
        self.0.close();
    }
}
