//! Common code of elements with locks.
use ringway_click::arg::{NameKind, Word};
use ringway_click::prelude::*;

/// Acquires or releases a lock that is never contended.
#[derive(Clone, Debug, Default)]
pub(super) struct Spinlock {
    name: String,
}

impl Element for Spinlock {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut lock = Word::default();
        args.read_mp("LOCK", &mut lock);
        args.complete()?;
        match args.scope().names().value(NameKind::Spinlock, &lock.0, cx.name()) {
            Some(_) => {
                self.name = lock.0;
                Ok(())
            }
            None => Err(cx.error(format!("spinlock '{}' does not exist", lock.0))),
        }
    }

    fn shares(&self) -> Option<String> {
        Some(format!("lock {}", self.name))
    }
}
