//! The tag that elements of VLANs write: from their arguments, or from the packet's annotation.
use crate::packet::bounded;
use alloc::format;
use alloc::string::{String, ToString};
use ringway_click::arg::{Args, KEYWORD, POSITIONAL, Word};
use ringway_click::{Annotations, Packet};

/// Which tag control information to write.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tag {
    /// If it does not come from the annotation.
    pub(super) tci: u16,
    pub(super) annotation: bool,
    /// The VLAN whose frames bear no tag; -1 if there is none.
    pub(super) native: i32,
}

/// Where the annotation holds the tag, in network order.
pub(super) fn annotated(packet: &Packet) -> u16 {
    u16::from_be_bytes(packet.notes().get(Annotations::VLAN_TCI))
}

pub(super) fn annotate(packet: &mut Packet, tci: u16) {
    packet.notes_mut().set(Annotations::VLAN_TCI, tci.to_be_bytes());
}

impl Tag {
    /// Reads VLAN_TCI, VLAN_PCP, VLAN_ID, and NATIVE_VLAN if `native`.
    pub(super) fn read(&mut self, args: &mut Args, with_anno: bool) {
        let (mut word, mut priority, mut id) = (Word::default(), 0u16, 0u16);
        args.read_p("VLAN_TCI", &mut word);
        args.read_with("VLAN_PCP", POSITIONAL, &mut priority, bounded(0, 7));
        args.read_with("VLAN_ID", KEYWORD, &mut id, bounded(0, 0xfff));
        if with_anno {
            args.read_with("NATIVE_VLAN", KEYWORD, &mut self.native, bounded(-1, 0xfff));
        }
        self.annotation = with_anno && word.0 == "ANNO";
        let mut tci = id;
        if !word.0.is_empty() && !self.annotation {
            match bounded(0, 0xffff)(&word.0, args.scope()) {
                Ok(value) => tci = value,
                Err(error) => args.error(format!("VLAN_TCI: {error}")),
            }
        }
        self.tci = tci | priority << 13;
    }

    /// The tag for a packet; nothing if it is of the native VLAN.
    #[inline]
    pub(super) fn of(&self, packet: &Packet) -> Option<u16> {
        let tci = if self.annotation { annotated(packet) } else { self.tci };
        (i32::from(tci & 0xfff) != self.native).then_some(tci)
    }

    /// What the handlers of tags say.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        Some(match name {
            "vlan_tci" if self.annotation => "ANNO".to_string(),
            "vlan_tci" => self.tci.to_string(),
            "vlan_id" => (self.tci & 0xfff).to_string(),
            "vlan_pcp" => (self.tci >> 13).to_string(),
            "native_vlan" => self.native.to_string(),
            _ => return None,
        })
    }

    /// The part of a configuration that stands for it.
    pub(super) fn configuration(&self) -> String {
        let mut text = match self.annotation {
            true => "ANNO".to_string(),
            false => format!("VLAN_ID {}, VLAN_PCP {}", self.tci & 0xfff, self.tci >> 13),
        };
        if self.native != 0 {
            text += &format!(", NATIVE_VLAN {}", self.native);
        }
        text
    }

    /// Writes a handler of tags. False if the value is wrong.
    pub(super) fn set(&mut self, name: &str, value: &str) -> bool {
        let number = |least, most| ringway_click::arg::parse_int::<i32>(value.trim(), least, most).ok();
        match name {
            "vlan_tci" if value.trim() == "ANNO" => self.annotation = true,
            "vlan_tci" => match number(0, 0xffff) {
                Some(tci) => (self.tci, self.annotation) = (tci as u16, false),
                None => return false,
            },
            "vlan_id" => match number(0, 0xfff) {
                Some(id) => self.tci = self.tci & 0xe000 | id as u16,
                None => return false,
            },
            "vlan_pcp" => match number(0, 7) {
                Some(priority) => self.tci = self.tci & 0xfff | (priority as u16) << 13,
                None => return false,
            },
            _ => match number(-1, 0xfff) {
                Some(native) => self.native = native,
                None => return false,
            },
        }
        true
    }
}
