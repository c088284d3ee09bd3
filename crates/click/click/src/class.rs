//! Static properties of an element class.
use crate::{Element, Reach};
use alloc::boxed::Box;

/// Handling of offload metadata: checksums to fill and segmentation to do
/// ([`Packet::offload`](crate::Packet::offload)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metadata {
    /// Preserves the bytes concerned and the lengths of headers, so the metadata stays valid.
    #[default]
    Keeps,
    /// Drops or replaces packets, so the metadata does not matter.
    Ignores,
    /// Reads or writes checksums, or data that checksums or segmentation depend on: addresses, lengths,
    /// added headers. The router completes packets in software before they reach the element.
    Resolve,
}

/// An element class: its properties, in Click's codes, and its constructor.
#[derive(Debug)]
pub struct Class {
    /// Its name in configurations.
    pub name: &'static str,
    /// Port count code, such as `1/1-2`; `0` by default.
    pub ports: &'static str,
    /// Processing code, such as `h/l`; `a` by default.
    pub processing: &'static str,
    /// Flow code, such as `x/y`; `x/x` by default.
    pub flow: &'static str,
    /// Flags, such as `S0`: with `S0` the element creates no packets.
    pub flags: &'static str,
    /// Order of configuration: lower phases first, [`Class::DEFAULT`] if it does not matter.
    pub phase: i32,
    /// Its handling of offload metadata.
    pub metadata: Metadata,
    /// Whether its `config` handler is writable at run time.
    pub live: bool,
    /// An output and an input: a pull at the output is answered by a pull at the input, even while the
    /// element runs.
    pub relay: Option<(usize, usize)>,
    /// Does nothing to pushed packets, so they bypass it.
    pub passed: bool,
    /// Its reach, for dividing a configuration among threads.
    pub reach: Reach,
    /// Creates an unconfigured element.
    pub make: fn() -> Box<dyn Element>,
}

impl Class {
    /// Phase of elements that others refer to by name: AddressInfo and its like.
    pub const INFO: i32 = 0;
    /// Phase of elements configured before most others.
    pub const PRIVILEGED: i32 = 90;
    /// Phase of most elements.
    pub const DEFAULT: i32 = 100;
    /// Phase of elements configured after most others.
    pub const LAST: i32 = 2000;

    /// A class with default properties: no ports, agnostic, packets may flow from every input to every output.
    pub const fn new(name: &'static str, make: fn() -> Box<dyn Element>) -> Self {
        Self {
            name,
            ports: "0",
            processing: "a",
            flow: "x/x",
            flags: "",
            phase: Self::DEFAULT,
            metadata: Metadata::Keeps,
            live: false,
            relay: None,
            passed: false,
            reach: Reach::Part,
            make,
        }
    }

    /// This class under another name.
    pub const fn named(&self, name: &'static str) -> Self {
        Self { name, ..*self }
    }

    /// With this port count code.
    pub const fn ports(mut self, code: &'static str) -> Self {
        self.ports = code;
        self
    }

    /// With this processing code.
    pub const fn processing(mut self, code: &'static str) -> Self {
        self.processing = code;
        self
    }

    /// With this flow code.
    pub const fn flow(mut self, code: &'static str) -> Self {
        self.flow = code;
        self
    }

    /// With these flags.
    pub const fn flags(mut self, flags: &'static str) -> Self {
        self.flags = flags;
        self
    }

    /// Configured in this phase.
    pub const fn phase(mut self, phase: i32) -> Self {
        self.phase = phase;
        self
    }

    /// With this handling of offload metadata.
    pub const fn metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// Makes its `config` handler writable; [`Element::configure`] is then called on a new element, which
    /// gets the old one's state by [`Element::take_state`].
    pub const fn live(mut self) -> Self {
        self.live = true;
        self
    }

    /// Forwards pulls at this output to this input, bypassing the element.
    pub const fn relay(mut self, output: usize, input: usize) -> Self {
        self.relay = Some((output, input));
        self
    }

    /// Forwards packets pushed to its input to its output, bypassing the element.
    pub const fn passed(mut self) -> Self {
        self.passed = true;
        self
    }

    /// With this reach.
    pub const fn reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// The number after a letter of the flags: `flag('S')` of `S0` is 0.
    pub fn flag(&self, letter: char) -> Option<u32> {
        let at = self.flags.find(letter)?;
        let digits = &self.flags[at + letter.len_utf8()..];
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        if end == 0 { Some(1) } else { digits[..end].parse().ok() }
    }
}
