//! The first process of the guest: it prepares the guest for a program, runs it, and passes its input, its output and
//! its signals on, until it has ended. It is this program again, started by the guest's kernel.

use super::message::{Messages, from_guest, message, number, to_guest};
use super::order::Order;
use super::setup;
use super::{FIRST, LINE};
use crate::kernel_sockets::KernelSockets;
use ringway_host::{
    HostError, ProgramStart, SignalFd, Terminal, open_terminal, pass_signal, set_nonblocking, signal_all,
    start_program,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus};
use rustix::termios::{OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes for the line that are kept; then the program's output waits.
const KEPT: usize = 64 << 10;
/// Bytes that are read at once.
const PIECE: usize = 16 << 10;
/// Bytes of standard input that may be on their way. The line's buffer has 4096: if it is nearly full, User-Mode Linux
/// stops reading, and may not notice that it can go on.
pub const WINDOW: u32 = 2 << 10;
/// How often it is looked whether peers have acknowledged what the program wrote.
const LOOK: Duration = Duration::from_millis(2);
const CHLD: i32 = 17;
const KILL: i32 = 9;

/// Does the work of the first process and never returns, if this is one.
pub fn be_first_process() {
    let words: Vec<_> = std::env::args_os().collect();
    if let [_, first, order] = words.as_slice()
        && std::process::id() == 1
        && first == FIRST
    {
        // The kernel says that the first process has ended.
        run(Path::new(order)).unwrap_or_else(|error| eprintln!("ringway: {error}"));
        std::process::exit(1);
    }
}

fn run(order: &Path) -> Result<(), String> {
    let bytes = std::fs::read(order).map_err(|error| format!("{}: {error}", order.display()))?;
    let order = Order::of(&bytes).ok_or("the order of another version")?;
    let line = open_line().map_err(|error| format!("{LINE}: {error}"))?;
    let mut run = Run::new(line);
    match setup::prepare(&order).and_then(|()| run.start(&order)) {
        Ok(()) => run.serve(),
        Err(text) => {
            run.tell(from_guest::FAILED, text.as_bytes());
            run.rest()
        }
    }
    .map_err(|error| error.to_string())
}

/// The serial line, whose bytes pass unchanged.
fn open_line() -> Result<OwnedFd, HostError> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let call = |call| move |error| HostError::Call { call, error };
    let line = rustix::fs::open(LINE, flags, Mode::empty()).map_err(call("opening it"))?;
    let mut settings = tcgetattr(&line).map_err(call("tcgetattr"))?;
    settings.make_raw();
    tcsetattr(&line, OptionalActions::Now, &settings).map_err(call("tcsetattr"))?;
    Ok(line)
}

/// What the program writes to, and how it is told.
struct Output {
    kind: u8,
    from: OwnedFd,
}

/// The program, and what is on its way to it and from it.
struct Run {
    line: OwnedFd,
    messages: Messages,
    /// Bytes for the line.
    out: VecDeque<u8>,
    /// The program's standard input, unless it is at its end.
    input: Option<OwnedFd>,
    typed: VecDeque<u8>,
    /// Nothing follows it.
    typed_end: bool,
    outputs: Vec<Output>,
    screen: Option<OwnedFd>,
    program: Option<Pid>,
    ended: Option<WaitStatus>,
    /// A signal came that ends waiting for peers.
    is_hurried: bool,
}

impl Run {
    fn new(line: OwnedFd) -> Run {
        Run {
            line,
            messages: Messages::default(),
            out: VecDeque::new(),
            input: None,
            typed: VecDeque::new(),
            typed_end: false,
            outputs: Vec::new(),
            screen: None,
            program: None,
            ended: None,
            is_hurried: false,
        }
    }

    fn tell(&mut self, kind: u8, bytes: &[u8]) {
        self.out.extend(message(kind, bytes));
    }

