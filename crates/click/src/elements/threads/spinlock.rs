//! What the elements that take locks share.
use crate::arg::{Args, NameKind, Word};
use crate::{Context, Element, Failed};
use alloc::format;

/// Takes or gives back a lock that nobody else ever wants.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spinlock;

impl Element for Spinlock {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut lock = Word::default();
        args.read_mp("LOCK", &mut lock);
        args.complete()?;
        match args.scope().names().value(NameKind::Spinlock, &lock.0, cx.name()) {
            Some(_) => Ok(()),
            None => Err(cx.error(format!("spinlock '{}' does not exist", lock.0))),
        }
    }
}
