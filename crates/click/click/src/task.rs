//! Tasks: the periodic work of elements, in proportion to their tickets (stride scheduling, Waldspurger
//! 1995).
use crate::ElementId;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// A task of an element; created by [`crate::Context::new_task`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task(pub(crate) u32);

const STRIDE: u64 = 1 << 16;
const DEFAULT_TICKETS: u32 = 1 << 10;
const MOST_TICKETS: u32 = 1 << 15;

#[derive(Debug)]
pub(crate) struct TaskState {
    pub(crate) element: ElementId,
    pub(crate) tickets: u32,
    pub(crate) thread: i32,
    pub(crate) scheduled: bool,
    pass: u64,
    /// The valid heap entry of this task; older entries are void.
    entry: u64,
}

/// All tasks; scheduled ones are ordered by pass.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    pub(crate) all: Vec<TaskState>,
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    entries: u64,
    now: u64,
    pub(crate) scheduled: usize,
}

impl Tasks {
    pub(crate) fn add(&mut self, element: ElementId, thread: i32) -> Task {
        let state =
            TaskState { element, tickets: DEFAULT_TICKETS, thread, scheduled: false, pass: 0, entry: 0 };
        self.all.push(state);
        Task(self.all.len() as u32 - 1)
    }

    fn stride(&self, task: Task) -> u64 {
        STRIDE / u64::from(self.all[task.0 as usize].tickets)
    }

    pub(crate) fn is_scheduled(&self, task: Task) -> bool {
        self.all.get(task.0 as usize).is_some_and(|state| state.scheduled)
    }

    pub(crate) fn set_tickets(&mut self, task: Task, tickets: u32) {
        if let Some(state) = self.all.get_mut(task.0 as usize) {
            state.tickets = tickets.clamp(1, MOST_TICKETS);
        }
    }

    pub(crate) fn reschedule(&mut self, task: Task) {
        if (task.0 as usize) < self.all.len() && !self.is_scheduled(task) {
            let pass = self.now + self.stride(task);
            self.insert(task, pass);
        }
    }

    fn insert(&mut self, task: Task, pass: u64) {
        self.entries += 1;
        self.scheduled += 1;
        let state = &mut self.all[task.0 as usize];
        (state.pass, state.entry, state.scheduled) = (pass, self.entries, true);
        self.heap.push(Reverse((pass, self.entries, task.0)));
    }

    pub(crate) fn unschedule(&mut self, task: Task) {
        if self.is_scheduled(task) {
            self.scheduled -= 1;
            let state = &mut self.all[task.0 as usize];
            (state.scheduled, state.entry) = (false, 0);
        }
    }

    /// Takes the next task to run; it is no longer scheduled.
    pub(crate) fn next(&mut self) -> Option<Task> {
        while let Some(Reverse((pass, entry, task))) = self.heap.pop() {
            let state = &mut self.all[task as usize];
            if state.entry == entry {
                (state.scheduled, state.entry) = (false, 0);
                self.scheduled -= 1;
                self.now = pass;
                return Some(Task(task));
            }
        }
        None
    }

    /// The pass of the first task that is scheduled.
    fn first_pass(&mut self) -> Option<u64> {
        while let Some(Reverse((pass, entry, task))) = self.heap.peek() {
            if self.all[*task as usize].entry == *entry {
                return Some(*pass);
            }
            self.heap.pop();
        }
        None
    }

    /// Reschedules a task after it ran: a task that found nothing to do goes behind the next one. False if it
    /// is the only one and did nothing, so that the round may end.
    pub(crate) fn again(&mut self, task: Task, worked: bool) -> bool {
        let was = self.all[task.0 as usize].pass;
        let mut pass = was + self.stride(task);
        self.unschedule(task);
        let first = self.first_pass();
        if !worked && let Some(first) = first {
            pass = pass.max(first);
        }
        self.insert(task, pass);
        worked || first.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_determine_shares_of_rounds() {
        let mut tasks = Tasks::default();
        let first = tasks.add(ElementId(0), 0);
        let second = tasks.add(ElementId(1), 0);
        tasks.set_tickets(first, 3 * DEFAULT_TICKETS);
        tasks.reschedule(first);
        tasks.reschedule(second);
        let mut runs = [0, 0];
        for _ in 0..400 {
            let task = tasks.next().unwrap();
            runs[task.0 as usize] += 1;
            tasks.reschedule(task);
            tasks.again(task, true);
        }
        assert!((295..=305).contains(&runs[0]), "{runs:?}");
    }

    #[test]
    fn an_unscheduled_task_does_not_run() {
        let mut tasks = Tasks::default();
        let task = tasks.add(ElementId(0), 0);
        tasks.reschedule(task);
        tasks.unschedule(task);
        assert_eq!(tasks.next(), None);
        tasks.reschedule(task);
        assert_eq!(tasks.next(), Some(task));
        assert_eq!(tasks.scheduled, 0);
    }
}
