//! What `control` tells `data` about an interface of the host that a port has: a page that both map.
//!
//! `data` can't ask the kernel for it. Both processes are trusted, so the values are only read whole, one by one.

use ringway_host::{HostError, Mapping, memfd};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const SIZE: usize = 4096;
const MTU: usize = 0;
const CARRIER: usize = 1;
const INDEX: usize = 2;
const QUEUES: usize = 3;
const MODE: usize = 4;
const MAPPED: usize = 5;

/// The state of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceState {
    /// Its MTU.
    pub mtu: u32,
    /// Whether frames can pass: it is up, and its line is connected.
    pub has_carrier: bool,
    /// Its number in its namespace.
    pub index: u32,
    /// Its receive queues; 0 if that is unknown.
    pub queues: u32,
    /// A number whose meaning is the kind's.
    pub mode: u32,
}

/// The page.
#[derive(Clone, Debug)]
pub struct InterfacePage(Arc<Mapping>);

impl InterfacePage {
    /// A new page, and its descriptor for `data`.
    ///
    /// # Errors
    /// The system refused.
    pub fn create(state: &InterfaceState) -> Result<(InterfacePage, OwnedFd), HostError> {
        let file = memfd("ringway-interface", SIZE)?;
        let page = InterfacePage::open(&file)?;
        page.set(state);
        Ok((page, file))
    }

    /// Maps the page.
    ///
    /// # Errors
    /// It is no such page, or the system refused.
    pub fn open(file: &OwnedFd) -> Result<InterfacePage, HostError> {
        let mapping = Mapping::sealed(file)?;
        if mapping.len() < SIZE {
            return Err(HostError::TooShort { size: mapping.len() as u64, needed: SIZE as u64 });
        }
        Ok(InterfacePage(mapping))
    }

    fn word(&self, index: usize) -> u32 {
        self.0.words().get(index).map_or(0, |word| word.load(Relaxed) as u32)
    }

    /// Whether frames can pass.
    #[inline]
    pub fn has_carrier(&self) -> bool {
        self.word(CARRIER) != 0
    }

    /// Its MTU.
    #[inline]
    pub fn mtu(&self) -> u32 {
        self.word(MTU)
    }

    /// The number whose meaning is the kind's.
    #[inline]
    pub fn mode(&self) -> u32 {
        self.word(MODE)
    }

    /// Notes that `data` has mapped what came with the page.
    pub fn set_mapped(&self) {
        if let Some(word) = self.0.words().get(MAPPED) {
            word.store(1, Release);
        }
    }

    /// Whether `data` has mapped what came with the page.
    pub fn is_mapped(&self) -> bool {
        self.0.words().get(MAPPED).is_some_and(|word| word.load(Acquire) != 0)
    }

    /// Everything.
    pub fn get(&self) -> InterfaceState {
        InterfaceState {
            mtu: self.mtu(),
            has_carrier: self.has_carrier(),
            index: self.word(INDEX),
            queues: self.word(QUEUES),
            mode: self.mode(),
        }
    }

    /// Changes the state.
    pub fn set(&self, state: &InterfaceState) {
        let InterfaceState { mtu, has_carrier, index, queues, mode } = *state;
        let values =
            [(MTU, mtu), (CARRIER, has_carrier.into()), (INDEX, index), (QUEUES, queues), (MODE, mode)];
        for (at, value) in values {
            if let Some(word) = self.0.words().get(at) {
                word.store(value.into(), Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_the_state() {
        let state = InterfaceState { mtu: 1500, has_carrier: true, index: 7, queues: 2, mode: 3 };
        let (ours, file) = InterfacePage::create(&state).unwrap();
        let theirs = InterfacePage::open(&file).unwrap();
        assert_eq!(theirs.get(), state);
        ours.set(&InterfaceState { has_carrier: false, ..state });
        assert!(!theirs.has_carrier());
        assert!(!ours.is_mapped());
        theirs.set_mapped();
        assert!(ours.is_mapped());
        assert!(InterfacePage::open(&memfd("short", 8).unwrap()).is_err());
    }
}
