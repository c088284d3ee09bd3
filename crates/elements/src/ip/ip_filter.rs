//! `IPFilter(ACTION PATTERN, ...)`: filters IPv4 packets by their contents.
//!
//! Ports: one push input; any number of push outputs.
//!
//! Arguments: each a rule; the first whose pattern matches a packet counts, and without one it is dropped.
//! - `ACTION`: an output's number; `allow`, which is output 0; `deny` or `drop`.
//! - `PATTERN`: as IPClassifier's.
//!
//! Handlers: `program` (read): the decision program, a test of four bytes a line;
//! `drops`; `memory`: bytes of the tables that rules are found by (read). The IPv4 header must be noted.
use super::filter::Filter;
use alloc::boxed::Box;
use alloc::vec::Vec;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Handler, PacketBurst, Progress};

pub static CLASS: Class =
    Class::new("IPFilter", || Box::<IpFilter>::default()).ports("1/-").processing("h").live();

/// Filters packets.
#[derive(Debug, Default)]
pub struct IpFilter {
    filter: Filter,
}

impl Element for IpFilter {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let rules = args.take_rest();
        let outputs = cx.noutputs();
        match Filter::compile(&rules, outputs, args.scope(), &mut || cx.breathe()) {
            Ok(filter) => {
                filter.warnings.iter().for_each(|warning| cx.message(warning.as_str()));
                self.filter = filter;
            }
            Err(errors) => errors.into_iter().for_each(|error| args.error(error)),
        }
        args.complete()
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        self.filter.push(burst, cx);
    }

    fn dispose(&mut self) -> Progress {
        self.filter.give_up()
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("program", |e: &Self| e.filter.text()),
            Handler::read("drops", |e: &Self| e.filter.drops()),
            Handler::read("memory", |e: &Self| e.filter.memory()),
        ]
        .into()
    }
}
