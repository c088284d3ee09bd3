//! Devices of existing configurations, which stand for a function's ports.
use ringway_click::arg::{Filename, Raw};
use ringway_click::prelude::*;
use ringway_click_lang::config;

/// Keywords of Click's, FastClick's and ClickOS's classes for devices that set properties of a network card. They
/// are accepted and have no effect on a port.
const KEYWORDS: &[&str] = &[
    "ACTIVE",
    "ALLOW_NONEXISTENT",
    "BLOCKING",
    "BPF_FILTER",
    "BURST",
    "CAPTURE",
    "DEBUG",
    "ENCAP",
    "FORCE_IP",
    "HEADROOM",
    "IQUEUE",
    "MAC",
    "MAXTHREADS",
    "METHOD",
    "MODE",
    "MTU",
    "NDESC",
    "NO_PAD",
    "NUMA",
    "N_QUEUES",
    "OUTBOUND",
    "PAUSE",
    "PROMISC",
    "PROTOCOL",
    "QUEUE",
    "QUIET",
    "SNAPLEN",
    "SNIFFER",
    "TIMEOUT",
    "TIMESTAMP",
    "VERBOSE",
];
/// Names of the argument that names the device.
const NAMES: [&str; 3] = ["DEVNAME", "DEVID", "PORT"];
/// ClickOS's default device.
const FIRST: &str = "0";

const SOURCES: [&str; 5] = ["FromDevice", "PollDevice", "FromDPDKDevice", "FromNetfront", "FromNetFront"];
const SINKS: [&str; 4] = ["ToDevice", "ToDPDKDevice", "ToNetfront", "ToNetFront"];

/// Number of classes for devices.
pub const COUNT: usize = SOURCES.len() + SINKS.len();

/// The argument by which an element names its port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// The port's name.
    #[default]
    Port,
    /// A device, which the function maps to a port.
    Device,
}

impl Naming {
    /// Reads the arguments that name the port; of devices also those that have no effect here.
    ///
    /// `port_of_device` finds the port that a device stands for.
    ///
    /// # Errors
    /// No port has this device's name.
    pub fn read(
        self,
        args: &mut Args,
        port_of_device: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<String, String> {
        if self == Naming::Port {
            let mut port = Filename::default();
            args.read_mp("PORT", &mut port);
            return Ok(port.0);
        }
        let (mut device, mut ignored) = (Raw(FIRST.into()), Raw::default());
        args.read_p(NAMES[0], &mut device);
        for name in &NAMES[1..] {
            args.read(name, &mut device);
        }
        for place in ["SECOND", "THIRD"] {
            args.read_p(place, &mut ignored);
        }
        for keyword in KEYWORDS {
            args.read(keyword, &mut ignored);
        }
        port_of_device(&config::unquote_text(&device.0))
    }
}

/// Whether a class is a device's, and whether it receives.
fn direction(class: &str) -> Option<bool> {
    let receives = SOURCES.contains(&class);
    (receives || SINKS.contains(&class)).then_some(receives)
}

/// The port that an element uses, and whether it receives from it; `None` if it uses none.
pub fn use_of(class: &str, configuration: &str, devices: &[(String, String)]) -> Option<(bool, String)> {
    let arguments = config::split_arguments(configuration);
    let first = || arguments.first().map(|first| config::unquote_text(first)).unwrap_or_default();
    match class {
        "FromPort" => return Some((true, first())),
        "ToPort" => return Some((false, first())),
        _ => {}
    }
    let receives = direction(class)?;
    let by_keyword = arguments.iter().find_map(|argument| {
        let (keyword, value) = config::shift_word(argument);
        (NAMES.contains(&keyword) && !value.is_empty()).then(|| config::unquote_text(value))
    });
    let by_place = || {
        Some(first()).filter(|first| !first.is_empty() && !KEYWORDS.contains(&config::shift_word(first).0))
    };
    let device = by_keyword.or_else(by_place).unwrap_or_else(|| FIRST.into());
    let port = devices.iter().find(|(own, _)| *own == device).map(|(_, port)| port.clone());
    port.map(|port| (receives, port))
}

/// The classes for devices: `from` creates one that receives, `to` one that sends.
pub const fn classes(from: fn() -> Box<dyn Element>, to: fn() -> Box<dyn Element>) -> [Class; COUNT] {
    [
        source(Class::new(SOURCES[0], from)),
        source(Class::new(SOURCES[1], from)),
        source(Class::new(SOURCES[2], from)),
        source(Class::new(SOURCES[3], from)),
        source(Class::new(SOURCES[4], from)),
        sink(Class::new(SINKS[0], to)),
        sink(Class::new(SINKS[1], to)),
        sink(Class::new(SINKS[2], to)),
        sink(Class::new(SINKS[3], to)),
    ]
}

/// A class that receives from a port.
pub const fn source(class: Class) -> Class {
    class.ports("0/1").processing("h").flags("S3")
}

/// A class that sends to a port.
pub const fn sink(class: Class) -> Class {
    class.ports("1/0").flags("S2")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    #[test]
    fn the_port_of_an_element_is_found_in_its_arguments() {
        let devices = [("eth0".to_string(), "in".to_string()), ("0".to_string(), "out".to_string())];
        let of =
            |class, text| use_of(class, text, &devices).map(|(receives, port)| format!("{receives} {port}"));
        assert_eq!(of("FromPort", "a, SPIN 0").as_deref(), Some("true a"));
        assert_eq!(of("ToDevice", "eth0").as_deref(), Some("false in"));
        assert_eq!(of("FromDevice", "PROMISC true, DEVNAME \"eth0\"").as_deref(), Some("true in"));
        assert_eq!(of("FromDPDKDevice", "0, QUEUE 0").as_deref(), Some("true out"));
        assert_eq!(of("ToDPDKDevice", "PORT 0").as_deref(), Some("false out"));
        assert_eq!(
            of("FromNetfront", "BURST 32").as_deref(),
            Some("true out"),
            "the first device by default"
        );
        assert_eq!(of("ToDevice", "eth1"), None);
        assert_eq!(of("Queue", "0"), None);
    }
}
