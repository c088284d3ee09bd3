//! Cards: packet ports on veth pairs, whose other ends stand for machines on their lines; and receivers that are
//! offered more than they can take.

mod forwarding;
mod overload;
mod tcp;

use crate::keys::{Group, HUGE, QUIET, Row, keys};
use overload::Receiver;

/// Every group.
pub const GROUPS: &[Group] = &[
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
