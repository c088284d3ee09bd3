//! `Suppressor`: passes packets from each input to the output with the same number, unless the pair is suppressed.
//!
//! Ports: as many inputs as outputs, each pair push or pull. No arguments.
//!
//! Handlers: `active0`, `active1`, ... (read, write), one for each pair: false drops pushed packets and refuses
//! pulls; `reset` (write): activates all pairs.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("Suppressor", || Box::<Suppressor>::default()).ports("-/=").flow("#/#");

#[derive(Debug, Default)]
pub struct Suppressor {
    active: Vec<bool>,
}

impl Suppressor {
    /// Activates or suppresses a pair of ports.
    pub(crate) fn set_active(&mut self, port: usize, active: bool) {
        if let Some(own) = self.active.get_mut(port) {
            *own = active;
        }
    }
}

impl Element for Suppressor {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.active = alloc::vec![true; cx.ninputs()];
        args.complete()
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if self.active.get(port) == Some(&true) {
            cx.push_burst(port, burst);
        }
        burst.clear();
    }

    fn pull(&mut self, port: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if self.active.get(port) == Some(&true) {
            cx.lend(self, |cx| cx.pull(port, max, burst));
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        let port = |port| {
            let active = Handler::field(format!("active{port}"), move |e: &mut Self| &mut e.active[port]);
            active.checkbox().error("syntax error")
        };
        let reset = Handler::button("reset", |e: &mut Self, _| e.active.fill(true));
        (0..self.active.len()).map(port).chain([reset]).collect()
    }
}
