//! The frame that tells switches where a guest is now that it has moved (RFC 903; vhost-user protocol,
//! `SEND_RARP`).

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of an Ethernet frame without its check sequence at least.
const LEN: usize = 60;

/// A guest's announcement, which is to be sent once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rarp {
    /// No two have the same; none has 0.
    pub(super) serial: u64,
    pub(super) frame: [u8; LEN],
}

impl Rarp {
    /// A request by the guest of this address for its own protocol address, as anyone who just booted asks
    /// it.
    pub(super) fn of(address: [u8; 6]) -> Rarp {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let mut frame = [0; LEN];
        frame[..6].fill(0xff);
        frame[6..12].copy_from_slice(&address);
        // RARP; Ethernet, IPv4, addresses of 6 and 4 bytes, "request reverse".
        frame[12..22].copy_from_slice(&[0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
        frame[22..28].copy_from_slice(&address);
        frame[32..38].copy_from_slice(&address);
        Rarp { serial: SERIAL.fetch_add(1, Ordering::Relaxed), frame }
    }
}
