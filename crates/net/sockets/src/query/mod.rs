//! Tables of a running stack for other programs: sockets, counters, settings, routes, neighbours, traces.
//!
//! A [`Server`] listens on a UNIX socket that its user alone may use; a [`Client`] asks. A question is a line of JSON,
//! and so is its answer. The stack only copies figures, of a bounded number of sockets a question; the text is made on
//! the server's thread.

mod answer;
mod client;
mod server;

pub use answer::{Answer, answer};
pub use client::Client;
pub use server::Server;

use ringway_netstack::TcpInfo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Places of the table of sockets that one answer has at most.
pub const PLACES: usize = 256;
/// The most points of a trace that can be asked for.
pub const POINTS: usize = 16_384;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Who it is.
    About,
    /// Sockets, from this place of their table on.
    Sockets(usize),
    /// Counters, without those of the connections in the table.
    Counters,
    /// Settings.
    Sysctls,
    /// Routes.
    Routes,
    /// Neighbours.
    Neighbors,
    /// To record the state of the connection of this number, in so many points; 0: no more.
    Record(u64, usize),
    /// The trace of the connection of this number.
    Trace(u64, Format),
}

/// The form of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// A table, a line a point.
    Csv,
    /// qlog's JSON.
    Qlog,
    /// An image.
    Svg,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each answers the request of its name")]
pub enum Reply {
    About(About),
    Sockets {
        sockets: Vec<Socket>,
        next: Option<usize>,
    },
    Counters(Counters),
    Sysctls(Vec<(String, String)>),
    Routes(Vec<Route>),
    Neighbors(Vec<Neighbor>),
    Recording,
    /// The text, and whether the connection has ended.
    Trace {
        text: String,
        ended: bool,
    },
    Error(String),
}

/// Who answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The program.
    pub program: String,
    /// Its process.
    pub process: u32,
    /// Its addresses, with their prefixes.
    pub addresses: Vec<String>,
}

/// Counters by group and name, with the groups and names of /proc/net/snmp and /proc/net/netstat.
pub type Counters = BTreeMap<String, BTreeMap<String, u64>>;

/// A socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Socket {
    /// Its number, for traces.
    pub id: u64,
    /// `tcp` or `udp`.
    pub netid: String,
    /// The state, in the words of `ss`.
    pub state: String,
    /// Bytes that the program has not read; of a listener, connections to accept.
    pub recv_q: u64,
    /// Bytes that the peer has not acknowledged; of a listener, the most connections to accept.
    pub send_q: u64,
    /// The own address.
    pub local: String,
    /// The peer's.
    pub peer: String,
    /// The congestion controller, in the words of `ss`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cong_alg: String,
    /// The controller's state.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// The figures of a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<Info>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The destinations, or `default`.
    pub dst: String,
    /// The next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The interface.
    pub dev: String,
    /// The own address, of a network that is on the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefsrc: Option<String>,
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbor {
    /// Its address.
    pub dst: String,
    /// The interface.
    pub dev: String,
    /// Its link-layer address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lladdr: Option<String>,
    /// What is known about it, in the words of `ip`.
    pub state: String,
}

macro_rules! info {
    ($($name:ident)*) => {
        /// The figures of [`TcpInfo`], with their names and units: nanoseconds, segments, bytes a second.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "the names are Linux's")]
        pub struct Info {
            $(pub $name: u64,)*
        }

        impl From<&TcpInfo> for Info {
            fn from(info: &TcpInfo) -> Info {
                Info { $($name: info.$name.into(),)* }
            }
        }
    };
}

info! {
    tcpi_retransmits tcpi_probes tcpi_backoff tcpi_options_timestamps tcpi_options_sack tcpi_options_ecn
    tcpi_options_ecn_seen tcpi_options_syn_data tcpi_snd_wscale tcpi_rcv_wscale tcpi_rto tcpi_ato
    tcpi_snd_mss tcpi_rcv_mss tcpi_unacked tcpi_sacked tcpi_lost tcpi_retrans tcpi_last_data_sent
    tcpi_last_data_recv tcpi_last_ack_recv tcpi_pmtu tcpi_rcv_ssthresh tcpi_rtt tcpi_rttvar tcpi_min_rtt
    tcpi_snd_ssthresh tcpi_snd_cwnd tcpi_advmss tcpi_rcv_rtt tcpi_rcv_space tcpi_total_retrans
    tcpi_pacing_rate tcpi_max_pacing_rate tcpi_delivery_rate tcpi_delivery_rate_app_limited
    tcpi_bytes_acked tcpi_bytes_received tcpi_bytes_sent tcpi_bytes_retrans tcpi_segs_out tcpi_segs_in
    tcpi_data_segs_in tcpi_data_segs_out tcpi_notsent_bytes tcpi_delivered tcpi_delivered_ce
    tcpi_dsack_dups tcpi_reord_seen tcpi_rcv_ooopack tcpi_snd_wnd tcpi_rcv_wnd tcpi_total_rto
    tcpi_reordering tcpi_busy_time tcpi_rwnd_limited tcpi_sndbuf_limited
}

#[cfg(test)]
mod tests;
