//! `SetVLANAnno(VLAN_TCI, VLAN_PCP, VLAN_ID)`: sets the VLAN_TCI annotation.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `VLAN_TCI`: the tag control information.
//! - `VLAN_ID`, `VLAN_PCP`: its identifier and priority, instead of VLAN_TCI.
//!
//! Handlers: `config` (read); `vlan_tci`, `vlan_id`, `vlan_pcp` (read, write).
use super::vlan::{self, Tag};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("SetVLANAnno", || Box::<SetVlanAnno>::default()).ports("1/1").live();

#[derive(Debug, Default)]
pub struct SetVlanAnno {
    tag: Tag,
}

impl Element for SetVlanAnno {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.tag.read(args, false);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.iter_mut().for_each(|packet| vlan::annotate(packet, self.tag.tci));
    }

    fn handlers(&self) -> Vec<Handler> {
        let [tci, id, priority] = Tag::handlers(|e: &mut Self| &mut e.tag);
        let tci = tci.writes(|e: &mut Self, value, _| match value.trim() {
            "ANNO" => Err(HandlerError::failed("parse error")),
            _ => e.tag.set_tci(value),
        });
        [Handler::read("config", |e: &Self| e.tag.configuration()), tci, id, priority].into()
    }
}
