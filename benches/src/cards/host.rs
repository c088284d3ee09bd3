//! A TCP stream between two machines' stacks, over each kind of port that a stack of the host has an end of.

use super::card::{Card, Held};
use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::harness::WORKER;
use crate::harness::fabric::{Harness, SWITCH};
use crate::machine;
use crate::peer::net::{IperfServer, Space, bridge, ip, iperf};
use crate::plan::Plan;
use ringway_spec::{Poll, To};
use std::time::Duration;

const SLICE: Duration = Duration::from_secs(1);
/// Kinds of port, each with the third byte of its network's addresses.
const KINDS: [(&str, u8); 3] = [("tap", 98), ("packet", 96), ("xdp", 95)];
/// The same of the bridge.
const BRIDGE: (&str, u8) = ("bridge", 97);

/// Gb/s of a stream in such a network.
fn stream(spaces: &[Space; 2], network: u8, time: Duration) -> Result<f64, Failure> {
    iperf(&spaces[0], &format!("10.{network}.0.2"), time)
}

/// A veth pair for each namespace, which has one end; returns the names of the others.
fn veths(spaces: &[Space; 2], (name, network): (&str, u8)) -> Result<[String; 2], Failure> {
    let own = [0, 1].map(|index| format!("{name}{index}"));
    for ((own, space), host) in own.iter().zip(spaces).zip(1..) {
        ip(&format!("link add {own} type veth peer name {own}far"))?;
        space.take(&format!("{own}far"), [10, network, 0, host])?;
        ip(&format!("link set {own} addrgenmode none up"))?;
    }
    Ok(own)
}

/// Two ports of a kind on a switch of their own.
struct Ports {
    _harness: Harness,
    _held: Vec<Held>,
}

impl Ports {
    fn new(spaces: &[Space; 2], kind: (&str, u8)) -> Result<Ports, Failure> {
        let mut harness = Harness::start(&[WORKER], 2, Poll::Adaptive)?;
        let mut held = Vec::new();
        let card = match kind.0 {
            "packet" => Some(Card::Packet),
            "xdp" => Some(Card::Xdp),
            _ => None,
        };
        if let Some(card) = card {
            for name in veths(spaces, kind)? {
                held.push(card.add(&mut harness, &name, To::Switch(SWITCH.into()))?);
            }
        } else {
            for (index, space) in (0..).zip(spaces) {
                let name = format!("tap{index}");
                harness.add_tap(&name, To::Switch(SWITCH.into()))?;
                space.take(&name, [10, kind.1, 0, index + 1])?;
            }
        }
        // The first connection waits for ports and neighbour resolution.
        stream(spaces, kind.1, SLICE)?;
        Ok(Ports { _harness: harness, _held: held })
    }
}

/// A kind of port, and Gb/s of each slice.
type Rates = (&'static str, Vec<f64>);

/// The kind whose median is the highest.
fn best(rates: &[Rates]) -> Option<&Rates> {
    let of = |row: &&Rates| median(&row.1).unwrap_or(0.0);
    rates.iter().max_by(|one, other| of(one).total_cmp(&of(other)))
}

/// One TCP stream over each kind of port and over the bridge, in turn.
pub fn tcp(plan: &Plan) -> Result<Entry, Failure> {
    let spaces = [Space::new()?, Space::new()?];
    let _server = IperfServer::start(&spaces[1])?;
    bridge("bench")?;
    for own in veths(&spaces, BRIDGE)? {
        ip(&format!("link set {own} master bench"))?;
    }
    stream(&spaces, BRIDGE.1, SLICE)?;
    let (mut ports, mut rates, mut missing) = (Vec::new(), Vec::<Rates>::new(), Vec::new());
    for kind in KINDS {
        match Ports::new(&spaces, kind) {
            Ok(made) => {
                ports.push((made, kind.1));
                rates.push((kind.0, Vec::new()));
            }
            Err(error) => missing.push(format!("without {}: {error}", kind.0)),
        }
    }
    let mut peer = Vec::new();
    for _ in 0..plan.slices(4 * SLICE) {
        machine::sample();
        for ((_, network), (_, rates)) in ports.iter().zip(&mut rates) {
            rates.push(stream(&spaces, *network, SLICE)?);
        }
        peer.push(stream(&spaces, BRIDGE.1, SLICE)?);
    }
    let (name, figures) = best(&rates).ok_or_else(|| missing.join("; "))?;
    let entry = Slices::of(figures, &peer).entry("Gb/s", Better::More).ratio_at_least(1.0);
    let entry = entry.note(format!("{name}, whose median is the highest; peer: Linux bridge with veth"));
    let entry =
        rates.iter().fold(entry, |entry, (name, figures)| entry.step_of(*name, &Slices::of(figures, &peer)));
    Ok(missing.iter().fold(entry, Entry::note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_kind_has_the_highest_median() {
        let rates = [("tap", vec![1.0, 9.0, 1.0]), ("packet", vec![2.0, 3.0, 2.0]), ("xdp", vec![1.0; 3])];
        assert_eq!(best(&rates).map(|row| row.0), Some("packet"));
        assert_eq!(best(&[]), None);
    }
}
