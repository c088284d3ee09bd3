//! The function's ends of its ports: the lanes of each, on the function's thread.

use ringway_click::Pool;
use ringway_frame::packet::Parcel;
use ringway_port::lane::{Inside, LANE, Receiver, Sender};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

thread_local! {
    /// The ends of the function whose configuration is being built on this thread, by port.
    static BUILDING: RefCell<BTreeMap<String, Rc<RefCell<Ends>>>> = RefCell::default();
}

/// Both lanes of a port. Elements of successive configurations share it.
pub(super) struct Ends {
    /// Stands for a descriptor: reported as readable when there are frames, as writable when there is room.
    pub descriptor: i32,
    pub inside: Arc<Inside>,
    receiver: Receiver,
    sender: Sender,
    /// Number of buffers that the lane to the function lacks, at the last look.
    missing: usize,
    taken: Vec<Parcel>,
    blanks: Vec<Parcel>,
}

impl Ends {
    pub fn new(number: usize, inside: Arc<Inside>) -> Ends {
        Ends {
            // Descriptors of the system are not negative.
            descriptor: -2 - i32::try_from(number).unwrap_or(0),
            receiver: Receiver::new(inside.to.clone()),
            sender: Sender::new(inside.from.clone()),
            inside,
            missing: LANE,
            taken: Vec::new(),
            blanks: Vec::new(),
        }
    }

    /// Takes up to `most` frames; buffers of `pool` take their places.
    #[inline]
    pub fn receive(&mut self, most: usize, pool: &Pool) -> std::vec::Drain<'_, Parcel> {
        let more = self.missing.saturating_sub(self.blanks.len()).min(most.max(1));
        self.blanks.extend((0..more).map(|_| pool.blank()));
        if let Some(missing) = self.receiver.receive(most, &mut self.taken, &mut self.blanks) {
            self.missing = missing;
            // What the lane can't use is not lost.
            self.blanks.drain(..).for_each(|blank| pool.keep(blank));
        }
        self.taken.drain(..)
    }

    /// Gives the port all buffers that frames for the function may use.
    pub fn stock(&mut self, pool: &Pool) {
        let more = self.missing.saturating_sub(self.blanks.len());
        self.blanks.extend((0..more).map(|_| pool.blank()));
        if let Some(missing) = self.receiver.receive(0, &mut self.taken, &mut self.blanks) {
            self.missing = missing;
        }
    }

    /// Whether all buffers that frames may use are there.
    pub fn is_stocked(&self) -> bool {
        self.missing == 0
    }

    /// Arms the lane from the port; `false` if there are frames already.
    pub fn arm(&self) -> bool {
        self.receiver.lane().arm()
    }

    pub fn disarm(&self) {
        self.receiver.lane().disarm();
    }

    /// Room for frames to the port, at least `wanted` if there is.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> usize {
        self.sender.room(wanted)
    }

    pub fn wait_for_room(&mut self) -> bool {
        self.sender.wait_for_room()
    }

    /// Appends a frame to the port, for which there is room.
    #[inline]
    pub fn push(&mut self, parcel: Parcel) {
        self.sender.push(parcel);
    }

    /// Sends the frames, and returns buffers of frames that were sent to `pool`. `false` if it must be called again.
    pub fn flush(&mut self, pool: &Pool) -> bool {
        if self.sender.staged() == 0 {
            return true;
        }
        self.sender.blanks(LANE, &mut self.taken);
        self.taken.drain(..).for_each(|parcel| pool.keep(parcel));
        self.sender.flush()
    }

    /// What the function must look at: frames, room.
    pub fn ready(&self) -> (bool, bool) {
        (self.inside.to.has_frames(), self.inside.from.has_room())
    }
}

/// Runs `build` with these ends for elements of the ports; returns its result.
pub(super) fn with<R>(ends: &[Rc<RefCell<Ends>>], build: impl FnOnce() -> R) -> R {
    let name = |ends: &Rc<RefCell<Ends>>| ends.borrow().inside.port.clone();
    let own = ends.iter().map(|ends| (name(ends), ends.clone())).collect();
    let former = BUILDING.replace(own);
    let built = build();
    BUILDING.replace(former);
    built
}

/// The ends of a port of the function that is being built.
pub(super) fn of(port: &str) -> Option<Rc<RefCell<Ends>>> {
    BUILDING.with_borrow(|all| all.get(port).cloned())
}
