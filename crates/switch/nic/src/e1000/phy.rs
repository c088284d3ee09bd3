//! The PHY behind MDIC: a copper PHY of Marvell's that always negotiates 1000 Mb/s, full duplex.

/// Control: restart autonegotiation, reset; both clear themselves.
const RESTART: u16 = 1 << 9;
const RESET: u16 = 1 << 15;
/// Status: link is up (latches low), autonegotiation is complete.
const LINK: u16 = 1 << 2;
const COMPLETE: u16 = 1 << 5;

/// Control: what the MAC sends comes back to it.
const LOOPBACK: u16 = 1 << 14;

const CONTROL: usize = 0;
const STATUS: usize = 1;
const ID: usize = 2;
const ADVERTISED: usize = 4;
const PARTNER: usize = 5;
const EXPANSION: usize = 6;
const GIGABIT_CONTROL: usize = 9;
const GIGABIT_STATUS: usize = 10;
const EXTENDED_STATUS: usize = 15;
const SPECIFIC_CONTROL: usize = 16;
const SPECIFIC_STATUS: usize = 17;

/// Selects a page; only the first has registers from 16 on.
const PAGE: usize = 22;

/// MDIC's bits: what to do, done, failed.
const WRITE: u32 = 1 << 26;
const READ: u32 = 2 << 26;
const READY: u32 = 1 << 28;
const ERROR: u32 = 1 << 30;
/// The address of the only PHY.
const ADDRESS: u32 = 1;

/// The PHY's registers.
#[derive(Debug)]
pub(crate) struct Phy {
    registers: [u16; 32],
    id: u32,
    link: bool,
}

impl Phy {
    pub fn new(id: u32, link: bool) -> Phy {
        let mut phy = Phy { registers: [0; 32], id, link };
        phy.reset();
        phy
    }

    fn reset(&mut self) {
        self.registers = [0; 32];
        let mut set = |at: usize, value: u16| self.registers[at] = value;
        // Autonegotiation, 1000 Mb/s, full duplex.
        set(CONTROL, 0x1140);
        set(ID, (self.id >> 16) as u16);
        set(ID + 1, self.id as u16);
        // All of 10 and 100 Mb/s, both kinds of PAUSE, 802.3.
        set(ADVERTISED, 0x0de1);
        set(GIGABIT_CONTROL, 0x0e00);
        set(EXTENDED_STATUS, 0x3000);
        set(SPECIFIC_CONTROL, 0x0360);
        self.set_link(self.link);
    }

    /// Connects or disconnects the partner.
    pub fn set_link(&mut self, link: bool) {
        self.link = link;
        let up = |value: u16| if link { value } else { 0 };
        self.registers[STATUS] = 0x7949 | up(LINK | COMPLETE);
        self.registers[PARTNER] = up(0x45e1);
        self.registers[EXPANSION] = up(0x0003);
        self.registers[GIGABIT_STATUS] = up(0x7c00);
        // 1000 Mb/s, full duplex, resolved, link.
        self.registers[SPECIFIC_STATUS] = up(0xac00);
    }

    /// Whether frames come back to the MAC instead of leaving.
    pub fn loops_back(&self) -> bool {
        self.registers[CONTROL] & LOOPBACK != 0
    }

    /// Executes a command that was written to MDIC. Returns the register's new value, and whether the link was
    /// negotiated again.
    pub fn execute(&mut self, mdic: u32) -> (u32, bool) {
        if mdic >> 21 & 0x1f != ADDRESS {
            return (mdic | READY | ERROR, false);
        }
        let at = (mdic >> 16 & 0x1f) as usize;
        let hidden = self.registers[PAGE] != 0 && at >= SPECIFIC_CONTROL && at != PAGE;
        if hidden {
            return (mdic & !0xffff | READY, false);
        }
        let negotiated = mdic & (3 << 26) == WRITE && self.write(at, mdic as u16);
        let data = if mdic & (3 << 26) == READ { u32::from(self.registers[at]) } else { mdic & 0xffff };
        (mdic & !0xffff | data | READY, negotiated)
    }

    fn write(&mut self, at: usize, value: u16) -> bool {
        match at {
            CONTROL if value & RESET != 0 => {
                self.reset();
                true
            }
            CONTROL => {
                self.registers[CONTROL] = value & !RESTART;
                value & RESTART != 0
            }
            STATUS..=3 | PARTNER..=8 | GIGABIT_STATUS..=EXTENDED_STATUS | SPECIFIC_STATUS => false,
            _ => {
                self.registers[at] = value;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(phy: &mut Phy, at: u32) -> u32 {
        let (mdic, _) = phy.execute(READ | ADDRESS << 21 | at << 16);
        assert_eq!(mdic & (READY | ERROR), READY);
        mdic & 0xffff
    }

    #[test]
    fn the_phy_is_identified_and_negotiates() {
        let mut phy = Phy::new(0x0141_0c20, false);
        assert_eq!([2, 3].map(|at| read(&mut phy, at)), [0x0141, 0x0c20]);
        assert_eq!(read(&mut phy, 1) & 0x24, 0);
        phy.set_link(true);
        assert_eq!((read(&mut phy, 1) & 0x24, read(&mut phy, 17) >> 14), (0x24, 2));
        let write = |phy: &mut Phy, value: u32| phy.execute(WRITE | ADDRESS << 21 | value).1;
        assert!(write(&mut phy, 0x1340), "negotiation was restarted");
        assert_eq!(read(&mut phy, 0), 0x1140);
        assert!(write(&mut phy, 0x8000));
        write(&mut phy, 0x4140);
        assert!(phy.loops_back());
        write(&mut phy, 0x8140);
        assert!(!phy.loops_back(), "a reset ends it");
        write(&mut phy, (PAGE as u32) << 16 | 2);
        assert_eq!((read(&mut phy, 17), read(&mut phy, 2)), (0, 0x0141), "another page");
        assert_eq!(phy.execute(READ | 2 << 21).0 & ERROR, ERROR, "there is one PHY");
    }
}
