//! Handler calls in steps, so that packets are handled during long calls.
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::any::Any;
use core::fmt::{self, Display};

/// Lines read or written per step, which takes some tens of microseconds at most: callers perform as many steps as
/// fit into the time before packets are handled again.
pub const LINES: usize = 32;

/// Progress of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The call must be continued, after packets have been handled.
    More,
    /// The call is complete.
    Done,
}

/// A call in progress.
#[derive(Default)]
pub struct Pieces {
    /// The text read so far; the caller may take it away between two steps.
    pub text: String,
    kept: Option<Box<dyn Any>>,
}

impl Pieces {
    /// The whole answer in one step.
    pub fn whole(&mut self, text: String) -> Progress {
        self.text = text;
        Progress::Done
    }

    /// A value as the whole answer.
    pub(crate) fn show(&mut self, value: &dyn Display) -> Progress {
        self.whole(value.to_string())
    }

    /// The stored position; the default if none of this type is stored.
    pub fn kept<T: Any + Default>(&mut self) -> T {
        let kept = self.kept.take().and_then(|kept| kept.downcast::<T>().ok());
        kept.map(|kept| *kept).unwrap_or_default()
    }

    /// Stores the position for the next step.
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
