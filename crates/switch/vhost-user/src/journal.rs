//! The messages that restore a session in another process: each replaces an earlier one with the same key, and handled
//! in the order of their keys, they lead to the same state.

use crate::header::{Header, Packet};
use crate::payload::{MemoryRegion, VringFd, VringState};
use crate::request::{Request, number};
use crate::ring_state::{Kick, Ring};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

/// Part of what must be told to a session that goes on in another process.
#[derive(Debug)]
pub struct Record {
    /// The place in the order of messages.
    pub key: u32,
    /// The message; `None` if the message with this key no longer applies.
    pub packet: Option<Packet>,
}

const MEM_TABLE: u32 = 2;
/// Keys of messages that belong to no ring. Protocol features come first: others depend on them.
const KEYS: [(u32, u32); 8] = [
    (number::SET_PROTOCOL_FEATURES, 0),
    (number::SET_FEATURES, 1),
    (number::SET_MEM_TABLE, MEM_TABLE),
    (number::SET_BACKEND_REQ_FD, 3),
    (number::SET_LOG_BASE, 4),
    (number::SET_LOG_FD, 5),
    (number::NET_SET_MTU, 6),
    (number::SET_STATUS, 7),
];
/// First keys of regions that were added one by one, and of rings.
const REGIONS: u32 = 0x1_0000;
const RINGS: u32 = 0x2_0000;
/// The key of a record without a message: the session can't be restored.
pub const UNRESTORABLE: u32 = u32::MAX;
/// Every key, since records of one version of this program may be restored by another: requests with their keys; the
/// first key of regions, the first of rings, the number of a ring's parts, [`UNRESTORABLE`].
pub const RECORD_KEYS: ([(u32, u32); 8], [u32; 4]) = (KEYS, [REGIONS, RINGS, PARTS, UNRESTORABLE]);
/// Keys of a ring.
const PARTS: u32 = 8;

/// The parts of a ring, in the order of their keys. The kick descriptor, which starts the ring, is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Num,
    Base,
    Addr,
    Call,
    Err,
    Enable,
    Kick,
}

const ALL: &[Part] = &[Part::Num, Part::Base, Part::Addr, Part::Call, Part::Err, Part::Enable, Part::Kick];

/// What a message will change.
pub(crate) enum Note {
    Nothing,
    /// A message that counts until the next one of its kind, and whether it may stop or change rings.
    Message(u32, Packet, bool),
    Added(MemoryRegion, Packet),
    Removed(MemoryRegion),
    Ring(usize, &'static [Part]),
    Rings,
    /// A descriptor could not be duplicated.
    Lost,
}

impl Note {
    /// The note about a message that is going to be handled.
    pub fn of(request: u32, payload: &[u8], fds: &[OwnedFd]) -> Note {
        let index = || payload.first_chunk().map_or(usize::MAX, |index| u32::from_le_bytes(*index) as usize);
        // The index of a message with a descriptor has one byte.
        let short = || payload.first().map_or(usize::MAX, |index| usize::from(*index));
        let region = || Request::decode(number::REM_MEM_REG, payload, Vec::new());
        match request {
            number::SET_VRING_NUM => return Note::Ring(index(), &[Part::Num, Part::Base, Part::Kick]),
            number::SET_VRING_BASE | number::GET_VRING_BASE => {
                return Note::Ring(index(), &[Part::Base, Part::Kick]);
            }
            number::SET_VRING_ADDR => return Note::Ring(index(), &[Part::Addr]),
            number::SET_VRING_ENABLE => return Note::Ring(index(), &[Part::Enable]),
            number::SET_VRING_CALL => return Note::Ring(short(), &[Part::Call]),
            number::SET_VRING_ERR => return Note::Ring(short(), &[Part::Err]),
            number::SET_VRING_KICK => return Note::Ring(short(), &[Part::Kick]),
            number::RESET_DEVICE | number::RESET_OWNER => return Note::Rings,
            number::REM_MEM_REG => {
                return match region() {
                    Ok(Request::RemMemReg(region)) => Note::Removed(region),
                    _ => Note::Nothing,
                };
            }
            _ => {}
        }
        let key = KEYS.iter().find(|(known, _)| *known == request).map(|row| row.1);
        if key.is_none() && request != number::ADD_MEM_REG {
            return Note::Nothing;
        }
        let Ok(fds) = fds.iter().map(OwnedFd::try_clone).collect::<Result<Vec<_>, _>>() else {
            return Note::Lost;
        };
        let packet = Header::request_packet(request, false, payload, fds);
        match (key, region()) {
            (Some(key), _) => {
                let changes = matches!(request, number::SET_FEATURES | number::SET_STATUS);
                Note::Message(key, packet, changes)
            }
            (None, Ok(Request::RemMemReg(region))) => Note::Added(region, packet),
            (None, _) => Note::Nothing,
        }
    }
}

/// What was recorded of a ring's part.
#[derive(Debug)]
enum Recorded {
    Bytes(Vec<u8>),
    /// Its address stays this one's as long as this is kept.
    Descriptor(Weak<OwnedFd>),
}

/// The records of a session that were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Keys that count.
    keys: BTreeSet<u32>,
    /// Regions that were added one by one, with their keys.
    regions: Vec<(MemoryRegion, u32)>,
    /// What was recorded of rings' parts, to tell whether one has changed.
    parts: BTreeMap<u32, Recorded>,
    /// The key of the message that is handled, if it was recorded before.
    pub former: Option<u32>,
    pub records: Vec<Record>,
}

