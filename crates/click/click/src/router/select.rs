//! Descriptors that elements wait for; the driver polls them.
use super::Router;
use crate::ElementId;
use alloc::vec::Vec;

/// An element's request for a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// The element.
    pub element: ElementId,
    /// The descriptor.
    pub descriptor: i32,
    /// Whether to report that it is readable.
    pub readable: bool,
    /// Whether to report that it is writable.
    pub writable: bool,
}

impl Router {
    /// The requests to poll.
    pub fn interests(&self) -> &[Interest] {
        &self.interests
    }

    pub(crate) fn set_interest(
        &mut self,
        element: ElementId,
        descriptor: i32,
        readable: bool,
        writable: bool,
    ) {
        self.interests.retain(|old| (old.element, old.descriptor) != (element, descriptor));
        if readable || writable {
            self.interests.push(Interest { element, descriptor, readable, writable });
        }
    }

    pub(super) fn interested(&self, descriptor: i32, readable: bool, writable: bool) -> Vec<ElementId> {
        let ready = |interest: &&super::Interest| {
            interest.descriptor == descriptor
                && (interest.readable && readable || interest.writable && writable)
        };
        self.interests.iter().filter(ready).map(|interest| interest.element).collect()
    }
}
