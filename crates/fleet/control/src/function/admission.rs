//! Which messages of a function's process reach the engine: each kind as often as it has a meaning.

use super::FunctionMessage;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Largest message in bytes. Attack: a message that takes all memory.
pub const LARGEST: usize = 1 << 20;
/// Attack: a process that sends messages without end, each of which the engine would handle and log. After so many
/// without a meaning it is ended.
const MOST: u32 = 100;

/// Number of snapshots that were ordered and not reported.
pub type Ordered = Arc<AtomicU32>;

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The message is passed on.
    Yes,
    /// The message is dropped.
    No,
    /// The message is dropped and exceeds the limit: the process is to be ended.
    TooMany,
}

/// The messages of a process so far.
#[derive(Debug, Default)]
pub struct Admission {
    up: bool,
    fallback: bool,
    wrong: bool,
    ordered: Ordered,
    dropped: u32,
}

impl Admission {
    /// The admission of a process that has sent no message.
    pub fn new(ordered: Ordered) -> Admission {
        Admission { ordered, ..Admission::default() }
    }

    /// Decides about a message.
    pub fn admit(&mut self, message: &FunctionMessage) -> Admitted {
        let first = |said: &mut bool| !std::mem::replace(said, true);
        let has_meaning = match message {
            FunctionMessage::Up => first(&mut self.up),
            FunctionMessage::Fallback(_) => first(&mut self.fallback),
            FunctionMessage::Wrong(_) => first(&mut self.wrong),
            FunctionMessage::Snapshot(_) => {
                // Only this thread takes some away.
                let is_ordered = self.ordered.load(SeqCst) > 0;
                self.ordered.fetch_sub(is_ordered.into(), SeqCst);
                is_ordered
            }
        };
        if has_meaning {
            return Admitted::Yes;
        }
        self.dropped += 1;
        if self.dropped < MOST { Admitted::No } else { Admitted::TooMany }
    }

    /// Number of messages that were dropped.
    pub fn dropped(&self) -> u32 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_pass_as_often_as_they_have_a_meaning() {
        let ordered = Ordered::default();
        let mut admission = Admission::new(ordered.clone());
        let wrong = || FunctionMessage::Wrong("why".into());
        let taken = || FunctionMessage::Snapshot(Ok("state".into()));
        assert_eq!(admission.admit(&FunctionMessage::Fallback("no KVM".into())), Admitted::Yes);
        assert_eq!(admission.admit(&FunctionMessage::Up), Admitted::Yes);
        assert_eq!(admission.admit(&FunctionMessage::Up), Admitted::No);
        assert_eq!(admission.admit(&taken()), Admitted::No, "nobody ordered one");
        ordered.fetch_add(2, SeqCst);
        assert_eq!([admission.admit(&taken()), admission.admit(&taken())], [Admitted::Yes; 2]);
        assert_eq!(admission.admit(&taken()), Admitted::No);
        assert_eq!([admission.admit(&wrong()), admission.admit(&wrong())], [Admitted::Yes, Admitted::No]);
        assert_eq!(admission.dropped(), 4);
        let rest: Vec<Admitted> = (4..MOST).map(|_| admission.admit(&FunctionMessage::Up)).collect();
        let (last, others) = rest.split_last().unwrap();
        assert_eq!(*last, Admitted::TooMany);
        assert!(others.iter().all(|admitted| *admitted == Admitted::No));
    }
}
