//! Cards: packet and xdp ports on veth pairs, whose other ends stand for machines on their lines; and receivers that
//! are offered more than they can take.

mod card;
mod forwarding;
mod frames;
mod host;
mod overload;
mod tcp;

use crate::keys::{Group, HUGE, QUIET, Row, keys};
use card::Card;
use frames::Way;
use overload::Receiver;

/// Ports on interfaces, beside DPDK's drivers.
const CARDS: Group = Group { own_network: true, setup: 90.0, costs: 2.0, huge_pages: HUGE, ..QUIET };

/// Every group.
pub const GROUPS: &[Group] = &[
    Group {
        name: "packet",
        keys: keys! {
            "packet.64.send": Row(|plan| frames::measure(plan, Card::Packet, Way::Send)),
                "frames of 64 B that a packet port sends on veth; a packet socket without a ring, and DPDK's";
            "packet.64.receive": Row(|plan| frames::measure(plan, Card::Packet, Way::Receive)),
                "frames that it receives; the same";
            "packet.64.forward": Row(|plan| frames::measure(plan, Card::Packet, Way::Forward)),
                "frames from one packet port to another; the same";
        },
        ..CARDS
    },
    Group {
        name: "xdp",
        keys: keys! {
            "xdp.64.send": Row(|plan| frames::measure(plan, Card::Xdp, Way::Send)),
                "frames of 64 B that an xdp port sends on veth; a packet socket without a ring, and DPDK's";
            "xdp.64.receive": Row(|plan| frames::measure(plan, Card::Xdp, Way::Receive)),
                "frames that it receives; the same";
            "xdp.64.forward": Row(|plan| frames::measure(plan, Card::Xdp, Way::Forward)),
                "frames from one xdp port to another; the same";
        },
        ..CARDS
    },
    Group {
        name: "host",
        keys: keys! {
            "host.tcp": Row(host::tcp),
                "one TCP stream between namespaces, the best of tap, packet and xdp; Linux bridge with veth";
        },
        own_network: true,
        setup: 90.0,
        costs: 6.0,
        one_core: true,
        ..QUIET
    },
    Group {
        name: "gro",
        keys: keys! {
            "gro.tcp": Row(tcp::joined),
                "a TCP stream of 1500 B from a card to a Linux guest, segments joined; as they are";
        },
        own_network: true,
        setup: 60.0,
        costs: 3.0,
        one_core: true,
        ..QUIET
    },
    Group {
        name: "transparent",
        keys: keys! {
            "transparent": Row(tcp::transparent),
                "the host's TCP through a card's port, a function on the worker between; without function";
        },
        own_network: true,
        costs: 3.0,
        one_core: true,
        ..QUIET
    },
    Group {
        name: "pvp.2",
        keys: keys! {
            "pvp.2": Row(forwarding::measure),
                "frames of 64 B to two guests that return them, with an IOMMU; without, and DPDK's";
        },
        setup: 60.0,
        costs: 2.0,
        huge_pages: HUGE,
        ..QUIET
    },
    Group {
        name: "livelock",
        keys: keys! {
            "livelock": Row(|plan| overload::measure(plan, Receiver::Program)),
                "frames that a program handles of ten times its capacity; of the load that it handles best";
            "livelock.guest": Row(|plan| overload::measure(plan, Receiver::Guest)),
                "the same of a minimal guest";
            "livelock.stack": Row(|plan| overload::measure(plan, Receiver::Stack)),
                "datagrams that a program reads from a socket of our TCP/IP stack; the same";
        },
        setup: 60.0,
        costs: 2.0,
        ..QUIET
    },
];
