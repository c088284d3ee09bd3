//! What a function's guest runs: the second module of its image.

use alloc::string::String;
use alloc::vec::Vec;

/// The version of what a program's image and its monitor say to each other: of [`FunctionStart`], of the channel and of
/// the ports that they serve. An image of another version is not started.
pub const VERSION: u32 = 1;
/// The name of the note in an image that has this version.
pub const NOTE: &[u8] = b"Ringway\0";

/// A function: its configuration, or else its program's settings, and how it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionStart {
    /// The configuration's text.
    pub text: String,
    /// Its name in messages.
    pub title: String,
    /// Its parameters, names and values.
    pub parameters: Vec<(String, String)>,
    /// What the file says of a program, names and values; a name may be there several times.
    pub settings: Vec<(String, String)>,
    /// Names of the ports.
    pub ports: Vec<String>,
    /// Devices that the configuration names, and the port that each stands for.
    pub devices: Vec<(String, String)>,
    /// Path of the socket for handlers, as the ControlSocket's handler shows it.
    pub handlers: String,
    /// Frames handled at once.
    pub burst: u32,
    /// Seed of its random numbers.
    pub seed: u64,
    /// Nanoseconds since 1970 at the start.
    pub wall: u64,
    /// Ticks of the clock in a second.
    pub hz: u64,
    /// Address of the channel's memory, and its bytes.
    pub channel: [u64; 2],
    /// Address whose write notifies the monitor of messages.
    pub doorbell: u64,
}

/// Writes numbers and texts, each text after its length.
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn pairs(&mut self, pairs: &[(String, String)]) {
        self.number(pairs.len() as u64);
        for (name, value) in pairs {
            self.text(name);
            self.text(value);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn text(&mut self) -> Option<String> {
        let len = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(core::str::from_utf8(text).ok()?.into())
    }

    fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        // A part of the list takes at least a number.
        if count > self.0.len() as u64 {
            return None;
        }
        (0..count).map(|_| each(self)).collect()
    }

    fn pairs(&mut self) -> Option<Vec<(String, String)>> {
        self.list(|reader| Some((reader.text()?, reader.text()?)))
    }
}

impl FunctionStart {
    /// The bytes of the module.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer(Vec::new());
        [&self.text, &self.title, &self.handlers].into_iter().for_each(|text| writer.text(text));
        writer.pairs(&self.parameters);
        writer.pairs(&self.devices);
        writer.pairs(&self.settings);
        writer.number(self.ports.len() as u64);
        self.ports.iter().for_each(|port| writer.text(port));
        for number in [
            self.burst.into(),
            self.seed,
            self.wall,
            self.hz,
            self.channel[0],
            self.channel[1],
            self.doorbell,
        ] {
            writer.number(number);
        }
        writer.0
    }

    /// The function with these bytes; `None` if it isn't one.
    pub fn from_bytes(bytes: &[u8]) -> Option<FunctionStart> {
        let mut reader = Reader(bytes);
        Some(FunctionStart {
            text: reader.text()?,
            title: reader.text()?,
            handlers: reader.text()?,
            parameters: reader.pairs()?,
            devices: reader.pairs()?,
            settings: reader.pairs()?,
            ports: reader.list(Reader::text)?,
            burst: u32::try_from(reader.number()?).ok()?,
            seed: reader.number()?,
            wall: reader.number()?,
            hz: reader.number()?,
            channel: [reader.number()?, reader.number()?],
            doorbell: reader.number()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_survives_its_bytes() {
        let pair = |name: &str| (name.into(), "value".into());
        let start = FunctionStart {
            text: "Idle;".into(),
            title: "f.click".into(),
            parameters: [pair("A"), pair("B")].into(),
            settings: [pair("argument"), pair("argument")].into(),
            ports: ["in".into(), "out".into()].into(),
            devices: [pair("eth0")].into(),
            handlers: "/run/f.sock".into(),
            burst: 64,
            seed: 7,
            wall: 8,
            hz: 9,
            channel: [10, 11],
            doorbell: 12,
        };
        let bytes = start.to_bytes();
        assert_eq!(FunctionStart::from_bytes(&bytes), Some(start));
        for len in 0..bytes.len() {
            assert_eq!(FunctionStart::from_bytes(&bytes[..len]), None);
        }
        assert_eq!(FunctionStart::from_bytes(&[0xff; 64]), None, "an endless list");
    }
}
