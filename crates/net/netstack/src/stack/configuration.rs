//! What a stack was set up with, as bytes: for a stack that takes connections of another one (see [`Stack::attach`]).

use super::{InterfaceConfig, Stack};
use crate::codec::{Bound, Field, Reader, fields, variants};
use crate::net::route::{Cidr, Routes};
use crate::settings::{Pacing, Settings};
use alloc::vec::Vec;
use core::net::IpAddr;
use ringway_frame::Needs;

/// Each offload that a device may do.
const OFFLOADS: [Needs; 5] = [Needs::CSUM, Needs::TSO4, Needs::TSO6, Needs::ECN, Needs::USO];
/// Interfaces, addresses and routes of each.
const MOST: Bound = Bound::Most(1 << 16);

variants!(Pacing { Required, Always, Never });
fields!(Settings {
    tcp_rmem: Bound::Any,
    tcp_wmem: Bound::Any,
    tcp_mem: Bound::Any,
    tcp_congestion_control: Bound::Any,
    tcp_sack: Bound::Any,
    tcp_dsack: Bound::Any,
    tcp_timestamps: Bound::Any,
    tcp_window_scaling: Bound::Any,
    tcp_ecn: Bound::Any,
    tcp_early_retrans: Bound::Any,
    tcp_frto: Bound::Any,
    tcp_syncookies: Bound::Any,
    tcp_fastopen: Bound::Any,
    tcp_fastopen_key: Bound::Any,
    tcp_max_syn_backlog: Bound::Any,
    tcp_syn_retries: Bound::Any,
    tcp_synack_retries: Bound::Any,
    tcp_retries2: Bound::Any,
    tcp_orphan_retries: Bound::Any,
    tcp_max_orphans: Bound::Any,
    tcp_mtu_probing: Bound::Any,
    tcp_base_mss: Bound::Any,
    tcp_mtu_probe_floor: Bound::Any,
    tcp_probe_threshold: Bound::Any,
    tcp_probe_interval: Bound::Any,
    tcp_retries1: Bound::Any,
    tcp_fin_timeout: Bound::Any,
    tcp_keepalive_time: Bound::Any,
    tcp_keepalive_intvl: Bound::Any,
    tcp_keepalive_probes: Bound::Any,
    tcp_notsent_lowat: Bound::Any,
    tcp_slow_start_after_idle: Bound::Any,
    tcp_min_tso_segs: Bound::Any,
    tcp_pacing_ss_ratio: Bound::Any,
    tcp_pacing_ca_ratio: Bound::Any,
    pacing: Bound::Any,
    tcp_challenge_ack_limit: Bound::Any,
    tcp_rto_min: Bound::Any,
    tcp_init_cwnd: Bound::Any,
    tcp_moderate_rcvbuf: Bound::Any,
    ip_default_ttl: Bound::Any,
    ipfrag_high_thresh: Bound::Any,
    ipfrag_time: Bound::Any,
    gc_thresh3: Bound::Any,
    max_sockets: Bound::Any,
});
fields!(Cidr { address: Bound::Any, prefix: Bound::Most(128) });

/// A list after its length.
fn put_all<T: Field>(to: &mut Vec<u8>, all: &[T]) {
    all.len().put(to);
    all.iter().for_each(|one| one.put(to));
}

/// Not more than there are bytes.
fn take_all<T: Field>(from: &mut Reader<'_>) -> Option<Vec<T>> {
    let count = usize::take(from, MOST)?;
    (0..count).map(|_| T::take(from, Bound::Any)).collect()
}

impl Stack {
    /// The settings, the interfaces with their addresses, and the routes, for [`Stack::from_configuration`]. Addresses
    /// that come or go later are not part of it.
    pub fn configuration(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.settings.put(&mut bytes);
        self.interfaces.len().put(&mut bytes);
        for interface in &self.interfaces {
            interface.mac.0.put(&mut bytes);
            interface.mtu.put(&mut bytes);
            OFFLOADS.map(|one| interface.offloads.covers(one)).put(&mut bytes);
            put_all(&mut bytes, &interface.addresses);
        }
        let routes: Vec<(Cidr, (Option<IpAddr>, usize))> =
            self.routes.entries().map(|route| (route.network, (route.gateway, route.interface))).collect();
        put_all(&mut bytes, &routes);
        bytes
    }

