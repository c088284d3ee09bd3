//! Drop-tail: what finds the queue full is dropped.

use super::{Fifo, Limit, Waiting};
use crate::Frame;
use crate::link::{Counters, Reason};

/// `mark`: frames that find more bytes than this are marked, as DCTCP wants.
pub(super) fn enqueue<F: Frame>(
    fifo: &mut Fifo<F>,
    mut waiting: Waiting<F>,
    limit: Limit,
    mark: Option<usize>,
    counters: &mut Counters,
) {
    if !limit.has_room(fifo.len(), fifo.bytes, waiting.frame.len()) {
        return counters.drop(Reason::Full);
    }
    if mark.is_some_and(|mark| fifo.bytes > mark) {
        counters.marked += u64::from(waiting.frame.mark());
    }
    fifo.push(waiting);
}
