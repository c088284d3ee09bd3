//! Rules for a packet filter, and flows that match them.
//!
//! Lists are generated as by ClassBench (Taylor and Turner, Transactions on Networking 2007) from its published
//! parameters of an access list (acl1), a firewall (fw1) and a chain of Linux's filter (ipc1), rounded: the shares of
//! protocols with port classes, the most frequent pairs of prefix lengths, the most frequent ports and ranges, and
//! how addresses branch, averaged over eight bits each. Unlike there, pairs of lengths don't depend on ports, and
//! source and destination share no prefix.

use super::frames::{Flow, Frames, Length, Numbers};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Number of rules in a list.
const RULES: usize = 10_000;
/// Flows of a list's traffic, each of one packet that matches a rule.
const FLOWS: usize = 100_000;
/// Flows through rules of mixed prefixes.
const MANY_FLOWS: usize = 1_000_000;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ANY: (u16, u16) = (0, u16::MAX);
const HIGH: (u16, u16) = (1024, u16::MAX);

/// A class of ports.
#[derive(Clone, Copy, Debug)]
enum Ports {
    /// All, or those from 1024 on.
    Range(u16, u16),
    /// A frequent port, a small range, or any other port.
    Exact,
    Arbitrary,
}

const WC: Ports = Ports::Range(ANY.0, ANY.1);
const HI: Ports = Ports::Range(HIGH.0, HIGH.1);
const EM: Ports = Ports::Exact;
const AR: Ports = Ports::Arbitrary;

/// How a list's addresses branch, for each eight bits: the share of prefixes with both branches, and the skew
/// between the two branches' weights.
type Branches = [(f64, f64); 4];

/// The parameters of a list.
pub struct List {
    /// Protocol (0: any), source ports, destination ports, share in thousandths.
    protocols: &'static [(u8, Ports, Ports, u64)],
    /// Prefix lengths of source and destination, share in thousandths.
    lengths: &'static [(u32, u32, u64)],
    branches: [Branches; 2],
    /// Ports and ranges of ports, most frequent first.
    ports: &'static [u16],
    ranges: &'static [(u16, u16)],
}

/// An access list.
pub const ACL: List = List {
    protocols: &[
        (TCP, WC, EM, 570),
        (TCP, WC, WC, 188),
        (TCP, WC, AR, 115),
        (0, WC, WC, 85),
        (1, WC, WC, 31),
        (UDP, WC, EM, 10),
    ],
    lengths: &[
        (32, 32, 750),
        (32, 22, 49),
        (23, 32, 48),
        (32, 24, 34),
        (31, 32, 27),
        (23, 16, 16),
        (30, 22, 14),
        (32, 31, 11),
        (32, 30, 7),
        (31, 22, 7),
        (30, 32, 5),
        (23, 31, 4),
    ],
    branches: [
        [(0.19, 1.0), (0.0, 1.0), (0.0, 1.0), (0.63, 0.46)],
        [(0.65, 0.7), (0.17, 0.68), (0.07, 0.6), (0.09, 0.46)],
    ],
    ports: &[1521, 1526, 1221, 1433, 1525, 135, 14753, 1712],
    ranges: &[
        (1600, 1649),
        (1300, 1349),
        (1300, 1350),
        (7500, 7599),
        (2200, 2210),
        (1025, 65535),
        (1700, 1750),
    ],
};

/// A firewall.
pub const FIREWALL: List = List {
    protocols: &[
        (TCP, WC, EM, 428),
        (UDP, WC, EM, 138),
        (TCP, WC, WC, 106),
        (UDP, EM, WC, 99),
        (47, WC, WC, 57),
        (1, WC, WC, 39),
        (TCP, HI, HI, 39),
        (UDP, HI, HI, 21),
        (UDP, EM, EM, 21),
        (UDP, HI, EM, 18),
        (UDP, EM, HI, 18),
        (0, WC, WC, 11),
        (UDP, HI, AR, 4),
        (UDP, AR, HI, 4),
    ],
    lengths: &[
        (0, 32, 548),
        (32, 0, 145),
        (0, 0, 74),
        (32, 32, 57),
        (30, 0, 18),
        (32, 21, 18),
        (21, 0, 14),
        (23, 0, 14),
        (27, 0, 14),
        (28, 32, 14),
        (32, 28, 14),
        (30, 32, 14),
        (32, 30, 14),
        (28, 0, 7),
        (29, 0, 7),
        (28, 28, 7),
    ],
    branches: [
        [(0.34, 0.66), (0.04, 0.84), (0.06, 0.81), (0.19, 0.43)],
        [(0.29, 0.87), (0.02, 1.0), (0.07, 0.81), (0.23, 0.5)],
    ],
    ports: &[22, 80, 25, 53, 123, 2105, 21, 544],
    ranges: &[(33434, 33600)],
};

