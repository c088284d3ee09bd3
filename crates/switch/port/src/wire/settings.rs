//! The settings of a wire port.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// What carries the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encapsulation {
    /// VXLAN (RFC 7348).
    Vxlan,
    /// Geneve (RFC 8926).
    Geneve,
    /// UDP, a frame a datagram, without another header.
    Udp,
    /// TCP, each frame behind its length.
    Tcp,
}

impl Encapsulation {
    /// The port that the protocol has from IANA.
    pub fn port(self) -> Option<u16> {
        match self {
            Encapsulation::Vxlan => Some(ringway_wire::tunnel::Vxlan::PORT),
            Encapsulation::Geneve => Some(ringway_wire::tunnel::Geneve::PORT),
            Encapsulation::Udp | Encapsulation::Tcp => None,
        }
    }

    /// Whether frames are of a network with a number.
    pub fn has_network(self) -> bool {
        matches!(self, Encapsulation::Vxlan | Encapsulation::Geneve)
    }

    /// Bytes between UDP's header and the frame.
    pub fn header_len(self) -> usize {
        if self.has_network() { 8 } else { 0 }
    }
}

/// DSCP of the outer packets. Their ECN field is the inner packet's (RFC 6040, 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dscp {
    /// Always this one.
    Fixed(u8),
    /// The inner packet's.
    Inherit,
}

/// Settings of a port of this kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// What carries the frames.
    pub encapsulation: Encapsulation,
    /// Address and port that frames are sent to.
    pub peer: SocketAddr,
    /// Address and port that frames are received at.
    pub local: SocketAddr,
    /// The network's number, 24 bits.
    pub vni: u32,
    /// Number of source ports, between which flows are divided.
    pub source_ports: u16,
    /// Largest inner IP packet; what the path permits if none.
    pub mtu: Option<u16>,
    /// Whether UDP's checksum is filled in.
    pub checksum: bool,
    /// DSCP of the outer packets.
    pub dscp: Dscp,
    /// Their TTL or hop limit; the system's if none.
    pub ttl: Option<u8>,
    /// TCP: whether the peer connects.
    pub server: bool,
    /// Network namespace of the sockets, by name or path; ours if none.
    pub namespace: Option<String>,
}

impl Settings {
    /// Bytes of the outer headers in front of a frame.
    pub fn overhead(&self) -> u32 {
        let ip = if self.peer.is_ipv4() { 20 } else { 40 };
        ip + ringway_wire::udp::HEADER_LEN as u32 + self.encapsulation.header_len() as u32
    }
}
