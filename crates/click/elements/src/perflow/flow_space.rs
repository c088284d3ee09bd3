//! An element's part of each flow's memory.
use super::manager::{FlowManager, MANAGER};
use ringway_click::prelude::*;

/// The name of such elements for [`ringway_click::Element::cast`].
pub(super) const KIND: &str = "FlowSpace";
/// Size of a part in bytes: a number.
pub(super) const SIZE: usize = size_of::<u32>();

/// An element's number for each flow.
#[derive(Debug, Default)]
pub(super) struct FlowSpace {
    manager: Option<ElementId>,
    offset: Option<usize>,
}

impl FlowSpace {
    /// Finds the manager upstream.
    pub(super) fn find(&mut self, cx: &mut Context<'_>) {
        self.manager = cx.nearby(0, false, MANAGER).first().copied();
    }

    /// The packet's flow, from the annotation that the manager set.
    pub(super) fn flow(packet: &Packet) -> u32 {
        packet.notes().u32(Annotations::AGGREGATE)
    }

    /// Changes the number of a packet's flow, initially 0, and returns it. Without a manager, or if the annotation
    /// was modified, the number is 0 and the change is lost.
    pub(super) fn change(&mut self, flow: u32, cx: &mut Context<'_>, change: impl FnOnce(&mut u32)) -> u32 {
        let id = cx.id();
        let mut number = 0;
        let Some(manager) = self.manager else {
            change(&mut number);
            return number;
        };
        let offset = &mut self.offset;
        cx.with(manager, |manager: &mut FlowManager, _| {
            *offset = offset.or_else(|| manager.offset(id));
            let part = offset.and_then(|offset| manager.part(flow, offset));
            number = part.as_ref().map_or(0, |part| u32::from_ne_bytes(**part));
            change(&mut number);
            if let Some(part) = part {
                *part = number.to_ne_bytes();
            }
        });
        number
    }

    /// The numbers of all current flows.
    pub(super) fn all(&self, cx: &Context<'_>) -> alloc::vec::Vec<u32> {
        let manager = self.manager.and_then(|id| cx.element::<FlowManager>(id));
        let parts = manager.zip(self.offset).into_iter().flat_map(|(manager, offset)| manager.parts(offset));
        parts.map(|part| u32::from_ne_bytes(*part)).collect()
    }

    /// Number of current flows.
    pub(super) fn live(&self, cx: &Context<'_>) -> u32 {
        self.manager.and_then(|id| cx.element::<FlowManager>(id)).map_or(0, FlowManager::live)
    }
}
