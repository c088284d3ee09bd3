//! Frames that the host's stack receives.

use super::Shared;
use ringway_frame::{Burst, Caps, HEAD, Lost, Needs, Offload, Reason, RxQueue};
use ringway_host::{TapFault, tap_knows_uso, tap_write};
use ringway_mem::Turn;
use std::os::fd::AsFd;

/// An Ethernet header and two VLAN tags.
const FRAMING: u32 = 14 + 8;
/// Header length assumed for a long frame whose sender sets none. The kernel stores this many bytes in one piece of
/// memory and the rest in pages; without a header length it allocates one piece for the whole frame.
const HEADERS: u16 = 128;
/// Frames up to this length go into one piece of memory.
const SHORT: u32 = 2048;

pub(super) struct TapRx {
    shared: Shared,
    caps: Caps,
}

impl TapRx {
    pub fn new(shared: Shared) -> TapRx {
        // The stack accepts frames with any offloads, so none needs to be completed.
        let tcp = Needs::CSUM.with(Needs::TSO4).with(Needs::TSO6).with(Needs::ECN);
        let all = if tap_knows_uso() { tcp.with(Needs::USO) } else { tcp };
        let offloads = if shared.config.offloads { all } else { Needs::NONE };
        let caps = Caps { offloads, largest: u32::from(shared.config.mtu) + FRAMING };
        TapRx { shared, caps }
    }
}

impl RxQueue for TapRx {
    fn caps(&mut self, turn: &Turn<'_>) -> Option<Caps> {
        self.shared.fd(turn).map(|_| self.caps)
    }

    fn wants_joined(&self) -> bool {
        true
    }

    /// The stack accepts all frames, and drops those without room without a report.
    fn reserve(&mut self, _turn: &Turn<'_>, _burst: &Burst<'_>, which: &[u16]) -> usize {
        which.len()
    }

    /// Writes the frames. The stack gets them at once; deferring them until `publish` would need another copy.
    fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
        let counters = &self.shared.counters;
        let Some(fd) = self.shared.fd(turn) else { return Lost::count(counters, Reason::Down, burst, which) };
        let mut lost = Lost::default();
        for (done, &frame) in which.iter().enumerate() {
            let frame = usize::from(frame);
            let meta = burst.meta(frame);
            let head = &burst.head(frame)[..HEAD.min(meta.len as usize)];
            let header = offload_header(meta.offload, meta.len).to_bytes();
            let reason = match tap_write(fd.as_fd(), &header, head, burst.tail(frame)) {
                Ok(()) => continue,
                Err(TapFault::Again | TapFault::NoMemory) => Reason::Full,
                Err(TapFault::Down) => Reason::Down,
                Err(TapFault::Refused) => Reason::System,
                Err(TapFault::Gone) => {
                    self.shared.lose(turn);
                    lost += Lost::count(counters, Reason::Down, burst, &which[done..]);
                    break;
                }
            };
            lost += Lost::count(counters, reason, burst, &which[done..=done]);
        }
        lost
    }

    fn publish(&mut self, _turn: &Turn<'_>) {}
}

/// The offload header that the kernel gets with a frame.
#[inline]
fn offload_header(offload: Offload, len: u32) -> Offload {
    if len <= SHORT || offload.hdr_len != 0 {
        return offload;
    }
    Offload { hdr_len: HEADERS, ..offload }
}
