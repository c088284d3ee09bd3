//! `ARPTable(CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, CAPACITY_SLIM_FACTOR, TIMEOUT)`: holds what ARP has
//! learned, for one or several ARPQuerier.
//!
//! No ports.
//!
//! Arguments:
//! - `CAPACITY`: packets that may wait for an answer; 2048 by default.
//! - `ENTRY_CAPACITY`: addresses it knows at most; not limited if 0, as by default.
//! - `ENTRY_PACKET_CAPACITY`: packets that may wait for one address; not limited if 0, as by default.
//! - `CAPACITY_SLIM_FACTOR`: one part of so many is dropped when too many packets wait; 2 by default.
//! - `TIMEOUT`: how long an answer counts; 5 minutes by default, for ever if 0.
//!
//! Handlers: `table`, `drops`, `count`, `length` (read); `insert`, `delete`, `clear` (write).
use super::arp_entries::{ArpEntries, jiffies};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::any::Any;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Handler, HandlerError, Timer};

/// Facts.
pub static CLASS: Class = Class::new("ARPTable", || Box::<ArpTable>::default()).live();

/// Holds addresses.
#[derive(Debug, Default)]
pub struct ArpTable {
    pub(super) entries: ArpEntries,
}

impl Element for ArpTable {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.entries.read_arguments(args);
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if let Some(period) = self.entries.period() {
            let timer = cx.new_timer();
            cx.set_timer_after(timer, period);
        }
        Ok(())
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        let now = jiffies(cx.steady());
        self.entries.slim(now, usize::MAX);
        cx.set_timer_after(timer, self.entries.period().unwrap_or(ringway_click::SECOND));
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("table"),
            Handler::read("drops"),
            Handler::read("count"),
            Handler::read("length"),
            Handler::write("insert"),
            Handler::write("delete"),
            Handler::write("clear"),
        ]
        .into()
    }

    fn read(&mut self, name: &str, _: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(match name {
            "table" => self.entries.table(jiffies(cx.steady())),
            "drops" => self.entries.drops.to_string(),
            "count" => self.entries.count().to_string(),
            _ => self.entries.length().to_string(),
        })
    }

    fn write(&mut self, name: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        if name == "clear" {
            self.entries.clear();
            return Ok(());
        }
        let now = jiffies(cx.steady());
        self.entries.change(name, value, now, cx)
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let from: &mut dyn Any = from;
        if let Some(from) = from.downcast_mut::<Self>() {
            self.entries.take(&mut from.entries);
        }
    }
}
