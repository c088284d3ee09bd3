//! The positions of one of netmap's rings, as far as they were accepted from the program.

/// A ring's positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Side {
    pub slots: u32,
    pub head: u32,
    pub cur: u32,
    pub tail: u32,
    /// To send: the next slot to copy, up to `head`.
    pub next: u32,
    /// The sync ended because there was no room for a frame: in the port's ring to send, in netmap's to receive.
    pub is_full: bool,
}

impl Side {
    pub fn distance(self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.slots - from }
    }

    pub fn after(self, at: u32, by: u32) -> u32 {
        let at = at + by;
        if at >= self.slots { at - self.slots } else { at }
    }

    /// Takes the program's head and cur. Attack: it writes any numbers; they must lie between what it gave last and
    /// the tail.
    pub fn accept(&mut self, (head, cur): (u32, u32)) -> bool {
        if head >= self.slots || cur >= self.slots {
            return false;
        }
        let [given, woken, most] = [head, cur, self.tail].map(|to| self.distance(self.head, to));
        let is_valid = given <= woken && woken <= most;
        if is_valid {
            (self.head, self.cur) = (head, cur);
        }
        is_valid
    }

    pub fn is_ready(self) -> bool {
        self.cur != self.tail
    }
}
