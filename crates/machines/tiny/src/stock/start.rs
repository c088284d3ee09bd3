//! What a machine runs: the function of its command line and its module, on its devices.

use super::command_line::{Line, PortWord};
use super::net::Net;
use crate::start::FunctionStart;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use ringway_wire::MacAddress;

/// A function or a program, and its devices.
#[derive(Debug)]
pub struct Start<'m> {
    /// What runs. Its clock and its seed are the machine's.
    pub function: FunctionStart,
    /// The device of each port, in their order.
    pub nets: Vec<Net<'m>>,
    /// Number of devices without a port.
    pub unused: usize,
}

/// Why a machine can't run a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// Neither the command line nor a module has one.
    NoConfiguration,
    /// Both have one.
    TwoConfigurations,
    /// The module is not a text.
    NotText,
    /// There is no device.
    NoDevice,
    /// More ports than devices.
    TooFew {
        /// Ports of the command line.
        ports: usize,
        /// Devices of the machine.
        devices: usize,
    },
    /// No device has the address of this port.
    NoAddress(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::NoConfiguration => out.write_str(
                "no configuration: give a Click file as the initrd, or click=\"...\" on the command line",
            ),
            StartError::TwoConfigurations => {
                out.write_str("two configurations: the initrd, and click= on the command line")
            }
            StartError::NotText => out.write_str("the initrd is no text in UTF-8; it must be a Click file"),
            StartError::NoDevice => out.write_str(
                "no virtio network device: neither on PCI, nor named by virtio_mmio.device= on the command \
                 line, as QEMU's microvm does with acpi=off",
            ),
            StartError::TooFew { ports, devices } => {
                write!(
                    out,
                    "{ports} ports on the command line, but {devices} network devices that can be used"
                )
            }
            StartError::NoAddress(port) => write!(out, "no network device has the address of port {port}"),
        }
    }
}

/// The text of the configuration, and its name in messages.
fn configuration(line: &Line, module: &[u8]) -> Result<(String, &'static str), StartError> {
    // Some monitors fill a module's last page.
    let len = module.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    match (&line.click, &module[..len]) {
        (Some(_), [_, ..]) => Err(StartError::TwoConfigurations),
        (Some(click), []) => Ok((click.clone(), "click")),
        (None, []) => Err(StartError::NoConfiguration),
        (None, text) => match core::str::from_utf8(text) {
            Ok(text) => Ok((text.to_string(), "initrd")),
            Err(_) => Err(StartError::NotText),
        },
    }
}

/// Gives each port its device: the one with the port's address, else the next one in their order.
fn choose(ports: &[PortWord], addresses: &[Option<[u8; 6]>]) -> Result<Vec<usize>, StartError> {
    if ports.len() > addresses.len() {
        return Err(StartError::TooFew { ports: ports.len(), devices: addresses.len() });
    }
    let mut chosen: Vec<Option<usize>> = Vec::new();
    for PortWord { name, mac } in ports {
        let own = |at: &usize| addresses[*at] == *mac && !chosen.contains(&Some(*at));
        let found = mac.and_then(|_| (0..addresses.len()).find(own));
        if mac.is_some() && found.is_none() {
            return Err(StartError::NoAddress(name.clone()));
        }
        chosen.push(found);
    }
    let mut free: Vec<usize> = (0..addresses.len()).filter(|at| !chosen.contains(&Some(*at))).rev().collect();
    // There are at least as many devices as ports.
    Ok(chosen.into_iter().filter_map(|own| own.or_else(|| free.pop())).collect())
}

/// The function of a command line and a module on these devices.
///
/// # Errors
/// The function, or a device for one of its ports, is missing.
pub fn assign<'m>(line: &Line, module: &[u8], nets: Vec<Net<'m>>) -> Result<Start<'m>, StartError> {
    let (text, title) = configuration(line, module)?;
    if nets.is_empty() {
        return Err(StartError::NoDevice);
    }
    let (ports, nets, unused) = give(line, nets)?;
    let mut devices = line.devices.clone();
    for port in &ports {
        // A port also stands for the device of its name.
        if devices.iter().all(|(device, _)| device != port) {
            devices.push((port.clone(), port.clone()));
        }
    }
    let function = FunctionStart {
        text,
        title: title.into(),
        parameters: line.parameters.clone(),
        ports,
        devices,
        burst: line.burst(),
        ..FunctionStart::default()
    };
    Ok(Start { function, nets, unused })
}

