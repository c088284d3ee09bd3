//! A function in the data path's process, on a worker.

use super::FunctionMessage;
use super::runner::{Ended, Launch, Runner, Tell, What};
use crate::engine::{Inbox, Message};
use ringway_fabric::proto::{FunctionReport, Request};
use ringway_host::send_with;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio::task::JoinHandle;

/// A function that `data` runs. Dropping it ends the function.
pub struct Resident {
    number: u64,
    name: String,
    inbox: Inbox,
    tell: Tell,
    /// Passes connections to its handlers on to `data`, which can't accept any.
    callers: JoinHandle<()>,
}

impl std::fmt::Debug for Resident {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resident").field("name", &self.name).field("number", &self.number).finish()
    }
}

impl Resident {
    /// Makes `data` start the function.
    pub fn start(launch: Launch<'_>) -> io::Result<Resident> {
        let Launch { name, function, number, start, listener, tell, inbox, .. } = launch;
        let (ours, theirs) = UnixStream::pair()?;
        for socket in [&ours, &theirs] {
            socket.set_nonblocking(true)?;
        }
        let listener = listener.try_clone()?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let callers = tokio::spawn(async move {
            loop {
                // Attack: endless connections. One that finds the socket full is closed, and those for which no
                // descriptor is free wait.
                match listener.accept().await {
                    Ok((caller, _)) => {
                        let _ =
                            caller.into_std().map(|caller| send_with(ours.as_fd(), &[0], &[caller.as_fd()]));
                    }
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        });
        let resident = Resident { number, name: name.into(), inbox, tell, callers };
        let (function, handlers) = (Box::new(function.clone()), start.handlers);
        resident.post(Request::StartFunction { number, function, handlers }, vec![theirs.into()]);
        Ok(resident)
    }

    fn post(&self, request: Request, descriptors: Vec<OwnedFd>) {
        let (name, number) = (self.name.clone(), self.number);
        // Once nobody listens, the fabric is going down.
        let _ =
            self.inbox.send(Message::ForFunction { name, number, request: Box::new(request), descriptors });
    }

    fn end(&self) {
        self.callers.abort();
        self.post(Request::StopFunction { number: self.number }, Vec::new());
    }
}

impl Runner for Resident {
    fn pid(&self) -> u32 {
        0
    }

    fn ask_to_end(&self) {
        self.end();
    }

    fn suspend(&self) {
        self.post(Request::SuspendFunction { number: self.number, suspended: true }, Vec::new());
    }

    fn resume(&self) {
        self.post(Request::SuspendFunction { number: self.number, suspended: false }, Vec::new());
    }

    fn kill(&self) {
        self.end();
        (self.tell)(What::Ended(Ended { status: "it was ended".into(), last: String::new() }));
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a report of `data` says about a function.
pub fn report(report: FunctionReport) -> What {
    match report {
        FunctionReport::Up => What::Message(FunctionMessage::Up),
        FunctionReport::Wrong(why) => What::Message(FunctionMessage::Wrong(why)),
        FunctionReport::Ended(status) => What::Ended(Ended { status, last: String::new() }),
    }
}
