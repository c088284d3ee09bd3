//! The guest's command line: words of the form `key=value`.

/// What the guest does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Reports that it runs, and ends.
    #[default]
    Hello,
    /// Sends numbered frames.
    Send,
    /// Receives frames.
    Receive,
    /// Returns each frame to its sender.
    Echo,
    /// Sends one frame at a time, and waits until it comes back.
    Ping,
}

/// Settings of a guest; the monitor adds the addresses of its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What the guest does.
    pub role: Role,
    /// Destination of its frames.
    pub to: [u8; 6],
    /// Its own address.
    pub mac: [u8; 6],
    /// Bytes of a frame.
    pub size: usize,
    /// Number of frames after which it ends; 0: only the time ends it.
    pub count: u64,
    /// Milliseconds after which it ends; 0: only the count ends it.
    pub time: u64,
    /// Bytes of a message, which is sent as frames of at most `size` bytes and announced as a whole; 0: frames alone.
    pub data: usize,
    /// Number of the run: frames of other runs are not received.
    pub run: u16,
    /// Frames sent or received between two looks at the other side's index.
    pub batch: u32,
    /// Empty polls before it sleeps.
    pub polls: u32,
    /// Whether a sender whose time has expired waits until its frames are taken, and then tells the receiver.
    pub drain: bool,
    /// Ticks of the clock in a second.
    pub tsc: u64,
    /// Address of a ring's memory; 0: there is none.
    pub ring: u64,
    /// Bytes of a ring's memory.
    pub ring_len: u64,
    /// Number of the ring that the guest fills, 0 or 1.
    pub ring_end: u64,
    /// Address whose write notifies the ring's other side.
    pub kick: u64,
    /// Address of a card's registers; 0: there is none.
    pub card: u64,
    /// Bytes of a card's registers.
    pub card_len: u64,
    /// Vendor and device of the card; all but the RTL8139 and the PCnet are of the e1000 family.
    pub card_id: u32,
    /// Address of four words: the first is set when the card interrupts, the second says that a pin is unmasked at
    /// once, the third and the fourth are the offset and the value of a register write that the monitor carries out
    /// when the guest sleeps.
    pub interrupt: u64,
    /// Descriptors of each of the card's rings.
    pub slots: u32,
    /// The card's driver holds doorbells back while a transmit interrupt is expected (send combining).
    pub combine: bool,
    /// The card's driver uses the shared block (CSB).
    pub csb: bool,
    /// A transmit doorbell waits until the guest sleeps, or for the next one.
    pub defer: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            role: Role::Hello,
            to: [0xff; 6],
            mac: [2, 0, 0, 0, 0, 1],
            size: 64,
            count: 0,
            time: 0,
            data: 0,
            run: 0,
            batch: 32,
            polls: 2000,
            drain: true,
            tsc: 1_000_000_000,
            ring: 0,
            ring_len: 0,
            ring_end: 0,
            kick: 0,
            card: 0,
            card_len: 0,
            card_id: 0,
            interrupt: 0,
            slots: 256,
            combine: false,
            csb: false,
            defer: false,
        }
    }
}

/// A word of the command line that is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingsError<'a>(pub &'a str);

impl core::fmt::Display for SettingsError<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "`{}` is no setting, or its value is not valid", self.0)
    }
}

/// Frames have from 60 to so many bytes.
pub(crate) const LONGEST: usize = 9018;
/// Longest message.
const MESSAGE: usize = 64 << 10;
/// Largest ring of a card.
const SLOTS: u32 = 4096;

impl Settings {
    /// Reads a command line.
    pub fn parse(line: &str) -> Result<Settings, SettingsError<'_>> {
        let mut settings = Settings::default();
        for word in line.split_ascii_whitespace() {
            settings.set(word).ok_or(SettingsError(word))?;
        }
        Ok(settings)
    }

    fn set(&mut self, word: &str) -> Option<()> {
        let (key, value) = word.split_once('=')?;
        match key {
            "role" => {
                self.role = match value {
                    "hello" => Role::Hello,
                    "send" => Role::Send,
                    "receive" => Role::Receive,
                    "echo" => Role::Echo,
                    "ping" => Role::Ping,
                    _ => return None,
                }
            }
            "to" => self.to = mac(value)?,
            "mac" => self.mac = mac(value)?,
            "size" => self.size = Some(value.parse().ok()?).filter(|size| (60..=LONGEST).contains(size))?,
            "batch" => self.batch = Some(value.parse().ok()?).filter(|batch| (1..=256).contains(batch))?,
            "count" => self.count = value.parse().ok()?,
            "time" => self.time = value.parse().ok()?,
            "data" => self.data = Some(value.parse().ok()?).filter(|data| (0..=MESSAGE).contains(data))?,
            "run" => self.run = value.parse().ok()?,
            "drain" => self.drain = value.parse().ok()?,
            "tsc" => self.tsc = Some(value.parse().ok()?).filter(|hz| *hz > 0)?,
            "ring" => self.ring = value.parse().ok()?,
            "ring-len" => self.ring_len = value.parse().ok()?,
            "ring-end" => self.ring_end = value.parse().ok()?,
            "kick" => self.kick = value.parse().ok()?,
            "polls" => self.polls = value.parse().ok()?,
            "card" => self.card = value.parse().ok()?,
            "card-len" => self.card_len = value.parse().ok()?,
            "card-id" => self.card_id = value.parse().ok()?,
            "interrupt" => self.interrupt = value.parse().ok()?,
            "slots" => self.slots = Some(value.parse().ok()?).filter(is_ring)?,
            "combine" => self.combine = value.parse().ok()?,
            "csb" => self.csb = value.parse().ok()?,
            "defer" => self.defer = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }
}

/// Whether a ring may have so many descriptors: its length is a multiple of 128 bytes.
fn is_ring(slots: &u32) -> bool {
    (8..=SLOTS).contains(slots) && slots.is_multiple_of(8)
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let (mut address, mut parts) = ([0; 6], text.split(':'));
    for byte in &mut address {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_must_be_a_valid_setting() {
        let settings =
            Settings::parse("role=ping to=02:00:00:00:00:0a size=1500 count=7\nring=4096").unwrap();
        assert_eq!((settings.role, settings.to, settings.size), (Role::Ping, [2, 0, 0, 0, 0, 10], 1500));
        assert_eq!((settings.count, settings.ring, settings.mac), (7, 4096, Settings::default().mac));
        for wrong in [
            "role",
            "role=none",
            "size=59",
            "size=9019",
            "mac=1:2:3",
            "tsc=0",
            "batch=0",
            "slots=12",
            "slots=4104",
            "data=65537",
            "run=65536",
            "csb=1",
        ] {
            assert_eq!(Settings::parse(wrong), Err(SettingsError(wrong)));
        }
    }
}
