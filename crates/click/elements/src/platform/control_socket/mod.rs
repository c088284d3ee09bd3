//! ControlSocket, for any platform.
mod output;
mod session;

pub use session::{Failure, Handlers, Session};

use ringway_click::prelude::*;
use ringway_click::{HandlerCall, Pieces, Progress};

/// Attack: endless connections. Largest number of connections at a time.
pub const MOST: usize = 64;

/// Result of reading from a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// So many bytes were read.
    Bytes(usize),
    /// No bytes for now.
    Later,
    /// No more bytes.
    End,
}

/// A connection that does not block.
pub trait Stream {
    /// Number by which the router is told that the connection is ready.
    fn descriptor(&self) -> i32;

    /// Reads into the buffer.
    fn read(&mut self, buffer: &mut [u8]) -> Input;

    /// Sends as many of `bytes` as possible; returns their number, and whether the connection is alive.
    fn send(&mut self, bytes: &[u8]) -> (usize, bool);
}

/// Where connections come from. An element of a new configuration with the same place takes it over.
pub trait Listener: Default + 'static {
    /// Reads the arguments that name the place, and those of `more`; the listener is closed.
    ///
    /// # Errors
    /// The arguments are wrong; it has been reported.
    fn configure(args: &mut Args, more: impl FnOnce(&mut Args), cx: &mut Context<'_>)
    -> Result<Self, Failed>;

    /// Listens.
    ///
    /// # Errors
    /// The socket can't be opened, which has been reported.
    fn open(&mut self, cx: &mut Context<'_>) -> Result<(), Failed>;

    /// Accepts the next connection, given `connected` existing ones that must stay.
    fn accept(&self, connected: usize) -> Option<Box<dyn Stream>>;

    /// Whether the other has the same place.
    fn is_like(&self, other: &Self) -> bool;

    /// Takes the other's place over.
    fn take_over(&mut self, from: &mut Self, cx: &mut Context<'_>);

    /// The place, for the handler `port`.
    fn port(&self) -> String;

    /// Stops listening.
    fn close(&mut self);
}

/// Attack: a peer that sends as fast as it is read, while packets wait. Largest number of bytes read from a
/// connection at once.
const AT_ONCE: usize = 1 << 16;
/// Bytes from which no more are sent at once: the system's copy of more would delay packets.
const SENT: usize = 1 << 14;
/// Nanoseconds and steps from which a long operation pauses, and the pause, for packets. In a simulation steps take no
/// time.
const TIME: u64 = 100_000;
const STEPS: usize = 16;
const PAUSE: u64 = 100_000;

/// Attack: connections that begin a command, or never read the answer, to lock others out. Nanoseconds for
/// which a connection with a command in progress is not replaced.
const COMMAND_TIMEOUT: u64 = 60_000_000_000;

struct Connection {
    stream: Box<dyn Stream>,
    session: Session,
    ended: bool,
    /// Time of the last input or output.
    active: u64,
}

impl Connection {
    fn may_make_room(&self, now: u64) -> bool {
        self.session.is_idle()
            || !self.session.is_doing() && now.saturating_sub(self.active) > COMMAND_TIMEOUT
    }

    /// Sends what can be sent without blocking, about `most` bytes. Returns the number of bytes, and whether
    /// the connection is alive.
    fn send(&mut self, most: usize) -> (usize, bool) {
        let mut all = 0;
        loop {
            let next = self.session.output();
            let (sent, lives) = self.stream.send(&next[..next.len().min(SENT)]);
            self.session.sent(sent);
            all += sent;
            if sent == 0 || !lives || all >= most {
                return (all, lives);
            }
        }
    }
}

/// Lets programs read and write handlers over connections.
#[derive(Default)]
pub struct ControlSocket<D> {
    listener: D,
    read_only: bool,
    verbose: bool,
    /// Connections in order of creation.
    connections: Vec<Connection>,
    /// Continues commands that waited for this configuration.
    timer: Option<Timer>,
}

/// The router's handlers, as called by a session.
struct Router<'a, 'b> {
    cx: &'a mut Context<'b>,
    read_only: bool,
}

impl Handlers for Router<'_, '_> {
    fn find(&mut self, name: &str, write: bool) -> Result<HandlerCall, Failure> {
        let none = || Failure::new(511, format!("No handler named '{name}'"));
        if write && self.read_only {
            return Err(Failure::new(530, format!("Permission denied for '{name}'")));
        }
        let router = self.cx.router();
        let call = match router.parse_call(name, "") {
            Ok(call) => call,
            Err(HandlerError::NoElement(element)) => {
                return Err(Failure::new(510, format!("No element named '{element}'")));
            }
            Err(_) => return Err(none()),
        };
        let bare = HandlerCall { value: String::new(), ..call };
        match router.check_call(&bare, write) {
            Ok(handler) if if write { handler.write_visible() } else { handler.read_visible() } => Ok(bare),
            Ok(_) => Err(none()),
            Err(_) => match router.check_call(&bare, !write) {
                Ok(_) if write => Err(Failure::new(530, format!("Handler '{name}' read-only"))),
                Ok(_) => Err(Failure::new(530, format!("Handler '{name}' write-only"))),
                Err(_) => Err(none()),
            },
        }
    }

    fn read(&mut self, name: &str, call: &HandlerCall, pieces: &mut Pieces) -> Result<Progress, Failure> {
        let wrong = |error| Failure::new(520, format!("Read handler '{name}' error:\n{error}"));
        self.cx.read_on(call, pieces).map_err(wrong)
    }

    fn write(&mut self, name: &str, call: &HandlerCall, pieces: &mut Pieces) -> Result<Progress, Failure> {
        let wrong = |error| Failure::new(520, format!("Write handler '{name}' error:\n{error}"));
        self.cx.write_on(call, pieces).map_err(wrong)
    }

    fn llrpc(&mut self, name: &str, element: &str, command: u32, data: &[u8]) -> Result<Vec<u8>, Failure> {
        if self.read_only {
            // A call does not declare that it only reads.
            return Err(Failure::new(530, format!("Permission denied for '{name}'")));
        }
        let router = self.cx.router();
        let id =
            router.find(element).ok_or_else(|| Failure::new(510, format!("No element named '{element}'")))?;
        let answer = router.call_llrpc(id, command, data);
        answer.map_err(|error| Failure::new(540, format!("LLRPC '{name}' error: {error}")))
    }

    fn is_replaced(&self) -> bool {
        self.cx.is_replaced()
    }
}

impl<D: Listener> ControlSocket<D> {
    fn accept(&mut self, cx: &mut Context<'_>) {
        let active = cx.steady();
        // Attack: programs that connect faster than they are accepted.
        for _ in 0..MOST {
            let staying = self.connections.iter().filter(|known| !known.may_make_room(active)).count();
            let Some(stream) = self.listener.accept(staying) else { break };
            if self.connections.len() >= MOST {
                self.make_room(active, cx);
            }
            self.report("opened", &*stream, cx);
            self.connections.push(Connection { stream, session: Session::default(), ended: false, active });
            self.serve(self.connections.len() - 1, false, cx);
        }
    }

    /// Closes the longest idle connection.
    fn make_room(&mut self, now: u64, cx: &mut Context<'_>) {
        let may = self.connections.iter().enumerate().filter(|(_, known)| known.may_make_room(now));
        let Some((at, _)) = may.min_by_key(|(_, known)| known.active) else { return };
        let Connection { stream, .. } = self.connections.remove(at);
        cx.select(stream.descriptor(), false, false);
        self.report("made room for another, closed", &*stream, cx);
    }

    fn report(&self, what: &str, stream: &dyn Stream, cx: &mut Context<'_>) {
        if self.verbose {
            let name = cx.declaration();
            cx.chatter(format_args!("{name}: {what} connection {}", stream.descriptor()));
        }
    }

    fn serve(&mut self, at: usize, readable: bool, cx: &mut Context<'_>) {
        let read_only = self.read_only;
        let connection = &mut self.connections[at];
        let (mut buffer, mut taken) = ([0; 4096], 0);
        while readable && taken < AT_ONCE && !connection.ended && connection.session.wants_input() {
            match connection.stream.read(&mut buffer) {
                Input::Bytes(bytes) => {
                    connection.session.give(&buffer[..bytes]);
                    taken += bytes;
                }
                Input::Later => break,
                Input::End => connection.ended = true,
            }
        }
        let began = cx.steady();
        for _ in 0..STEPS {
            connection.session.run(connection.ended, &mut Router { cx, read_only });
            // The driver builds a replacement between turns.
            let waits = cx.is_being_replaced();
            if !connection.session.is_unfinished() || waits || cx.steady().saturating_sub(began) >= TIME {
                break;
            }
        }
        let (sent, lives) = connection.send(SENT);
        if !lives {
            connection.ended = true;
            connection.session.abandon();
        }
        if taken + sent > 0 {
            connection.active = cx.steady();
        }
        let unfinished = connection.session.is_unfinished();
        if let Some(timer) = self.timer.filter(|timer| unfinished && !cx.is_timer_set(*timer)) {
            cx.set_timer_after(timer, PAUSE);
        }
        let waiting = !connection.session.output().is_empty() || connection.session.is_stalled();
        let descriptor = connection.stream.descriptor();
        let over = !lives || connection.session.is_closed() && !waiting;
        if over && !connection.session.is_doing() {
            cx.select(descriptor, false, false);
            self.connections.remove(at);
        } else {
            cx.select(descriptor, connection.session.wants_input() && !connection.ended, waiting);
        }
    }
}

impl<D: Listener> Element for ControlSocket<D> {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (read_only, verbose) = (&mut self.read_only, &mut self.verbose);
        let more = |args: &mut Args| {
            args.read("READONLY", read_only);
            args.read("VERBOSE", verbose);
            args.read("RETRIES", &mut 0);
            args.read("RETRY_WARNINGS", &mut false);
        };
        self.listener = D::configure(args, more, cx)?;
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.timer = Some(cx.new_timer());
        if cx.has_predecessor() {
            return Ok(());
        }
        self.listener.open(cx)
    }

    /// Continues connections with more work, in turns.
    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        let unfinished = self.connections.iter().position(|connection| connection.session.is_unfinished());
        let Some(at) = unfinished else { return };
        self.connections[at..].rotate_left(1);
        self.serve(self.connections.len() - 1, false, cx);
        if self.connections.iter().any(|connection| connection.session.is_unfinished()) {
            cx.set_timer_after(timer, PAUSE);
        }
    }

    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>().filter(|old| old.listener.is_like(&self.listener))
        else {
            // Errors have been reported.
            let _ = self.listener.open(cx);
            return;
        };
        self.listener.take_over(&mut from.listener, cx);
        self.connections = core::mem::take(&mut from.connections);
        for connection in &mut self.connections {
            connection.session.begin_again();
        }
        if let Some(timer) = self.timer {
            cx.set_timer_after(timer, 0);
        }
    }

    fn selected(&mut self, descriptor: i32, readable: bool, _: bool, cx: &mut Context<'_>) {
        match self.connections.iter().position(|connection| connection.stream.descriptor() == descriptor) {
            Some(at) => self.serve(at, readable, cx),
            None => self.accept(cx),
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        ["port", "filename"].map(|name| Handler::read(name, |e: &Self| e.listener.port())).into()
    }

    fn cleanup(&mut self, _: &mut Context<'_>) {
        // Sends the last answers, as far as possible without blocking.
        for connection in &mut self.connections {
            connection.send(usize::MAX);
        }
        self.listener.close();
    }
}
