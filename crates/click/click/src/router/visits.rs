//! Calls from other threads that are performed in steps.
use crate::{HandlerCall, HandlerError, Pieces};
use alloc::collections::VecDeque;

/// Attack: callers that disappear during a call, one after the other. Largest number of calls in progress.
const MOST: usize = 256;

/// Calls in progress.
#[derive(Default)]
pub(super) struct Visits {
    count: u64,
    waiting: VecDeque<(u64, HandlerCall, Pieces)>,
}

impl Visits {
    /// Continues a call, or begins one.
    pub(super) fn resume(
        &mut self,
        number: Option<u64>,
        first: Option<HandlerCall>,
    ) -> Result<(u64, HandlerCall, Pieces), HandlerError> {
        if let Some(call) = first {
            self.count += 1;
            return Ok((self.count, call, Pieces::default()));
        }
        let at = self.waiting.iter().position(|(known, ..)| Some(*known) == number);
        let found = at.and_then(|at| self.waiting.remove(at));
        found.ok_or_else(|| HandlerError::failed("too many calls are under way"))
    }

    /// Stores a call until it is continued; returns its number.
    pub(super) fn pause(&mut self, number: u64, call: HandlerCall, pieces: Pieces) -> u64 {
        if self.waiting.len() >= MOST {
            self.waiting.pop_front();
        }
        self.waiting.push_back((number, call, pieces));
        number
    }
}
