//! Many rules: each is one or more areas, ranges of five fields. Areas that lie near each other form blocks of eight.
//! For each range of a field's values a bitmap marks the blocks with an area there (Lakshman and Stiliadis, SIGCOMM
//! 1998; Baboescu and Varghese, SIGCOMM 2001); only blocks in the bitmaps of all fields are compared with a packet.
use super::area::{AXES, Area, Areas, FIELDS, Word};
use super::axis::{Axis, Column, Layout, starts};
use super::block::{Block, Division, Key, LANES, Owner, spans};
use super::cache::{Cache, Place};
use super::decision::{Decision, Headers};
use super::program::{Expression, Jump};
use arrayvec::ArrayVec;
use ringway_click::prelude::*;
use ringway_click::{LINES, PACKETS, Progress};

/// With no more areas, each has its own bit, and none is compared.
const ALONE: usize = 64;
/// Maximum number of areas besides one a rule. Attack: rules of many alternatives.
const ALTERNATIVES: usize = 1 << 17;
/// Maximum size of the bitmaps of a field, in words. Attack: rules with ever new values; beyond it, neighbouring ranges
/// share a bitmap, so that lookups look at more blocks.
pub(super) const MOST_WORDS: usize = 1 << 22;
/// Packets whose bitmaps are prefetched ahead.
const AHEAD: usize = 4;
/// Rules processed before packets are processed again.
pub(super) const RULES: usize = 16;

/// A rule: its program, the outcome of packets that match, and the expression it was compiled from.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) decision: Decision,
    pub(super) output: Jump,
    pub(super) expression: Expression,
}

/// Rules, in order.
#[derive(Clone, Debug)]
pub(super) struct Many {
    decisions: Vec<Decision>,
    /// Outcomes as numbers.
    outcomes: Vec<u32>,
    extra: Vec<Word>,
    /// One for each of the fields, then the further words.
    axes: Vec<Axis>,
    layout: Layout,
    blocks: Vec<Block>,
    /// The first rule of each block.
    firsts: Vec<Owner>,
    /// Whether each block is one area: its bit in the bitmaps shows whether it contains a packet.
    alone: bool,
}

/// The places of a packet's bitmaps.
type Places = [u32; AXES];

/// The fields of a burst's packets, and a bit for each packet that has all of them.
struct Keys {
    fields: [Column; FIELDS],
    complete: u64,
}

impl Keys {
    #[inline]
    fn of(&self, number: usize) -> Key {
        core::array::from_fn(|field| self.fields[field][number])
    }

    #[inline]
    fn is_complete(&self, number: usize) -> bool {
        self.complete >> number & 1 == 1
    }

    /// Keeps the fields of these packets.
    fn retain(&mut self, numbers: &[u8]) {
        let complete = core::mem::take(&mut self.complete);
        for (to, number) in numbers.iter().enumerate() {
            self.complete |= (complete >> number & 1) << to;
            self.fields.iter_mut().for_each(|field| field[to] = field[usize::from(*number)]);
        }
    }
}