/// The program of a command line on these devices, of which it may have none. Its first port has its device's address
/// unless the line names another one.
///
/// # Errors
/// A device for one of its ports is missing.
pub fn assign_program<'m>(line: &Line, nets: Vec<Net<'m>>) -> Result<Start<'m>, StartError> {
    let (ports, nets, unused) = give(line, nets)?;
    let mut settings = line.settings.clone();
    let own = nets.first().and_then(Net::mac).filter(|_| settings.iter().all(|(key, _)| key != "mac"));
    settings.extend(own.map(|mac| ("mac".into(), MacAddress(mac).to_string())));
    let parameters = line.parameters.clone();
    let function =
        FunctionStart { title: "program".into(), parameters, settings, ports, ..FunctionStart::default() };
    Ok(Start { function, nets, unused })
}

/// Names of the ports, the device of each, and the number of other devices. Without names, each device is a port.
#[allow(clippy::type_complexity, reason = "what both callers need")]
fn give<'m>(line: &Line, nets: Vec<Net<'m>>) -> Result<(Vec<String>, Vec<Net<'m>>, usize), StartError> {
    let named = |at: usize| PortWord { name: format!("eth{at}"), mac: None };
    let all: Vec<PortWord> = (0..nets.len()).map(named).collect();
    let ports = if line.ports.is_empty() { &all } else { &line.ports };
    let addresses: Vec<_> = nets.iter().map(Net::mac).collect();
    let chosen = choose(ports, &addresses)?;
    let mut devices: Vec<Option<Net<'m>>> = nets.into_iter().map(Some).collect();
    let nets: Vec<Net<'m>> = chosen.iter().filter_map(|at| devices.get_mut(*at)?.take()).collect();
    let unused = devices.iter().flatten().count();
    let ports = ports.iter().map(|port| port.name.clone()).collect();
    Ok((ports, nets, unused))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(words: &str) -> Vec<PortWord> {
        Line::parse(words).unwrap().ports
    }

    #[test]
    fn ports_get_the_devices_of_their_addresses_and_the_others_the_rest() {
        let mac = |last| Some([2, 0, 0, 0, 0, last]);
        let devices = [mac(0), mac(1), None, mac(3)];
        let chosen = |words: &str| choose(&ports(words), &devices);
        assert_eq!(chosen("port=a port=b"), Ok([0, 1].into()));
        assert_eq!(chosen("port=a port=b,02:00:00:00:00:00 port=c"), Ok([1, 0, 2].into()));
        assert_eq!(chosen("port=a,02:00:00:00:00:03"), Ok([3].into()));
        assert_eq!(chosen("port=a,02:00:00:00:00:09"), Err(StartError::NoAddress("a".into())));
        let twice = "port=a,02:00:00:00:00:01 port=b,02:00:00:00:00:01";
        assert_eq!(chosen(twice), Err(StartError::NoAddress("b".into())));
        let five = "port=a port=b port=c port=d port=e";
        assert_eq!(chosen(five), Err(StartError::TooFew { ports: 5, devices: 4 }));
    }

    #[test]
    fn a_program_needs_no_device_and_has_the_settings_of_its_line() {
        let line = Line::parse("address=10.0.0.2/24 argument=x parameter=A=b").unwrap();
        let Start { function, nets, unused } = assign_program(&line, Vec::new()).unwrap();
        assert!(function.ports.is_empty() && nets.is_empty() && unused == 0);
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(function.settings, [pair("address", "10.0.0.2/24"), pair("argument", "x")]);
        assert_eq!(function.parameters, [pair("A", "b")]);
        let port = Line::parse("port=a").unwrap();
        let missing = assign_program(&port, Vec::new()).map(|_| ()).unwrap_err();
        assert_eq!(missing, StartError::TooFew { ports: 1, devices: 0 });
    }

    #[test]
    fn one_configuration_is_needed() {
        let found = |line: &str, module: &[u8]| configuration(&Line::parse(line).unwrap(), module);
        assert_eq!(found("", b"Idle;\n\0\0\0"), Ok(("Idle;\n".into(), "initrd")));
        assert_eq!(found("click=Idle;", b"\0"), Ok(("Idle;".into(), "click")));
        assert_eq!(found("", b""), Err(StartError::NoConfiguration));
        assert_eq!(found("click=Idle;", b"Idle;"), Err(StartError::TwoConfigurations));
        assert_eq!(found("", b"\x7fELF\xff"), Err(StartError::NotText));
        assert_eq!(
            assign(&Line::default(), b"Idle;", Vec::new()).map(|_| ()).unwrap_err(),
            StartError::NoDevice
        );
    }
}
