//! The kinds of port in the data path, one row each.

use crate::{PortKind, e1000, link, null, packet, pcap, ring, ring_pci, source, tap, vhost_user, wire, xdp};

/// Every kind. A pipe has no row: its programs' frames do not pass the data path.
pub const KINDS: &[PortKind] = &[
    vhost_user::KIND,
    e1000::KIND,
    tap::KIND,
    packet::KIND,
    xdp::KIND,
    wire::KIND,
    ring::KIND,
    ring_pci::KIND,
    link::KIND,
    null::KIND,
    pcap::KIND,
    source::KIND,
];
