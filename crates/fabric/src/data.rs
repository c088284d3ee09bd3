//! The `data` process: a fabric, told what to do over the link.

use crate::fabric::{Fabric, FabricError};
use crate::link::{Link, LinkError};
use crate::page::SharedPage;
use crate::proto::{Call, Reply, Request, Said};
use ringway_host::{Clock, HostError, wait_readable};
use ringway_port::Kind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Why `data` ended.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The link to `control` broke.
    #[error("the link to the control process: {0}")]
    Link(#[from] LinkError),
    /// The first message was not `start`, or lacked the counters page.
    #[error("the control process did not begin with `start` and the counters page")]
    NotStarted,
    /// The fabric could not start.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The system refused.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Runs the `data` process over `socket`, its end of the link, until `control` says stop or is gone. Its ports are of
/// [`ringway_port::KINDS`] and of `more`.
pub fn run(socket: OwnedFd, more: &'static [Kind]) -> Result<(), DataError> {
    let link = Link::new(socket);
    let (call, descriptors) = link.receive::<Call>()?;
    let Request::Start { workers, counters } = call.request else { return Err(DataError::NotStarted) };
    let page = descriptors.into_iter().next().ok_or(DataError::NotStarted)?;
    let page = Arc::new(SharedPage::map(page, counters as usize)?);
    let seed = ringway_host::random()?;
    ringway_host::catch_sigbus()?;
    // Before the first thread is made, so that every thread has it.
    ringway_host::confine_data()?;
    let mut data = Data { fabric: Fabric::start(&workers, page, seed, more)?, link };
    data.link.send(&Said::Reply { id: call.id, reply: Reply::Done }, &[])?;
    data.serve()
}

/// Whatever happens, peers are looked at after so many nanoseconds: a worker doesn't tell of a guest's fault.
const ROUND: u64 = 500_000_000;

/// When all peers were last looked at.
struct Round(u64);

impl Round {
    /// Whether other descriptors must be polled again: nothing else is left to do, or the last poll was long
    /// ago. Attack: a front-end that sends endlessly, so that other front-ends are never served.
    fn is_over(&mut self, now: u64, ready: &[bool]) -> bool {
        let is_over = now.saturating_sub(self.0) >= ROUND || !ready.contains(&true);
        if is_over {
            self.0 = now;
        }
        is_over
    }
}

struct Data {
    fabric: Fabric,
    link: Link,
}

impl Data {
    fn serve(&mut self) -> Result<(), DataError> {
        let clock = Clock::new();
        let mut round = Round(clock.now());
        loop {
            let (ids, mut sockets): (Vec<_>, Vec<_>) = self.fabric.sessions().unzip();
            sockets.splice(0..0, [self.link.as_fd(), self.fabric.bell().as_fd()]);
            let ready = wait_readable(&sockets, Some(ROUND))?;
            drop(sockets);
            let mut events = Vec::new();
            for (id, _) in ids.iter().zip(&ready[2..]).filter(|(_, ready)| **ready) {
                events.extend(self.fabric.serve(*id));
            }
            if round.is_over(clock.now(), &ready) || ready[1] {
                events.extend(self.fabric.check());
            }
            for event in events {
                self.link.send(&Said::Event(event), &[])?;
            }
            if ready[0] {
                let (call, descriptors) = match self.link.receive::<Call>() {
                    Ok(received) => received,
                    // `control` is gone, and with it everyone who could tell us anything.
                    Err(LinkError::Closed) => return Ok(()),
                    Err(error) => return Err(error.into()),
                };
                if call.request == Request::Stop {
                    self.link.send(&Said::Reply { id: call.id, reply: Reply::Done }, &[])?;
                    return Ok(());
                }
                let reply = self.obey(call.request, descriptors).unwrap_or_else(|error| {
                    // `control` logs it, as often as its port may be logged about.
                    tracing::debug!(%error, "a change was refused");
                    Reply::Refused(error.to_string())
                });
                self.link.send(&Said::Reply { id: call.id, reply }, &[])?;
            }
        }
    }

    fn obey(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> Result<Reply, FabricError> {
        match request {
            Request::Start { .. } => return Err(FabricError::Limit("the fabric is started already")),
            Request::AddSwitch(switch) => self.fabric.add_switch(switch)?,
            Request::RemoveSwitch { name } => self.fabric.remove_switch(&name)?,
            Request::AddPort { port, counters } => self.fabric.add_port(port, counters)?,
            Request::RemovePort { name } => self.fabric.remove_port(&name)?,
            Request::Attach { port } => self.fabric.attach(&port, descriptors)?,
            Request::Detach { port } => self.fabric.detach(&port)?,
            Request::Watch { worker, thread } => {
                let files = descriptors.try_into();
                let files = files.map_err(|_| FabricError::Limit("two files belong to a thread"))?;
                self.fabric.watch(&worker, thread, files)?;
            }
            Request::State => return Ok(Reply::State(self.fabric.state())),
            Request::Table { switch } => return Ok(Reply::Table(self.fabric.table(&switch)?)),
            Request::Stop => {}
        }
        Ok(Reply::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_looked_at_though_one_is_always_ready() {
        let mut round = Round(7);
        let busy = [false, false, true];
        assert!(!round.is_over(7 + ROUND - 1, &busy));
        assert!(round.is_over(7 + ROUND, &busy));
        assert!(!round.is_over(8 + ROUND, &busy));
        assert!(round.is_over(8 + ROUND, &[false; 3]));
    }
}
