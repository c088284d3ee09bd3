//! The EEPROM: 64 words, read through its pins (microwire, EECD) or a register (EERD).

use crate::microwire::{Microwire, WORDS};

/// Sum of all words, the last of which is the checksum.
const SUM: u16 = 0xbaba;

/// Chip select.
const CS: u32 = 1 << 1;
/// Clock.
const SK: u32 = 1 << 0;
/// Data to the EEPROM.
const DI: u32 = 1 << 2;
/// Data from the EEPROM.
const DO: u32 = 1 << 3;
/// Request of the pins, and its grant.
const REQ: u32 = 1 << 6;
const GNT: u32 = 1 << 7;

/// How EECD and EERD differ between models.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pins {
    /// Bits of EECD that are always set.
    pub present: u32,
    /// EERD's done bit.
    pub done: u32,
    /// The position of EERD's address.
    pub address: u32,
}

/// The EEPROM and its registers.
#[derive(Debug)]
pub(crate) struct Eeprom {
    contents: Microwire,
    eecd: u32,
    eerd: u32,
    pins: Pins,
}

impl Eeprom {
    /// An EEPROM with this MAC address. `template` are words by address.
    pub fn new(mac: [u8; 6], template: &[(usize, u16)], pins: Pins) -> Eeprom {
        let mut words = [0xffff; WORDS];
        for (word, pair) in words.iter_mut().zip(mac.as_chunks().0) {
            *word = u16::from_le_bytes(*pair);
        }
        for &(at, value) in template {
            words[at % WORDS] = value;
        }
        words[WORDS - 1] = 0;
        let sum = words.iter().fold(0u16, |sum, &word| sum.wrapping_add(word));
        words[WORDS - 1] = SUM.wrapping_sub(sum);
        Eeprom { contents: Microwire::new(words), eecd: 0, eerd: 0, pins }
    }

    /// The MAC address.
    pub fn mac(&self) -> [u8; 6] {
        let mut mac = [0; 6];
        for (pair, word) in mac.as_chunks_mut().0.iter_mut().zip(self.contents.words()) {
            *pair = word.to_le_bytes();
        }
        mac
    }

    /// Releases the pins.
    pub fn reset(&mut self) {
        (self.eecd, self.eerd) = (0, 0);
        self.contents.reset();
    }

    pub fn eecd(&self) -> u32 {
        let grant = if self.eecd & REQ != 0 { GNT } else { 0 };
        self.eecd | grant | self.pins.present | if self.contents.out() { DO } else { 0 }
    }

    pub fn set_eecd(&mut self, value: u32) {
        self.eecd = value & (CS | SK | DI | REQ | 0x30);
        self.contents.set(value & CS != 0, value & SK != 0, value & DI != 0);
    }

    pub fn eerd(&self) -> u32 {
        self.eerd
    }

    pub fn set_eerd(&mut self, value: u32) {
        const START: u32 = 1;
        if value & START == 0 {
            self.eerd = value;
            return;
        }
        let Pins { done, address, .. } = self.pins;
        let command = value & 0xffff & !START;
        let at = (command & !done) >> address;
        // Attack: an address past the end.
        let word = self.contents.words().get(at as usize).copied().unwrap_or(0xffff);
        self.eerd = u32::from(word) << 16 | command | done;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eeprom() -> Eeprom {
        Eeprom::new(
            [0x52, 0x54, 0, 0x12, 0x34, 0x56],
            &[(13, 0x100e)],
            Pins { present: 1 << 8, done: 1 << 4, address: 8 },
        )
    }

    #[test]
    fn the_contents_have_the_address_and_a_checksum() {
        let mut eeprom = eeprom();
        let mut read = |at: u32| {
            eeprom.set_eerd(at << 8 | 1);
            assert_eq!(eeprom.eerd() & 0x11, 0x10);
            (eeprom.eerd() >> 16) as u16
        };
        assert_eq!([0, 1, 2, 13].map(&mut read), [0x5452, 0x1200, 0x5634, 0x100e]);
        assert_eq!((0..64).map(&mut read).fold(0u16, u16::wrapping_add), SUM);
        assert_eq!(read(0xff), 0xffff);
        assert_eq!(eeprom.mac(), [0x52, 0x54, 0, 0x12, 0x34, 0x56]);
    }

    #[test]
    fn words_are_read_through_the_pins() {
        let mut eeprom = eeprom();
        eeprom.set_eecd(REQ);
        assert_eq!(eeprom.eecd() & GNT, GNT);
        let mut clock = |data: bool| {
            let pins = REQ | CS | if data { DI } else { 0 };
            eeprom.set_eecd(pins);
            eeprom.set_eecd(pins | SK);
            let out = eeprom.eecd() & DO != 0;
            eeprom.set_eecd(pins);
            out
        };
        // A zero before the start bit is not part of the command.
        for bit in [false, true, true, false, false, false, false, false, false, true] {
            clock(bit);
        }
        let mut word = || (0..16).fold(0u16, |word, _| word << 1 | u16::from(clock(false)));
        assert_eq!([word(), word()], [0x1200, 0x5634], "word 1, then the next");
        eeprom.set_eecd(0);
        assert_eq!(eeprom.eecd() & (GNT | DO), DO);
    }
}