    /// Starts the program. One that can't be executed is told, and is no error.
    fn start(&mut self, order: &Order) -> Result<(), String> {
        let failed = |error: std::io::Error| error.to_string();
        let terminal = match order.terminal.contains(&true) {
            true => Some(open_terminal().map_err(|error| error.to_string())?),
            false => None,
        };
        let (input, typing) = std::io::pipe().map_err(failed)?;
        let (output, out) = std::io::pipe().map_err(failed)?;
        let (errors, err) = std::io::pipe().map_err(failed)?;
        let pipes: [OwnedFd; 3] = [input.into(), out.into(), err.into()];
        let standard = [0, 1, 2].map(|at| match &terminal {
            Some(terminal) if order.terminal[at] => terminal.program.as_fd(),
            _ => pipes[at].as_fd(),
        });
        if let Some(terminal) = &terminal {
            resize(terminal.screen.as_fd(), order.size);
        }
        let start = ProgramStart {
            words: order.words.clone(),
            variables: order.variables.clone(),
            folder: order.folder.clone(),
            user: order.user,
            group: order.group,
            groups: order.groups.clone(),
            limits: order.limits.iter().map(|limit| limit.resource()).collect(),
            umask: order.umask,
            terminal: order.terminal.iter().position(|is_one| *is_one),
        };
        match start_program(&start, standard) {
            Ok(process) => self.program = Some(process),
            Err(error) => {
                self.tell(from_guest::REFUSED, &error.raw_os_error().to_le_bytes());
                return Ok(());
            }
        }
        self.keep(order, [typing.into(), output.into(), errors.into()], terminal)?;
        self.tell(from_guest::STARTED, &[]);
        self.tell(from_guest::ROOM, &WINDOW.to_le_bytes());
        Ok(())
    }

    /// Keeps our ends of the program's descriptors.
    fn keep(&mut self, order: &Order, pipes: [OwnedFd; 3], terminal: Option<Terminal>) -> Result<(), String> {
        let [typing, output, errors] = pipes;
        let [is_typed, shows, shows_errors] = order.terminal;
        let screen = terminal.map(|terminal| terminal.screen);
        let copy = || screen.as_ref().map(|screen| screen.try_clone()).transpose();
        let text = |error: std::io::Error| error.to_string();
        self.input = if is_typed { copy().map_err(text)? } else { Some(typing) };
        if let Some(from) = copy().map_err(text)? {
            self.outputs.push(Output { kind: from_guest::OUTPUT, from });
        }
        if !shows {
            self.outputs.push(Output { kind: from_guest::OUTPUT, from: output });
        }
        if !shows_errors {
            self.outputs.push(Output { kind: from_guest::ERRORS, from: errors });
        }
        self.screen = screen;
        let all = self.outputs.iter().map(|output| &output.from).chain(&self.input);
        all.into_iter().try_for_each(|end| set_nonblocking(end.as_fd())).map_err(|error| error.to_string())
    }

    /// Serves the program until it has ended, tells how, and waits to be ended with the guest.
    fn serve(&mut self) -> Result<(), HostError> {
        let children = SignalFd::new(&[CHLD])?;
        while self.program.is_some() {
            self.collect();
            if self.ended.is_some() && self.outputs.is_empty() {
                break;
            }
            self.turn(Some(children.as_fd()), None)?;
            // Whoever ends from now on signals again.
            while children.next().is_some() {}
        }
        if let Some(status) = self.ended {
            self.drain()?;
            // What the guest has of written files.
            rustix::fs::sync();
            match status.terminating_signal() {
                Some(signal) => self.tell(from_guest::KILLED, &signal.to_le_bytes()),
                None => {
                    let status = status.exit_status().unwrap_or(0);
                    self.tell(from_guest::ENDED, &status.to_le_bytes());
                }
            }
        }
        self.rest()
    }

    /// Waits to be ended.
    fn rest(&mut self) -> Result<(), HostError> {
        loop {
            self.turn(None, None)?;
        }
    }

