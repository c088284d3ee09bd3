//! Between the user and the guest: standard input, output, signals, and the end.

use super::message::{Messages, from_guest, message, number, to_guest};
use super::terminal::{Raw, size_of};
use super::{LinuxError, Machine};
use crate::run::{ENDING, Ended, ExecError, Options, signals as number_of};
use ringway_host::{LaunchError, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, kill_process_group};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Attack: a guest that writes without end to its console. Bytes at its end that are kept.
const CONSOLE: usize = 8 << 10;
/// Bytes of output that are kept while nobody reads them; then the guest waits.
const KEPT: usize = 64 << 10;
/// Bytes that a descriptor takes without waiting if it is writable (`PIPE_BUF`).
const SURE: usize = 4096;
/// Characters of a line of the console that are shown.
const SHOWN: usize = 300;
/// How long the guest's last lines may take after its end.
const REST: Duration = Duration::from_millis(300);

/// One of the user's outputs.
struct Sink {
    kind: u8,
    left: VecDeque<u8>,
    is_closed: bool,
}

/// What passes between the user and the guest.
pub struct Relay<'a> {
    machine: Machine,
    options: &'a Options,
    signals: &'a SignalFd,
    messages: Messages,
    sinks: [Sink; 2],
    /// Bytes of standard input that the guest has room for.
    room: usize,
    is_read: bool,
    is_started: bool,
    /// Signals that came before the program was there.
    early: Vec<i32>,
    console: VecDeque<u8>,
    is_console_closed: bool,
    kill_at: Option<Instant>,
    /// The guest was ended and waited for.
    is_over: bool,
    _raw: Raw,
}