/// A chain of Linux's filter.
pub const CHAIN: List = List {
    protocols: &[
        (0, WC, WC, 345),
        (UDP, WC, EM, 220),
        (TCP, WC, EM, 132),
        (UDP, EM, WC, 73),
        (TCP, EM, WC, 72),
        (UDP, WC, HI, 65),
        (TCP, WC, WC, 22),
        (TCP, WC, AR, 18),
        (TCP, AR, WC, 17),
        (1, WC, WC, 11),
        (UDP, WC, AR, 6),
        (UDP, HI, WC, 4),
        (47, WC, WC, 3),
        (UDP, WC, WC, 3),
        (UDP, AR, WC, 3),
        (UDP, EM, EM, 3),
    ],
    lengths: &[
        (32, 32, 240),
        (24, 24, 96),
        (24, 32, 88),
        (32, 24, 53),
        (0, 32, 39),
        (23, 24, 39),
        (23, 32, 31),
        (24, 16, 29),
        (24, 0, 25),
        (32, 26, 24),
        (0, 24, 21),
        (24, 26, 20),
        (26, 24, 19),
        (16, 24, 19),
        (32, 0, 15),
        (16, 32, 15),
        (32, 16, 11),
        (26, 32, 11),
        (24, 28, 9),
        (22, 24, 9),
        (17, 24, 8),
        (32, 25, 8),
        (23, 16, 8),
        (28, 16, 7),
        (0, 0, 6),
    ],
    branches: [
        [(0.44, 0.5), (0.12, 0.63), (0.13, 0.51), (0.1, 0.39)],
        [(0.44, 0.71), (0.06, 0.78), (0.09, 0.41), (0.18, 0.52)],
    ],
    ports: &[69, 514, 80, 9003, 53, 25, 1433, 137],
    ranges: &[(20, 23), (109, 110), (20, 21), (1645, 1646), (1812, 1813), (20, 2511), (5000, 5001)],
};

/// A rule: prefixes and ports of source and destination, and the protocol, 0 for any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    nets: [(u32, u32); 2],
    ports: [(u16, u16); 2],
    protocol: u8,
}

/// A random item, each with probability proportional to its share.
fn pick<'a, T>(all: &'a [T], share: impl Fn(&T) -> u64, numbers: &mut Numbers) -> &'a T {
    let mut place = numbers.below(all.iter().map(&share).sum());
    for one in all {
        if place < share(one) {
            return one;
        }
        place -= share(one);
    }
    &all[0]
}

/// A random item, earlier ones more often.
fn popular<T: Copy>(all: &[T], numbers: &mut Numbers) -> T {
    let count = all.len() as u64;
    all[numbers.below(count).min(numbers.below(count)) as usize]
}

