//! What nearly every element uses: `use ringway_click::prelude::*;`.
pub use crate::arg::Args;
pub use crate::{
    Annotations, Class, Context, Element, ElementId, Failed, Handler, HandlerError, Metadata, Packet,
    PacketBurst, Reach, SECOND, Signal, Task, Timer,
};
pub use alloc::boxed::Box;
pub use alloc::string::{String, ToString};
pub use alloc::vec::Vec;
pub use alloc::{format, vec};
