//! `net.ipv4` settings by their names, for the stack.

use crate::algorithm;
use ringway_netstack::{MS, SECOND, Settings};

/// Every name that is known, without `net.ipv4.`.
const NAMES: &[&str] = &[
    "ip_default_ttl",
    "tcp_base_mss",
    "tcp_congestion_control",
    "tcp_dsack",
    "tcp_early_retrans",
    "tcp_ecn",
    "tcp_fin_timeout",
    "tcp_frto",
    "tcp_keepalive_intvl",
    "tcp_keepalive_probes",
    "tcp_keepalive_time",
    "tcp_max_orphans",
    "tcp_max_syn_backlog",
    "tcp_moderate_rcvbuf",
    "tcp_mtu_probing",
    "tcp_notsent_lowat",
    "tcp_orphan_retries",
    "tcp_pacing_ca_ratio",
    "tcp_pacing_ss_ratio",
    "tcp_retries1",
    "tcp_retries2",
    "tcp_rmem",
    "tcp_rto_min_us",
    "tcp_sack",
    "tcp_slow_start_after_idle",
    "tcp_syn_retries",
    "tcp_synack_retries",
    "tcp_syncookies",
    "tcp_timestamps",
    "tcp_window_scaling",
    "tcp_wmem",
];

/// Changes one of the stack's settings.
///
/// # Errors
/// What is wrong, and what to write.
pub fn set(settings: &mut Settings, name: &str, value: &str) -> Result<(), String> {
    let short = name.strip_prefix("net.ipv4.").unwrap_or(name);
    let wrong = |what: &str| format!("net.ipv4.{short}: \"{}\" is not {what}", value.escape_debug());
    let number = || value.trim().parse::<u64>().map_err(|_| wrong("a whole number"));
    let small = |most: u64| {
        number()?
            .try_into()
            .ok()
            .filter(|n: &u32| u64::from(*n) <= most)
            .ok_or_else(|| wrong(&format!("a number up to {most}")))
    };
    let on = || small(1).map(|value| value == 1);
    let three = || {
        let all: Vec<usize> = value.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let ordered =
            |list: &[usize; 3]| list[0] > 0 && list[0] <= list[1] && list[1] <= list[2] && list[2] <= 1 << 30;
        <[usize; 3]>::try_from(all)
            .ok()
            .filter(ordered)
            .ok_or_else(|| wrong("three sizes in order, up to 1 GB"))
    };
    match short {
        "ip_default_ttl" => settings.ip_default_ttl = small(255)?.max(1) as u8,
        "tcp_base_mss" => settings.tcp_base_mss = small(65_535)?.max(48).into(),
        "tcp_congestion_control" => {
            let known = algorithm(value.trim().as_bytes());
            settings.tcp_congestion_control =
                known.ok_or_else(|| wrong("bbr, bbr3, cubic, reno or dctcp"))?;
        }
        "tcp_dsack" => settings.tcp_dsack = on()?,
        "tcp_early_retrans" => settings.tcp_early_retrans = small(4)? as u8,
        "tcp_ecn" => settings.tcp_ecn = small(2)? as u8,
        "tcp_fin_timeout" => settings.tcp_fin_timeout = u64::from(small(3600)?) * SECOND,
        "tcp_frto" => settings.tcp_frto = small(2)? > 0,
        "tcp_keepalive_intvl" => settings.tcp_keepalive_intvl = u64::from(small(32_767)?.max(1)) * SECOND,
        "tcp_keepalive_probes" => settings.tcp_keepalive_probes = small(127)?.max(1),
        "tcp_keepalive_time" => settings.tcp_keepalive_time = u64::from(small(1 << 20)?.max(1)) * SECOND,
        "tcp_max_orphans" => settings.tcp_max_orphans = small(1 << 20)? as usize,
        "tcp_max_syn_backlog" => settings.tcp_max_syn_backlog = small(1 << 20)?.max(1) as usize,
        "tcp_moderate_rcvbuf" => settings.tcp_moderate_rcvbuf = on()?,
        "tcp_mtu_probing" => settings.tcp_mtu_probing = small(2)? as u8,
        "tcp_notsent_lowat" => settings.tcp_notsent_lowat = small(u32::MAX.into())?.max(1) as usize,
        "tcp_orphan_retries" => settings.tcp_orphan_retries = small(255)?,
        "tcp_pacing_ca_ratio" => settings.tcp_pacing_ca_ratio = small(1000)?.max(1).into(),
        "tcp_pacing_ss_ratio" => settings.tcp_pacing_ss_ratio = small(1000)?.max(1).into(),
        "tcp_retries1" => settings.tcp_retries1 = small(255)?,
        "tcp_retries2" => settings.tcp_retries2 = small(255)?,
        "tcp_rmem" => settings.tcp_rmem = three()?,
        "tcp_rto_min_us" => settings.tcp_rto_min = (u64::from(small(1 << 30)?) * 1000).max(MS),
        "tcp_sack" => settings.tcp_sack = on()?,
        "tcp_slow_start_after_idle" => settings.tcp_slow_start_after_idle = on()?,
        "tcp_syn_retries" => settings.tcp_syn_retries = small(127)?.max(1),
        "tcp_synack_retries" => settings.tcp_synack_retries = small(255)?,
        "tcp_syncookies" => settings.tcp_syncookies = small(2)? as u8,
        "tcp_timestamps" => settings.tcp_timestamps = small(2)? > 0,
        "tcp_window_scaling" => settings.tcp_window_scaling = on()?,
        "tcp_wmem" => settings.tcp_wmem = three()?,
        _ => {
            let known = NAMES.join(", ");
            return Err(format!(
                "{}: the native stack has no such setting; it has net.ipv4. and {known}",
                name.escape_debug()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_netstack::congestion::Algorithm;

    #[test]
    fn settings_have_linux_names_and_units() {
        let mut settings = Settings::default();
        for (name, value) in [
            ("net.ipv4.tcp_congestion_control", "bbr"),
            ("net.ipv4.tcp_rmem", "4096\t65536 1000000"),
            ("tcp_fin_timeout", "5"),
            ("net.ipv4.tcp_sack", "0"),
        ] {
            set(&mut settings, name, value).unwrap();
        }
        let expected = Settings {
            tcp_congestion_control: Algorithm::Bbr1,
            tcp_rmem: [4096, 65_536, 1_000_000],
            tcp_fin_timeout: 5 * SECOND,
            tcp_sack: false,
            ..Settings::default()
        };
        assert_eq!(settings, expected);
        for name in NAMES {
            let good = ["1", "cubic", "1 2 3"].iter().filter(|value| set(&mut settings, name, value).is_ok());
            assert_eq!(good.count(), 1, "{name}");
        }
    }

    #[test]
    fn what_is_shown_is_what_was_set() {
        let settings =
            Settings { tcp_sack: false, tcp_frto: false, tcp_notsent_lowat: 7, ..Settings::default() };
        let shown = ringway_netstack::sysctls(&settings);
        let names: Vec<&str> = shown.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, NAMES);
        let mut again = Settings::default();
        for (name, value) in shown {
            set(&mut again, name, &value).unwrap();
        }
        assert_eq!(again, settings);
    }

    #[test]
    fn a_wrong_setting_changes_nothing_and_is_explained() {
        let mut settings = Settings::default();
        for (name, value, part) in [
            ("net.ipv4.tcp_sack", "2", "is not a number up to 1"),
            ("net.ipv4.tcp_rmem", "3 2 1", "three sizes in order"),
            ("net.ipv4.tcp_congestion_control", "vegas", "is not bbr, bbr3"),
            ("net.core.somaxconn", "1", "the native stack has no such setting; it has"),
        ] {
            let error = set(&mut settings, name, value).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(settings, Settings::default());
    }
}
