//! Learns source addresses and floods frames to unknown addresses (IEEE 802.1Q, 8.7 and 8.8).

use crate::station::{Begin, vlan_of};
use crate::{
    Entry, FLOOD, FOREIGN, FrameVlans, INVALID, Learned, Lookup, LookupContext, LookupFactory, LookupKind,
    Mac, NOWHERE, PortId, RESERVED, Station, Table, Verdicts,
};
use ringway_frame::Burst;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Maximum number of addresses per port. Attack: a guest that sends from many addresses would prevent
/// learning others.
const QUOTA: u32 = 4096;

/// `lookup = "learning"`.
pub const LOOKUP: LookupKind = LookupKind {
    name: "learning",
    open: |kind| Ok(Box::new(Learner { settings: kind.settings()?, learning: None })),
};

/// Settings in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Seconds after which an address that sends no frame is removed.
    pub ageing: u32,
    /// Number of addresses that the table can hold.
    pub entries: u32,
    /// Whether frames from an address that is known at another port are dropped; otherwise the address moves.
    #[serde(default)]
    pub refuse_moves: bool,
}

struct Learner {
    settings: Settings,
    learning: Option<Arc<Learning>>,
}

impl LookupFactory for Learner {
    /// Returns the same lookup each time, which keeps the learned addresses of other ports.
    fn make(&mut self, context: &LookupContext<'_>) -> Arc<dyn Lookup> {
        let Learner { settings: Settings { ageing, entries, refuse_moves }, learning } = self;
        let table = || {
            Table::new(*entries, context.ports, *ageing, QUOTA.min(*entries), context.seed)
                .refuse_moves(*refuse_moves)
        };
        let new = || Arc::new(Learning::new(table(), context.forward_reserved));
        learning.get_or_insert_with(new).clone()
    }
}

/// A learning bridge.
#[derive(Debug)]
pub struct Learning {
    table: Table,
    forward_reserved: bool,
}

/// Seconds for which an address that another process had learned is known until its station sends.
const RESTORED: u32 = 30;

/// Converts nanoseconds to seconds of the table's clock.
pub(crate) fn second(now: u64) -> u32 {
    // Less than `STATIC`; reached after 136 years.
    (now / 1_000_000_000).min(u64::from(u32::MAX - 1)) as u32
}

impl Learning {
    /// A bridge that keeps its addresses in `table`. `forward_reserved`: whether it floods frames of protocols between
    /// neighbours.
    pub fn new(table: Table, forward_reserved: bool) -> Learning {
        Learning { table, forward_reserved }
    }

    /// The verdict on frames to a group.
    #[inline]
    fn of_group(&self, to: Mac) -> PortId {
        if to.is_reserved() && !self.forward_reserved { RESERVED } else { FLOOD }
    }
}

impl Learning {
    /// What becomes of a station whose port has learned too many.
    #[cold]
    fn unlearned(&self, station: Station, from: PortId, second: u32) -> Learned {
        match self.table.preview(Some((station, from)), station, second).0 {
            Some(Learned::New | Learned::Moved) | None => Learned::Limited,
            Some(other) => other,
        }
    }

