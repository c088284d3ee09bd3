//! Bytes that are sent from where they are: a file's mapping, or memory that several connections send.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::fmt::Debug;
use core::ops::Range;
use ringway_mem::Span;

/// Bytes that are sent without a copy to the send buffer. The stack reads them each time that it sends them, so they
/// must stay until the peer has acknowledged them. If they change meanwhile, the peer may receive either.
pub trait Source: Debug + Send + Sync {
    /// Number of bytes.
    fn len(&self) -> usize;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part of them, shorter than the range only if the others are gone; connections that send those are reset.
    fn span(&self, range: Range<usize>) -> Span<'_>;

    /// Whether they are gone, so that `span` finds others. Connections that send them are reset.
    fn is_lost(&self) -> bool {
        false
    }

    /// Whether they can't be gone as long as the source exists, so that nobody asks.
    fn is_fixed(&self) -> bool {
        false
    }
}

impl<T: AsRef<[u8]> + Debug + Send + Sync> Source for T {
    fn len(&self) -> usize {
        self.as_ref().len()
    }

    fn span(&self, range: Range<usize>) -> Span<'_> {
        Span::of(self.as_ref().get(range).unwrap_or_default())
    }
}

/// Runs that a send buffer keeps. Each needs memory, however short it is.
const RUNS: usize = 4096;

/// A run of bytes of a source in a send buffer.
#[derive(Debug)]
pub(super) struct Run {
    /// The offset of the first byte in the stream.
    pub start: u64,
    pub end: u64,
    /// Bytes of all runs before this one, from the stream's begin on.
    before: u64,
    source: Arc<dyn Source>,
    /// The place of the first byte in the source.
    from: usize,
}

impl Run {
    /// The bytes `start .. end` of the stream, which are a part of the run.
    pub fn span(&self, start: u64, end: u64) -> Span<'_> {
        let at = self.from + (start - self.start) as usize;
        self.source.span(at..at + (end - start) as usize)
    }
}

/// The runs of a send buffer, in order.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: VecDeque<Run>,
    /// Bytes of all runs until now, and of those that are forgotten.
    total: u64,
    gone: u64,
    /// Runs whose source may be gone.
    unsure: usize,
    /// Some bytes could not be read.
    lost: bool,
}

impl Runs {
    /// Appends `range` of a source at `start` in the stream. `false`: there are too many runs.
    pub fn push(&mut self, start: u64, source: &Arc<dyn Source>, range: Range<usize>) -> bool {
        let (end, before) = (start + range.len() as u64, self.total);
        if let Some(last) = self.runs.back_mut()
            && last.end == start
            && Arc::ptr_eq(&last.source, source)
            && last.from + (last.end - last.start) as usize == range.start
        {
            last.end = end;
            self.total += end - start;
            return true;
        }
        let has_room = self.runs.len() < RUNS;
        if has_room {
            self.runs.push_back(Run { start, end, before, source: source.clone(), from: range.start });
            self.total += end - start;
            self.unsure += usize::from(!source.is_fixed());
        }
        has_room
    }

    /// Notes that bytes could not be read.
    pub fn lose(&mut self) {
        self.lost = true;
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Bytes of runs before an offset of the stream.
    pub fn before(&self, offset: u64) -> u64 {
        let begun = self.runs.partition_point(|run| run.start < offset);
        let last = begun.checked_sub(1).and_then(|last| self.runs.get(last));
        last.map_or(0, |run| run.before + run.end.min(offset) - run.start - self.gone)
    }

    /// The first run that ends after an offset.
    pub fn at(&self, offset: u64) -> Option<&Run> {
        self.runs.get(self.runs.partition_point(|run| run.end <= offset))
    }

    /// Forgets bytes before an offset.
    pub fn acknowledge(&mut self, offset: u64) {
        while let Some(run) = self.runs.pop_front_if(|run| run.end <= offset) {
            self.unsure -= usize::from(!run.source.is_fixed());
            self.gone = run.before + run.end - run.start;
        }
        if let Some(first) = self.runs.front_mut().filter(|first| first.start < offset) {
            let count = offset - first.start;
            first.from += count as usize;
            first.before += count;
            first.start = offset;
            self.gone = first.before;
        }
    }

    /// Whether a source is gone, or became shorter.
    pub fn is_lost(&self) -> bool {
        let end = |run: &Run| run.from + (run.end - run.start) as usize;
        let gone = |run: &Run| run.source.is_lost() || run.source.len() < end(run);
        self.lost || self.unsure > 0 && self.runs.iter().any(gone)
    }
}
