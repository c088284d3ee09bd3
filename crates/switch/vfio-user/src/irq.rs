//! Interrupts, and what a client does to them.

use crate::codec::{CodecError, split};
use crate::header::command;
use crate::payload::IrqSet;
use std::os::fd::OwnedFd;
use zerocopy::IntoBytes;

/// An interrupt type that a device has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IrqType {
    /// Number of interrupts.
    pub count: u32,
    /// [`IrqType::EVENTFD`] and the others.
    pub flags: u32,
}

impl IrqType {
    /// Interrupts signal an eventfd.
    pub const EVENTFD: u32 = 1;
    /// The type's interrupts can be masked.
    pub const MASKABLE: u32 = 2;
    /// Interrupts mask themselves when raised; the client unmasks them.
    pub const AUTOMASKED: u32 = 4;
    /// The type's interrupts are enabled as a set.
    pub const NORESIZE: u32 = 8;
}

/// One interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Irq {
    /// Its type, an index of [`crate::pci`].
    pub index: u32,
    /// Its number within the type.
    pub vector: u32,
}

/// What happens to an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IrqAction {
    /// The interrupt is masked.
    Mask,
    /// The interrupt is unmasked.
    Unmask,
    /// The interrupt is raised.
    Trigger,
}

/// To which interrupts of a range, or when, an action applies.
#[derive(Debug)]
pub enum IrqData<'a> {
    /// To all, now.
    All,
    /// To those whose byte is not zero, now.
    Some(&'a [u8]),
    /// These eventfds, one an interrupt, are set for the action; without any, those set before are removed. A
    /// device signals the one for [`IrqAction::Trigger`]; a client signals the others.
    Eventfds(Vec<OwnedFd>),
}

/// A change to a range of interrupts.
#[derive(Debug)]
pub struct SetIrqs<'a> {
    /// Their type.
    pub index: u32,
    /// The first.
    pub start: u32,
    /// How many. None, with [`IrqAction::Trigger`] for all, disables the whole type.
    pub count: u32,
    /// The action.
    pub action: IrqAction,
    /// To which of them.
    pub data: IrqData<'a>,
}

const ALL: u32 = 1;
const SOME: u32 = 2;
const EVENTFDS: u32 = 4;
const MASK: u32 = 8;
const UNMASK: u32 = 16;
const TRIGGER: u32 = 32;

impl IrqAction {
    pub(crate) const EACH: [IrqAction; 3] = [IrqAction::Mask, IrqAction::Unmask, IrqAction::Trigger];
}

impl<'a> SetIrqs<'a> {
    pub(crate) fn decode(payload: &'a [u8], fds: Vec<OwnedFd>) -> Result<SetIrqs<'a>, CodecError> {
        let command = command::DEVICE_SET_IRQS;
        let (IrqSet { flags, index, start, count, .. }, data) = split::<IrqSet>(command, payload)?;
        let wrong = CodecError::Field { command, field: "combination of flags" };
        let action = match flags & !(ALL | SOME | EVENTFDS) {
            MASK => IrqAction::Mask,
            UNMASK => IrqAction::Unmask,
            TRIGGER => IrqAction::Trigger,
            _ => return Err(wrong),
        };
        let (kind, got) = (flags & (ALL | SOME | EVENTFDS), fds.len());
        // Attack: a count that differs from what was sent would pair interrupts with the wrong eventfds, or
        // read past the end.
        let want = if kind == EVENTFDS && got > 0 { count as usize } else { 0 };
        if got != want {
            return Err(CodecError::Descriptors { command, got, want });
        }
        if data.len() != if kind == SOME { count as usize } else { 0 } {
            return Err(CodecError::Size { command, size: payload.len() });
        }
        let data = match kind {
            ALL => IrqData::All,
            SOME => IrqData::Some(data),
            EVENTFDS => IrqData::Eventfds(fds),
            _ => return Err(wrong),
        };
        Ok(SetIrqs { index, start, count, action, data })
    }

    /// The payload and its descriptors.
    pub(crate) fn encode(self) -> (Vec<u8>, Vec<OwnedFd>) {
        let action = match self.action {
            IrqAction::Mask => MASK,
            IrqAction::Unmask => UNMASK,
            IrqAction::Trigger => TRIGGER,
        };
        let (kind, data, fds) = match self.data {
            IrqData::All => (ALL, &[][..], Vec::new()),
            IrqData::Some(data) => (SOME, data, Vec::new()),
            IrqData::Eventfds(fds) => (EVENTFDS, &[][..], fds),
        };
        let SetIrqs { index, start, count, .. } = self;
        let argsz = (size_of::<IrqSet>() + data.len()) as u32;
        let set = IrqSet { argsz, flags: kind | action, index, start, count };
        ([set.as_bytes(), data].concat(), fds)
    }
}
