//! A port that sends endlessly and discards received frames, for measurements of other ports and of elements.
//!
//! Its frames are prebuilt in its own memory, and so many that they don't all fit into a first-level cache.

mod frames;
mod peer;
mod tx;

pub use peer::KIND;
pub use tx::SourceTx;

use crate::Queue;
use crate::null::NullRx;
use frames::Frames;
use ringway_frame::{Caps, LARGEST, Needs};
use ringway_mem::Published;
use ringway_wire::MacAddress;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Shortest frame it sends, in bytes: Ethernet's, without the frame check sequence.
pub const SHORTEST: u32 = 60;
/// Maximum memory of frames in bytes, in case of a mistyped size.
const MEMORY: usize = 256 << 20;

/// Settings of a port of this kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Bytes per frame.
    pub size: u32,
    /// Destination address.
    pub to: MacAddress,
    /// Source address.
    pub from: MacAddress,
    /// Frames per second; if none, as many as possible.
    pub rate: Option<u64>,
}

/// The frames to send: UDP over IPv4, with checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Lengths of frames in bytes, from 60 to 65,557, sent in this order over and over.
    pub sizes: Vec<u32>,
    /// Destination address.
    pub destination: MacAddress,
    /// Source address.
    pub source: MacAddress,
    /// Number of flows, which differ in their source port.
    pub flows: u16,
    /// Frames per second, at least 1; if none, as many as possible.
    pub rate: Option<u64>,
    /// Total size of the frames in bytes, rounded up to whole frames: at least 1 MB.
    pub memory: usize,
}

impl Config {
    /// One flow of frames of one size, in 1 MB.
    pub fn new(size: u32, source: MacAddress, destination: MacAddress) -> Config {
        Config { sizes: vec![size], destination, source, flows: 1, rate: None, memory: 1 << 20 }
    }
}

/// Why a source can't be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// A size out of bounds.
    #[error("a source can't send frames of {0} bytes: give sizes from {SHORTEST} to {LARGEST}")]
    Size(u32),
    /// No sizes.
    #[error("a source needs at least one size of frames, from {SHORTEST} to {LARGEST} bytes")]
    NoSize,
    /// Too much memory.
    #[error("a source of {0} bytes of frames: give at most {MEMORY}, and fewer sizes")]
    Memory(usize),
    /// A group address as the source.
    #[error("a source can't send from {0}, which is a group address: clear the lowest bit of its first byte")]
    Group(MacAddress),
}