    /// Finds the destinations, with the VLANs in the frames' tags, or, if `HAS_VLANS`, with `vlans`.
    #[inline(always)]
    fn find<const HAS_VLANS: bool>(
        &self,
        burst: &Burst<'_>,
        (from, now): (PortId, u64),
        vlans: &FrameVlans<'_>,
        verdicts: &mut Verdicts,
    ) -> u32 {
        let (second, mut moved, mut vlan) = (second(now), 0, 0);
        // Frames of a burst mostly have the same addresses, so the last results are reused.
        let (mut last_begin, mut is_tagged, mut refusal) = (Begin::NONE, false, Some(INVALID));
        let (mut last_destination, mut port) = (Mac(u64::MAX), NOWHERE);
        for (index, verdict) in verdicts.iter_mut().enumerate().take(burst.len()) {
            if HAS_VLANS && vlans.refused >> index & 1 != 0 {
                continue;
            }
            let head = burst.head(index);
            let (begin, destination) = (Begin::of(head), Mac::destination(head));
            if begin != last_begin || is_tagged {
                (last_begin, is_tagged) = (begin, begin.is_tagged());
                let of_frame = if HAS_VLANS {
                    vlans.vlans.get(index).copied().unwrap_or(0)
                } else if is_tagged {
                    vlan_of(head)
                } else {
                    0
                };
                if vlan != of_frame {
                    (vlan, last_destination) = (of_frame, Mac(u64::MAX));
                }
                let source = begin.source();
                refusal = source.is_group().then_some(INVALID);
                if refusal.is_none() && source.0 != 0 {
                    let station = Station::new(source, vlan);
                    let learned = match HAS_VLANS && vlans.unlearned >> index & 1 != 0 {
                        false => self.table.learn(station, from, second),
                        true => self.unlearned(station, from, second),
                    };
                    match learned {
                        Learned::Known | Learned::New | Learned::Refused | Learned::Limited => {}
                        Learned::Moved => moved += 1,
                        Learned::Foreign => (moved, refusal) = (moved + 1, Some(FOREIGN)),
                    }
                }
            }
            if destination != last_destination {
                last_destination = destination;
                port = if destination.is_group() {
                    self.of_group(destination)
                } else {
                    self.table.find(Station::new(destination, vlan), second).unwrap_or(FLOOD)
                };
            }
            *verdict = refusal.unwrap_or(port);
        }
        moved
    }
}

impl Lookup for Learning {
    #[inline]
    fn lookup(&self, burst: &Burst<'_>, from: PortId, now: u64, verdicts: &mut Verdicts) -> u32 {
        self.find::<false>(burst, (from, now), &FrameVlans { vlans: &[], refused: 0, unlearned: 0 }, verdicts)
    }

    fn lookup_in(
        &self,
        burst: &Burst<'_>,
        at: (PortId, u64),
        vlans: &FrameVlans<'_>,
        verdicts: &mut Verdicts,
    ) -> u32 {
        self.find::<true>(burst, at, vlans, verdicts)
    }

    fn preview_in(
        &self,
        burst: &Burst<'_>,
        (from, now): (PortId, u64),
        vlans: &FrameVlans<'_>,
        verdicts: &mut Verdicts,
    ) -> Option<Learned> {
        if vlans.refused & 1 != 0 {
            return None;
        }
        let second = second(now);
        let (head, begin) = (burst.head(0), Begin::of(burst.head(0)));
        let (source, destination) = (begin.source(), Mac::destination(head));
        let vlan = vlans.vlans.first().copied().unwrap_or(0);
        verdicts[0] = INVALID;
        if source.is_group() {
            return None;
        }
        let own = (source.0 != 0).then(|| Station::new(source, vlan));
        let to = Station::new(destination, vlan);
        let (learned, found) = match own.filter(|_| vlans.unlearned & 1 != 0) {
            None => self.table.preview(own.map(|own| (own, from)), to, second),
            Some(own) => (Some(self.unlearned(own, from, second)), self.table.find(to, second)),
        };
        verdicts[0] = match learned {
            Some(Learned::Foreign) => FOREIGN,
            _ if destination.is_group() => self.of_group(destination),
            _ => found.unwrap_or(FLOOD),
        };
        learned
    }

    fn knows(&self, station: Station, port: PortId) -> bool {
        self.table.knows(station, port)
    }

    fn remove_port(&self, port: PortId) {
        self.table.remove_port(port, true);
    }

    fn forget_port(&self, port: PortId) {
        self.table.remove_port(port, false);
    }

    fn forget(&self, mac: Mac) {
        self.table.remove(mac);
    }

    fn changes(&self) -> u64 {
        self.table.changes()
    }

    fn restore(&self, mac: Mac, vlan: u16, port: PortId, now: u64) {
        // As from a frame, but of long ago: the station may have gone meanwhile.
        if !mac.is_group() && mac.0 != 0 {
            let seen = second(now).saturating_sub(self.table.ageing().saturating_sub(RESTORED));
            self.table.learn(Station::new(mac, vlan), port, seen);
        }
    }

