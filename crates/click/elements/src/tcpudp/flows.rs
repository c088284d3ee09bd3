//! Flows for sources that generate frames in random order.
use ringway_click::prelude::*;

/// Maximum number of flows. Attack: a configuration that exhausts memory.
const MOST: u32 = 1 << 20;

/// A flow's ports, and the number of its frames generated so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) ports: [u16; 2],
    pub(super) made: u32,
}

impl Flow {
    /// A flow with random ports.
    fn new(cx: &mut Context<'_>) -> Self {
        let ports = cx.random();
        Self { ports: [(ports >> 16) as u16, ports as u16], made: 0 }
    }
}

#[derive(Debug, Default)]
pub(super) struct Flows {
    pub(super) all: Vec<Flow>,
    /// Frames per flow.
    pub(super) size: u32,
    count: u32,
}

impl Flows {
    /// Reads FLOWS and FLOWSIZE.
    pub(super) fn read_arguments(&mut self, args: &mut Args) {
        args.read_mp("FLOWS", &mut self.count);
        if !(1..=MOST).contains(&self.count) {
            args.error(format!("FLOWS must be between 1 and {MOST}"));
            self.count = 1;
        }
        args.read_mp("FLOWSIZE", &mut self.size);
    }

    /// Initializes the flows, each with random ports.
    pub(super) fn begin(&mut self, cx: &mut Context<'_>) {
        self.all = (0..self.count).map(|_| Flow::new(cx)).collect();
    }

    /// Chooses a random flow, restarts it if all its frames were made, and counts one more frame.
    pub(super) fn next(&mut self, cx: &mut Context<'_>) -> Option<Flow> {
        let chosen = (u64::from(cx.random()) * self.all.len() as u64) >> 32;
        let flow = self.all.get_mut(chosen as usize)?;
        if flow.made >= self.size {
            *flow = Flow::new(cx);
        }
        flow.made += 1;
        Some(*flow)
    }
}