impl List {
    /// Distinct rules, more specific ones first.
    fn rules(&self) -> Vec<Rule> {
        let mut numbers = Numbers(41);
        let mut distinct = BTreeSet::new();
        while distinct.len() < RULES {
            distinct.insert(self.rule(&mut numbers));
        }
        let mut rules: Vec<Rule> = distinct.into_iter().collect();
        for last in (1..rules.len()).rev() {
            rules.swap(last, numbers.below(last as u64 + 1) as usize);
        }
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.nets[0].1 + rule.nets[1].1));
        rules
    }

    fn rule(&self, numbers: &mut Numbers) -> Rule {
        let (protocol, source, destination, _) = *pick(self.protocols, |row| row.3, numbers);
        let (from, to, _) = *pick(self.lengths, |row| row.2, numbers);
        let nets = [(from, 0), (to, 1)].map(|(bits, side)| (self.prefix(bits, side, numbers), bits));
        Rule { nets, ports: [self.ports(source, numbers), self.ports(destination, numbers)], protocol }
    }

    /// A prefix; the available branches depend only on the preceding bits.
    fn prefix(&self, bits: u32, side: usize, numbers: &mut Numbers) -> u32 {
        let mut prefix = 0u32;
        for level in 0..bits {
            let (both, skew) = self.branches[side][level as usize / 8];
            let mut node = Numbers(u64::from(prefix) << 8 | u64::from(level) << 1 | side as u64);
            let heavier = node.next() as u32 & 1;
            // Lists larger than the published ones branch more in later bits.
            let branches = (node.below(1000) as f64) < 1000.0 * both.max(0.3);
            let lighter =
                branches && (numbers.below(1000) as f64) * (2.0 - skew) < 1000.0 * (1.0 - skew).max(0.1);
            prefix |= (heavier ^ u32::from(lighter)) << (31 - level);
        }
        prefix
    }

    fn ports(&self, class: Ports, numbers: &mut Numbers) -> (u16, u16) {
        match class {
            Ports::Range(first, last) => (first, last),
            Ports::Exact if numbers.below(2) == 0 => {
                let port = popular(self.ports, numbers);
                (port, port)
            }
            Ports::Exact => {
                let port = 1 + numbers.below(65_535) as u16;
                (port, port)
            }
            Ports::Arbitrary if numbers.below(2) == 0 => popular(self.ranges, numbers),
            Ports::Arbitrary => {
                let first = 1 + numbers.below(60_000) as u16;
                (first, first + numbers.below(1000) as u16)
            }
        }
    }
}

/// Ten overlapping rules with networks of different lengths and port ranges.
fn ten() -> Vec<Rule> {
    let net = |text: &str| -> (u32, u32) {
        let (address, bits) = text.split_once('/').expect("a prefix");
        let address: Ipv4Addr = address.parse().expect("an address");
        (address.to_bits(), bits.parse().expect("a length"))
    };
    let all = "0.0.0.0/0";
    [
        ("10.0.0.0/9", all, ANY, (0, 1023), TCP),
        (all, "172.16.0.0/14", HIGH, (8000, 8100), TCP),
        ("10.128.0.0/10", "172.16.0.0/12", ANY, (6000, 6063), TCP),
        ("10.192.0.0/10", "172.16.0.0/13", ANY, (53, 53), UDP),
        (all, all, ANY, (33434, 33600), UDP),
        ("10.160.0.0/11", all, HIGH, HIGH, TCP),
        (all, "172.24.0.0/13", ANY, (443, 443), TCP),
        ("10.224.0.0/11", "172.20.0.0/14", HIGH, (1, 30_000), TCP),
        (all, all, ANY, ANY, 1),
        ("10.0.0.0/8", "172.16.0.0/12", (1024, 40_000), ANY, TCP),
    ]
    .map(|(from, to, source, destination, protocol)| Rule {
        nets: [net(from), net(to)],
        ports: [source, destination],
        protocol,
    })
    .to_vec()
}

/// Pairs of prefixes of mixed lengths and a destination port.
fn mixed() -> Vec<Rule> {
    const LENGTHS: [u32; 10] = [8, 12, 16, 18, 20, 22, 24, 24, 28, 32];
    let mut numbers = Numbers(43);
    let net = |numbers: &mut Numbers| {
        let bits = LENGTHS[numbers.below(LENGTHS.len() as u64) as usize];
        (numbers.next() as u32 & u32::MAX << (32 - bits), bits)
    };
    let rule = |_| {
        let nets = [net(&mut numbers), net(&mut numbers)];
        let port = 1 + numbers.below(60_000) as u16;
        Rule { nets, ports: [ANY, (port, port)], protocol: TCP }
    };
    (0..RULES).map(rule).collect()
}