impl Journal {
    /// Notes what a message changed, which the session has handled.
    pub fn write(&mut self, note: Note, rings: &[Ring]) {
        match note {
            Note::Nothing => {}
            Note::Message(key, packet, changes) => {
                self.put(key, Some(packet));
                if key == MEM_TABLE {
                    // A new table replaces all regions.
                    std::mem::take(&mut self.regions).into_iter().for_each(|(_, key)| self.put(key, None));
                }
                if changes {
                    self.all(rings);
                }
            }
            Note::Added(region, packet) => {
                let used = |key: &u32| self.regions.iter().any(|(_, used)| used == key);
                let known = self.regions.iter().find(|(known, _)| *known == region).map(|(_, key)| *key);
                let known = known.or(self.former.filter(|key| (REGIONS..RINGS).contains(key) && !used(key)));
                // Attack: more regions than there are keys. A device has a few hundred at most.
                let key = known.or_else(|| (REGIONS..RINGS).find(|key| !used(key))).unwrap_or(UNRESTORABLE);
                self.regions.retain(|(_, used)| *used != key);
                self.regions.push((region, key));
                self.put(key, Some(packet));
            }
            Note::Removed(region) => {
                let is_it = |known: &MemoryRegion| {
                    (known.guest, known.user, known.size) == (region.guest, region.user, region.size)
                };
                match self.regions.iter().position(|(known, _)| is_it(known)) {
                    Some(at) => {
                        let (_, key) = self.regions.swap_remove(at);
                        self.put(key, None);
                    }
                    // It may be a part of the table.
                    None if self.keys.contains(&MEM_TABLE) => self.lose(),
                    None => {}
                }
            }
            Note::Ring(index, parts) => {
                if let Some(ring) = rings.get(index) {
                    parts.iter().for_each(|part| self.part(index, ring, *part));
                }
            }
            Note::Rings => self.all(rings),
            Note::Lost => self.lose(),
        }
    }

    fn all(&mut self, rings: &[Ring]) {
        for (index, ring) in rings.iter().enumerate() {
            ALL.iter().for_each(|part| self.part(index, ring, *part));
        }
    }

    /// Records a part that has changed. Attack: messages that change nothing, each of which would be one for each
    /// part of each ring.
    fn part(&mut self, index: usize, ring: &Ring, part: Part) {
        let key = RINGS + PARTS * index as u32 + part as u32;
        let descriptor = descriptor(ring, part).map(Arc::downgrade);
        if let (Some(Recorded::Descriptor(known)), Some(new)) = (self.parts.get(&key), &descriptor)
            && known.ptr_eq(new)
        {
            return;
        }
        match told(index as u32, ring, part) {
            Ok(Some(request)) => {
                let packet = request.encode(false);
                let new =
                    descriptor.map_or_else(|| Recorded::Bytes(packet.bytes.clone()), Recorded::Descriptor);
                let is_known = matches!((self.parts.get(&key), &new),
                    (Some(Recorded::Bytes(known)), Recorded::Bytes(new)) if known == new);
                if !is_known {
                    self.parts.insert(key, new);
                    self.put(key, Some(packet));
                }
            }
            Ok(None) => {
                self.parts.remove(&key);
                self.put(key, None);
            }
            Err(_) => self.lose(),
        }
    }

