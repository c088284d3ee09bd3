//! What FromPort and ToPort need of their platform.
use core::fmt::Display;
use ringway_click::prelude::*;
use ringway_ring::Received;

/// Result of sending a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The frame is in the ring.
    Done,
    /// The ring has no room now.
    Full,
    /// The frame is longer than the ring can carry.
    TooLong,
}

/// Both directions of a ring port.
pub trait PortRing {
    /// Why the ring can't be used any more.
    type Error: Display;
    /// Bytes of the next frame; `None` if there is none.
    fn frame_len(&mut self) -> Result<Option<usize>, Self::Error>;
    /// Copies the next frame into `out`, truncated to its length.
    fn pop(&mut self, out: &mut [u8]) -> Result<Option<Received>, Self::Error>;
    /// Copies a frame into the ring, with its offload metadata.
    fn push(&mut self, frame: &[u8], offload: [u8; 10]) -> Result<Pushed, Self::Error>;
    /// Publishes frames that were sent and slots that were emptied, and notifies the other side if it asked for that.
    fn sync(&mut self) -> Result<(), Self::Error>;
    /// Slots for sending.
    fn tx_slots(&self) -> u32;
    /// Free slots for sending, at least `wanted` if there are as many.
    fn room(&mut self, wanted: u32) -> Result<u32, Self::Error>;
    /// Asks to be notified of the next frame; `false`: there is one already.
    fn arm_rx(&mut self) -> Result<bool, Self::Error>;
    /// Cancels it.
    fn disarm_rx(&mut self);
    /// Asks to be notified when `slots` slots are free for sending; `false`: they are.
    fn arm_tx(&mut self, slots: u32) -> Result<bool, Self::Error>;
    /// Cancels it.
    fn disarm_tx(&mut self);
}

/// An element's part in the attachment to a port. Elements that name the same port share one attachment, and so do
/// successive configurations.
pub trait PortAccess: Default + 'static {
    /// Why a ring can't be used any more.
    type Error: Display;
    /// The port's ring.
    type Ring<'a>: PortRing<Error = Self::Error>;

    /// The port that a device stands for.
    ///
    /// # Errors
    /// No port does.
    fn port_of_device(device: &str) -> Result<String, String>;

    /// Call in the element's `configure`, with its argument.
    ///
    /// # Errors
    /// There is no such port.
    fn configure(&mut self, port: &str) -> Result<(), String>;

    /// Call in its `shares`.
    fn shares(&self) -> Option<String>;

    /// Call in its `initialize`.
    ///
    /// # Errors
    /// A descriptor can't be made; it has been reported.
    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed>;

    /// Call in `initialize` with the later value of [`PortAccess::want_offloads`], so that the first request to it
    /// already has it.
    fn prefer_offloads(&mut self, offloads: bool);

    /// Sets whether the ring accepts frames with checksums to fill and segmentation to do. Requests another ring if
    /// that changes.
    fn want_offloads(&mut self, offloads: bool, cx: &mut Context<'_>);

    /// The ring, if there is one. If not, the element's timer or a descriptor signals when to try again.
    fn ring(&mut self, cx: &mut Context<'_>) -> Option<Self::Ring<'_>>;

    /// Whether each port that the program's elements use is up.
    fn are_all_up(&self) -> bool;

    /// Handles a ready descriptor: clears the notification, and notices a lost ring.
    fn selected(&mut self, descriptor: i32, cx: &mut Context<'_>);

    /// The ring can't be used any more.
    fn lose(&mut self, error: &Self::Error, cx: &mut Context<'_>);

    /// The value of the handler: `up`, `requested`, or `away` with the reason.
    fn state(&self) -> String;

    /// Number of lost rings.
    fn losses(&self) -> u64;
}
