//! Timers: one heap per router, ordered by expiry, then by the order in which they were set.
use crate::{BEHIND, ElementId};
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// A timer of an element; created by [`crate::Context::new_timer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer(pub(crate) u32);

#[derive(Debug)]
struct TimerState {
    element: ElementId,
    /// Its expiry on the steady clock; valid while it is set.
    expiry: u64,
    /// Its entry in the heap; 0 if it is not set.
    entry: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    all: Vec<TimerState>,
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    entries: u64,
}

impl Timers {
    pub(crate) fn add(&mut self, element: ElementId) -> Timer {
        self.all.push(TimerState { element, expiry: 0, entry: 0 });
        Timer(self.all.len() as u32 - 1)
    }

    /// The timers of an element, in the order in which they were made.
    pub(crate) fn of(&self, element: ElementId) -> impl Iterator<Item = Timer> {
        let own = self.all.iter().enumerate().filter(move |(_, state)| state.element == element);
        own.map(|(index, _)| Timer(index as u32))
    }

    pub(crate) fn set(&mut self, timer: Timer, expiry: u64) {
        let Some(state) = self.all.get_mut(timer.0 as usize) else { return };
        self.entries += 1;
        (state.expiry, state.entry) = (expiry, self.entries);
        self.heap.push(Reverse((expiry, self.entries, timer.0)));
        // Attack: setting a timer repeatedly before it expires, which leaves an entry each time.
        if self.heap.len() > 64 + 2 * self.all.len() {
            let all = &self.all;
            self.heap.retain(|Reverse((_, entry, timer))| all[*timer as usize].entry == *entry);
        }
    }

    pub(crate) fn cancel(&mut self, timer: Timer) {
        if let Some(state) = self.all.get_mut(timer.0 as usize) {
            state.entry = 0;
        }
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.all.get(timer.0 as usize).is_some_and(|state| state.entry != 0)
    }

    /// Its expiry, or its last one.
    pub(crate) fn expiry(&self, timer: Timer) -> u64 {
        self.all.get(timer.0 as usize).map_or(0, |state| state.expiry)
    }

    pub(crate) fn element(&self, timer: Timer) -> ElementId {
        self.all[timer.0 as usize].element
    }

    /// When the next one expires.
    pub(crate) fn next_expiry(&mut self) -> Option<u64> {
        while let Some(Reverse((expiry, entry, timer))) = self.heap.peek() {
            if self.all[*timer as usize].entry == *entry {
                return Some(*expiry);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes a timer that has expired by `now`; it is no longer set. One that is more than [`BEHIND`] overdue counts as
    /// expired now, as in Click, so that a periodic timer does not run once for each period that it missed.
    pub(crate) fn take(&mut self, now: u64) -> Option<Timer> {
        if self.next_expiry()? > now {
            return None;
        }
        let Reverse((_, _, timer)) = self.heap.pop()?;
        let state = &mut self.all[timer as usize];
        state.entry = 0;
        if state.expiry < now.saturating_sub(BEHIND) {
            state.expiry = now;
        }
        Some(Timer(timer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_timers_fire_in_order() {
        let mut timers = Timers::default();
        let made: Vec<Timer> = (0..3).map(|_| timers.add(ElementId(0))).collect();
        timers.set(made[0], 30);
        timers.set(made[1], 10);
        timers.set(made[2], 10);
        timers.set(made[0], 5);
        assert_eq!(timers.take(4), None);
        assert_eq!(timers.take(5), Some(made[0]));
        assert_eq!(timers.take(20), Some(made[1]));
        timers.cancel(made[2]);
        assert_eq!(timers.take(100), None);
        assert!(!timers.is_set(made[0]));
    }

    #[test]
    fn a_timer_catches_up_for_a_second_only() {
        let mut timers = Timers::default();
        let timer = timers.add(ElementId(0));
        let mut runs = |late: u64| {
            let (start, period) = (1_000 * BEHIND, BEHIND / 200);
            timers.set(timer, start);
            let mut runs = 0;
            while timers.take(start + late).is_some() {
                runs += 1;
                timers.set(timer, timers.expiry(timer) + period);
            }
            runs
        };
        assert_eq!([0, BEHIND / 2, BEHIND, BEHIND + 1, 60 * BEHIND].map(&mut runs), [1, 101, 201, 1, 1]);
    }

    #[test]
    fn rescheduling_a_timer_takes_no_memory() {
        let mut timers = Timers::default();
        let timer = timers.add(ElementId(0));
        for expiry in 0..10_000 {
            timers.set(timer, expiry);
        }
        assert!(timers.heap.len() < 100);
        assert_eq!(timers.next_expiry(), Some(9_999));
    }
}
