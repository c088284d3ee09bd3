//! What a stack answers.

use super::{Counters, Info, Neighbor, PLACES, POINTS, Reply, Request, Route, Socket};
use crate::Trace;
use ringway_netstack::{
    NeighborEntry, Reachability, RouteEntry, SocketEntry, SocketId, SocketKind, Stack, State, sysctls,
};
use std::net::{IpAddr, SocketAddr};

/// An answer, whose text is still to be made.
#[derive(Debug)]
pub enum Answer {
    /// What it says.
    Reply(Reply),
    /// A trace, and whether its connection has ended.
    Trace(Box<Trace>, bool),
}

/// Answers a question, in a time that does not depend on the number of sockets.
pub fn answer(stack: &mut Stack, request: &Request) -> Answer {
    Answer::Reply(match request {
        Request::About => Reply::Error("only the server knows".into()),
        Request::Sockets(from) => {
            let (entries, next) = stack.socket_entries(*from, PLACES);
            Reply::Sockets { sockets: entries.iter().map(socket).collect(), next }
        }
        Request::Counters => Reply::Counters(counters(stack)),
        Request::Sysctls => {
            let linux = |value: String| if value == "bbr1" { "bbr".into() } else { value };
            let all = sysctls(stack.settings()).into_iter();
            Reply::Sysctls(all.map(|(name, value)| (format!("net.ipv4.{name}"), linux(value))).collect())
        }
        Request::Routes => Reply::Routes(stack.route_entries().iter().filter_map(route).collect()),
        Request::Neighbors => Reply::Neighbors(stack.neighbor_entries().iter().map(neighbor).collect()),
        Request::Record(id, points) => {
            // Attack: a trace is memory of the program.
            match stack.set_trace(SocketId::from_bits(*id), (*points).min(POINTS)) {
                Ok(()) => Reply::Recording,
                Err(_) => Reply::Error("there is no such connection any more".into()),
            }
        }
        Request::Trace(id, _) => return trace(stack, SocketId::from_bits(*id)),
    })
}

fn trace(stack: &Stack, id: SocketId) -> Answer {
    match stack.recorded(id) {
        Some((trace, has_ended)) => Answer::Trace(Box::new(trace.clone()), has_ended),
        None => Answer::Reply(Reply::Error("the connection has no trace".into())),
    }
}

fn socket(entry: &SocketEntry) -> Socket {
    let any = || match entry.local {
        SocketAddr::V4(_) => "0.0.0.0:*".to_string(),
        SocketAddr::V6(_) => "[::]:*".to_string(),
    };
    let plain = |netid: &str, state: &str, recv_q: usize, send_q: usize| Socket {
        id: entry.id.to_bits(),
        netid: netid.into(),
        state: state.into(),
        recv_q: recv_q as u64,
        send_q: send_q as u64,
        local: entry.local.to_string(),
        peer: any(),
        cong_alg: String::new(),
        mode: String::new(),
        info: None,
    };
    match &entry.kind {
        SocketKind::Listener { queued, backlog } => plain("tcp", "LISTEN", *queued, *backlog),
        SocketKind::Udp { unread, .. } => plain("udp", "UNCONN", *unread, 0),
        SocketKind::Connection {
            remote,
            unread,
            unacknowledged,
            congestion_control,
            mode,
            info,
            is_owned: _,
        } => Socket {
            peer: remote.to_string(),
            cong_alg: if *congestion_control == "bbr1" { "bbr" } else { congestion_control }.to_string(),
            mode: mode.to_string(),
            info: Some(Info::from(&**info)),
            ..plain("tcp", state(info.tcpi_state), *unread, *unacknowledged as usize)
        },
    }
}

fn state(state: State) -> &'static str {
    match state {
        State::SynSent => "SYN-SENT",
        State::SynReceived => "SYN-RECV",
        State::Established => "ESTAB",
        State::FinWait1 => "FIN-WAIT-1",
        State::FinWait2 => "FIN-WAIT-2",
        State::CloseWait => "CLOSE-WAIT",
        State::Closing => "CLOSING",
        State::LastAck => "LAST-ACK",
        State::TimeWait => "TIME-WAIT",
        State::Closed => "UNCONN",
    }
}

