//! The control queue (virtio 1.3, 5.1.6.5), if a front-end lets us serve it.

use super::vring::Vring;
use ringway_frame::Counters;
use ringway_mem::iotlb::{Editor, Lookaside, Lookup};
use ringway_mem::{Direct, DirtyLog, Hint, Logged, Memory, Trail, Translate};
use ringway_ring::{Notifier, Policy};
use ringway_virtq::{CommandDevice, QueueError, Ring};

/// Commands answered before other ports are served. Attack: a driver that sends commands endlessly would
/// block the session thread for all other ports.
const COMMANDS: usize = 64;

/// Acknowledgements of commands.
const OK: u8 = 0;
const ERR: u8 = 1;

/// Classes of commands, and the commands with an effect (virtio 1.3, 5.1.6.5).
const RX: u8 = 0;
const MAC: u8 = 1;
const MAC_ADDR_SET: u8 = 1;
const VLAN: u8 = 2;
const ANNOUNCE: u8 = 3;
const ANNOUNCE_ACK: u8 = 0;
const MQ: u8 = 4;
const MQ_VQ_PAIRS_SET: u8 = 0;

/// Bytes of a command that are read: its class, the command, and an address.
const COMMAND: usize = 8;

/// Settings that a driver can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Queue pairs that receive.
    pub pairs: u16,
    /// Address of its network card, if it changed the given one.
    pub mac: Option<[u8; 6]>,
    /// Whether the driver was asked to announce itself and has not done so yet.
    pub announce: bool,
}

/// Bits of [`Settings::to_word`] behind those of the address and of the number of pairs.
const HAS_MAC: u64 = 1 << 56;
const ANNOUNCES: u64 = 1 << 57;
const IS_SET: u64 = 1 << 63;

impl Settings {
    /// The settings as a word, never 0.
    pub(super) fn to_word(self) -> u64 {
        let [a, b, c, d, e, f] = self.mac.unwrap_or_default();
        let mac = u64::from_le_bytes([a, b, c, d, e, f, self.pairs as u8, 0]);
        let has_mac = if self.mac.is_some() { HAS_MAC } else { 0 };
        mac | has_mac | if self.announce { ANNOUNCES } else { 0 } | IS_SET
    }

    /// The settings of a word, if it has any that are possible with at most `most` pairs.
    pub(super) fn from_word(word: u64, most: u16) -> Option<Settings> {
        let [mac @ .., pairs, _] = word.to_le_bytes();
        let pairs = u16::from(pairs);
        if word & IS_SET == 0 || !(1..=most).contains(&pairs) {
            return None;
        }
        let mac = (word & HAS_MAC != 0).then_some(mac);
        Some(Settings { pairs, mac, announce: word & ANNOUNCES != 0 })
    }

    /// Executes a command of `len` bytes, the first of which are in `command`.
    fn obey(&mut self, most: u16, command: [u8; COMMAND], len: u64) -> u8 {
        let [class, what, data @ ..] = command;
        let data_len = len.saturating_sub(2);
        match (class, what) {
            // A learning switch sends a port the frames for it, without RX filters: whichever mode the driver asks for,
            // the port gets the same frames (virtio 1.3, 5.1.6.5.1 to 5.1.6.5.3 allow it).
            (RX, 0..=5) if data_len >= 1 => OK,
            (VLAN, 0..=1) if data_len >= 2 => OK,
            (MAC, 0) => OK,
            (MAC, MAC_ADDR_SET) if data_len >= 6 => {
                self.mac = Some(data);
                OK
            }
            (ANNOUNCE, ANNOUNCE_ACK) => {
                self.announce = false;
                OK
            }
            (MQ, MQ_VQ_PAIRS_SET) if data_len >= 2 => {
                let pairs = u16::from_le_bytes([data[0], data[1]]);
                // Attack: zero pairs, or more than the device has.
                if !(1..=most).contains(&pairs) {
                    return ERR;
                }
                self.pairs = pairs;
                OK
            }
            _ => ERR,
        }
    }
}

/// A started control queue.
pub(super) struct Control {
    vring: Vring,
    device: CommandDevice,
    notifier: Notifier,
    hint: Hint,
    trail: Trail,
    /// Cached translations of the guest's IOMMU, if it has one.
    pub(super) aside: Lookaside,
}

impl Control {
    /// The queue of the ring that `vring` describes.
    pub(super) fn new(vring: Vring) -> Control {
        let (at, used) = vring.places();
        // Commands are rare, and the driver waits for each.
        let policy = Policy { combine: 0, moderate: 0, ..Policy::default() };
        Control {
            device: CommandDevice::new(at, used),
            notifier: Notifier::new(policy),
            hint: Hint::default(),
            trail: Trail::default(),
            aside: Lookaside::default(),
            vring,
        }
    }

    /// The control queue's ring.
    pub(super) fn vring(&self) -> &Vring {
        &self.vring
    }

    /// Answers pending commands. Returns whether there may be more. `editor`: that of the guest's IOMMU, if it has
    /// one.
    pub(super) fn serve(
        &mut self,
        settings: &mut Settings,
        most: u16,
        counters: &Counters,
        editor: Option<&Editor>,
    ) -> bool {
        let Control { vring, device, notifier, hint, trail, aside } = self;
        let Some(ring) = vring.ring().filter(|_| vring.enabled && !vring.is_broken()) else { return false };
        for _ in 0..COMMANDS {
            let logged = vring.log().map(|log| (vring.memory(), log, &mut *trail));
            let answered = match editor {
                None => {
                    let mut direct = Direct::new(vring.memory(), hint);
                    answer(&ring, device, (&mut direct, logged), settings, most)
                }
                Some(editor) => {
                    let mut lookup = Lookup::of(editor, aside);
                    answer(&ring, device, (&mut lookup, logged), settings, most)
                }
            };
            match answered {
                Ok(true) => {
                    vring.record(device.progress());
                    vring.wrote();
                    notifier.published(0, &mut vring.view(&ring, device, counters));
                }
                Ok(false) if notifier.arm(&mut vring.view(&ring, device, counters)) => return false,
                Ok(false) => {}
                Err(error) if error.is_breach() => {
                    vring.fail(error, counters);
                    return false;
                }
                Err(_) => return false,
            }
        }
        true
    }
}

/// Answers one command. `false`: there is none.
fn answer<'t, T: Translate<'t>>(
    ring: &Ring<'t>,
    device: &mut CommandDevice,
    (translate, logged): (&mut T, Option<(&'t Memory, &DirtyLog, &mut Trail)>),
    settings: &mut Settings,
    most: u16,
) -> Result<bool, QueueError> {
    let mut command = [0; COMMAND];
    let Some(len) = device.take(ring, translate, &mut command)? else { return Ok(false) };
    let ack = if len < 2 { ERR } else { settings.obey(most, command, len) };
    match logged {
        None => device.answer(ring, translate, &[ack])?,
        Some((memory, log, trail)) => {
            device.answer(ring, &mut Logged::new(translate, memory, log, trail), &[ack])?;
        }
    }
    Ok(true)
}
