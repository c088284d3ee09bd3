//! Programs as peers of a port.

use super::open::take_pool;
use super::{Config, Fault, RingPort};
use crate::frame_queue::Inside;
use crate::peer::{Alarm, Context, Gone, Peer, PeerError, PortKind, State, exactly};
use crate::{Doorbell, Queue, Silent};
use ringway_frame::CountersRef;
use ringway_host::{Clock, Duplicates};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// A program.
pub const KIND: PortKind = PortKind { name: "ring", open };

struct Program {
    port: RingPort,
    alarm: Arc<Alarm>,
    attached: bool,
    duplicates: Duplicates,
}

fn open(context: Context<'_>) -> Result<(Box<dyn Peer>, Vec<Queue>), PeerError> {
    let alarm = Alarm::new(context.check);
    let raised = alarm.clone();
    let broken = move |fault: Fault| raised.raise(Gone { reason: fault.to_string(), fault: true, rest: 0 });
    let policy = context.policy();
    let silent: Arc<dyn Doorbell> = Arc::new(Silent);
    let config = Config {
        counters: context.counters.first().cloned().unwrap_or_else(CountersRef::private),
        doorbell: context.doorbells.into_iter().next().unwrap_or(silent),
        broken: Arc::new(broken),
        policy,
    };
    let (port, queues) = RingPort::new(config);
    Ok((Box::new(Program { port, alarm, attached: false, duplicates: Duplicates::default() }), queues))
}

impl Peer for Program {
    fn attach(&mut self, mut descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        let pool = take_pool(&mut descriptors);
        let [memory, kick, call] = exactly(KIND.name, descriptors)?;
        if let Some(function) = self.port.function() {
            return Err(PeerError::kind(format!("function {function} has the port")));
        }
        if self.duplicates.is_stuck() {
            return Err(PeerError::kind("eventfds of former programs can't be closed; try again later"));
        }
        for fd in [&kick, &call] {
            self.duplicates.keep(fd.as_fd(), std::iter::empty()).map_err(PeerError::kind)?;
        }
        let memory = super::open::attach(&memory, pool.as_ref());
        let memory = memory.map_err(|error| PeerError::kind(format!("the ring: {error}")))?;
        let attached = self.port.attach(memory, kick, call);
        attached.map_err(|error| PeerError::kind(format!("the program's eventfd is {error}")))?;
        self.attached = true;
        Ok(())
    }

    fn detach(&mut self) {
        self.port.detach();
        self.duplicates.release();
        self.attached = false;
    }

    fn join(&mut self, inside: Arc<Inside>) -> Result<(), PeerError> {
        // A program that is attached keeps the port until it leaves.
        self.port.join(Some(inside), self.attached);
        Ok(())
    }

    fn leave(&mut self, inside: &Arc<Inside>) {
        self.port.leave(inside, self.attached);
    }

    fn is_quiet(&self) -> bool {
        self.port.is_quiet()
    }

    fn check(&mut self) -> Result<(), Gone> {
        let Some(gone) = self.alarm.take() else { return Ok(()) };
        self.detach();
        Err(Gone { rest: self.port.rest(Clock::new().now()), ..gone })
    }

    fn shares_memory(&self) -> bool {
        true
    }

    fn state(&self) -> (State, String) {
        match self.port.function().filter(|_| !self.attached) {
            Some(function) => (State::Up, format!("function {function}")),
            None => (if self.attached { State::Up } else { State::Waiting }, String::new()),
        }
    }
}
