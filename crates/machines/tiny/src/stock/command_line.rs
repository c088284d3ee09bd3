//! The command line of a function's image under another monitor.
//!
//! The line has words of the form `key=value`. Double quotes keep spaces within a word, and a backslash takes the
//! character behind it as it is. Monitors and their users add words for other kernels; those with other keys are left
//! aside.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::str::FromStr;
use ringway_wire::MacAddress;

/// Largest number of frames handled at once, and its default.
const BURST: u32 = 64;
/// Bytes of the registers of a device, at least.
const REGISTERS: u64 = 0x200;
/// Attack: a line with more devices than there are addresses to look at. No machine has so many.
const DEVICES: usize = 64;
/// Ticks of the time stamp counter in a second.
const TICKS: core::ops::RangeInclusive<u64> = 1_000_000..=100_000_000_000;

/// A port of the function, and the address of its device if the line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortWord {
    /// The port's name.
    pub name: String,
    /// Its device's address.
    pub mac: Option<[u8; 6]>,
}

/// A device of `virtio-mmio`, as Linux's parameter `virtio_mmio.device` describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmioDevice {
    /// Bytes of its registers.
    pub len: u64,
    /// Their address.
    pub address: u64,
    /// Its interrupt.
    pub interrupt: u32,
}

/// A command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The function's ports in the order of the words; without any, each device is a port.
    pub ports: Vec<PortWord>,
    /// Devices that the configuration names, and the port that each stands for.
    pub devices: Vec<(String, String)>,
    /// Parameters of the configuration.
    pub parameters: Vec<(String, String)>,
    /// Frames handled at once.
    pub burst: Option<u32>,
    /// Seed of the random numbers.
    pub seed: Option<u64>,
    /// Ticks of the time stamp counter in a second.
    pub tsc: Option<u64>,
    /// The configuration.
    pub click: Option<String>,
    /// Devices of `virtio-mmio`.
    pub mmio: Vec<MmioDevice>,
    /// The devices on PCI are not looked for.
    pub no_pci: bool,
    /// The machine is reset at its end, by the keyboard's controller.
    pub resets: bool,
    /// A program's network and arguments, names and values as in a fabric file.
    pub settings: Vec<(String, String)>,
    /// Words with other keys.
    pub others: Vec<String>,
}

/// Keys of [`Line::settings`].
const SETTINGS: [&str; 4] = ["address", "gateway", "mac", "argument"];

/// A word whose value is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// The word.
    pub word: String,
    /// What its value must be.
    pub expected: &'static str,
}

impl core::fmt::Display for LineError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "command line: `{}`: {}", self.word, self.expected)
    }
}

impl Line {
    /// Reads a command line.
    ///
    /// # Errors
    /// A word with one of the keys has a value that is not valid.
    pub fn parse(text: &str) -> Result<Line, LineError> {
        let mut line = Line::default();
        for word in words(text) {
            line.set(&word).map_err(|expected| LineError { word, expected })?;
        }
        Ok(line)
    }

    /// Frames handled at once.
    pub fn burst(&self) -> u32 {
        self.burst.unwrap_or(BURST)
    }

    /// Words that the image has no use for: those with unknown keys, and what only the other kind of image reads.
    pub fn meaningless(&self) -> impl Iterator<Item = String> {
        let word = |(key, value): &(String, String)| alloc::format!("{key}={value}");
        let of_programs = self.settings.iter().filter(|_| cfg!(feature = "click")).map(word);
        let click = self.click.as_ref().map(|text| alloc::format!("click={text}"));
        let burst = self.burst.map(|burst| alloc::format!("burst={burst}"));
        let of_functions = click.into_iter().chain(burst).filter(|_| !cfg!(feature = "click"));
        self.others.iter().cloned().chain(of_programs).chain(of_functions)
    }

    fn set(&mut self, word: &str) -> Result<(), &'static str> {
        let Some((key, value)) = word.split_once('=') else {
            self.others.push(word.to_string());
            return Ok(());
        };
        match key {
            "port" => {
                let port = port(value).ok_or("write port=NAME or port=NAME,ADDRESS")?;
                if self.ports.iter().any(|own| own.name == port.name) {
                    return Err("there is a port of this name already");
                }
                self.ports.push(port);
            }
            "device" => self.devices.push(pair(value).ok_or("write device=DEVICE=PORT")?),
            "parameter" => self.parameters.push(pair(value).ok_or("write parameter=NAME=VALUE")?),
            "burst" => {
                let burst = value.parse().ok().filter(|burst| (1..=BURST).contains(burst));
                self.burst = Some(burst.ok_or("write a number from 1 to 64")?);
            }
            "seed" => self.seed = Some(value.parse().map_err(|_| "write a whole number")?),
            "tsc" => {
                let hz = value.parse().ok().filter(|hz| TICKS.contains(hz));
                self.tsc = Some(hz.ok_or("write ticks a second, from 1000000 to 100000000000")?);
            }
            "click" => self.click = Some(value.to_string()),
            "virtio_mmio.device" => {
                let device = device(value).ok_or("write virtio_mmio.device=SIZE@ADDRESS:INTERRUPT")?;
                if self.mmio.len() == DEVICES {
                    return Err("there are 64 devices already");
                }
                self.mmio.push(device);
            }
            _ if SETTINGS.contains(&key) => self.settings.push((key.to_string(), value.to_string())),
            "pci" if value == "off" => self.no_pci = true,
            "reboot" if value == "k" => self.resets = true,
            _ => self.others.push(word.to_string()),
        }
        Ok(())
    }
}

