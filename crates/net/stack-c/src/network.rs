//! A network from text.

use ringway_sockets::{Algorithm, Cidr, Config, Network, RingDevice};
use std::path::Path;

/// A network on the port whose socket is at `path`.
///
/// # Errors
/// The text that is wrong, or why the port can't be used.
pub fn open(path: &Path, addresses: &str, settings: &str) -> Result<Network, String> {
    let config = config(addresses, settings)?;
    let device = RingDevice::connect(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Network::new(device, config).map_err(|error| error.to_string())
}

fn config(addresses: &str, settings: &str) -> Result<Config, String> {
    let mut list = Vec::new();
    for word in addresses.split_whitespace() {
        let wrong = |_| format!("\"{}\": write an address and prefix, as 10.0.0.2/24", word.escape_debug());
        list.push(word.parse::<Cidr>().map_err(wrong)?);
    }
    let first = *list.first().ok_or("no address: write one with its prefix, as 10.0.0.2/24")?;
    let mut config = Config::new(first);
    config.addresses = list;
    for word in settings.split_whitespace() {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let wrong = |what| format!("{}: \"{}\" is not {what}", key.escape_debug(), value.escape_debug());
        match key {
            "gateway" => config.gateways.push(value.parse().map_err(|_| wrong("an address"))?),
            "cc" => {
                config.settings.tcp_congestion_control =
                    algorithm(value.as_bytes()).ok_or_else(|| wrong("bbr, bbr3, cubic, reno or dctcp"))?;
            }
            "mtu" => {
                let mtu = value.parse().ok().filter(|mtu| (1280..=65_535).contains(mtu));
                config.mtu = mtu.ok_or_else(|| wrong("a number from 1280 to 65535"))?;
            }
            _ => return Err(format!("unknown setting \"{}\": use gateway, cc or mtu", key.escape_debug())),
        }
    }
    Ok(config)
}

/// A congestion controller by Linux's name or the stack's.
pub fn algorithm(name: &[u8]) -> Option<Algorithm> {
    Algorithm::from_linux_name(std::str::from_utf8(name).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_wrong_ones_named() {
        let config = config("10.0.0.2/24 fd00::2/64", "gateway=10.0.0.1 cc=bbr mtu=9000");
        let config = config.unwrap_or_else(|error| unreachable!("{error}"));
        assert_eq!((config.addresses.len(), config.gateways.len(), config.mtu), (2, 1, 9000));
        assert!(config.settings.tcp_congestion_control == Algorithm::Bbr1);
        for (addresses, settings, why) in [
            ("", "", "no address"),
            ("10.0.0.2", "", "\"10.0.0.2\": write an address and prefix"),
            ("10.0.0.2/24", "cc=vegas", "cc: \"vegas\" is not bbr"),
            ("10.0.0.2/24", "mtu=60", "mtu: \"60\" is not a number from 1280"),
            ("10.0.0.2/24", "gateway=x", "gateway: \"x\" is not an address"),
            ("10.0.0.2/24", "colour=red", "unknown setting \"colour\""),
        ] {
            let error = super::config(addresses, settings).err().unwrap_or_default();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