impl Many {
    /// `limit` is the maximum size of a field's bitmaps, in words.
    pub(super) fn new(rules: Vec<Rule>, limit: usize, breathe: &mut dyn FnMut()) -> Self {
        let mut finder = Areas::new(rules.iter().map(|rule| &rule.expression), breathe);
        let (mut areas, mut owner): (Vec<Area>, Vec<u32>) = (Vec::new(), Vec::new());
        let mut left = ALTERNATIVES;
        for (number, rule) in rules.iter().enumerate() {
            if number % RULES == RULES - 1 {
                breathe();
            }
            let own = finder.of(&rule.expression, left + 1);
            left -= own.len().saturating_sub(1).min(left);
            owner.resize(owner.len() + own.len(), number as u32);
            areas.extend(own);
        }
        // Expressions are freed in parts.
        let of = |(number, rule): (usize, Rule)| {
            if number % RULES == RULES - 1 {
                breathe();
            }
            (rule.decision, code(rule.output))
        };
        let (decisions, outcomes) = rules.into_iter().enumerate().map(of).unzip();
        let extra = finder.extra().to_vec();
        let starts_of = |axis| {
            breathe();
            starts(&areas, axis)
        };
        let axes: Vec<Vec<u32>> = (0..FIELDS + extra.len()).map(starts_of).collect();
        // With shared bitmaps, bits would not be exact.
        let alone = areas.len() <= ALONE && limit >= 4 * ALONE;
        let spans = spans(&areas, &axes, breathe);
        let members = if alone {
            (0..areas.len() as u32).map(|area| Vec::from([area])).collect()
        } else {
            Division::new(&spans, &axes, LANES).blocks(breathe)
        };
        let layout = Layout::new(members.len(), limit);
        let mut block_of = alloc::vec![0; areas.len()];
        for (block, members) in members.iter().enumerate() {
            members.iter().for_each(|member| block_of[*member as usize] = block as u32);
        }
        let axis = |(number, starts): (usize, &Vec<u32>)| {
            let spans: Vec<(u32, u32)> = spans.iter().map(|spans| spans[number]).collect();
            Axis::new(number, starts, &areas, &spans, &block_of, layout, breathe)
        };
        let axes = axes.iter().enumerate().map(axis).collect();
        let blocks: Vec<Block> = members.iter().map(|members| Block::new(&areas, &owner, members)).collect();
        let firsts = blocks.iter().map(|block| block.owners[0]).collect();
        Self { decisions, outcomes, extra, axes, layout, blocks, firsts, alone }
    }

    /// Whether the outcome depends on nothing but the fields, and takes a search among blocks.
    pub(super) fn is_cacheable(&self) -> bool {
        let exact =
            |block: &Block| block.owners.iter().all(|owner| *owner == Owner::NONE || owner.is_exact());
        !self.alone && self.extra.is_empty() && self.blocks.iter().all(exact)
    }

    /// The outcomes of packets: an output, [`Jump::Drop`], or [`Jump::No`] if no rule matches.
    pub(super) fn decide(
        &self,
        packets: &[Packet],
        cache: Option<&mut Cache>,
        outcomes: &mut [Jump; PACKETS],
    ) {
        let packets = &packets[..packets.len().min(PACKETS)];
        let mut keys = Keys { fields: [[0; PACKETS]; FIELDS], complete: 0 };
        for (number, packet) in packets.iter().enumerate() {
            if let Some(key) = Headers::of(packet).key() {
                keys.complete |= 1 << number;
                keys.fields.iter_mut().zip(key).for_each(|(field, value)| field[number] = value);
            }
        }
        if self.alone {
            return self.decide_alone(packets, &keys, outcomes);
        }
        match cache.and_then(|cache| cache.is_used(packets.len()).then_some(cache)) {
            Some(cache) => self.decide_cached(packets, &mut keys, cache, outcomes),
            None => self.decide_each(packets.iter(), &keys, |number, outcome| outcomes[number] = outcome),
        }
    }

    /// [`Many::decide`] by the outcomes of earlier packets of a flow.
    #[inline]
    fn decide_cached(
        &self,
        packets: &[Packet],
        keys: &mut Keys,
        cache: &mut Cache,
        outcomes: &mut [Jump; PACKETS],
    ) {
        let mut places = [Place::default(); PACKETS];
        for (number, place) in places.iter_mut().enumerate().take(packets.len()) {
            *place = cache.approach(keys.of(number));
        }
        // Packets of flows that are not known.
        let mut others = ArrayVec::<u8, PACKETS>::new();
        for (number, outcome) in outcomes.iter_mut().enumerate().take(packets.len()) {
            let known = if keys.is_complete(number) { cache.find(&places[number]) } else { None };
            match known {
                Some(known) => *outcome = jump(known),
                None => others.push(number as u8),
            }
        }
        if others.is_empty() {
            return;
        }
        keys.retain(&others);
        let unknown = others.iter().map(|number| &packets[usize::from(*number)]);
        self.decide_each(unknown, keys, |at, outcome| {
            let number = usize::from(others[at]);
            outcomes[number] = outcome;
            if keys.is_complete(at) {
                cache.add(&places[number], code(outcome));
            }
        });
    }

