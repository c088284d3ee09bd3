//! The two ends of a pipe, as `control` sees them. Nothing here blocks.

use crate::ring::open::{GreetError, Made, Newcomer, hand_over, is_gone};
use ringway_host::{EventFd, PageChoice, Pages};
use ringway_ring::{Geometry, Hello, RingKind, RingMemory};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Why a program can't be attached to a pipe.
#[derive(Debug, thiserror::Error)]
pub enum PipeError {
    /// The pipe has two programs already.
    #[error("two programs are on the pipe already")]
    Taken,
    /// The program's ring can't be created, or the program hung up.
    #[error(transparent)]
    Greet(#[from] GreetError),
}

#[derive(Debug)]
struct End {
    socket: UnixStream,
    hello: Hello,
}

#[derive(Debug)]
struct Joined {
    /// Both programs have its file.
    memory: RingMemory,
    signals: [EventFd; 2],
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.memory.close();
        self.signals.iter().for_each(|signal| ringway_host::signal_once(signal.as_fd()));
    }
}

/// A pipe and the programs attached to it.
#[derive(Debug)]
pub struct Pipe {
    otherwise: Geometry,
    pages: PageChoice,
    ends: [Option<End>; 2],
    joined: Option<Joined>,
}

impl Pipe {
    /// A pipe without programs. `otherwise` has the sizes for programs that leave them open.
    pub fn new(otherwise: Geometry) -> Pipe {
        Pipe { otherwise, pages: PageChoice::Only(Pages::Base), ends: [None, None], joined: None }
    }

    /// Puts the pipe's memory in pages of the given kind.
    pub fn in_pages(self, pages: PageChoice) -> Pipe {
        Pipe { pages, ..self }
    }

    /// Gives a newcomer, which sent `hello`, the free end. Once both ends are taken, both get their memory, with the
    /// sizes requested by the first.
    pub fn join(&mut self, newcomer: Newcomer, hello: Hello) -> Result<(), PipeError> {
        self.sweep();
        if let Err(error) = hello.geometry(RingKind::Pipe, &self.otherwise).header() {
            return Ok(newcomer.fail(error.into())?);
        }
        let Some(free) = self.ends.iter_mut().find(|end| end.is_none()) else {
            newcomer.refuse(&PipeError::Taken.to_string());
            return Err(PipeError::Taken);
        };
        *free = Some(End { socket: newcomer.into_socket(), hello });
        self.connect()
    }

    fn connect(&mut self) -> Result<(), PipeError> {
        let [Some(first), Some(second)] = &self.ends else { return Ok(()) };
        let made = || -> Result<(Made, [EventFd; 2]), GreetError> {
            let made = Made::new(&first.hello.geometry(RingKind::Pipe, &self.otherwise), self.pages)?;
            Ok((made, [EventFd::new()?, EventFd::new()?]))
        };
        let (made, signals) = match made() {
            Ok(made) => made,
            Err(error) => {
                error.tell(&first.socket);
                error.tell(&second.socket);
                self.ends = [None, None];
                return Err(error.into());
            }
        };
        let [one, two] = &signals;
        let gone = [
            hand_over(&first.socket, 0, &made, one, two).is_err(),
            hand_over(&second.socket, 1, &made, two, one).is_err(),
        ];
        self.joined = Some(Joined { memory: made.memory, signals });
        for (end, gone) in gone.into_iter().enumerate() {
            if gone {
                self.leave(end);
            }
        }
        Ok(())
    }

    /// Checks which programs hung up; returns whether any did. Call it when a socket of [`Pipe::sockets`] is
    /// readable.
    pub fn sweep(&mut self) -> bool {
        let gone = [0, 1].map(|end| self.ends[end].as_ref().is_some_and(|end| is_gone(&end.socket)));
        for (end, gone) in gone.into_iter().enumerate() {
            if gone {
                self.leave(end);
            }
        }
        gone.contains(&true)
    }

    /// Detaches one program, and revokes the other's memory.
    fn leave(&mut self, end: usize) {
        self.ends[end & 1] = None;
        self.joined = None;
    }

    /// Number of programs attached to the pipe.
    pub fn programs(&self) -> usize {
        self.ends.iter().flatten().count()
    }

    /// Whether frames can pass.
    pub fn is_joined(&self) -> bool {
        self.joined.is_some()
    }

    /// The programs' sockets, which become readable when they hang up.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ends.iter().flatten().map(|end| end.socket.as_fd())
    }
}
