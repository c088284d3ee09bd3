//! Open files: sockets, the console, and the two devices that programs open.

use super::abi::{Errno, O_NONBLOCK, O_RDWR, event};
use super::socket::Socket;
use crate::Program;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::task::Waker;

/// Most open files: what Linux permits unless it is told otherwise, and what a `fd_set` has room for. Attack: a peer
/// that connects again and again.
pub(super) const FILES: usize = 1024;
/// Longest line; a longer one becomes several.
const LINE: usize = 4096;

/// A file, which several descriptors may have.
pub(super) struct File {
    pub what: RefCell<What>,
    pub nonblocking: Cell<bool>,
}

/// What a file is.
pub(super) enum What {
    /// Lines for the fabric's log: what was written since the last one ended. Nothing can be read.
    Console(Vec<u8>),
    /// `/dev/null`, and the standard input.
    Null,
    /// `/dev/urandom`.
    Random,
    Socket(Box<Socket>),
}

impl File {
    pub fn new(what: What, nonblocking: bool) -> Rc<File> {
        Rc::new(File { what: RefCell::new(what), nonblocking: Cell::new(nonblocking) })
    }

    /// Uses it as a socket.
    pub fn socket<T>(&self, call: impl FnOnce(&mut Socket) -> Result<T, Errno>) -> Result<T, Errno> {
        match &mut *self.what.borrow_mut() {
            What::Socket(socket) => call(socket),
            _ => Err(Errno::NoSocket),
        }
    }

    /// The events of `poll` that have come, of those that are asked for; errors always are.
    pub fn events(&self, wanted: u16) -> u16 {
        let come = match &mut *self.what.borrow_mut() {
            What::Socket(socket) => socket.events(),
            _ => event::IN | event::RDNORM | event::OUT | event::WRNORM,
        };
        come & (wanted | event::ERR | event::HUP)
    }

    /// Wakes a task when such an event may have come.
    pub fn wait(&self, wanted: u16, waker: &Waker) {
        if let What::Socket(socket) = &*self.what.borrow() {
            socket.wait(wanted, waker);
        }
    }

    /// The flags that `fcntl` shows.
    pub fn flags(&self) -> u64 {
        if self.nonblocking.get() { O_RDWR | O_NONBLOCK } else { O_RDWR }
    }
}

/// Descriptors.
pub(super) struct Files(Vec<Option<Rc<File>>>);

impl Files {
    /// The standard ones.
    pub fn new() -> Files {
        let [output, errors] = [(); 2].map(|()| Some(File::new(What::Console(Vec::new()), false)));
        Files([Some(File::new(What::Null, false)), output, errors].into())
    }

    /// The file of a descriptor.
    pub fn get(&self, descriptor: u64) -> Result<Rc<File>, Errno> {
        // A descriptor is an `int`: the upper half of its register may have anything.
        self.0.get(descriptor as u32 as usize).cloned().flatten().ok_or(Errno::BadFile)
    }

    /// Whether there is room for one more.
    pub fn check_room(&self) -> Result<(), Errno> {
        self.lowest(0).map(drop)
    }

    /// The lowest free descriptor from a number on.
    fn lowest(&self, from: usize) -> Result<usize, Errno> {
        let is_free = |at: &usize| self.0.get(*at).is_none_or(Option::is_none);
        (from..FILES).find(is_free).ok_or(Errno::TooManyFiles)
    }

    /// Opens a file with the lowest free descriptor from a number on.
    pub fn open(&mut self, file: Rc<File>, from: u64) -> Result<u64, Errno> {
        let from = usize::try_from(from).ok().filter(|from| *from < FILES).ok_or(Errno::Invalid)?;
        let at = self.lowest(from)?;
        self.put(at, file);
        Ok(at as u64)
    }

    /// Gives a file this descriptor; what had it is closed.
    pub fn replace(&mut self, file: Rc<File>, descriptor: u64) -> Result<u64, Errno> {
        let at = descriptor as u32 as usize;
        if at >= FILES {
            return Err(Errno::BadFile);
        }
        self.put(at, file);
        Ok(at as u64)
    }

    fn put(&mut self, at: usize, file: Rc<File>) {
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        self.0[at] = Some(file);
    }

    /// Closes a descriptor.
    pub fn close(&mut self, descriptor: u64) -> Result<(), Errno> {
        let slot = self.0.get_mut(descriptor as u32 as usize).and_then(Option::take);
        slot.map(drop).ok_or(Errno::BadFile)
    }

    /// Closes all, and prints the lines that have not ended.
    pub fn close_all(&mut self, program: &Program) {
        for file in self.0.drain(..).flatten() {
            if let What::Console(line) = &mut *file.what.borrow_mut()
                && !line.is_empty()
            {
                print(program, line);
            }
        }
    }
}

fn print(program: &Program, line: &mut Vec<u8>) {
    program.log(format_args!("{}", String::from_utf8_lossy(line)));
    line.clear();
}

/// Adds to the console's line; whole lines go to the log.
pub(super) fn print_lines(program: &Program, line: &mut Vec<u8>, bytes: &[u8]) {
    for part in bytes.split_inclusive(|byte| *byte == b'\n') {
        for part in part.chunks(LINE) {
            if line.len() + part.len() > LINE + 1 {
                print(program, line);
            }
            line.extend_from_slice(part);
        }
        if line.last() == Some(&b'\n') {
            print(program, line);
        }
    }
}
