//! `ARPTable(CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, CAPACITY_SLIM_FACTOR, TIMEOUT)`: stores addresses
//! learned by ARP, for one or more ARPQuerier elements.
//!
//! No ports.
//!
//! Arguments:
//! - `CAPACITY`: maximum number of packets that wait for a reply; 2048 by default.
//! - `ENTRY_CAPACITY`: maximum number of addresses; unlimited if 0, as by default.
//! - `ENTRY_PACKET_CAPACITY`: maximum number of packets that wait for one address; unlimited if 0, as by default.
//! - `CAPACITY_SLIM_FACTOR`: the fraction 1/FACTOR of waiting packets is dropped when too many wait; 2 by default.
//! - `TIMEOUT`: lifetime of a learned address; 5 minutes by default, unlimited if 0.
//!
//! Handlers: `table`, `drops`, `count`, `length` (read); `insert`, `delete`, `clear` (write).
use super::arp_entries::{ArpEntries, jiffies};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("ARPTable", || Box::<ArpTable>::default()).live();

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
            Handler::read_with("table", |e: &mut Self, _, cx| Ok(e.entries.table(jiffies(cx.steady())))),
            Handler::counter("drops", |e: &mut Self| &mut e.entries.drops),
            Handler::read("count", |e: &Self| e.entries.count()),
            Handler::read("length", |e: &Self| e.entries.length()),
            Handler::write("insert", |e: &mut Self, value, cx| {
                e.entries.change(true, value, jiffies(cx.steady()), cx)
            }),
            Handler::write("delete", |e: &mut Self, value, cx| {
                e.entries.change(false, value, jiffies(cx.steady()), cx)
            }),
            Handler::write("clear", |e: &mut Self, _, _| {
                e.entries.clear();
                Ok(())
            }),
        ]
        .into()
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        if let Some(from) = from.downcast_mut::<Self>() {
            self.entries.take(&mut from.entries);
        }
    }
}
