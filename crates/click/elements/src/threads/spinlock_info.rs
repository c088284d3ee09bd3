//! `SpinlockInfo(NAME, ...)`: names locks.
//!
//! No ports, no handlers. The names are valid in its compound element and in those inside.
//!
//! Arguments: names.
//!
//! One thread runs all elements with the same lock, so no element ever waits for it.
use ringway_click::arg::NameKind;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("SpinlockInfo", || Box::new(SpinlockInfo)).phase(Class::INFO).reach(Reach::Each);

#[derive(Clone, Copy, Debug)]
pub struct SpinlockInfo;

impl Element for SpinlockInfo {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        for name in args.take_rest() {
            args.scope().names().define(NameKind::Spinlock, &name, cx.name(), &[]);
        }
        args.complete()
    }
}
