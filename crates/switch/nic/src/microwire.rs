//! A serial EEPROM of 64 words (93C46, microwire), as its pins show it.

/// Words of the EEPROM.
pub(crate) const WORDS: usize = 64;

/// Start bit, two bits of opcode, six of address.
const COMMAND: u32 = 9;
/// The read command without its address.
const READ: u32 = 0b110;

/// The state of the interface.
#[derive(Clone, Copy, Debug, Default)]
enum Wire {
    /// Waits for a start bit.
    #[default]
    Idle,
    /// Has received so many bits of a command.
    Command(u32, u32),
    /// Sends this bit of the contents next.
    Reads(usize),
    /// Ignores a command that it doesn't have.
    Ignores,
}

/// The EEPROM.
#[derive(Debug)]
pub(crate) struct Microwire {
    words: [u16; WORDS],
    wire: Wire,
    clock: bool,
}

impl Microwire {
    /// An EEPROM with these words.
    pub fn new(words: [u16; WORDS]) -> Microwire {
        Microwire { words, wire: Wire::Idle, clock: false }
    }

    /// Its contents.
    pub fn words(&self) -> &[u16; WORDS] {
        &self.words
    }

    /// The pins that the driver sets: chip select, clock, data to the EEPROM.
    pub fn set(&mut self, select: bool, clock: bool, data: bool) {
        let before = core::mem::replace(&mut self.clock, clock);
        if !select {
            self.wire = Wire::Idle;
        } else if clock && !before {
            self.wire = self.clocked(data);
        }
    }

    /// Data from the EEPROM; an unselected one pulls its output up.
    pub fn out(&self) -> bool {
        match self.wire {
            Wire::Reads(bit) => self.bit(bit.wrapping_sub(1)),
            _ => true,
        }
    }

    fn bit(&self, bit: usize) -> bool {
        // Sequential reads wrap at the end.
        self.words[bit / 16 % WORDS] >> (15 - bit % 16) & 1 != 0
    }

    fn clocked(&self, data: bool) -> Wire {
        match self.wire {
            Wire::Idle if data => Wire::Command(1, 1),
            Wire::Command(bits, count) => {
                let (bits, count) = (bits << 1 | u32::from(data), count + 1);
                if count < COMMAND {
                    Wire::Command(bits, count)
                } else if bits >> 6 == READ {
                    Wire::Reads(16 * (bits as usize & 0x3f))
                } else {
                    Wire::Ignores
                }
            }
            Wire::Reads(bit) => Wire::Reads((bit + 1) % (16 * WORDS)),
            other => other,
        }
    }

    /// Releases the pins.
    pub fn reset(&mut self) {
        (self.wire, self.clock) = (Wire::Idle, false);
    }
}
