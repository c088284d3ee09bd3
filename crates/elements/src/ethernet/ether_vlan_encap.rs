//! `EtherVLANEncap(ETHERTYPE, SRC, DST, VLAN_TCI, VLAN_PCP, VLAN_ID, NATIVE_VLAN)`: puts an Ethernet header with a
//! VLAN tag before packets.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `ETHERTYPE`: what the frame carries.
//! - `SRC`, `DST`: addresses.
//! - `VLAN_TCI`: the tag control information, or `ANNO` for that of the VLAN_TCI annotation.
//! - `VLAN_ID`, `VLAN_PCP`: its identifier and priority, instead.
//! - `NATIVE_VLAN`: the VLAN whose frames get no tag; 0 by default, -1 for none.
//!
//! Handlers: `config` (read); `src`, `dst`, `ethertype`, `vlan_tci`, `vlan_id`, `vlan_pcp`, `native_vlan` (read,
//! write).
use super::vlan::Tag;
use crate::packet::{mac_text, mark_ethernet, prepend, put};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Handler, HandlerError, PacketBurst};
use ringway_wire::MacAddress;

/// Facts.
pub static CLASS: Class =
    Class::new("EtherVLANEncap", || Box::<EtherVlanEncap>::default()).ports("1/1").live();

/// Puts headers before packets.
#[derive(Debug, Default)]
pub struct EtherVlanEncap {
    tag: Tag,
    source: MacAddress,
    destination: MacAddress,
    ethertype: u16,
}

impl Element for EtherVlanEncap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("ETHERTYPE", &mut self.ethertype);
        args.read_mp("SRC", &mut self.source);
        args.read_mp("DST", &mut self.destination);
        self.tag.read(args, true);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        let mut header = [0u8; 18];
        put(&mut header, 0, self.destination.0);
        put(&mut header, 6, self.source.0);
        put(&mut header, 12, [0x81, 0x00]);
        burst.retain(|packet| {
            let tag = self.tag.of(packet);
            let grown = match tag {
                Some(tci) => {
                    put(&mut header, 12, [0x81, 0x00]);
                    put(&mut header, 14, tci.to_be_bytes());
                    put(&mut header, 16, self.ethertype.to_be_bytes());
                    prepend(packet, &header)
                }
                None => {
                    put(&mut header, 12, self.ethertype.to_be_bytes());
                    prepend(packet, &header[..14])
                }
            };
            mark_ethernet(packet, if tag.is_some() { 18 } else { 14 });
            grown
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("config"),
            Handler::both("src"),
            Handler::both("dst"),
            Handler::both("ethertype"),
            Handler::both("vlan_tci"),
            Handler::both("vlan_id"),
            Handler::both("vlan_pcp"),
            Handler::both("native_vlan"),
        ]
        .into()
    }

    fn read(&mut self, name: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        let (source, destination) = (mac_text(self.source), mac_text(self.destination));
        Ok(match name {
            "src" => source,
            "dst" => destination,
            "ethertype" => self.ethertype.to_string(),
            "config" => {
                format!("{:#06x}, {source}, {destination}, {}", self.ethertype, self.tag.configuration())
            }
            _ => self.tag.text(name).ok_or_else(|| HandlerError::missing(name))?,
        })
    }

    fn write(&mut self, name: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let wrong = |_| HandlerError::failed("parse error");
        match name {
            "src" => self.source = cx.parse(value).map_err(wrong)?,
            "dst" => self.destination = cx.parse(value).map_err(wrong)?,
            "ethertype" => self.ethertype = cx.parse(value).map_err(wrong)?,
            _ if self.tag.set(name, value) => {}
            _ => return Err(HandlerError::failed("parse error")),
        }
        Ok(())
    }
}
