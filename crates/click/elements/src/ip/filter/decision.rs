//! A decision program ready to run: tests of a word against one or several values.
use super::area::FIELDS;
use super::program::{self, Jump, NETWORK, Step, TRANSPORT};
use crate::packet::u32_at;
use core::fmt::Write;
use ringway_click::prelude::*;
use ringway_click::sort;
use ringway_wire::ipv4;

/// Minimum number of values for a binary search.
const SEARCHED: usize = 7;

/// A packet's headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers<'a> {
    mac: &'a [u8],
    network: &'a [u8],
    transport: &'a [u8],
}

impl<'a> Headers<'a> {
    #[inline]
    pub(super) fn of(packet: &'a Packet) -> Self {
        Self {
            mac: packet.mac_data().unwrap_or_default(),
            network: packet.network_data().unwrap_or_default(),
            transport: packet.transport_data().unwrap_or_default(),
        }
    }

    /// The fields of [`super::area`], if all are present.
    #[inline]
    pub(super) fn key(&self) -> Option<[u32; FIELDS]> {
        let (network, ports) = (self.network.first_chunk::<20>()?, self.transport.first_chunk::<4>()?);
        let ports = u32::from_be_bytes(*ports);
        let [source, destination] = [12, 16].map(|at| u32_at(network, at));
        Some([source, destination, ports >> 16, ports & 0xffff, protocol(network)])
    }

    /// Each field by itself, and whether all its bytes are present; `None` if none is.
    pub(super) fn fields(&self) -> [Option<(u32, bool)>; FIELDS] {
        let field = |bytes: &[u8], at: usize, length: usize| {
            let there = bytes.get(at..).map(|rest| &rest[..rest.len().min(length)])?;
            let value = there.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
            (!there.is_empty()).then_some((value, there.len() == length))
        };
        [
            field(self.network, 12, 4),
            field(self.network, 16, 4),
            field(self.transport, 0, 2),
            field(self.transport, 2, 2),
            self.network.first_chunk::<10>().map(|network| (protocol(network), true)),
        ]
    }

    /// The four bytes at a program's offset; bytes outside `mask` may read as 0. `None` if a byte within `mask` is
    /// missing.
    #[inline]
    pub(super) fn word(&self, offset: u16, mask: u32) -> Option<u32> {
        match offset {
            TRANSPORT.. => word(self.transport, usize::from(offset - TRANSPORT), mask),
            NETWORK.. => word(self.network, usize::from(offset - NETWORK), mask),
            0..2 => word(self.mac, 0, mask << 16).map(|word| word >> 16),
            _ => word(self.mac, usize::from(offset) - 2, mask),
        }
    }
}

#[inline]
fn word(bytes: &[u8], at: usize, mask: u32) -> Option<u32> {
    if let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        return Some(u32::from_be_bytes(*word));
    }
    let there = bytes.len().saturating_sub(at).min(3);
    let lacking = u32::MAX >> (8 * there);
    if mask & lacking != 0 {
        return None;
    }
    let mut word = [0; 4];
    word[..there].copy_from_slice(bytes.get(at..at + there).unwrap_or_default());
    Some(u32_at(&word, 0))
}

/// The protocol, and whether the packet is a later fragment in the lowest bit.
#[inline]
fn protocol(network: &[u8]) -> u32 {
    let later = u16::from_be_bytes([network[6], network[7]]) & ipv4::FRAGMENT_OFFSET != 0;
    u32::from(network[9]) << 1 | u32::from(later)
}

/// A test of one word against several values.
#[derive(Clone, Debug)]
struct Match {
    offset: u16,
    short: bool,
    mask: u32,
    values: Vec<u32>,
    no: Jump,
    yes: Jump,
}

impl Match {
    #[inline]
    fn holds(&self, word: u32) -> bool {
        match self.values.len() {
            1 => self.values[0] == word,
            ..SEARCHED => self.values.contains(&word),
            _ => self.values.binary_search_by_key(&word.swap_bytes(), |value| value.swap_bytes()).is_ok(),
        }
    }
}

/// Tests, or the outcome of all packets if there are no tests.
#[derive(Clone, Debug)]
pub(super) struct Decision {
    matches: Vec<Match>,
    everything: Jump,
}