    fn entries(&self, now: u64) -> Vec<Entry> {
        self.table.entries(second(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_frame::{BURST, Offload, Storage};
    use ringway_mem::Span;

    fn frame(to: u8, from: u8) -> [u8; 60] {
        let mut frame = [0; 60];
        frame[0] = if to == 0xff { 0xff } else { 2 };
        frame[5] = to;
        frame[6] = 2;
        frame[11] = from;
        frame
    }

    /// A frame with VLAN tags.
    fn tagged(to: u8, from: u8, tags: &[(u16, u16)]) -> [u8; 60] {
        let mut frame = frame(to, from);
        for (tag, (kind, vlan)) in tags.iter().enumerate() {
            frame[12 + 4 * tag..][..2].copy_from_slice(&kind.to_be_bytes());
            // The tag has a priority.
            frame[14 + 4 * tag..][..2].copy_from_slice(&(vlan | 5 << 13).to_be_bytes());
        }
        frame
    }

    fn learning(forward_reserved: bool) -> Learning {
        Learning::new(Table::new(64, 8, 300, 64, 3), forward_reserved)
    }

    fn look_up(lookup: &Learning, from: PortId, frames: &[[u8; 60]]) -> (Vec<PortId>, u32) {
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        for bytes in frames {
            burst.push(Offload::default(), Span::of(bytes)).unwrap();
        }
        let mut verdicts = [0; BURST];
        let moved = lookup.lookup(&burst, from, 1_000_000_000, &mut verdicts);
        (verdicts[..frames.len()].to_vec(), moved)
    }

    fn verdicts(lookup: &Learning, from: PortId, frames: &[[u8; 60]]) -> Vec<PortId> {
        look_up(lookup, from, frames).0
    }

    #[test]
    fn the_port_s_vlan_counts_and_nothing_is_learned_from_refused_frames() {
        let lookup = learning(false);
        let frames = [frame(0xff, 9), tagged(0xff, 8, &[(0x8100, 0)]), frame(0xff, 7), frame(9, 1)];
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        frames.iter().for_each(|bytes| burst.push(Offload::default(), Span::of(bytes)).unwrap());
        let mut verdicts = [NOWHERE; BURST];
        let vlans = FrameVlans { vlans: &[10, 10, 10, 10], refused: 0b0100, unlearned: 0 };
        lookup.lookup_in(&burst, (3, 0), &vlans, &mut verdicts);
        assert_eq!(verdicts[..4], [FLOOD, FLOOD, NOWHERE, 3]);
        let known: Vec<_> =
            lookup.entries(0).iter().map(|entry| (entry.mac.bytes()[5], entry.vlan)).collect();
        assert_eq!(known, [(1, 10), (8, 10), (9, 10)]);
    }

    #[test]
    fn what_another_process_has_learned_is_learned_as_from_frames() {
        let lookup = learning(false);
        let mac = |first: u8, last: u8| Mac::new([first, 0, 0, 0, 0, last]);
        for (mac, vlan) in [(mac(2, 7), 0), (mac(2, 8), 10), (mac(3, 9), 0), (mac(0, 0), 0)] {
            lookup.restore(mac, vlan, 4, 0);
        }
        let known: Vec<_> =
            lookup.entries(0).iter().map(|entry| (entry.mac.bytes()[5], entry.vlan, entry.port)).collect();
        assert_eq!((known, lookup.changes()), (vec![(7, 0, 4), (8, 10, 4)], 2));
        for number in 0..1000u16 {
            lookup.restore(Mac::new([2, 0, 0, 1, (number >> 8) as u8, number as u8]), 0, 5, 0);
        }
        assert!(lookup.entries(0).iter().filter(|entry| entry.port == 5).count() <= 64, "its quota");
    }

    #[test]
    fn an_address_has_a_port_in_each_vlan() {
        let lookup = learning(false);
        let vlan = |number| [(0x8100, number)];
        // Untagged, priority-tagged, two VLANs, and a VLAN in another one.
        let (priority, outer) = ([(0x8100, 0)], [(0x88a8, 30), (0x8100, 10)]);
        for (port, tags) in [(1, &[][..]), (2, &vlan(10)), (3, &vlan(20)), (4, &outer)] {
            assert_eq!(look_up(&lookup, port, &[tagged(0xff, 9, tags)]), (vec![FLOOD], 0));
        }
        let to = |tags: &[(u16, u16)]| verdicts(&lookup, 5, &[tagged(9, 1, tags)])[0];
        let found =
            [to(&[]), to(&priority), to(&vlan(10)), to(&vlan(20)), to(&outer), to(&vlan(30)), to(&vlan(40))];
        assert_eq!(found, [1, 1, 2, 3, 4, 4, FLOOD]);
        // The VLAN of each frame in a burst decides.
        let both = [tagged(9, 1, &vlan(10)), tagged(9, 1, &vlan(20)), frame(9, 1), tagged(9, 1, &priority)];
        assert_eq!(verdicts(&lookup, 5, &both), [2, 3, 1, 1]);
    }

    #[test]
    fn an_address_that_shows_up_at_another_port_is_counted() {
        let lookup = learning(false);
        assert_eq!(look_up(&lookup, 1, &[frame(2, 1), frame(2, 3), frame(2, 1)]).1, 0);
        assert_eq!(look_up(&lookup, 2, &[frame(1, 2), frame(1, 3), frame(9, 1)]).1, 2);
        assert_eq!(look_up(&lookup, 2, &[frame(1, 3)]).1, 0);
        lookup.forget_port(2);
        assert_eq!(look_up(&lookup, 1, &[frame(2, 1)]).1, 0, "its port's peer was gone");
    }

    #[test]
    fn an_address_moves_only_when_its_port_is_gone_if_moves_are_refused() {
        let lookup = Learning::new(Table::new(64, 8, 300, 64, 3).refuse_moves(true), false);
        assert_eq!(verdicts(&lookup, 1, &[frame(2, 1)]), [FLOOD]);
        assert_eq!(verdicts(&lookup, 2, &[frame(1, 2)]), [1]);
        // Port 3 sends from port 1's address, between frames of its own.
        let frames = [frame(2, 3), frame(2, 1), frame(2, 1), frame(2, 3)];
        assert_eq!(verdicts(&lookup, 3, &frames), [2, FOREIGN, FOREIGN, 2]);
        assert_eq!(look_up(&lookup, 3, &[frame(2, 1)]).1, 1, "it is counted");
        assert_eq!(verdicts(&lookup, 2, &[frame(1, 2)]), [1], "it stays where it is");
        lookup.forget_port(1);
        assert_eq!(verdicts(&lookup, 3, &[frame(2, 1)]), [2]);
        assert_eq!(verdicts(&lookup, 2, &[frame(1, 2)]), [3]);
    }

    #[test]
    fn frames_between_neighbours_are_not_forwarded_unless_asked() {
        for (forward, reserved) in [(false, RESERVED), (true, FLOOD)] {
            let lookup = learning(forward);
            let group = |last: u8| {
                let mut frame = frame(0xff, 1);
                frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, last]);
                frame
            };
            let frames = [group(0), group(1), group(0xf), group(0x10), frame(0xff, 1)];
            assert_eq!(verdicts(&lookup, 1, &frames), [reserved, reserved, reserved, FLOOD, FLOOD]);
            let mut tagged = group(2);
            tagged[12..16].copy_from_slice(&[0x81, 0, 0, 10]);
            assert_eq!(verdicts(&lookup, 1, &[tagged]), [reserved]);
        }
    }

    #[test]
    fn unknown_addresses_are_flooded_until_learned() {
        let lookup = learning(false);
        assert_eq!(verdicts(&lookup, 1, &[frame(2, 1), frame(2, 1)]), [FLOOD, FLOOD]);
        assert_eq!(verdicts(&lookup, 2, &[frame(1, 2), frame(0xff, 2), frame(1, 2)]), [1, FLOOD, 1]);
        assert_eq!(verdicts(&lookup, 1, &[frame(2, 1)]), [2]);
        lookup.forget_port(2);
        assert_eq!(verdicts(&lookup, 1, &[frame(2, 1)]), [FLOOD]);
    }

    #[test]
    fn a_group_source_is_invalid_and_not_learned() {
        let lookup = learning(false);
        let mut bad = frame(1, 9);
        bad[6] = 3;
        assert_eq!(verdicts(&lookup, 1, &[bad, frame(0xff, 1)]), [INVALID, FLOOD]);
        let mut ones = frame(1, 1);
        ones[6..14].fill(0xff);
        assert_eq!(verdicts(&lookup, 1, &[ones, bad, ones]), [INVALID; 3]);
        assert_eq!(lookup.entries(0).len(), 1);
    }
}
