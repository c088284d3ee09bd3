//! Sorts the frames of a burst into one list per destination, in order.

use crate::{FLOOD, NO_PORT, PortId, Verdicts};
use ringway_frame::BURST;

/// An entry of `list_of` whose destination has no list.
const NONE: u8 = u8::MAX;

/// Consecutive frames of a burst that are all flooded or all not; from the end of the previous run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Frames up to this index each go to at most one port.
    Unicast(usize),
    /// Frames up to this index are flooded.
    Flood(usize),
}

impl Run {
    /// The run that begins at `start`. It ends where frames change between flooded and not flooded, so that
    /// the order of frames per destination is kept.
    #[inline]
    pub fn at(verdicts: &Verdicts, start: usize, count: usize) -> Run {
        let rest = &verdicts[start.min(count)..count.min(BURST)];
        let flood = rest.first() == Some(&FLOOD);
        let len = rest.iter().position(|&verdict| (verdict == FLOOD) != flood).unwrap_or(rest.len());
        if flood { Run::Flood(start + len) } else { Run::Unicast(start + len) }
    }
}

/// The frames for one destination.
#[derive(Clone, Debug)]
pub struct List {
    /// The destination's number, assigned by the caller of [`Sorter::sort`].
    pub destination: u32,
    count: usize,
    frames: [u16; BURST],
}

impl List {
    /// Indices of the frames in the burst, ascending.
    #[inline]
    pub fn frames(&self) -> &[u16] {
        &self.frames[..self.count]
    }
}

/// Sorts the frames of a burst by destination. The cost depends on the number of frames, not of ports.
#[derive(Debug)]
pub struct Sorter {
    /// Index of each destination's list, or [`NONE`].
    list_of: Vec<u8>,
    lists: Vec<List>,
    used: usize,
}

impl Default for Sorter {
    fn default() -> Sorter {
        let list = List { destination: 0, count: 0, frames: [0; BURST] };
        Sorter { list_of: Vec::new(), lists: vec![list; BURST], used: 0 }
    }
}

impl Sorter {
    /// Makes one list of frames `start..end`, for a destination below the `destinations` of every later sort.
    #[inline]
    pub fn all(&mut self, (start, end): (usize, usize), destination: u32) -> &[List] {
        self.clear();
        let (start, end) = (start.min(BURST), end.min(BURST));
        let list = &mut self.lists[0];
        list.destination = destination;
        list.count = end.saturating_sub(start);
        for (slot, frame) in list.frames.iter_mut().zip(start..end) {
            *slot = frame as u16;
        }
        self.used = usize::from(list.count > 0);
        &self.lists[..self.used]
    }

    /// Clears the lists.
    #[inline]
    fn clear(&mut self) {
        for list in &self.lists[..self.used] {
            if let Some(slot) = self.list_of.get_mut(list.destination as usize) {
                *slot = NONE;
            }
        }
        self.used = 0;
    }

    /// Sorts frames `start..end`. `destination` maps a frame's index and port to a destination number below
    /// `destinations`, or `None` to drop the frame.
    #[inline]
    pub fn sort(
        &mut self,
        verdicts: &Verdicts,
        (start, end): (usize, usize),
        destinations: usize,
        mut destination: impl FnMut(usize, PortId) -> Option<u32>,
    ) -> &[List] {
        self.clear();
        if self.list_of.len() < destinations {
            self.list_of.resize(destinations, NONE);
        }
        for (index, &port) in verdicts.iter().enumerate().take(end).skip(start) {
            if port >= NO_PORT {
                continue;
            }
            let Some(number) = destination(index, port) else { continue };
            let Some(slot) = self.list_of.get_mut(number as usize) else { continue };
            if *slot == NONE {
                *slot = self.used as u8;
                let list = &mut self.lists[self.used];
                (list.destination, list.count) = (number, 0);
                self.used += 1;
            }
            let list = &mut self.lists[usize::from(*slot)];
            list.frames[list.count] = index as u16;
            list.count += 1;
        }
        &self.lists[..self.used]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NOWHERE;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_frame_is_in_its_list_once_and_in_order(
            bursts in prop::collection::vec(prop::collection::vec(0u16..100, 0..=BURST), 1..5),
        ) {
            let mut sorter = Sorter::default();
            for ports in bursts {
                let mut verdicts = [NOWHERE; BURST];
                verdicts[..ports.len()].copy_from_slice(&ports);
                let lists = sorter.sort(&verdicts, (0, ports.len()), 100, |_, port| Some(u32::from(port)));
                let mut seen = 0;
                for list in lists {
                    prop_assert!(list.frames().windows(2).all(|pair| pair[0] < pair[1]));
                    for &frame in list.frames() {
                        prop_assert_eq!(u32::from(ports[usize::from(frame)]), list.destination);
                    }
                    seen += list.frames().len();
                }
                prop_assert_eq!(seen, ports.len());
            }
        }
    }

    #[test]
    fn frames_for_one_destination_need_no_sorting() {
        let mut sorter = Sorter::default();
        let frames = |lists: &[List]| -> Vec<(u32, Vec<u16>)> {
            lists.iter().map(|list| (list.destination, list.frames().to_vec())).collect()
        };
        assert_eq!(frames(sorter.all((2, 5), 7)), [(7, vec![2, 3, 4])]);
        let verdicts = [3; BURST];
        let by_sorting = frames(sorter.sort(&verdicts, (2, 5), 9, |_, port| Some(u32::from(port))));
        assert_eq!(by_sorting, [(3, vec![2, 3, 4])]);
        assert_eq!(frames(sorter.all((0, BURST), 3))[0].1.len(), BURST);
        assert!(sorter.all((5, 5), 1).is_empty());
    }

    #[test]
    fn a_run_ends_where_flooding_starts_or_stops() {
        let mut verdicts = [NOWHERE; BURST];
        verdicts[..5].copy_from_slice(&[1, NOWHERE, FLOOD, FLOOD, 2]);
        assert_eq!(Run::at(&verdicts, 0, 5), Run::Unicast(2));
        assert_eq!(Run::at(&verdicts, 2, 5), Run::Flood(4));
        assert_eq!(Run::at(&verdicts, 4, 5), Run::Unicast(5));
    }
}