/// `None`: one to this host, which `ip route` has in another table.
fn route(entry: &RouteEntry) -> Option<Route> {
    let network = entry.network;
    if network.address.is_loopback() {
        return None;
    }
    let dst = match (network.prefix, network.address) {
        (0, _) => "default".to_string(),
        (prefix, IpAddr::V4(address)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            format!("{}/{prefix}", std::net::Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        (prefix, IpAddr::V6(address)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            format!("{}/{prefix}", std::net::Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    };
    Some(Route {
        dst,
        gateway: entry.gateway.map(|gateway| gateway.to_string()),
        dev: device(entry.interface),
        // A route of an interface's address has that address.
        prefsrc: entry.gateway.is_none().then(|| network.address.to_string()),
    })
}

fn neighbor(entry: &NeighborEntry) -> Neighbor {
    let state = match entry.state {
        Reachability::Incomplete => "INCOMPLETE",
        Reachability::Reachable => "REACHABLE",
        Reachability::Stale => "STALE",
        Reachability::Probe => "PROBE",
    };
    Neighbor {
        dst: entry.address.to_string(),
        dev: device(entry.interface),
        lladdr: entry.mac.map(|mac| mac.to_string()),
        state: state.into(),
    }
}

fn device(interface: usize) -> String {
    format!("eth{interface}")
}

fn counters(stack: &Stack) -> Counters {
    let (all, totals) = (stack.statistics(), stack.totals());
    let groups: [(&str, &[(&str, u64)]); 5] = [
        (
            "Ip",
            &[
                ("InReceives", all.packets_in),
                ("InHdrErrors", all.bad_header),
                ("InAddrErrors", all.not_for_us + all.bad_source),
                ("InUnknownProtos", all.unknown_protocol),
                ("OutRequests", all.frames_out.saturating_sub(all.arp_out)),
                ("OutDiscards", all.queue_full + all.neighbor_full),
                ("OutNoRoutes", all.no_route),
            ],
        ),
        ("Icmp", &[("InErrors", all.icmp_in_errors), ("OutRateLimitGlobal", all.limited)]),
        (
            "Tcp",
            &[
                ("ActiveOpens", totals.active_opens),
                ("PassiveOpens", totals.passive_opens),
                ("AttemptFails", totals.attempt_fails),
                ("EstabResets", totals.estab_resets),
                ("CurrEstab", 0),
                ("InSegs", all.segments_in + all.bad_segments),
                // As in Linux, and RFC 4022, without those that were sent again.
                ("OutSegs", totals.segs_out.saturating_sub(totals.retrans_segs) + all.resets_sent),
                ("RetransSegs", totals.retrans_segs),
                ("InErrs", all.bad_segments),
                ("OutRsts", all.resets_sent),
            ],
        ),
        (
            "Udp",
            &[
                ("InDatagrams", all.datagrams_in),
                ("NoPorts", all.no_udp_socket),
                ("InErrors", all.udp_dropped),
                ("OutDatagrams", all.datagrams_out),
                ("RcvbufErrors", all.udp_dropped),
            ],
        ),
        (
            "TcpExt",
            &[
                ("SyncookiesSent", all.syn_cookies_sent),
                ("SyncookiesRecv", all.syn_cookies_accepted),
                ("SyncookiesFailed", all.syn_cookies_failed),
                ("OutOfWindowIcmps", all.out_of_window_icmps),
                ("ListenOverflows", all.listen_overflows),
                ("TCPSACKReorder", totals.reordered),
                ("TCPTimeouts", totals.timeouts),
                ("TCPDSACKRecv", totals.dsack_recv),
                ("TCPAbortOnMemory", all.orphans_ended),
                ("TCPMemoryPressures", all.memory_pressures),
                ("TCPOFOQueue", totals.ofo_queue),
                ("TCPChallengeACK", all.challenge_acks),
                ("TCPRcvQDrop", all.memory_dropped),
            ],
        ),
    ];
    let named = |list: &[(&str, u64)]| list.iter().map(|(name, value)| (name.to_string(), *value)).collect();
    groups.iter().map(|(group, list)| (group.to_string(), named(list))).collect()
}
