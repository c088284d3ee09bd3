//! Handler calls that are done in pieces, so that packets need not wait while a long one lasts.
use alloc::boxed::Box;
use alloc::string::String;
use core::any::Any;
use core::fmt;

/// Lines that a piece reads or does: some tens of microseconds.
pub const LINES: usize = 256;

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is to be gone on with, after packets have had their turn.
    More,
    /// That was all.
    Done,
}

/// A call on its way.
#[derive(Default)]
pub struct Pieces {
    /// What was read; who made the call may take it away between two pieces.
    pub text: String,
    kept: Option<Box<dyn Any>>,
}

impl Pieces {
    /// The whole answer at once.
    pub fn whole(&mut self, text: String) -> Progress {
        self.text = text;
        Progress::Done
    }

    /// What was kept; the default if that is nothing, or something else.
    pub fn kept<T: Any + Default>(&mut self) -> T {
        let kept = self.kept.take().and_then(|kept| kept.downcast::<T>().ok());
        kept.map(|kept| *kept).unwrap_or_default()
    }

    /// Keeps where the call is to go on.
    pub fn keep<T: Any>(&mut self, place: T) -> Progress {
        self.kept = Some(Box::new(place));
        Progress::More
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").field("text", &self.text).finish_non_exhaustive()
    }
}