    fn lose(&mut self) {
        self.put(UNRESTORABLE, Some(Packet { bytes: Vec::new(), fds: Vec::new() }));
    }

    fn put(&mut self, key: u32, packet: Option<Packet>) {
        let is_news = match packet {
            Some(_) => {
                self.keys.insert(key);
                true
            }
            None => self.keys.remove(&key),
        };
        if is_news {
            self.records.push(Record { key, packet });
        }
    }
}

/// The descriptor of a ring's part, if it has one.
fn descriptor(ring: &Ring, part: Part) -> Option<&Arc<OwnedFd>> {
    match (part, &ring.kick) {
        (Part::Call, _) => ring.call.as_ref(),
        (Part::Err, _) => ring.err.as_ref(),
        (Part::Kick, Kick::Fd(kick)) => Some(kick),
        _ => None,
    }
}

/// The message that tells a part of a ring, if it was set.
fn told(index: u32, ring: &Ring, part: Part) -> std::io::Result<Option<Request>> {
    let state = |num| VringState { index, num };
    let fd = |fd: &Arc<OwnedFd>| fd.try_clone().map(|fd| VringFd { index, fd: Some(fd) });
    Ok(match part {
        Part::Num => (ring.size != 0).then(|| Request::SetVringNum(state(ring.size.into()))),
        Part::Base => ring.base.map(|base| Request::SetVringBase(state(base.into()))),
        Part::Addr => ring.addresses.map(Request::SetVringAddr),
        Part::Call => ring.call.as_ref().map(fd).transpose()?.map(Request::SetVringCall),
        Part::Err => ring.err.as_ref().map(fd).transpose()?.map(Request::SetVringErr),
        Part::Enable => ring.enabled.then(|| Request::SetVringEnable(state(1))),
        Part::Kick => match &ring.kick {
            Kick::Unset => None,
            Kick::Poll => Some(Request::SetVringKick(VringFd { index, fd: None })),
            Kick::Fd(kick) => Some(Request::SetVringKick(fd(kick)?)),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Arc<OwnedFd> {
        Arc::new(std::fs::File::open("/dev/null").unwrap().into())
    }

    #[test]
    fn only_parts_that_change_are_recorded() {
        let ring = || Ring {
            size: 256,
            call: Some(descriptor()),
            kick: Kick::Fd(descriptor()),
            enabled: true,
            ..Ring::default()
        };
        let (mut journal, mut rings) = (Journal::default(), [ring(), ring()]);
        let keys = |journal: &mut Journal, rings: &[Ring]| {
            journal.write(Note::Rings, rings);
            let records = std::mem::take(&mut journal.records);
            records.iter().map(|record| (record.key - RINGS, record.packet.is_some())).collect::<Vec<_>>()
        };
        let of_one = [Part::Num, Part::Call, Part::Enable, Part::Kick].map(|part| part as u32);
        let of_both = of_one.into_iter().chain(of_one.map(|key| key + PARTS)).map(|key| (key, true));
        assert_eq!(keys(&mut journal, &rings), of_both.collect::<Vec<_>>());
        assert_eq!(keys(&mut journal, &rings), []);
        rings[1].call = Some(descriptor());
        rings[1].size = 512;
        let changed = [(PARTS + Part::Num as u32, true), (PARTS + Part::Call as u32, true)];
        assert_eq!(keys(&mut journal, &rings), changed);
        (rings[0].call, rings[0].enabled) = (None, false);
        let removed = [(Part::Call as u32, false), (Part::Enable as u32, false)];
        assert_eq!(keys(&mut journal, &rings), removed);
        rings[0].enabled = true;
        assert_eq!(keys(&mut journal, &rings), [(Part::Enable as u32, true)]);
    }
}
