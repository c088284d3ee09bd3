//! iperf3 between two namespaces, through two TAP ports, and over a Linux bridge with veth.

use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::WORKER;
use crate::harness::fabric::{Harness, SWITCH};
use crate::peer::net::{IperfServer, Space, bridge, ip, iperf};
use crate::plan::Plan;
use ringway_spec::{Poll, To};
use std::time::Duration;

const SLICE: Duration = Duration::from_secs(1);
/// The server's address through Ringway, and over the bridge.
const ADDRESSES: [&str; 2] = ["10.98.0.2", "10.97.0.2"];

/// One TCP stream.
pub fn tcp(plan: &Plan) -> Result<Entry, Failure> {
    let spaces = [Space::new()?, Space::new()?];
    let mut harness = Harness::start(&[WORKER], 2, Poll::Adaptive)?;
    bridge("bench")?;
    for (index, space) in (0..).zip(&spaces) {
        let (name, host) = (format!("tap{index}"), index + 1);
        harness.add_tap(&name, To::Switch(SWITCH.into()))?;
        space.take(&name, [10, 98, 0, host])?;
        ip(&format!("link add veth{index} type veth peer name br{index}"))?;
        ip(&format!("link set br{index} addrgenmode none master bench up"))?;
        space.take(&format!("veth{index}"), [10, 97, 0, host])?;
    }
    let _server = IperfServer::start(&spaces[1])?;
    // The first connection waits for ports and neighbour resolution.
    for address in ADDRESSES {
        iperf(&spaces[0], address, Duration::from_secs(1))?;
    }
    let one = |address: &str, time| iperf(&spaces[0], address, time);
    let slices: Slices = plan.pairs(SLICE, |time| one(ADDRESSES[0], time), |time| one(ADDRESSES[1], time))?;
    Ok(slices.entry("Gb/s", Better::More).ratio_at_least(0.8).note("peer: Linux bridge with veth"))
}