    /// Learns which processes have ended. If the program has, the others are ended.
    fn collect(&mut self) {
        while let Ok(Some((process, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if Some(process) == self.program {
                self.ended = Some(status);
            }
        }
        if self.ended.is_some() {
            signal_all(KILL);
            self.input = None;
        }
    }

    /// Waits until peers have acknowledged what the program wrote.
    fn drain(&mut self) -> Result<(), HostError> {
        let mut sockets = KernelSockets::own();
        while !self.is_hurried && sockets.is_draining(Instant::now()) {
            self.turn(None, Some(LOOK))?;
        }
        Ok(())
    }

    /// Waits for something, and does it.
    fn turn(&mut self, children: Option<BorrowedFd<'_>>, most: Option<Duration>) -> Result<(), HostError> {
        let line = PollFlags::IN | if self.out.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let mut polled = vec![PollFd::new(&self.line, line)];
        polled.extend(children.map(|children| PollFd::from_borrowed_fd(children, PollFlags::IN)));
        let reads = self.out.len() < KEPT;
        let outputs = self.outputs.iter().filter(|_| reads);
        polled.extend(outputs.map(|output| PollFd::new(&output.from, PollFlags::IN)));
        let input = self.input.iter().filter(|_| !self.typed.is_empty());
        polled.extend(input.map(|input| PollFd::new(input, PollFlags::OUT)));
        let most = most.and_then(|most| Timespec::try_from(most).ok());
        match poll(&mut polled, most.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(HostError::Call { call: "poll", error }),
        }
        drop(polled);
        self.read_line()?;
        self.type_in();
        if reads {
            self.read_outputs();
        }
        self.write_line()
    }

    fn read_line(&mut self) -> Result<(), HostError> {
        let mut bytes = [0; 4096];
        match rustix::io::read(&self.line, &mut bytes) {
            Ok(count) => self.messages.extend(&bytes[..count]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(HostError::Call { call: "reading the line", error }),
        }
        let wrong = |_| HostError::Call { call: "reading the line", error: Errno::PROTO };
        while let Some((kind, bytes)) = self.messages.next().map_err(wrong)? {
            match kind {
                to_guest::INPUT if bytes.is_empty() => self.end_input(),
                to_guest::INPUT => self.typed.extend(bytes),
                to_guest::SIGNAL => self.signal(number(&bytes) as i32),
                to_guest::SIZE => {
                    if let Some(screen) = &self.screen {
                        let columns = number(bytes.get(4..).unwrap_or_default());
                        resize(screen.as_fd(), (number(&bytes) as u16, columns as u16));
                    }
                }
                to_guest::CLOSED => self.outputs.retain(|output| Some(&output.kind) != bytes.first()),
                _ => return Err(wrong(super::message::TooLong)),
            }
        }
        Ok(())
    }

    /// Standard input is at its end: a pipe is closed when the rest is in it.
    fn end_input(&mut self) {
        match &self.input {
            Some(_) if self.typed.is_empty() => self.input = None,
            _ => self.typed_end = true,
        }
    }

    fn signal(&mut self, signal: i32) {
        match (self.program, self.ended) {
            (Some(program), None) => pass_signal(program, signal),
            _ => self.is_hurried |= crate::run::ENDING.contains(&signal),
        }
    }

    /// Gives the program its input.
    fn type_in(&mut self) {
        let Some(input) = &self.input else {
            // Nobody reads it any more.
            return self.typed.clear();
        };
        let (front, _) = self.typed.as_slices();
        if front.is_empty() {
            return;
        }
        match rustix::io::write(input, front) {
            Ok(count) => {
                self.typed.drain(..count);
                self.tell(from_guest::ROOM, &(count as u32).to_le_bytes());
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.input = None,
        }
        if self.typed.is_empty() && self.typed_end {
            self.input = None;
        }
    }

    fn read_outputs(&mut self) {
        let mut bytes = vec![0; PIECE];
        let out = &mut self.out;
        self.outputs.retain(|output| match rustix::io::read(&output.from, &mut bytes) {
            // A terminal that no program has is one that can't be read.
            Ok(0) | Err(Errno::IO) => false,
            Ok(count) => {
                out.extend(message(output.kind, &bytes[..count]));
                true
            }
            Err(_) => true,
        });
    }

    fn write_line(&mut self) -> Result<(), HostError> {
        let (front, _) = self.out.as_slices();
        if front.is_empty() {
            return Ok(());
        }
        match rustix::io::write(&self.line, front) {
            Ok(count) => _ = self.out.drain(..count),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(HostError::Call { call: "writing to the line", error }),
        }
        Ok(())
    }
}

fn resize(screen: BorrowedFd<'_>, (rows, columns): (u16, u16)) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // A terminal without a size works as well.
    let _ = tcsetwinsize(screen, size);
}
