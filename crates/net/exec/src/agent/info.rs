//! `struct tcp_info` (linux/tcp.h).

use ringway_netstack::congestion::State as CaState;
use ringway_netstack::{State, TcpInfo};

/// Size of the part that is filled in.
const LEN: usize = 240;
/// `TCP_CLOSE`.
const CLOSE: u8 = 7;

/// The `tcp_info` of a socket without a connection.
pub fn closed() -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    bytes[0] = CLOSE;
    bytes
}

/// Encodes a `struct tcp_info`.
pub fn encode(info: &TcpInfo) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    let options = [
        info.tcpi_options_timestamps,
        info.tcpi_options_sack,
        info.tcpi_snd_wscale > 0,
        info.tcpi_options_ecn,
        info.tcpi_options_ecn_seen,
        info.tcpi_options_syn_data,
    ];
    let options = options.into_iter().enumerate().map(|(bit, on)| u8::from(on) << bit).sum();
    let head = [
        state(info.tcpi_state),
        congestion(info.tcpi_ca_state),
        info.tcpi_retransmits.min(255) as u8,
        info.tcpi_probes.min(255) as u8,
        info.tcpi_backoff.min(255) as u8,
        options,
        info.tcpi_snd_wscale | info.tcpi_rcv_wscale << 4,
        u8::from(info.tcpi_delivery_rate_app_limited),
    ];
    bytes[..8].copy_from_slice(&head);
    let (us, ms) = (|time: u64| time / 1000, |time: u64| time / 1_000_000);
    let words = [
        (8, us(info.tcpi_rto)),
        (12, us(info.tcpi_ato)),
        (16, info.tcpi_snd_mss),
        (20, info.tcpi_rcv_mss),
        (24, info.tcpi_unacked),
        (28, info.tcpi_sacked),
        (32, info.tcpi_lost),
        (36, info.tcpi_retrans),
        (44, ms(info.tcpi_last_data_sent)),
        (52, ms(info.tcpi_last_data_recv)),
        (56, ms(info.tcpi_last_ack_recv)),
        (60, info.tcpi_pmtu),
        (64, info.tcpi_rcv_ssthresh),
        (68, us(info.tcpi_rtt)),
        (72, us(info.tcpi_rttvar)),
        (76, info.tcpi_snd_ssthresh.min(0x7fff_ffff)),
        (80, info.tcpi_snd_cwnd),
        (84, info.tcpi_advmss),
        (88, info.tcpi_reordering),
        (92, us(info.tcpi_rcv_rtt)),
        (96, info.tcpi_rcv_space),
        (100, info.tcpi_total_retrans),
        (136, info.tcpi_segs_out),
        (140, info.tcpi_segs_in),
        (144, info.tcpi_notsent_bytes),
        (148, us(info.tcpi_min_rtt)),
        (152, info.tcpi_data_segs_in),
        (156, info.tcpi_data_segs_out),
        (192, info.tcpi_delivered),
        (196, info.tcpi_delivered_ce),
        (216, info.tcpi_dsack_dups),
        (220, info.tcpi_reord_seen),
        (224, info.tcpi_rcv_ooopack),
        (228, info.tcpi_snd_wnd),
        (232, info.tcpi_rcv_wnd),
    ];
    for (at, value) in words {
        bytes[at..at + 4].copy_from_slice(&(value.min(u32::MAX.into()) as u32).to_ne_bytes());
    }
    long(info, &mut bytes);
    bytes
}

/// The fields of 64 bits.
fn long(info: &TcpInfo, bytes: &mut [u8]) {
    let us = |time: u64| time / 1000;
    let long = [
        (104, info.tcpi_pacing_rate),
        (112, info.tcpi_max_pacing_rate),
        (120, info.tcpi_bytes_acked),
        (128, info.tcpi_bytes_received),
        (160, info.tcpi_delivery_rate),
        (168, us(info.tcpi_busy_time)),
        (176, us(info.tcpi_rwnd_limited)),
        (184, us(info.tcpi_sndbuf_limited)),
        (200, info.tcpi_bytes_sent),
        (208, info.tcpi_bytes_retrans),
    ];
    for (at, value) in long {
        bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }
}

fn state(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => CLOSE,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

fn congestion(state: CaState) -> u8 {
    match state {
        CaState::Open => 0,
        CaState::Disorder => 1,
        CaState::Cwr => 2,
        CaState::Recovery => 3,
        CaState::Loss => 4,
    }
}
