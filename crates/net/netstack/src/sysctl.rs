//! Settings as `sysctl net.ipv4` shows them.

use crate::settings::{MS, SECOND, Settings};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The names without `net.ipv4.`, in order, and the values in Linux's units.
pub fn sysctls(settings: &Settings) -> Vec<(&'static str, String)> {
    let on = |is_on: bool| u8::from(is_on).to_string();
    let three = |sizes: &[usize; 3]| format!("{}\t{}\t{}", sizes[0], sizes[1], sizes[2]);
    let seconds = |time: u64| (time / SECOND).to_string();
    let lowat = u32::try_from(settings.tcp_notsent_lowat).unwrap_or(u32::MAX);
    let mut all = Vec::from([
        ("ip_default_ttl", settings.ip_default_ttl.to_string()),
        ("tcp_base_mss", settings.tcp_base_mss.to_string()),
        ("tcp_congestion_control", settings.tcp_congestion_control.name().into()),
        ("tcp_dsack", on(settings.tcp_dsack)),
        ("tcp_early_retrans", settings.tcp_early_retrans.to_string()),
        ("tcp_ecn", settings.tcp_ecn.to_string()),
        ("tcp_fin_timeout", seconds(settings.tcp_fin_timeout)),
        // Linux's 2 is what it does by default: F-RTO with and without SACK.
        ("tcp_frto", (2 * u8::from(settings.tcp_frto)).to_string()),
        ("tcp_keepalive_intvl", seconds(settings.tcp_keepalive_intvl)),
        ("tcp_keepalive_probes", settings.tcp_keepalive_probes.to_string()),
        ("tcp_keepalive_time", seconds(settings.tcp_keepalive_time)),
        ("tcp_max_orphans", settings.tcp_max_orphans.to_string()),
        ("tcp_max_syn_backlog", settings.tcp_max_syn_backlog.to_string()),
        ("tcp_moderate_rcvbuf", on(settings.tcp_moderate_rcvbuf)),
        ("tcp_mtu_probing", settings.tcp_mtu_probing.to_string()),
        ("tcp_notsent_lowat", lowat.to_string()),
        ("tcp_orphan_retries", settings.tcp_orphan_retries.to_string()),
        ("tcp_pacing_ca_ratio", settings.tcp_pacing_ca_ratio.to_string()),
        ("tcp_pacing_ss_ratio", settings.tcp_pacing_ss_ratio.to_string()),
        ("tcp_retries1", settings.tcp_retries1.to_string()),
        ("tcp_retries2", settings.tcp_retries2.to_string()),
        ("tcp_rmem", three(&settings.tcp_rmem)),
        ("tcp_rto_min_us", (settings.tcp_rto_min * 1000 / MS).to_string()),
        ("tcp_sack", on(settings.tcp_sack)),
        ("tcp_slow_start_after_idle", on(settings.tcp_slow_start_after_idle)),
        ("tcp_syn_retries", settings.tcp_syn_retries.to_string()),
        ("tcp_synack_retries", settings.tcp_synack_retries.to_string()),
        ("tcp_syncookies", settings.tcp_syncookies.to_string()),
        ("tcp_timestamps", on(settings.tcp_timestamps)),
        ("tcp_window_scaling", on(settings.tcp_window_scaling)),
        ("tcp_wmem", three(&settings.tcp_wmem)),
    ]);
    all.sort_unstable_by_key(|(name, _)| *name);
    all
}