impl Decision {
    /// Compiles steps, which only branch forward.
    pub(super) fn new(steps: &[Step], everything: Jump) -> Self {
        Self { matches: compress(steps), everything }
    }

    /// The outcome of all packets, if the decision has no tests.
    pub(super) fn everything(&self) -> Option<Jump> {
        self.matches.is_empty().then_some(self.everything)
    }

    /// The outcome of a packet, which is never a step.
    #[inline]
    pub(super) fn decide(&self, headers: &Headers<'_>) -> Jump {
        let mut at = 0;
        while let Some(test) = self.matches.get(at) {
            let word = headers.word(test.offset, test.mask);
            let yes = word.map_or(test.short, |word| test.holds(word & test.mask));
            match if yes { test.yes } else { test.no } {
                Jump::Step(next) => at = next,
                end => return end,
            }
        }
        self.everything
    }

    /// The possible outcomes.
    pub(super) fn ends(&self) -> impl Iterator<Item = Jump> + '_ {
        let all = self.matches.iter().flat_map(|test| [test.yes, test.no]);
        let all = all.filter(|jump| jump.step().is_none());
        all.chain(self.everything())
    }

    /// The words tested, with their masks.
    pub(super) fn words(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        self.matches.iter().map(|test| (test.offset, test.mask))
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.matches.iter().map(|test| size_of::<Match>() + 4 * test.values.len()).sum()
    }

    /// Number of lines written by [`Decision::write`].
    pub(super) fn lines(&self) -> usize {
        self.matches.iter().map(|test| test.values.len()).sum()
    }

    /// Writes the program as text, a value a line, numbered from `base`; `name` maps the targets of branches that
    /// leave it.
    pub(super) fn write(&self, text: &mut String, base: usize, name: impl Fn(Jump) -> Jump) {
        let mut first = Vec::new();
        let mut count = base;
        for test in &self.matches {
            first.push(count);
            count += test.values.len();
        }
        let place = |jump| match jump {
            Jump::Step(next) => Jump::Step(first.get(next).copied().unwrap_or(count)),
            other => name(other),
        };
        for (test, first) in self.matches.iter().zip(&first) {
            for (index, value) in test.values.iter().enumerate() {
                let own = first + index;
                let last = index + 1 == test.values.len();
                let no = if last { place(test.no) } else { Jump::Step(own + 1) };
                let short = test.short;
                let test_ = program::Test { offset: test.offset, value: *value, mask: test.mask, short };
                let step = Step { test: test_, no, yes: place(test.yes) };
                let _ = writeln!(text, "{own:2} {step}");
            }
        }
    }
}

/// Merges steps that compare the same word with different values to the same outcome.
fn compress(steps: &[Step]) -> Vec<Match> {
    let mut wanted = alloc::vec![0usize; steps.len()];
    if let Some(first) = wanted.first_mut() {
        *first = 1;
    }
    for (index, step) in steps.iter().enumerate() {
        if wanted[index] > 0 {
            for next in [step.no, step.yes].into_iter().filter_map(Jump::step) {
                wanted[next] += 1;
            }
        }
    }
    let mut place = alloc::vec![0; steps.len()];
    let mut matches: Vec<Match> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        place[index] = matches.len();
        if wanted[index] == 0 {
            continue;
        }
        let program::Test { offset, value, mask, short } = step.test;
        let mut found = Match { offset, short, mask, values: [value].into(), no: step.no, yes: step.yes };
        while let Some(next) = found.no.step().filter(|next| wanted[*next] == 1) {
            let behind = &steps[next];
            let alike = program::Test { value, ..behind.test } == step.test;
            if behind.yes != step.yes || !alike {
                break;
            }
            found.values.push(behind.test.value);
            found.no = behind.no;
            wanted[next] -= 1;
        }
        if found.values.len() >= SEARCHED {
            sort::by_number(&mut found.values, |value| u64::from(value.swap_bytes()));
        }
        matches.push(found);
    }
    for jump in matches.iter_mut().flat_map(|test| [&mut test.no, &mut test.yes]) {
        if let Jump::Step(at) = jump {
            *at = place[*at];
        }
    }
    matches
}