/// The port's single queue.
pub fn queue(config: &Config) -> Result<Queue, SourceError> {
    let frames = Frames::new(config)?;
    let caps = Caps { offloads: Needs::ALL, largest: LARGEST };
    let tx = SourceTx::new(Published::new(Arc::new(frames)), config.rate);
    Ok(Queue { tx: Box::new(tx), rx: Box::new(NullRx::new(caps)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_frame::{BURST, Burst, Storage};
    use ringway_mem::Reader;
    use ringway_wire::{Ethernet, Header, Udp, ipv4};

    fn config() -> Config {
        let (a, b) = (MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
        Config { sizes: vec![60, 1514], flows: 3, ..Config::new(60, a, b) }
    }

    #[test]
    fn generated_frames_are_complete_and_in_order() {
        let mut reader = Reader::register().unwrap();
        let turn = reader.turn(0);
        let config = config();
        let mut tx = queue(&config).unwrap().tx;
        assert!(!tx.arm(&turn));
        let mut storage = Storage::default();
        let mut total = 0;
        let mut ports = Vec::new();
        while total < 2 << 20 {
            let mut burst = Burst::begin(&mut storage);
            tx.take(&turn, &mut burst);
            assert_eq!(burst.len(), BURST);
            for frame in 0..7 {
                let mut bytes = [0; 2000];
                let len = burst.read(frame, 0, &mut bytes);
                assert_eq!(len as u32, config.sizes[ports.len() % 2]);
                let (ethernet, payload) = Ethernet::split(&bytes[..len]).unwrap();
                assert_eq!((ethernet.source, ethernet.destination), (config.source, config.destination));
                let packet = ipv4::Packet::parse(payload).unwrap();
                assert!(packet.whole && packet.header.is_checksum_valid(packet.options));
                let udp = Udp::of(packet.payload).unwrap();
                let mut sum = packet.header.pseudo_header(udp.length.get());
                sum.add(packet.payload);
                assert!(sum.is_valid());
                ports.push(udp.source_port.get());
                total += len;
            }
            tx.release(&turn, 7);
        }
        assert_eq!(ports[..4], [ports[0], ports[0] + 1, ports[0] + 2, ports[0]]);
    }

    #[test]
    fn unreleased_frames_are_generated_again() {
        let mut reader = Reader::register().unwrap();
        let turn = reader.turn(0);
        let mut tx = queue(&config()).unwrap().tx;
        let mut storage = Storage::default();
        let mut take = |tx: &mut Box<dyn ringway_frame::TxQueue>| {
            let mut burst = Burst::begin(&mut storage);
            tx.take(&turn, &mut burst);
            burst.meta(0).len
        };
        assert_eq!((take(&mut tx), take(&mut tx)), (60, 60));
        tx.release(&turn, 1);
        assert_eq!(take(&mut tx), 1514);
    }

    #[test]
    fn the_rate_holds_over_time_and_after_a_pause() {
        let mut reader = Reader::register().unwrap();
        let mut tx = queue(&Config { rate: Some(2_000_000), ..config() }).unwrap().tx;
        let mut storage = Storage::default();
        let (mut sent, mut now) = (0, 1_000_000);
        for step in [0, 100, 499, 1, 5000, 700, 32_000, 32_000, 1, 400, 1_000_000_000, 0, 10] {
            now += step;
            let turn = reader.turn(now);
            let mut burst = Burst::begin(&mut storage);
            tx.take(&turn, &mut burst);
            let count = burst.len();
            tx.release(&turn, count);
            sent += count;
            let armed = tx.arm(&turn);
            let due = tx.next_due();
            match (now - 1_000_000, count) {
                // After a second without service, only the frames of one millisecond are sent at once.
                (1_000_000_000.., _) => assert!(count <= BURST),
                (passed, _) => {
                    assert_eq!(sent as u64, 1 + passed / 500, "{passed}");
                    assert_eq!((armed, due), (true, Some(1_000_000 + (passed / 500 + 1) * 500)));
                }
            }
        }
        let turn = reader.turn(now);
        let mut rest = 0;
        loop {
            let mut burst = Burst::begin(&mut storage);
            tx.take(&turn, &mut burst);
            if burst.is_empty() {
                break;
            }
            rest += burst.len();
            tx.release(&turn, burst.len());
        }
        assert!((1000..=2000).contains(&rest), "{rest}");
    }

    #[test]
    fn invalid_settings_are_refused() {
        let refused = |change: fn(&mut Config)| {
            let mut config = config();
            change(&mut config);
            queue(&config).err()
        };
        assert_eq!(refused(|config| config.sizes = vec![59]), Some(SourceError::Size(59)));
        assert_eq!(refused(|config| config.sizes.push(LARGEST + 1)), Some(SourceError::Size(LARGEST + 1)));
        assert_eq!(refused(|config| config.sizes.clear()), Some(SourceError::NoSize));
        assert_eq!(refused(|config| config.memory = usize::MAX), Some(SourceError::Memory(usize::MAX)));
        let group = MacAddress([3; 6]);
        assert_eq!(refused(|config| config.source = MacAddress([3; 6])), Some(SourceError::Group(group)));
        assert_eq!(refused(|config| config.sizes = vec![LARGEST]), None);
        assert_eq!(refused(|config| (config.flows, config.memory) = (0, 0)), None);
    }
}
