//! Settings from `/proc/sys/net/ipv4`, which a script changes in its own network namespace. Their names are Linux's.

use ringway_netstack::congestion::Algorithm;
use ringway_netstack::{MS, Pacing, SECOND, Settings};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The stack's settings now.
pub fn settings() -> Settings {
    let base = Settings::default();
    let congestion = text("tcp_congestion_control").and_then(|name| Algorithm::from_name(&name));
    Settings {
        tcp_rmem: sizes("tcp_rmem").unwrap_or(base.tcp_rmem),
        tcp_wmem: sizes("tcp_wmem").unwrap_or(base.tcp_wmem),
        tcp_congestion_control: congestion.unwrap_or(base.tcp_congestion_control),
        tcp_sack: number::<u8>("tcp_sack") != Some(0),
        tcp_dsack: number::<u8>("tcp_dsack") != Some(0),
        tcp_timestamps: number::<u8>("tcp_timestamps") != Some(0),
        tcp_window_scaling: number::<u8>("tcp_window_scaling") != Some(0),
        tcp_ecn: number("tcp_ecn").unwrap_or(base.tcp_ecn),
        // Linux probes with 3 and 4.
        tcp_early_retrans: if number::<u8>("tcp_early_retrans") < Some(3) { 0 } else { 3 },
        tcp_frto: number::<u8>("tcp_frto") != Some(0),
        tcp_syncookies: number("tcp_syncookies").unwrap_or(base.tcp_syncookies),
        tcp_fastopen: hexadecimal("tcp_fastopen").unwrap_or(base.tcp_fastopen),
        tcp_fastopen_key: fast_open_key(),
        tcp_syn_retries: number("tcp_syn_retries").unwrap_or(base.tcp_syn_retries),
        tcp_synack_retries: number("tcp_synack_retries").unwrap_or(base.tcp_synack_retries),
        tcp_retries1: number("tcp_retries1").unwrap_or(base.tcp_retries1),
        tcp_retries2: number("tcp_retries2").unwrap_or(base.tcp_retries2),
        tcp_orphan_retries: number("tcp_orphan_retries").unwrap_or(base.tcp_orphan_retries),
        tcp_mtu_probing: number("tcp_mtu_probing").unwrap_or(base.tcp_mtu_probing),
        tcp_base_mss: number("tcp_base_mss").unwrap_or(base.tcp_base_mss),
        tcp_mtu_probe_floor: number("tcp_mtu_probe_floor").unwrap_or(base.tcp_mtu_probe_floor),
        tcp_probe_threshold: number("tcp_probe_threshold").unwrap_or(base.tcp_probe_threshold),
        tcp_probe_interval: time("tcp_probe_interval").unwrap_or(base.tcp_probe_interval),
        tcp_fin_timeout: time("tcp_fin_timeout").unwrap_or(base.tcp_fin_timeout),
        tcp_keepalive_time: time("tcp_keepalive_time").unwrap_or(base.tcp_keepalive_time),
        tcp_keepalive_intvl: time("tcp_keepalive_intvl").unwrap_or(base.tcp_keepalive_intvl),
        tcp_keepalive_probes: number("tcp_keepalive_probes").unwrap_or(base.tcp_keepalive_probes),
        tcp_notsent_lowat: number("tcp_notsent_lowat").unwrap_or(base.tcp_notsent_lowat),
        tcp_slow_start_after_idle: number::<u8>("tcp_slow_start_after_idle") != Some(0),
        tcp_min_tso_segs: number("tcp_min_tso_segs").unwrap_or(base.tcp_min_tso_segs),
        tcp_pacing_ss_ratio: number("tcp_pacing_ss_ratio").unwrap_or(base.tcp_pacing_ss_ratio),
        tcp_pacing_ca_ratio: number("tcp_pacing_ca_ratio").unwrap_or(base.tcp_pacing_ca_ratio),
        tcp_moderate_rcvbuf: number::<u8>("tcp_moderate_rcvbuf") != Some(0),
        tcp_challenge_ack_limit: number("tcp_challenge_ack_limit").unwrap_or(base.tcp_challenge_ack_limit),
        tcp_rto_min: number("tcp_rto_min_us").map_or(base.tcp_rto_min, |micros: u64| micros * MS / 1000),
        pacing: if paced() { Pacing::Always } else { Pacing::Required },
        ..base
    }
}

/// A file of the runner's `tc` and `ip`, which stand for programs that change what only the kernel has.
fn note(name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("RINGWAY_NOTES")?).join(name))
}

/// Whether the script has set `fq` for the interface.
fn paced() -> bool {
    is_qdisc("fq")
}

/// Whether the interface takes no packets.
pub fn is_full() -> bool {
    is_qdisc("full")
}

fn is_qdisc(wanted: &str) -> bool {
    note("qdisc")
        .and_then(|path| std::fs::read_to_string(path).ok())
        .is_some_and(|name| name.trim() == wanted)
}

/// Whether the interface segments: the script has not turned it off.
pub fn segments() -> bool {
    !note("ethtool").is_some_and(|path| path.exists())
}

/// Whether the script has flushed what is known about servers since the last call.
pub fn flushed() -> bool {
    note("flush").is_some_and(|path| std::fs::remove_file(path).is_ok())
}

/// Passes a counter of Linux's to the runner's `nstat`.
pub fn count(name: &str, value: u64) {
    if let Some(path) = note("counters") {
        // Without it, the script does not find the counter, and says so.
        let _ = std::fs::write(path, format!("{name} {value} 0.0\n"));
    }
}

fn text(name: &str) -> Option<String> {
    let path = Path::new("/proc/sys/net/ipv4").join(name);
    Some(std::fs::read_to_string(path).ok()?.trim().to_string())
}

fn number<T: FromStr>(name: &str) -> Option<T> {
    text(name)?.parse().ok()
}

/// A decimal number, or a hexadecimal one with `0x`.
fn hexadecimal(name: &str) -> Option<u32> {
    let text = text(name)?;
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn time(name: &str) -> Option<u64> {
    Some(number::<u64>(name)? * SECOND)
}

/// The first key: four 32-bit words in hexadecimal digits.
fn fast_open_key() -> Option<[u64; 2]> {
    let text = text("tcp_fastopen_key")?;
    let words = text.split([',', '-']).map(|word| u64::from_str_radix(word, 16).ok());
    let [a, b, c, d] = words.take(4).collect::<Option<Vec<_>>>()?.try_into().ok()?;
    Some([a | b << 32, c | d << 32])
}

fn sizes(name: &str) -> Option<[usize; 3]> {
    let sizes: Vec<usize> = text(name)?.split_whitespace().filter_map(|size| size.parse().ok()).collect();
    sizes.try_into().ok()
}
