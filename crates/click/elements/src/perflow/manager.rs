//! The flow manager: numbers flows, and holds each flow's memory.
use super::flow_space::{KIND, SIZE};
use crate::flow::connection::{Connection, Headers};
use crate::flow::table::FlowTable;
use crate::packet::bounded;
use ringway_click::arg::{KEYWORD, POSITIONAL, Seconds};
use ringway_click::prelude::*;
use ringway_click::{OrderedMap, PACKETS, sort};

/// The name of flow managers for [`Element::cast`].
pub(super) const MANAGER: &str = "FlowManager";
/// Flows per block of memory.
const BLOCK: usize = 1024;
/// Slots examined for expired flows per burst.
const STEPS: usize = 16;
/// Largest RESERVE, in bytes.
const RESERVE: i128 = 1 << 12;
/// Largest memory of all flows. Attack: a configuration that exhausts memory.
const MOST: u64 = 1 << 31;

/// Finds the flow of each packet.
#[derive(Debug)]
pub(super) struct FlowManager {
    table: FlowTable<Connection, ()>,
    /// Nanoseconds without packets after which a flow ends; 0 for never.
    timeout: u64,
    /// Printed if flows never end.
    warning: Option<&'static str>,
    reserve: usize,
    /// Offset of each element's part of a flow's memory.
    offsets: OrderedMap<ElementId, usize>,
    /// Bytes of memory per flow.
    width: usize,
    memory: Vec<Box<[u8]>>,
    opened: u64,
}

impl FlowManager {
    /// `timeout` is the default of TIMEOUT, in seconds.
    pub(super) fn new(timeout: u64, warning: Option<&'static str>) -> Self {
        Self {
            table: FlowTable::default(),
            timeout: timeout * SECOND,
            warning,
            reserve: 0,
            offsets: OrderedMap::new(),
            width: 0,
            memory: Vec::new(),
            opened: 0,
        }
    }

    /// Offset of an element's part.
    pub(super) fn offset(&self, element: ElementId) -> Option<usize> {
        self.offsets.get(element).copied()
    }

    /// Number of current flows.
    pub(super) fn live(&self) -> u32 {
        self.table.len()
    }

    /// The block of a flow's memory, and the offset in it.
    fn place(&self, flow: u32) -> (usize, usize) {
        (flow as usize / BLOCK, flow as usize % BLOCK * self.width)
    }

    /// The part at `offset` of a flow's memory, which is zeroed when the flow begins.
    pub(super) fn part(&mut self, flow: u32, offset: usize) -> Option<&mut [u8; SIZE]> {
        let (block, at) = self.place(flow);
        self.memory.get_mut(block)?.get_mut(at + offset..)?.first_chunk_mut()
    }

    /// The parts at `offset` of all current flows.
    pub(super) fn parts(&self, offset: usize) -> impl Iterator<Item = &[u8; SIZE]> {
        let flows = (0..self.table.slots() as u32).filter(|flow| self.table.get(*flow).is_some());
        flows.filter_map(move |flow| {
            let (block, at) = self.place(flow);
            self.memory.get(block)?.get(at + offset..)?.first_chunk()
        })
    }

    /// Clears the memory of a new flow.
    fn open(&mut self, flow: u32) {
        self.opened += 1;
        let (block, at) = self.place(flow);
        while self.memory.len() <= block {
            self.memory.push(vec![0; BLOCK * self.width].into_boxed_slice());
        }
        if let Some(memory) = self.memory[block].get_mut(at..at + self.width) {
            memory.fill(0);
        }
    }