    /// A stack with the configuration of another one, and without its sockets; `None`: the bytes are none. They must be
    /// of a program that is trusted as one that calls [`Stack::new`]. `seed` is as there.
    pub fn from_configuration(bytes: &[u8], seed: [u64; 2]) -> Option<Stack> {
        let mut from = Reader::new(bytes, u64::MAX);
        let mut stack = Stack::new(Settings::take(&mut from, Bound::Any)?, seed);
        for _ in 0..usize::take(&mut from, MOST)? {
            let mac = <[u8; 6]>::take(&mut from, Bound::Any)?.into();
            let mtu = usize::take(&mut from, Bound::Any)?;
            let has = <[bool; 5]>::take(&mut from, Bound::Any)?;
            let chosen = OFFLOADS.into_iter().zip(has).filter(|(_, has)| *has);
            let offloads = chosen.fold(Needs::NONE, |all, (one, _)| all.with(one));
            let addresses = take_all(&mut from)?;
            stack.add_interface(InterfaceConfig { mac, mtu, addresses, offloads });
        }
        let routes: Vec<(Cidr, (Option<IpAddr>, usize))> = take_all(&mut from)?;
        if !from.is_empty() || routes.iter().any(|(_, (_, interface))| *interface >= stack.interfaces.len()) {
            return None;
        }
        stack.routes = Routes::default();
        // A route is added before those with a prefix of the same length.
        for (network, (gateway, interface)) in routes.into_iter().rev() {
            stack.routes.add(network, gateway, interface);
        }
        Some(stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Algorithm;
    use proptest::prelude::*;

    fn sample() -> Stack {
        let settings = Settings {
            tcp_congestion_control: Algorithm::Bbr3,
            tcp_fastopen_key: Some([3, u64::MAX]),
            pacing: Pacing::Always,
            ..Settings::default()
        };
        let mut stack = Stack::new(settings, [1, 2]);
        for (number, offloads) in [Needs::ALL, Needs::CSUM.with(Needs::TSO6)].into_iter().enumerate() {
            let last = number as u8;
            stack.add_interface(InterfaceConfig {
                mac: [2, 0, 0, 0, 0, last].into(),
                mtu: 1500 + number,
                addresses: alloc::vec![
                    Cidr::new([10, 0, last, 1], 24),
                    Cidr::new([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)], 64),
                ],
                offloads,
            });
            stack.add_route(Cidr::new([0, 0, 0, 0], 0), [10, 0, last, 254].into(), number);
        }
        stack
    }

    #[test]
    fn a_stack_has_the_configuration_of_another_one() {
        let stack = sample();
        let twin = Stack::from_configuration(&stack.configuration(), [7, 8]).unwrap();
        assert_eq!(twin.settings(), stack.settings());
        assert_eq!(twin.route_entries(), stack.route_entries());
        for (one, other) in twin.interfaces.iter().zip(&stack.interfaces) {
            assert_eq!((one.mac, one.mtu, one.offloads), (other.mac, other.mtu, other.offloads));
            assert_eq!(one.addresses, other.addresses);
        }
        assert_eq!(twin.configuration(), stack.configuration());
    }

    #[test]
    fn other_bytes_are_refused() {
        let mut bytes = sample().configuration();
        for len in 0..bytes.len() {
            assert!(Stack::from_configuration(&bytes[..len], [0; 2]).is_none(), "{len} bytes");
        }
        bytes.push(0);
        assert!(Stack::from_configuration(&bytes, [0; 2]).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            let _ = Stack::from_configuration(&bytes, [0; 2]);
        }
    }
}