impl<'a> Relay<'a> {
    pub fn new(
        machine: Machine,
        options: &'a Options,
        signals: &'a SignalFd,
    ) -> Result<Relay<'a>, ExecError> {
        let sink = |kind| Sink { kind, left: VecDeque::new(), is_closed: false };
        Ok(Relay {
            _raw: Raw::of_input(machine.terminal[0]),
            machine,
            options,
            signals,
            messages: Messages::default(),
            sinks: [from_guest::OUTPUT, from_guest::ERRORS].map(sink),
            room: 0,
            is_read: false,
            is_started: false,
            early: Vec::new(),
            console: VecDeque::new(),
            is_console_closed: false,
            kill_at: None,
            is_over: false,
        })
    }

    /// Serves until the program has ended. The guest ends with this.
    pub fn run(mut self) -> Result<Ended, ExecError> {
        loop {
            self.wait()?;
            self.pass_signals()?;
            if !self.is_started
                && let Some(signal) = self.early.iter().find(|signal| ENDING.contains(signal))
            {
                return Ok(Ended::Signal(*signal));
            }
            self.read_console();
            self.write_sinks()?;
            self.read_input()?;
            if self.sinks.iter().all(|sink| sink.left.len() < KEPT)
                && let Some(ended) = self.read_guest()?
            {
                self.finish_sinks()?;
                return Ok(ended);
            }
        }
    }

    /// Waits until something can be done.
    fn wait(&mut self) -> Result<(), ExecError> {
        let pipes = &self.machine.pipes;
        let mut polled = vec![PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)];
        if !self.is_console_closed {
            polled.push(PollFd::from_borrowed_fd(pipes.errors.as_fd(), PollFlags::IN));
        }
        if self.sinks.iter().all(|sink| sink.left.len() < KEPT) {
            polled.push(PollFd::from_borrowed_fd(pipes.output.as_fd(), PollFlags::IN));
        }
        let (input, output, errors) = (io::stdin(), io::stdout(), io::stderr());
        if self.room > 0 && !self.is_read {
            polled.push(PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN));
        }
        for (sink, end) in self.sinks.iter().zip([output.as_fd(), errors.as_fd()]) {
            // One whose reader has gone is told, too.
            if !sink.is_closed && !sink.left.is_empty() {
                polled.push(PollFd::from_borrowed_fd(end, PollFlags::OUT));
            }
        }
        let left = self.kill_at.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut polled, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(LinuxError::Call { call: "poll", error }.into()),
        }
    }

    fn tell(&mut self, kind: u8, bytes: &[u8]) {
        // A guest that has ended is noticed by its output.
        let _ = self.machine.pipes.input.write_all(&message(kind, bytes));
    }

    fn pass_signals(&mut self) -> Result<(), ExecError> {
        if self.kill_at.is_some_and(|end| Instant::now() >= end) {
            self.kill_at = None;
            self.tell(to_guest::SIGNAL, &number_of::KILL.to_le_bytes());
        }
        while let Some(signal) = self.signals.next() {
            match signal.number {
                number_of::CHLD => {}
                number_of::WINCH => {
                    let (rows, columns) = size_of(self.machine.terminal);
                    let words = [u32::from(rows), u32::from(columns)];
                    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                    self.tell(to_guest::SIZE, &bytes);
                }
                number if self.is_started => self.signal(number),
                number => self.early.push(number),
            }
        }
        Ok(())
    }

    fn signal(&mut self, number: i32) {
        self.tell(to_guest::SIGNAL, &number.to_le_bytes());
        if number == number_of::TERM {
            self.kill_at = self.kill_at.or(self.options.kill_after.map(|time| Instant::now() + time));
        }
    }

    /// Passes standard input on, as far as the guest has room.
    fn read_input(&mut self) -> Result<(), ExecError> {
        let input = io::stdin();
        if self.room == 0 || self.is_read || !is_ready(input.as_fd(), PollFlags::IN) {
            return Ok(());
        }
        let mut bytes = vec![0; self.room.min(SURE)];
        match rustix::io::read(&input, &mut bytes) {
            Ok(count) => {
                self.is_read = count == 0;
                self.room -= count;
                self.tell(to_guest::INPUT, &bytes[..count]);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // As a terminal that is gone.
            Err(_) => {
                self.is_read = true;
                self.tell(to_guest::INPUT, &[]);
            }
        }
        Ok(())
    }

    /// What the guest has sent; how the program has ended, if it has.
    fn read_guest(&mut self) -> Result<Option<Ended>, ExecError> {
        let output = self.machine.pipes.output.as_fd();
        if !is_ready(output, PollFlags::IN) {
            return Ok(None);
        }
        let mut bytes = vec![0; KEPT];
        match rustix::io::read(output, &mut bytes) {
            Ok(0) => return Err(self.end().into()),
            Ok(count) => self.messages.extend(&bytes[..count]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(LinuxError::Call { call: "reading from the guest", error }.into()),
        }
        loop {
            match self.messages.next() {
                Ok(None) => return Ok(None),
                Ok(Some((kind, bytes))) => {
                    if let Some(ended) = self.take(kind, &bytes)? {
                        return Ok(Some(ended));
                    }
                }
                Err(_) => return Err(LinuxError::Message { last: self.last_line() }.into()),
            }
        }
    }

    fn take(&mut self, kind: u8, bytes: &[u8]) -> Result<Option<Ended>, ExecError> {
        match kind {
            from_guest::OUTPUT | from_guest::ERRORS => {
                let sink = self.sinks.iter_mut().find(|sink| sink.kind == kind && !sink.is_closed);
                sink.into_iter().for_each(|sink| sink.left.extend(bytes));
            }
            // Attack: a guest that says it has room for all that is there.
            from_guest::ROOM => {
                self.room = (self.room + number(bytes) as usize).min(super::first::WINDOW as usize);
            }
            from_guest::STARTED => {
                self.is_started = true;
                std::mem::take(&mut self.early).into_iter().for_each(|number| self.signal(number));
            }
            from_guest::REFUSED => {
                let program = self.options.program.first().cloned().unwrap_or_default();
                let error = Errno::from_raw_os_error(number(bytes).clamp(1, 4095) as i32);
                let program = program.to_string_lossy().into_owned();
                return Err(LaunchError::Program { program, error }.into());
            }
            from_guest::FAILED => {
                return Err(LinuxError::Prepare(plain(&String::from_utf8_lossy(bytes))).into());
            }
            from_guest::ENDED => return Ok(Some(Ended::Status(number(bytes) as u8))),
            from_guest::KILLED => return Ok(Some(Ended::Signal(number(bytes).clamp(1, 64) as i32))),
            _ => return Err(LinuxError::Message { last: self.last_line() }.into()),
        }
        Ok(None)
    }

    fn write_sinks(&mut self) -> Result<(), ExecError> {
        let (output, errors) = (io::stdout(), io::stderr());
        let mut closed = Vec::new();
        for (sink, end) in self.sinks.iter_mut().zip([output.as_fd(), errors.as_fd()]) {
            let (front, _) = sink.left.as_slices();
            if front.is_empty() || sink.is_closed || !is_ready(end, PollFlags::OUT) {
                continue;
            }
            match rustix::io::write(end, &front[..front.len().min(SURE)]) {
                Ok(count) => _ = sink.left.drain(..count),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => {
                    (sink.is_closed, sink.left) = (true, VecDeque::new());
                    closed.push(sink.kind);
                }
            }
        }
        closed.into_iter().for_each(|kind| self.tell(to_guest::CLOSED, &[kind]));
        Ok(())
    }

    /// Writes the rest, whatever time that takes; a signal ends it.
    fn finish_sinks(&mut self) -> Result<(), ExecError> {
        while self.sinks.iter().any(|sink| !sink.left.is_empty()) {
            self.wait()?;
            self.write_sinks()?;
            self.read_console();
            let ends = |signal: ringway_host::Arrived| ENDING.contains(&signal.number);
            if self.signals.next().is_some_and(ends) {
                break;
            }
        }
        Ok(())
    }

    fn read_console(&mut self) {
        let mut bytes = [0; 4096];
        let errors = self.machine.pipes.errors.as_fd();
        if self.is_console_closed || !is_ready(errors, PollFlags::IN) {
            return;
        }
        if let Ok(count) = rustix::io::read(errors, &mut bytes) {
            self.is_console_closed = count == 0;
            self.console.extend(&bytes[..count]);
            let more = self.console.len().saturating_sub(CONSOLE);
            self.console.drain(..more);
        }
    }

    /// The last line of the console that says something: a panic, if there was one.
    fn last_line(&mut self) -> String {
        let bytes: Vec<u8> = self.console.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<String> = text.lines().map(plain).filter(|line| !line.trim().is_empty()).collect();
        let panic = lines.iter().find(|line| line.contains("Kernel panic"));
        panic.or(lines.last()).cloned().unwrap_or_else(|| "its console is empty".into())
    }

    /// Why the guest has ended.
    fn end(&mut self) -> LinuxError {
        let until = Instant::now() + REST;
        while Instant::now() < until && !self.is_console_closed {
            self.read_console();
        }
        // If only its line is closed, it is ended.
        let status = self.end_guest();
        LinuxError::Ended { status, last: self.last_line() }
    }

    /// Ends the guest, with all of its processes: they are in a namespace whose first process it is.
    fn end_guest(&mut self) -> String {
        // It has not been waited for, so that the number is still its own.
        let _ = kill_process_group(self.machine.jailed.process(), Signal::KILL);
        self.is_over = true;
        self.machine.jailed.wait().to_string()
    }
}

impl Drop for Relay<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.end_guest();
        }
    }
}

/// Attack: a guest that writes escape sequences would control the terminal of whoever reads its last line.
fn plain(line: &str) -> String {
    line.chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}

fn is_ready(descriptor: BorrowedFd<'_>, what: PollFlags) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(descriptor, what)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}
