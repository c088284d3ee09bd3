//! The queues that an element observes.
use crate::standard::queue::Queue;
use ringway_click::prelude::*;

/// Queues, given by name, or the nearest ones.
#[derive(Debug, Default)]
pub(super) struct Queues {
    named: String,
    all: Vec<ElementId>,
}

impl Queues {
    /// The queues with these names, separated by spaces; the nearest ones if there are no names.
    pub(super) fn named(names: String) -> Self {
        Self { named: names, all: Vec::new() }
    }

    /// Finds the queues; without names, the nearest ones downstream or upstream.
    pub(super) fn find(&mut self, downstream: bool, cx: &mut Context<'_>) -> Result<(), Failed> {
        let names = core::mem::take(&mut self.named);
        for name in names.split_ascii_whitespace() {
            let found = cx.find(name).ok_or_else(|| cx.error(format!("no element named '{name}'")))?;
            self.all.push(found);
        }
        if self.all.is_empty() {
            self.all = cx.nearby(0, downstream, "Storage");
        }
        if self.all.is_empty() {
            return Err(cx.error("no nearby Queues"));
        }
        for queue in &self.all {
            if cx.element::<Queue>(*queue).is_none() {
                let name = cx.router().name(*queue).to_string();
                return Err(cx.error(format!("'{name}' is not a Storage element")));
            }
        }
        Ok(())
    }

    /// Number of packets in all queues.
    pub(super) fn length(&self, cx: &Context<'_>) -> u64 {
        let lengths = self.all.iter().filter_map(|queue| cx.element::<Queue>(*queue)).map(Queue::len);
        lengths.sum::<usize>() as u64
    }

    /// The names of the queues, each followed by `end`.
    pub(super) fn names(&self, cx: &mut Context<'_>, end: &str) -> String {
        self.all.iter().map(|queue| format!("{}{end}", cx.router().name(*queue))).collect()
    }
}
