//! Interfaces as peers of a port.

use super::{Config, Lost, Settings, TapPort};
use crate::Queue;
use crate::peer::{Alarm, Context, Gone, Peer, PeerError, PortKind, State};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The host's stack.
pub const KIND: PortKind = PortKind { name: "tap", open };

struct Stack {
    port: TapPort,
    alarm: Arc<Alarm>,
}

fn open(context: Context<'_>) -> Result<(Box<dyn Peer>, Vec<Queue>), PeerError> {
    let settings: Settings = context.port.kind.settings()?;
    let alarm = Alarm::new(context.check);
    let raised = alarm.clone();
    let lost: Lost = Arc::new(move || {
        raised.raise(Gone { reason: "the interface is gone".into(), fault: false, rest: 0 })
    });
    let config = Config { mtu: settings.mtu, offloads: settings.offloads };
    let (port, queues) = TapPort::new(config, context.doorbells, context.counters, &lost)?;
    Ok((Box::new(Stack { port, alarm }), queues))
}

impl Peer for Stack {
    fn attach(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        self.port.attach(descriptors).map_err(PeerError::kind)
    }

    fn detach(&mut self) {
        self.port.detach();
    }

    fn check(&mut self) -> Result<(), Gone> {
        let Some(gone) = self.alarm.take() else { return Ok(()) };
        self.port.detach();
        Err(gone)
    }

    fn state(&self) -> (State, String) {
        (if self.port.is_attached() { State::Up } else { State::Waiting }, String::new())
    }
}
