//! Settings, with Linux's names, units and defaults (`Documentation/networking/ip-sysctl.rst`) unless stated.

use crate::congestion::Algorithm;
use crate::connection::buffer::most_memory;

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// Which connections are paced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// Those whose controller requires it, and those with a `SO_MAX_PACING_RATE`.
    #[default]
    Required,
    /// All, as with Linux's `fq`.
    Always,
    /// None: to show what pacing is worth.
    Never,
}

/// Settings of a stack. Times are in nanoseconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Minimum, initial and maximum size of receive buffers.
    pub tcp_rmem: [usize; 3],
    /// Minimum, initial and maximum size of send buffers.
    pub tcp_wmem: [usize; 3],
    /// Memory of the buffers of all connections, in bytes (Linux counts pages). Above the second value buffers no
    /// longer grow, until it is below the first one again. Above the third one they get no more memory, except that
    /// each connection may have the first value of `tcp_rmem` and `tcp_wmem`: what a peer was promised is not taken
    /// back, but segments may be dropped, as by a network.
    pub tcp_mem: [usize; 3],
    /// The congestion controller of new connections.
    pub tcp_congestion_control: Algorithm,
    /// Whether to use selective acknowledgments.
    pub tcp_sack: bool,
    /// Whether to report duplicate segments in SACK blocks.
    pub tcp_dsack: bool,
    /// Whether to use timestamps.
    pub tcp_timestamps: bool,
    /// Whether to scale windows.
    pub tcp_window_scaling: bool,
    /// ECN: 0 never, 1 request and accept, 2 accept.
    pub tcp_ecn: u8,
    /// Whether to send tail loss probes: 0 never, 3 always.
    pub tcp_early_retrans: u8,
    /// Whether to detect spurious timeouts by F-RTO.
    pub tcp_frto: bool,
    /// SYN cookies: 0 never, 1 when the backlog is full, 2 always.
    pub tcp_syncookies: u8,
    /// Fast Open (RFC 7413), a sum: 1 for connections, see [`SocketOptions::tcp_fastopen_connect`]; 2 for listeners,
    /// see [`crate::Stack::set_fast_open`]; 4: data goes with a SYN without a cookie; 0x200: it is accepted so;
    /// 0x400: all listeners accept.
    pub tcp_fastopen: u32,
    /// The key of the cookies that listeners give; `None`: a random one.
    pub tcp_fastopen_key: Option<[u64; 2]>,
    /// Connections of a listener that wait for their handshake's last segment.
    pub tcp_max_syn_backlog: usize,
    /// Retransmissions of a SYN.
    pub tcp_syn_retries: u32,
    /// Retransmissions of a SYN-ACK.
    pub tcp_synack_retries: u32,
    /// Timeouts after which an established connection is given up.
    pub tcp_retries2: u32,
    /// Timeouts after which a connection that its program has closed is given up; 0: eight. Such a connection also
    /// ends, as in Linux, when the time between two retransmissions, or two probes of a closed window, reaches two
    /// minutes.
    pub tcp_orphan_retries: u32,
    /// Connections that their programs have closed, at most half of `max_sockets`. Beyond that the oldest ones end:
    /// those in TIME-WAIT first, then those whose peers have not taken everything, which are reset.
    pub tcp_max_orphans: usize,
    /// Path MTU discovery by probes (RFC 4821): 0 never, 1 after repeated timeouts, 2 always.
    pub tcp_mtu_probing: u8,
    /// The segment size that it begins with.
    pub tcp_base_mss: u64,
    /// The smallest one it falls back to.
    pub tcp_mtu_probe_floor: u64,
    /// The search ends when its bounds are closer than this.
    pub tcp_probe_threshold: u64,
    /// Time after which it begins again.
    pub tcp_probe_interval: u64,
    /// Timeouts after which the path is suspected to carry less.
    pub tcp_retries1: u32,
    /// How long a closed socket stays in FIN-WAIT-2; also the length of TIME-WAIT, as in Linux.
    pub tcp_fin_timeout: u64,
    /// Idle time before the first keepalive probe.
    pub tcp_keepalive_time: u64,
    /// Time between keepalive probes.
    pub tcp_keepalive_intvl: u64,
    /// Unanswered keepalive probes after which a connection is given up.
    pub tcp_keepalive_probes: u32,
    /// A socket is writable while it has fewer unsent bytes than this.
    pub tcp_notsent_lowat: usize,
    /// Whether an idle connection begins again with the initial window (RFC 5681, 4.1).
    pub tcp_slow_start_after_idle: bool,
    /// Least number of segments of a frame with pending segmentation, if the window permits; BBR has its own rule.
    pub tcp_min_tso_segs: u32,
    /// Pacing rate in slow start, in percent of `cwnd / srtt`.
    pub tcp_pacing_ss_ratio: u64,
    /// Pacing rate in congestion avoidance, in percent of `cwnd / srtt`.
    pub tcp_pacing_ca_ratio: u64,
    /// Which connections are paced.
    pub pacing: Pacing,
    /// Challenge ACKs in a second (RFC 5961, 10).
    pub tcp_challenge_ack_limit: u32,
    /// Minimum retransmission timeout.
    pub tcp_rto_min: u64,
    /// Initial window in segments (RFC 6928).
    pub tcp_init_cwnd: u32,
    /// Moderates the receive buffer, that is, lets it grow with the rate at which a program reads.
    pub tcp_moderate_rcvbuf: bool,
    /// Time to live of sent packets.
    pub ip_default_ttl: u8,
    /// Reassembly: bytes held for incomplete packets.
    pub ipfrag_high_thresh: usize,
    /// Reassembly: how long an incomplete packet is kept.
    pub ipfrag_time: u64,
    /// Neighbours of an interface.
    pub gc_thresh3: usize,
    /// Sockets of the stack.
    pub max_sockets: usize,
}