/// The words of a line, without their quotes.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut any) = (Vec::new(), String::new(), false, false);
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        match character {
            '"' => (quoted, any) = (!quoted, true),
            '\\' => {
                word.extend(rest.next());
                any = true;
            }
            _ if character.is_ascii_whitespace() && !quoted => {
                if core::mem::take(&mut any) {
                    words.push(core::mem::take(&mut word));
                }
            }
            _ => {
                word.push(character);
                any = true;
            }
        }
    }
    if any {
        words.push(word);
    }
    words
}

fn pair(value: &str) -> Option<(String, String)> {
    let (name, value) = value.split_once('=').filter(|(name, _)| !name.is_empty())?;
    Some((name.to_string(), value.to_string()))
}

fn port(value: &str) -> Option<PortWord> {
    let (name, address) = match value.split_once(',') {
        Some((name, address)) => (name, Some(address.parse::<MacAddress>().ok()?.0)),
        None => (value, None),
    };
    (!name.is_empty()).then(|| PortWord { name: name.to_string(), mac: address })
}

/// `SIZE@ADDRESS:INTERRUPT`, with a number of the device behind it perhaps.
fn device(value: &str) -> Option<MmioDevice> {
    let (len, rest) = value.split_once('@')?;
    let mut parts = rest.split(':');
    let (address, interrupt) = (number(parts.next()?)?, parts.next()?);
    if parts.next().is_some_and(|id| id.parse::<u32>().is_err()) || parts.next().is_some() {
        return None;
    }
    let device = MmioDevice { len: number(len)?, address, interrupt: interrupt.parse().ok()? };
    let aligned = address.is_multiple_of(4) && address.checked_add(device.len).is_some();
    (aligned && address != 0 && (REGISTERS..=1 << 20).contains(&device.len)).then_some(device)
}

/// A number as Linux's `memparse` reads it.
fn number(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        b'g' | b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => u64::from_str(digits).ok()?,
    };
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_describe_a_function_and_its_devices() {
        let text = "port=in port=out,52:54:00:00:00:0a device=eth0=in parameter=\"NAME=a b\"\tburst=32 \
                    seed=7 tsc=2600000000 console=ttyS0 quiet \
                    click=\"FromPort(in) -> Print(\\\"x\\\\y\\\") -> ToPort(out)\" \
                    virtio_mmio.device=512@0xfeb00e00:12 virtio_mmio.device=4K@0xd0000000:5:1\0"
            .trim_end_matches('\0');
        let line = Line::parse(text).unwrap();
        let expected = [("in", None), ("out", Some([0x52, 0x54, 0, 0, 0, 10]))];
        let port = |(name, mac): (&str, _)| PortWord { name: name.into(), mac };
        assert_eq!(line.ports, expected.map(port));
        let pair = |one: &str, two: &str| (one.to_string(), two.to_string());
        assert_eq!(
            (line.devices.clone(), line.parameters.clone()),
            ([pair("eth0", "in")].into(), [pair("NAME", "a b")].into())
        );
        assert_eq!((line.burst, line.seed, line.tsc), (Some(32), Some(7), Some(2_600_000_000)));
        assert_eq!(line.click.as_deref(), Some("FromPort(in) -> Print(\"x\\y\") -> ToPort(out)"));
        assert_eq!(line.others, ["console=ttyS0", "quiet"]);
        let program =
            Line::parse("address=10.0.0.2/24 argument=\"two words\" address=dhcp argument=x").unwrap();
        let settings = [("address", "10.0.0.2/24"), ("argument", "two words"), ("address", "dhcp")];
        let settings = settings.into_iter().chain([("argument", "x")]).map(|(key, value)| pair(key, value));
        assert_eq!(program.settings, settings.collect::<Vec<_>>());
        assert_eq!(program.meaningless().next().as_deref(), Some("address=10.0.0.2/24"), "to a function");
        assert!(!line.no_pci && !line.resets);
        let off = Line::parse("reboot=k pci=off reboot=t pci=nomsi").unwrap();
        assert!(off.no_pci && off.resets);
        assert_eq!(off.others, ["reboot=t", "pci=nomsi"]);
        let devices = [(0x200, 0xfeb0_0e00, 12), (0x1000, 0xd000_0000, 5)];
        assert_eq!(
            line.mmio,
            devices.map(|(len, address, interrupt)| MmioDevice { len, address, interrupt })
        );
        assert_eq!(Line::parse(" \n").unwrap(), Line::default());
        assert_eq!(Line::default().burst(), 64);
    }

    #[test]
    fn a_wrong_value_is_reported_with_its_word() {
        for wrong in [
            "port=",
            "port=a,1:2",
            "device=a",
            "device==b",
            "parameter=x",
            "burst=0",
            "burst=65",
            "seed=x",
            "tsc=5",
            "tsc=100000000001",
            "virtio_mmio.device=512",
            "virtio_mmio.device=512@0xfeb00e01:12",
            "virtio_mmio.device=16@0xfeb00e00:12",
            "virtio_mmio.device=512@0:12",
            "virtio_mmio.device=512@0xffffffffffffff00:12",
            "virtio_mmio.device=512@4096:x",
            "virtio_mmio.device=512@4096:1:2:3",
            "virtio_mmio.device=99999999999G@4096:1",
            "virtio_mmio.device=@4096:1",
        ] {
            assert_eq!(Line::parse(wrong).unwrap_err().word, wrong);
        }
        assert!(Line::parse("port=a port=a").unwrap_err().to_string().contains("already"));
        let many = "virtio_mmio.device=512@4096:1 ".repeat(65);
        assert!(Line::parse(&many).is_err());
    }
}
