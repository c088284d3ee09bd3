//! A source has no peer.

use super::{Config, Settings, queue};
use crate::{Context, NoPeer, Peer, PeerError, PortKind, Queue};
use ringway_frame::LARGEST;

/// A port that sends endlessly.
pub const KIND: PortKind = PortKind { name: "source", open };

fn open(context: Context<'_>) -> Result<(Box<dyn Peer>, Vec<Queue>), PeerError> {
    let Settings { size, to, from, rate } = context.port.kind.settings()?;
    let config = Config { rate, ..Config::new(size.min(LARGEST), from, to) };
    Ok((Box::new(NoPeer(KIND.name)), vec![queue(&config).map_err(PeerError::kind)?]))
}
