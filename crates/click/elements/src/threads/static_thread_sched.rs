//! `StaticThreadSched(ELEMENT THREAD, ...)`: assigns elements to threads. With `ringway click -j N` the thread also
//! runs all elements that are connected with the element, that it names, or that name it; if several threads are given
//! for such a part, the first is used. Without `-j`, one thread runs everything: the number is stored, and returned by
//! the elements' handler `home_thread`.
//!
//! Ports: none.
//!
//! Arguments:
//! - `ELEMENT THREAD`: an element, or a compound for all elements in it, and a thread's number. The most specific
//!   setting applies.
use ringway_click::prelude::*;
use ringway_click_lang::config;

pub static CLASS: Class = Class::new("StaticThreadSched", || Box::new(StaticThreadSched)).reach(Reach::Each);

#[derive(Clone, Copy, Debug)]
pub struct StaticThreadSched;

impl Element for StaticThreadSched {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        for text in args.take_rest() {
            let (name, thread) = config::shift_word(&text);
            let Ok(thread) = cx.parse::<i32>(thread) else {
                return Err(cx.error(format!("expected 'ELEMENT THREAD', not '{text}'")));
            };
            let own = cx.id();
            let thread = match cx.router().threads() {
                Some(count) if !(-1..count as i32).contains(&thread) => {
                    cx.warning(format!("thread preference {thread} out of range"));
                    if thread < 0 { -1 } else { 0 }
                }
                _ => thread,
            };
            let found = cx.router().elements_named(name, own);
            if found.is_empty() {
                return Err(cx.error(format!("'{name}' does not name an element")));
            }
            // Elements of a compound come after those around it, so assignments within the compound take precedence.
            for id in found {
                cx.router().set_thread(id, thread);
            }
        }
        args.complete()
    }
}