impl Rule {
    fn write(&self, text: &mut String) {
        let mut and = "";
        for ((address, bits), side) in self.nets.into_iter().zip(["src", "dst"]).filter(|(net, _)| net.1 > 0)
        {
            let _ = write!(text, "{and}{side} net {}/{bits}", Ipv4Addr::from(address));
            and = " && ";
        }
        if self.protocol != 0 {
            let _ = write!(text, "{and}ip proto {}", self.protocol);
            and = " && ";
        }
        for ((first, last), side) in
            self.ports.into_iter().zip(["src", "dst"]).filter(|(ports, _)| *ports != ANY)
        {
            if first == last {
                let _ = write!(text, " && {side} port {first}");
                continue;
            }
            if first > 0 {
                let _ = write!(text, " && {side} port >= {first}");
            }
            if last < u16::MAX {
                let _ = write!(text, " && {side} port <= {last}");
            }
        }
        if and.is_empty() {
            text.push_str("all");
        }
    }

    /// A matching flow.
    fn flow(&self, numbers: &mut Numbers) -> (u8, Flow) {
        let addresses = self.nets.map(|(net, bits)| {
            let free = if bits == 32 { 0 } else { u32::MAX >> bits };
            Ipv4Addr::from(net | numbers.next() as u32 & free)
        });
        let ports = self.ports.map(|(first, last)| first + numbers.below(u64::from(last - first) + 1) as u16);
        let protocol = if self.protocol == 0 { TCP } else { self.protocol };
        (protocol, Flow { addresses, ports, opens: false })
    }
}

/// A filter that sends packets to one of two outputs by the first matching rule.
fn filter(rules: &[Rule], source: &str, sink: &str) -> String {
    let mut text =
        format!("out :: Null -> {sink}; {source} -> Strip(14) -> CheckIPHeader -> filter :: IPFilter(");
    for (number, rule) in rules.iter().enumerate() {
        let _ = write!(text, "{} ", number % 2);
        rule.write(&mut text);
        text.push_str(", ");
    }
    text.push_str("0 all); filter[0] -> Unstrip(14) -> out; filter[1] -> Unstrip(14) -> out;");
    text
}

fn frames(rules: &[Rule], flows: usize, length: Length) -> Frames {
    let mut numbers = Numbers(47);
    Frames::with_protocols(length, flows, |_| {
        let rule = &rules[numbers.below(rules.len() as u64) as usize];
        rule.flow(&mut numbers)
    })
}

/// The filter of a ClassBench list.
pub fn list(list: &List, source: &str, sink: &str) -> String {
    filter(&list.rules(), source, sink)
}

/// Traffic of a ClassBench list.
pub fn list_frames(list: &List, length: Length) -> Frames {
    frames(&list.rules(), FLOWS, length)
}

/// Traffic of a ClassBench list of as many flows as [`mixed_frames`] has.
pub fn list_flows(list: &List, length: Length) -> Frames {
    frames(&list.rules(), MANY_FLOWS, length)
}

/// The filter of ten rules.
pub fn ten_rules(source: &str, sink: &str) -> String {
    filter(&ten(), source, sink)
}

/// Traffic of [`ten_rules`].
pub fn ten_frames(length: Length) -> Frames {
    frames(&ten(), FLOWS, length)
}

/// The filter of prefixes of mixed lengths.
pub fn mixed_rules(source: &str, sink: &str) -> String {
    filter(&mixed(), source, sink)
}

/// Traffic of [`mixed_rules`].
pub fn mixed_frames(length: Length) -> Frames {
    frames(&mixed(), MANY_FLOWS, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_as_many_distinct_rules() {
        for list in [&ACL, &FIREWALL, &CHAIN] {
            let rules = list.rules();
            assert_eq!(rules.len(), RULES);
            assert_eq!(rules.iter().collect::<BTreeSet<_>>().len(), RULES);
            let hosts = rules.iter().filter(|rule| rule.nets[1].1 == 32).count();
            assert!(hosts > RULES / 4, "{hosts}");
            let addresses: BTreeSet<u32> = rules.iter().map(|rule| rule.nets[1].0).collect();
            assert!((RULES / 20..RULES * 9 / 10).contains(&addresses.len()), "{}", addresses.len());
        }
    }

    #[test]
    fn a_rule_is_written_with_its_ranges() {
        let mut text = String::new();
        ten()[2].write(&mut text);
        let expected = "src net 10.128.0.0/10 && dst net 172.16.0.0/12 && ip proto 6 \
            && dst port >= 6000 && dst port <= 6063";
        assert_eq!(text, expected);
    }
}
