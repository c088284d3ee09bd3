//! `getsockopt` and `setsockopt`.

use crate::machine::Machine;
use crate::sockets::{Kind, errno};
use libc::{
    SO_ERROR, SO_KEEPALIVE, SO_SNDBUF, SOL_SOCKET, TCP_CORK, TCP_FASTOPEN_CONNECT, TCP_INFO, TCP_MAXSEG,
    TCP_NODELAY, TCP_USER_TIMEOUT,
};
use ringway_netstack::{MS, State, TcpInfo};

const SOL_TCP: i32 = libc::SOL_TCP;
/// Options without a constant in `libc`.
const SO_MEMINFO: i32 = 55;
const TCP_CC_INFO: i32 = 26;
const TCP_NOTSENT_LOWAT: i32 = 25;
const TCP_FASTOPEN_KEY: i32 = 33;
/// Bits of `tcpi_options`.
const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const WSCALE: u8 = 4;
const ECN: u8 = 8;
const ECN_SEEN: u8 = 16;
const SYN_DATA: u8 = 32;
/// Length of the largest `struct tcp_info`.
const LEN: usize = 512;
/// `TCP_INFINITE_SSTHRESH`.
const INFINITE: u64 = 0x7fff_ffff;

impl Machine {
    pub fn set_option(&mut self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<i32, i32> {
        let int = || {
            let bytes = value.get(..4).and_then(|bytes| bytes.try_into().ok()).ok_or(libc::EINVAL)?;
            Ok::<i32, i32>(i32::from_ne_bytes(bytes))
        };
        let disabled = self.settings().tcp_fastopen & 1 == 0;
        let socket = self.socket(fd)?;
        let options = &mut socket.options;
        match (level, name) {
            (SOL_TCP, TCP_NODELAY) => options.tcp_nodelay = int()? != 0,
            (SOL_TCP, TCP_CORK) => options.tcp_cork = int()? != 0,
            (SOL_SOCKET, SO_KEEPALIVE) => options.so_keepalive = int()? != 0,
            (SOL_TCP, TCP_USER_TIMEOUT) => options.tcp_user_timeout = int()?.max(0) as u64 * MS,
            (SOL_TCP, libc::TCP_SYNCNT) => options.tcp_syncnt = int()?.max(0) as u32,
            (SOL_TCP, TCP_FASTOPEN_CONNECT) => match socket.kind {
                Kind::New if disabled => return Err(libc::EOPNOTSUPP),
                Kind::New => options.tcp_fastopen_connect = int()? != 0,
                _ => return Err(libc::EINVAL),
            },
            (SOL_SOCKET, libc::SO_LINGER) => {
                let off = int()? == 0;
                let time = value.get(4..8).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
                let linger = if off { -1 } else { time.unwrap_or(0) };
                socket.others.insert((level, name), linger);
            }
            // Linux doubles it.
            (SOL_SOCKET, SO_SNDBUF) => options.so_sndbuf = int()?.max(0) as usize * 2,
            (SOL_TCP, TCP_MAXSEG) => options.tcp_maxseg = int()?.max(0) as u64,
            (SOL_TCP, TCP_NOTSENT_LOWAT) => options.tcp_notsent_lowat = int()? as u32 as usize,
            (SOL_TCP, TCP_FASTOPEN_KEY) => socket.fast_open_key = Some(key(value).ok_or(libc::EINVAL)?),
            _ => {
                let byte = value.first().map(|byte| i32::from(*byte));
                socket.others.insert((level, name), int().or(byte.ok_or(libc::EINVAL))?);
            }
        }
        self.pass_options(fd)?;
        Ok(0)
    }

    /// Gives the stack the options of a descriptor.
    pub fn pass_options(&mut self, fd: i32) -> Result<(), i32> {
        let now = self.now;
        let socket = self.socket(fd)?;
        let (options, kind) = (socket.options, socket.kind);
        let key = socket.fast_open_key;
        let fast_open = socket.others.get(&(SOL_TCP, libc::TCP_FASTOPEN)).is_some_and(|queue| *queue > 0);
        if let Kind::Listener(id) = kind {
            self.stack.set_fast_open(id, fast_open).map_err(errno)?;
            self.stack.set_fast_open_key(id, key).map_err(errno)?;
        }
        if let Kind::Stream(id) | Kind::Listener(id) = kind {
            self.stack.set_options(now, id, options).map_err(errno)?;
        }
        Ok(())
    }

    pub fn option(&mut self, fd: i32, level: i32, name: i32) -> Result<Vec<u8>, i32> {
        let socket = self.socket(fd)?;
        let options = socket.options;
        let kept = socket.others.get(&(level, name)).copied();
        let id = socket.stream().ok();
        let int = match (level, name) {
            (SOL_SOCKET, SO_MEMINFO) => return Ok(vec![0; 36]),
            (SOL_TCP, TCP_CC_INFO) => return Ok(Vec::new()),
            (SOL_TCP, TCP_INFO) => {
                let info = match id {
                    Some(id) => Some(self.stack.info(id).map_err(errno)?),
                    None => None,
                };
                return Ok(tcp_info(info.as_ref()));
            }
            (SOL_SOCKET, SO_ERROR) => self.take_error(fd)?.unwrap_or(0),
            (SOL_TCP, TCP_NODELAY) => options.tcp_nodelay.into(),
            (SOL_TCP, TCP_CORK) => options.tcp_cork.into(),
            (SOL_TCP, TCP_FASTOPEN_CONNECT) => options.tcp_fastopen_connect.into(),
            (SOL_TCP, TCP_USER_TIMEOUT) => (options.tcp_user_timeout / MS) as i32,
            (SOL_TCP, TCP_MAXSEG) => match id {
                Some(id) => self.stack.info(id).map_err(errno)?.tcpi_snd_mss as i32,
                None if options.tcp_maxseg > 0 => options.tcp_maxseg as i32,
                None => 536,
            },
            (SOL_TCP, TCP_NOTSENT_LOWAT) => options.tcp_notsent_lowat as u32 as i32,
            (SOL_SOCKET, SO_SNDBUF) => match options.so_sndbuf {
                0 => self.settings().tcp_wmem[1] as i32,
                size => size as i32,
            },
            _ => kept.ok_or(libc::ENOPROTOOPT)?,
        };
        Ok(int.to_ne_bytes().to_vec())
    }
}

/// A key of Fast Open: 16 bytes.
fn key(value: &[u8]) -> Option<[u64; 2]> {
    let (words, []) = value.as_chunks::<8>() else { return None };
    <[u64; 2]>::try_from(words.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>()).ok()
}

/// `struct tcp_info`, as far as the stack has its figures.
fn tcp_info(info: Option<&TcpInfo>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Some(info) = info else {
        bytes.resize(LEN, 0);
        bytes[0] = 7;
        return bytes;
    };
    let options = [
        (info.tcpi_options_timestamps, TIMESTAMPS),
        (info.tcpi_options_sack, SACK),
        (info.tcpi_snd_wscale > 0 || info.tcpi_rcv_wscale > 0, WSCALE),
        (info.tcpi_options_ecn, ECN),
        (info.tcpi_options_ecn_seen, ECN_SEEN),
        (info.tcpi_options_syn_data, SYN_DATA),
    ];
    let options = options.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum();
    let (state, ca_state) = (state_number(info.tcpi_state), info.tcpi_ca_state as u8);
    let tries = [info.tcpi_retransmits, info.tcpi_probes, info.tcpi_backoff].map(|count| count as u8);
    bytes.extend([state, ca_state, tries[0], tries[1], tries[2], options]);
    bytes.push(info.tcpi_snd_wscale | info.tcpi_rcv_wscale << 4);
    bytes.push(u8::from(info.tcpi_delivery_rate_app_limited));
    let micros = |nanos: u64| nanos / 1000;
    let words = [
        [micros(info.tcpi_rto), micros(info.tcpi_ato), info.tcpi_snd_mss, info.tcpi_rcv_mss],
        [info.tcpi_unacked, info.tcpi_sacked, info.tcpi_lost, info.tcpi_retrans],
        // From tcpi_fackets on. Times since an event are in milliseconds.
        [0, info.tcpi_last_data_sent / MS, 0, info.tcpi_last_data_recv / MS],
        [info.tcpi_last_ack_recv / MS, info.tcpi_pmtu, info.tcpi_rcv_ssthresh, micros(info.tcpi_rtt)],
        [
            micros(info.tcpi_rttvar),
            info.tcpi_snd_ssthresh.min(INFINITE),
            info.tcpi_snd_cwnd,
            info.tcpi_advmss,
        ],
        [info.tcpi_reordering, micros(info.tcpi_rcv_rtt), info.tcpi_rcv_space, info.tcpi_total_retrans],
    ];
    bytes.extend(words.as_flattened().iter().flat_map(|word| (*word as u32).to_ne_bytes()));
    let rates = [info.tcpi_pacing_rate, info.tcpi_max_pacing_rate];
    let pacing = [rates[0], rates[1], info.tcpi_bytes_acked, info.tcpi_bytes_received];
    bytes.extend(pacing.iter().flat_map(|word| word.to_ne_bytes()));
    let words = [
        [info.tcpi_segs_out, info.tcpi_segs_in, info.tcpi_notsent_bytes],
        [micros(info.tcpi_min_rtt), info.tcpi_data_segs_in, info.tcpi_data_segs_out],
    ];
    bytes.extend(words.as_flattened().iter().flat_map(|word| (*word as u32).to_ne_bytes()));
    let limits = [info.tcpi_busy_time, info.tcpi_rwnd_limited, info.tcpi_sndbuf_limited].map(micros);
    bytes.extend(info.tcpi_delivery_rate.to_ne_bytes());
    bytes.extend(limits.iter().flat_map(|word| word.to_ne_bytes()));
    bytes.extend(
        [info.tcpi_delivered, info.tcpi_delivered_ce].iter().flat_map(|word| (*word as u32).to_ne_bytes()),
    );
    bytes.extend([info.tcpi_bytes_sent, info.tcpi_bytes_retrans].iter().flat_map(|word| word.to_ne_bytes()));
    let last = [
        [info.tcpi_dsack_dups, info.tcpi_reord_seen, info.tcpi_rcv_ooopack],
        [info.tcpi_snd_wnd, info.tcpi_rcv_wnd, 0],
    ];
    bytes.extend(last.as_flattened().iter().flat_map(|word| (*word as u32).to_ne_bytes()));
    let timeouts = [info.tcpi_total_rto, info.tcpi_total_rto_recoveries];
    bytes.extend(timeouts.iter().flat_map(|count| (*count as u16).to_ne_bytes()));
    bytes.extend(((info.tcpi_total_rto_time / MS) as u32).to_ne_bytes());
    bytes.resize(LEN, 0);
    bytes
}

/// Linux's numbers of the states.
fn state_number(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}
