//! `ScheduleInfo(ELEMENT TICKETS, ...)`: sets the share of time that elements' tasks get.
//!
//! Ports: none.
//!
//! Arguments:
//! - `ELEMENT TICKETS`: an element, or a compound for all elements in it; 1 is the default, 2 twice as much.
use ringway_click::arg::Fixed;
use ringway_click::prelude::*;
use ringway_click_lang::config;

pub static CLASS: Class =
    Class::new("ScheduleInfo", || Box::<ScheduleInfo>::default()).phase(Class::LAST).reach(Reach::Each);

/// Default number of tickets of a task.
const DEFAULT: u32 = 10;

#[derive(Debug, Default)]
pub struct ScheduleInfo {
    /// Names, and tickets in 1/1024.
    shares: Vec<(String, u32)>,
}

impl Element for ScheduleInfo {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        for text in args.take_rest() {
            let (name, tickets) = config::shift_word(&text);
            let Ok(tickets) = cx.parse::<Fixed<DEFAULT>>(tickets) else {
                return Err(cx.error(format!("expected 'ELEMENT TICKETS', not '{text}'")));
            };
            let own = cx.id();
            if cx.router().elements_named(name, own).is_empty() {
                return Err(cx.error(format!("no element named '{name}'")));
            }
            self.shares.push((name.into(), tickets.0));
        }
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let own = cx.id();
        for (name, tickets) in &self.shares {
            for id in cx.router().elements_named(name, own) {
                cx.router().set_tickets(id, *tickets);
            }
        }
        Ok(())
    }
}