    /// [`Many::decide`] by searching blocks; `keys` are those of the packets, in order.
    #[inline]
    fn decide_each<'p>(
        &self,
        packets: impl ExactSizeIterator<Item = &'p Packet> + Clone,
        keys: &Keys,
        mut then: impl FnMut(usize, Jump),
    ) {
        let count = packets.len();
        let mut places = [[0; PACKETS]; AXES];
        for ((axis, places), values) in self.axes.iter().zip(&mut places).zip(&keys.fields) {
            axis.places(values, count, places);
        }
        self.find_extra(packets.clone(), &mut places);
        let of = |number: usize| -> Places { core::array::from_fn(|axis| places[axis][number]) };
        for (number, packet) in packets.enumerate() {
            if number + AHEAD < count {
                self.axes[0].prefetch(places[0][number + AHEAD]);
                self.axes[1].prefetch(places[1][number + AHEAD]);
            }
            let owner = if keys.is_complete(number) {
                self.search::<true>(packet, &keys.of(number), of(number))
            } else {
                self.search_incomplete(packet, of(number))
            };
            then(number, self.outcome(owner));
        }
    }

    /// [`Many::decide`] if each area has its own bit.
    #[inline]
    fn decide_alone(&self, packets: &[Packet], keys: &Keys, outcomes: &mut [Jump; PACKETS]) {
        let mut areas = [u64::MAX; PACKETS];
        for (axis, values) in self.axes.iter().zip(&keys.fields) {
            axis.restrict(values, packets.len(), &mut areas);
        }
        let mut places = [[0; PACKETS]; AXES];
        self.find_extra(packets.iter(), &mut places);
        for (axis, places) in self.axes.iter().zip(&places).skip(FIELDS) {
            for (areas, place) in areas.iter_mut().zip(&places[..packets.len()]) {
                *areas &= axis.row(*place, 1)[0];
            }
        }
        for (number, packet) in packets.iter().enumerate() {
            let owner = if keys.is_complete(number) {
                self.first(packet, areas[number])
            } else {
                self.search_incomplete(packet, core::array::from_fn(|axis| places[axis][number]))
            };
            outcomes[number] = self.outcome(owner);
        }
    }

    #[inline]
    fn outcome(&self, owner: Owner) -> Jump {
        self.outcomes.get(owner.rule()).map_or(Jump::No, |code| jump(*code))
    }

    /// The first rule that matches a packet that is in these areas.
    #[inline]
    fn first(&self, packet: &Packet, mut areas: u64) -> Owner {
        while areas != 0 {
            let owner = self.firsts[areas.trailing_zeros() as usize];
            if owner.is_exact() || self.holds(owner, packet) {
                return owner;
            }
            areas &= areas - 1;
        }
        Owner::NONE
    }

    /// The places of the bitmaps of further words.
    #[inline]
    fn find_extra<'p>(&self, packets: impl Iterator<Item = &'p Packet> + Clone, places: &mut [Column; AXES]) {
        for ((axis, (offset, mask)), places) in
            self.axes[FIELDS..].iter().zip(&self.extra).zip(&mut places[FIELDS..])
        {
            for (packet, place) in packets.clone().zip(places) {
                let word = Headers::of(packet).word(*offset, *mask);
                *place = word.map_or(axis.partial, |word| axis.place((word & mask) >> mask.trailing_zeros()));
            }
        }
    }

    /// The first rule that matches a packet, in the blocks that are in all bitmaps. A packet that is not `WHOLE` may
    /// lack fields.
    #[inline]
    fn search<const WHOLE: bool>(&self, packet: &Packet, key: &Key, places: Places) -> Owner {
        let Layout { words, summary, .. } = self.layout;
        let size = words + summary;
        let rows = core::array::from_fn(|axis| self.axes[axis].row(places[axis], size));
        let mut best = Owner::NONE;
        for at in 0..summary.max(1) {
            let mut nonzero = if summary == 0 { 1 } else { self.both(&rows, &places, at) };
            while nonzero != 0 {
                let word = at * 64 + nonzero.trailing_zeros() as usize;
                nonzero &= nonzero - 1;
                let mut blocks = self.both(&rows, &places, summary + word);
                while blocks != 0 {
                    let block = word * 64 + blocks.trailing_zeros() as usize;
                    blocks &= blocks - 1;
                    if self.firsts[block] < best {
                        best = self.look::<WHOLE>(&self.blocks[block], packet, key, best);
                    }
                }
            }
        }
        best
    }

    /// The bits of a word that are set in all bitmaps.
    #[inline]
    fn both(&self, rows: &[&[u64]; FIELDS], places: &Places, at: usize) -> u64 {
        let [a, b, c, d, e] = rows;
        let both = a[at] & b[at] & c[at] & d[at] & e[at];
        let further = self.axes[FIELDS..].iter().zip(&places[FIELDS..]);
        further.fold(both, |both, (axis, place)| both & axis.row(*place, at + 1)[at])
    }

    /// The first rule of a block that matches, if it is better than `best`.
    #[inline]
    fn look<const WHOLE: bool>(&self, block: &Block, packet: &Packet, key: &Key, best: Owner) -> Owner {
        let mut lanes = if WHOLE { block.matching(key) } else { (1 << LANES) - 1 };
        while lanes != 0 {
            let lane = lanes.trailing_zeros() as usize % LANES;
            lanes &= lanes - 1;
            let owner = block.owners[lane];
            if owner >= best {
                break;
            }
            if WHOLE && owner.is_exact() || self.holds(owner, packet) {
                return owner;
            }
        }
        best
    }

    /// [`Many::search`] for a packet that lacks fields, or parts of them.
    #[cold]
    #[inline(never)]
    fn search_incomplete(&self, packet: &Packet, mut places: Places) -> Owner {
        let fields = Headers::of(packet).fields();
        for ((axis, place), field) in self.axes.iter().zip(&mut places).zip(fields) {
            *place = match field {
                Some((value, true)) => axis.place(value),
                Some((_, false)) => axis.partial,
                None => axis.missing,
            };
        }
        self.search::<false>(packet, &[0; FIELDS], places)
    }

    /// Whether a rule matches, by its program.
    #[inline(never)]
    fn holds(&self, owner: Owner, packet: &Packet) -> bool {
        self.decisions[owner.rule()].decide(&Headers::of(packet)) != Jump::No
    }

    /// Frees part of the memory; no lookup may follow.
    pub(super) fn give_up(&mut self) -> Progress {
        self.decisions.truncate(self.decisions.len().saturating_sub(LINES));
        if self.decisions.is_empty() { Progress::Done } else { Progress::More }
    }

    /// Bytes of memory that lookups use, without the programs of rules.
    pub(super) fn memory(&self) -> usize {
        self.axes.iter().map(Axis::memory).sum::<usize>() + self.blocks.len() * (size_of::<Block>() + 4)
    }

    /// The possible outcomes.
    pub(super) fn ends(&self) -> impl Iterator<Item = Jump> + '_ {
        self.decisions.iter().flat_map(Decision::ends).filter(|end| *end != Jump::No)
    }

    /// Writes the programs of the rules in sequence, as if they were executed that way.
    pub(super) fn write(&self, text: &mut String) {
        let mut base = 0;
        for (index, decision) in self.decisions.iter().enumerate() {
            let next = base + decision.lines();
            let otherwise = match self.decisions.get(index + 1) {
                Some(following) => following.everything().unwrap_or(Jump::Step(next)),
                None => Jump::Drop,
            };
            decision.write(text, base, |end| if end == Jump::No { otherwise } else { end });
            base = next;
        }
    }
}

/// An outcome encoded as a number.
fn code(jump: Jump) -> u32 {
    if let Jump::Output(port) = jump { port as u32 + 1 } else { 0 }
}

#[inline]
fn jump(code: u32) -> Jump {
    code.checked_sub(1).map_or(Jump::Drop, |port| Jump::Output(port as usize))
}