    /// Assigns offsets to the elements with flow memory downstream, up to other managers, in topological order.
    fn allocate(&mut self, cx: &mut Context<'_>) {
        let own = cx.id();
        let router = cx.router();
        let ids: Vec<ElementId> = router.ids().collect();
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); ids.len()];
        for connection in &router.graph().connections {
            let ends = (connection.from.element, connection.to.element);
            if let Some(after) = next.get_mut(ends.0) {
                after.push(ends.1);
            }
        }
        let kind = |at: usize, kind| ids.get(at).is_some_and(|id| router.is_kind(*id, kind));
        // Depth-first search in postorder; back edges are ignored.
        let (mut seen, mut order) = (vec![false; ids.len()], Vec::new());
        let mut path = vec![(own.index(), 0)];
        seen[own.index()] = true;
        while let Some((at, edge)) = path.last_mut() {
            match next[*at].get(*edge).copied() {
                Some(to) => {
                    *edge += 1;
                    if to < seen.len() && !seen[to] && !kind(to, MANAGER) {
                        seen[to] = true;
                        path.push((to, 0));
                    }
                }
                None => {
                    order.push(*at);
                    path.pop();
                }
            }
        }
        let mut begins = vec![self.reserve; ids.len()];
        self.width = self.reserve;
        for at in order.into_iter().rev() {
            let mut end = begins[at];
            if kind(at, KIND) {
                self.offsets.insert(ids[at], end);
                end += SIZE;
            }
            self.width = self.width.max(end);
            next[at].iter().filter(|to| seen[**to]).for_each(|to| begins[*to] = begins[*to].max(end));
        }
    }
}

impl Element for FlowManager {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut capacity, mut timeout) = (65_536u32, Seconds((self.timeout / SECOND) as u32));
        args.read_with("CAPACITY", POSITIONAL, &mut capacity, bounded(1, crate::flow::table::LARGEST.into()));
        args.read_with("RESERVE", KEYWORD, &mut self.reserve, bounded(0, RESERVE));
        args.read("TIMEOUT", &mut timeout);
        for keyword in ["VERBOSE", "CACHE", "RECYCLE_INTERVAL", "LF"] {
            args.read_with(keyword, KEYWORD, &mut (), |_, _| Ok(()));
        }
        args.complete()?;
        self.timeout = u64::from(timeout.0) * SECOND;
        let seed = cx.own_seed();
        self.table = FlowTable::new(capacity, seed);
        if let Some(warning) = self.warning.filter(|_| self.timeout == 0) {
            cx.chatter(format_args!("{warning}"));
        }
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.allocate(cx);
        if self.width as u64 * u64::from(self.table.capacity()) > MOST {
            let text = alloc::format!("CAPACITY too large for flows of {} bytes each", self.width);
            return Err(cx.error(text));
        }
        let mut places: Vec<(usize, ElementId)> = self.offsets.iter().map(|(id, at)| (*at, id)).collect();
        sort::by_number(&mut places, |(at, _)| *at as u64);
        for (at, id) in places {
            let name = cx.router().declaration(id);
            cx.chatter(format_args!("Placing  {name} at [{at}-{}]", at + SIZE - 1));
        }
        Ok(())
    }

    fn reseed(&mut self, cx: &mut Context<'_>) {
        self.table.reseed(cx.own_seed());
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.coarse_now();
        let timeout = if self.timeout == 0 { u64::MAX } else { self.timeout };
        let mut steps = STEPS;
        while let Some(flow) = self.table.next_old(&mut steps, |(), seen| now.saturating_sub(seen) >= timeout)
        {
            self.table.remove(flow);
        }
        let mut keys = [(Connection::default(), 0); PACKETS];
        for (packet, place) in burst.iter().zip(&mut keys) {
            let key = Headers::of(packet).map(|headers| headers.connection).unwrap_or_default();
            *place = (key, self.table.approach(key));
        }
        keys.iter().take(burst.len()).for_each(|(_, hash)| self.table.near(*hash));
        for (packet, (key, hash)) in burst.iter_mut().zip(keys) {
            let flow = match self.table.find(hash, key) {
                Some(flow) => flow,
                None => {
                    let (flow, _) = self.table.add(hash, key, (), now);
                    self.open(flow);
                    flow
                }
            };
            self.table.touch(flow, now);
            packet.notes_mut().set_u32(Annotations::AGGREGATE, flow);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("count", |e: &Self| e.table.len()),
            Handler::read("total", |e: &Self| e.opened),
            Handler::read("capacity", |e: &Self| e.table.capacity()),
            Handler::read("evictions", |e: &Self| e.table.evictions()),
        ]
        .into()
    }

    fn cast(&self, kind: &str) -> bool {
        kind == MANAGER
    }
}
