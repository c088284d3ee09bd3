//! A port that discards all frames and never sends any, for measurements of other parts.

mod rx;
mod tx;

pub use rx::NullRx;
pub use tx::NullTx;

use crate::{NoPeer, PortKind, Queue};
use ringway_frame::{Caps, LARGEST, Needs};

/// Discards every frame it receives.
pub const KIND: PortKind =
    PortKind { name: "null", open: |_| Ok((Box::new(NoPeer("null")), queues(&Config::default()))) };

/// Configuration of the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Queue pairs, at least one.
    pub queues: u16,
    /// Its capabilities. Without an offload, frames are completed in software before they are discarded.
    pub caps: Caps,
}

impl Default for Config {
    /// One queue pair that accepts all frames unmodified.
    fn default() -> Config {
        Config { queues: 1, caps: Caps { offloads: Needs::ALL, largest: LARGEST } }
    }
}

/// The port's queues.
pub fn queues(config: &Config) -> Vec<Queue> {
    (0..config.queues.max(1))
        .map(|_| Queue { tx: Box::new(NullTx), rx: Box::new(NullRx::new(config.caps)) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_frame::{Burst, Offload, Storage};
    use ringway_mem::{Reader, Span};

    #[test]
    fn null_port_accepts_all_frames_and_sends_none() {
        let mut reader = Reader::register().unwrap();
        let turn = reader.turn(0);
        let Some(Queue { mut tx, mut rx }) = queues(&Config::default()).pop() else { panic!("no queue") };
        let frame = [0u8; 60];
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        tx.take(&turn, &mut burst);
        assert!(burst.is_empty() && tx.arm(&turn));
        burst.push(Offload::default(), Span::of(&frame)).unwrap();
        assert_eq!(rx.caps(&turn).map(|caps| caps.largest), Some(LARGEST));
        assert_eq!(rx.reserve(&turn, &burst, &[0, 0, 0]), 3);
        rx.put(&turn, &burst, &[0, 0]);
        rx.publish(&turn);
        assert_eq!((rx.next_due(), tx.next_due()), (None, None));
    }
}