impl Settings {
    /// The bytes of memory that a connection's receive buffer takes at most: the third value of `tcp_rmem`, rounded up
    /// to whole chunks, and one chunk more. A chunk has 64 KB, or the largest power of two that is not more than that
    /// value.
    pub fn receive_memory(&self) -> usize {
        most_memory(self.tcp_rmem[2])
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            tcp_rmem: [4 << 10, 128 << 10, 6 << 20],
            tcp_wmem: [4 << 10, 16 << 10, 4 << 20],
            // Linux's values on a machine with 8 GB.
            tcp_mem: [384 << 20, 512 << 20, 768 << 20],
            tcp_congestion_control: Algorithm::Cubic,
            tcp_sack: true,
            tcp_dsack: true,
            tcp_timestamps: true,
            tcp_window_scaling: true,
            tcp_ecn: 2,
            tcp_early_retrans: 3,
            tcp_frto: true,
            tcp_syncookies: 1,
            tcp_fastopen: 1,
            tcp_fastopen_key: None,
            tcp_max_syn_backlog: 4096,
            tcp_syn_retries: 6,
            tcp_synack_retries: 5,
            tcp_retries2: 15,
            tcp_orphan_retries: 0,
            // Linux's `tcp_max_orphans` and `tcp_max_tw_buckets` on a machine with 8 GB.
            tcp_max_orphans: 65_536,
            tcp_mtu_probing: 0,
            tcp_base_mss: 1024,
            tcp_mtu_probe_floor: 48,
            tcp_probe_threshold: 8,
            tcp_probe_interval: 600 * SECOND,
            tcp_retries1: 3,
            tcp_fin_timeout: 60 * SECOND,
            tcp_keepalive_time: 7200 * SECOND,
            tcp_keepalive_intvl: 75 * SECOND,
            tcp_keepalive_probes: 9,
            tcp_notsent_lowat: usize::MAX,
            tcp_slow_start_after_idle: true,
            tcp_min_tso_segs: 2,
            tcp_pacing_ss_ratio: 200,
            tcp_pacing_ca_ratio: 120,
            pacing: Pacing::default(),
            tcp_challenge_ack_limit: 1000,
            tcp_rto_min: 200 * MS,
            tcp_init_cwnd: 10,
            tcp_moderate_rcvbuf: true,
            ip_default_ttl: 64,
            ipfrag_high_thresh: 4 << 20,
            ipfrag_time: 30 * SECOND,
            gc_thresh3: 1024,
            max_sockets: 1 << 20,
        }
    }
}

/// Options of one TCP socket, with Linux's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Sends small segments at once (no Nagle).
    pub tcp_nodelay: bool,
    /// Holds back segments that are not full.
    pub tcp_cork: bool,
    /// Probes idle connections.
    pub so_keepalive: bool,
    /// Gives up after this time without acknowledgment of sent data (RFC 5482); 0: after `tcp_retries2`.
    pub tcp_user_timeout: u64,
    /// Maximum pacing rate in bytes a second.
    pub so_max_pacing_rate: u64,
    /// Size of the send buffer; 0: `tcp_wmem`.
    pub so_sndbuf: usize,
    /// Largest segment size, sent and announced, if it is set before the handshake; 0: the path's.
    pub tcp_maxseg: u64,
    /// As `Settings::tcp_syn_retries`; 0: that.
    pub tcp_syncnt: u32,
    /// As `Settings::tcp_notsent_lowat`; 0: that.
    pub tcp_notsent_lowat: usize,
    /// Requests a cookie with the SYN, or sends bytes with it that were passed to [`crate::Stack::send`] before
    /// the next [`crate::Stack::transmit`]. The peer may receive these bytes twice.
    pub tcp_fastopen_connect: bool,
}

impl Default for SocketOptions {
    fn default() -> SocketOptions {
        SocketOptions {
            tcp_nodelay: false,
            tcp_cork: false,
            so_keepalive: false,
            tcp_user_timeout: 0,
            so_max_pacing_rate: u64::MAX,
            so_sndbuf: 0,
            tcp_maxseg: 0,
            tcp_syncnt: 0,
            tcp_notsent_lowat: 0,
            tcp_fastopen_connect: false,
        }
    }
}
