//! Bytes that are sent from where they are: a file's mapping, or memory that several connections send.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::fmt::Debug;
use core::ops::Range;
use ringway_mem::Span;

/// Bytes that are sent without a copy to the send buffer. The stack reads them each time that it sends them, so they
/// must stay until the peer has acknowledged them. If they change meanwhile, the peer may receive either.
pub trait Source: Debug + Send + Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part of them, shorter than the range only if the others are gone; connections that send those are reset.
    fn span(&self, range: Range<usize>) -> Span<'_>;

    /// Whether they are gone, so that `span` finds others. Connections that send them are reset.
    fn is_lost(&self) -> bool {
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
const RUNS: usize = 1024;

/// A run of bytes of a source in a send buffer.
#[derive(Debug)]
pub(super) struct Run {
    /// The offset of the first byte in the stream.
    pub start: u64,
    pub end: u64,
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
    /// Some bytes could not be read.
    lost: bool,
}

impl Runs {
    /// Appends `range` of a source at `start` in the stream. `false`: there are too many runs.
    pub fn push(&mut self, start: u64, source: &Arc<dyn Source>, range: Range<usize>) -> bool {
        let end = start + range.len() as u64;
        if let Some(last) = self.runs.back_mut()
            && last.end == start
            && Arc::ptr_eq(&last.source, source)
            && last.from + (last.end - last.start) as usize == range.start
        {
            last.end = end;
            return true;
        }
        let has_room = self.runs.len() < RUNS;
        if has_room {
            self.runs.push_back(Run { start, end, source: source.clone(), from: range.start });
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
        let until = |run: &Run| run.end.min(offset).saturating_sub(run.start);
        self.runs.iter().take_while(|run| run.start < offset).map(until).sum()
    }

    /// The first run that ends after an offset.
    pub fn at(&self, offset: u64) -> Option<&Run> {
        self.runs.get(self.runs.partition_point(|run| run.end <= offset))
    }

    /// Forgets bytes before an offset.
    pub fn acknowledge(&mut self, offset: u64) {
        while self.runs.pop_front_if(|run| run.end <= offset).is_some() {}
        if let Some(first) = self.runs.front_mut().filter(|first| first.start < offset) {
            first.from += (offset - first.start) as usize;
            first.start = offset;
        }
    }

    /// Whether a source is gone, or became shorter.
    pub fn is_lost(&self) -> bool {
        let end = |run: &Run| run.from + (run.end - run.start) as usize;
        self.lost || self.runs.iter().any(|run| run.source.is_lost() || run.source.len() < end(run))
    }
}
