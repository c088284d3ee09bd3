//! The VLAN tag that elements write: from their arguments, or from the packet's annotation.
use crate::packet::bounded;
use ringway_click::arg::{KEYWORD, POSITIONAL, Word};
use ringway_click::prelude::*;

/// The tag control information to write.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tag {
    /// Its value, unless it comes from the annotation.
    pub(super) tci: u16,
    pub(super) annotation: bool,
    /// The VLAN whose frames have no tag; -1 if there is none.
    pub(super) native: i32,
}

/// Offset of the tag in the annotation area, in network byte order.
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

    /// The tag for a packet; `None` for the native VLAN.
    #[inline]
    pub(super) fn of(&self, packet: &Packet) -> Option<u16> {
        let tci = if self.annotation { annotated(packet) } else { self.tci };
        (i32::from(tci & 0xfff) != self.native).then_some(tci)
    }

    /// The tag's part of a configuration.
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

    /// Parses a tag that is written to a handler.
    pub(super) fn set_tci(&mut self, value: &str) -> Result<(), HandlerError> {
        match value.trim() {
            "ANNO" => self.annotation = true,
            text => (self.tci, self.annotation) = (number(text, 0, 0xffff)? as u16, false),
        }
        Ok(())
    }

    /// The handlers `vlan_tci`, `vlan_id` and `vlan_pcp` of an element with a tag.
    pub(super) fn handlers<E: Element>(tag: fn(&mut E) -> &mut Self) -> [Handler; 3] {
        let tci = Handler::read_with("vlan_tci", move |e: &mut E, _, _| {
            let tag = tag(e);
            Ok(if tag.annotation { "ANNO".to_string() } else { tag.tci.to_string() })
        });
        let id = Handler::read_with("vlan_id", move |e: &mut E, _, _| Ok((tag(e).tci & 0xfff).to_string()));
        let priority =
            Handler::read_with("vlan_pcp", move |e: &mut E, _, _| Ok((tag(e).tci >> 13).to_string()));
        [
            tci.writes(move |e: &mut E, value, _| tag(e).set_tci(value)),
            id.writes(move |e: &mut E, value, _| {
                tag(e).tci = tag(e).tci & 0xe000 | number(value, 0, 0xfff)? as u16;
                Ok(())
            }),
            priority.writes(move |e: &mut E, value, _| {
                tag(e).tci = tag(e).tci & 0xfff | (number(value, 0, 7)? as u16) << 13;
                Ok(())
            }),
        ]
    }

    /// The handler `native_vlan`.
    pub(super) fn native_handler<E: Element>(tag: fn(&mut E) -> &mut Self) -> Handler {
        Handler::read_with("native_vlan", move |e: &mut E, _, _| Ok(tag(e).native.to_string())).writes(
            move |e: &mut E, value, _| {
                tag(e).native = number(value, -1, 0xfff)?;
                Ok(())
            },
        )
    }
}

fn number(value: &str, least: i32, most: i32) -> Result<i32, HandlerError> {
    let number = ringway_click::arg::parse_int(value.trim(), least.into(), most.into());
    number.map_err(|_| HandlerError::failed("parse error"))
}
