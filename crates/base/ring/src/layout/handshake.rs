//! Messages between a program and Ringway on the port's UNIX stream socket, before the ring is used.
//!
//! The program sends a [`Hello`]; Ringway replies with a [`Welcome`]. On a pipe, a further [`Welcome`]
//! follows whenever the other end was replaced. Both have a fixed size and little-endian numbers. Three
//! descriptors are sent with a [`Welcome`] that grants a ring: the memory, the eventfd that the program
//! writes, and the eventfd that the program reads. On the socket of a switch, where programs open ports, a [`PortName`]
//! precedes the [`Hello`]. The place of a program's own buffers ([`BufferPool`]) follows it, with the descriptor of
//! their memory.

use super::geometry::{BufferPool, Geometry, MAGIC, RingKind, VERSION};

/// A program's request. A number of 0 leaves the choice to Ringway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Slots of the TX ring and of the RX ring.
    pub slots: [u32; 2],
    /// Bytes of a buffer.
    pub slot_size: u32,
    /// Buffers in addition to one per slot.
    pub extra: u32,
    /// Offloads that the program accepts in received frames, a subset of [`super::FEATURES`].
    pub features: u32,
    /// Largest frame in bytes that the program receives; 0 means any.
    pub largest: u32,
    /// Whether a [`BufferPool`] follows. Ringway of a former version does not read it, and makes the buffers.
    pub has_pool: bool,
}

/// An invalid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// The message doesn't begin with the magic number.
    Magic,
    /// An unsupported version.
    Version(u32),
    /// What follows the request is no [`BufferPool`], or comes without a descriptor.
    Pool,
}

impl core::fmt::Display for HandshakeError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            HandshakeError::Magic => out.write_str("the other side doesn't speak the ring protocol"),
            HandshakeError::Pool => out.write_str("the other side doesn't say where its buffers are"),
            HandshakeError::Version(version) => write!(
                out,
                "the other side has protocol version {version}, this one {VERSION}: rebuild the older one"
            ),
        }
    }
}

impl core::error::Error for HandshakeError {}

impl Hello {
    /// Size of the message in bytes.
    pub const SIZE: usize = 40;

    /// Encodes the message.
    pub fn to_bytes(&self) -> [u8; Hello::SIZE] {
        let mut bytes = [0; Hello::SIZE];
        put_preamble(&mut bytes);
        let Hello { slots, slot_size, extra, features, largest, has_pool } = *self;
        let numbers = [slots[0], slots[1], slot_size, extra, features, largest, has_pool.into()];
        for (slot, number) in bytes[12..].as_chunks_mut().0.iter_mut().zip(numbers) {
            *slot = number.to_le_bytes();
        }
        bytes
    }

    /// Decodes the message.
    pub fn from_bytes(bytes: &[u8; Hello::SIZE]) -> Result<Hello, HandshakeError> {
        check_preamble(bytes)?;
        let number = |index: usize| u32_at(bytes, 12 + 4 * index);
        Ok(Hello {
            slots: [number(0), number(1)],
            slot_size: number(2),
            extra: number(3),
            features: number(4),
            largest: number(5),
            has_pool: number(6) == 1,
        })
    }

    /// The requested ring, with values of `defaults` where the program requests none, without its buffers.
    pub fn geometry(&self, kind: RingKind, defaults: &Geometry) -> Geometry {
        let or = |requested: u32, defaults: u32| if requested == 0 { defaults } else { requested };
        Geometry {
            kind,
            slots: [or(self.slots[0], defaults.slots[0]), or(self.slots[1], defaults.slots[1])],
            slot_size: or(self.slot_size, defaults.slot_size),
            extra: or(self.extra, defaults.extra),
            features: self.features,
            largest: or(self.largest, defaults.largest),
            pool: None,
        }
    }
}

/// The first bytes of a [`BufferPool`].
const POOL: &[u8; 8] = b"Ringpool";

impl BufferPool {
    /// Size of the message in bytes: eight that say what it is, then the fields in their order.
    pub const SIZE: usize = 24;

    /// Encodes the message.
    pub fn to_bytes(&self) -> [u8; BufferPool::SIZE] {
        let mut bytes = [0; BufferPool::SIZE];
        bytes[..8].copy_from_slice(POOL);
        bytes[8..16].copy_from_slice(&self.at.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.buffers.to_le_bytes());
        bytes[20..].copy_from_slice(&self.first.to_le_bytes());
        bytes
    }

    /// Decodes the message. The numbers are checked by [`Geometry::header`].
    pub fn from_bytes(bytes: &[u8; BufferPool::SIZE]) -> Result<BufferPool, HandshakeError> {
        if bytes.get(..8) != Some(&POOL[..]) {
            return Err(HandshakeError::Pool);
        }
        let at = u64::from(u32_at(bytes, 8)) | u64::from(u32_at(bytes, 12)) << 32;
        Ok(BufferPool { at, buffers: u32_at(bytes, 16), first: u32_at(bytes, 20) })
    }
}

/// The port that a program opens on a switch: a name of 1 to 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortName {
    len: u8,
    text: [u8; PortName::LONGEST],
}

/// The first bytes of a [`PortName`].
const OPEN: &[u8; 8] = b"Ringopen";

impl PortName {
    /// Size of the message in bytes: eight that say what it is, the length and the name, padded with zeros.
    pub const SIZE: usize = 9 + PortName::LONGEST;
    /// Longest name in bytes.
    pub const LONGEST: usize = 64;
    /// Bytes of the message after which it is known to be one.
    pub const PREAMBLE: usize = OPEN.len();

    /// The message for this name; `None` if it is empty or too long.
    pub fn new(name: &str) -> Option<PortName> {
        let mut text = [0; PortName::LONGEST];
        text.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        (!name.is_empty()).then_some(PortName { len: name.len() as u8, text })
    }

    /// Whether a message begins as one.
    pub fn is_begun_by(bytes: &[u8]) -> bool {
        bytes.starts_with(OPEN)
    }

    /// The name; `None` if it is none, which only the port's side has to expect.
    pub fn text(&self) -> Option<&str> {
        let text = self.text.get(..usize::from(self.len)).filter(|text| !text.is_empty())?;
        core::str::from_utf8(text).ok()
    }

    /// Encodes the message.
    pub fn to_bytes(&self) -> [u8; PortName::SIZE] {
        let mut bytes = [0; PortName::SIZE];
        bytes[..8].copy_from_slice(OPEN);
        bytes[8] = self.len;
        bytes[9..].copy_from_slice(&self.text);
        bytes
    }

    /// Decodes the message.
    pub fn from_bytes(bytes: &[u8; PortName::SIZE]) -> Result<PortName, HandshakeError> {
        let mut text = [0; PortName::LONGEST];
        text.copy_from_slice(&bytes[9..]);
        if PortName::is_begun_by(bytes) {
            Ok(PortName { len: bytes[8], text })
        } else {
            Err(HandshakeError::Magic)
        }
    }
}

/// Ringway's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    end: u32,
    text_len: u32,
    text: [u8; Welcome::TEXT],
}

/// Value of `end` in a refusal.
const REFUSED: u32 = u32::MAX;
/// A bit of `text_len` in a refusal: the same request is always refused. Programs that don't know it show the text.
const ALWAYS: u32 = 1 << 31;

impl Welcome {
    /// Size of the message in bytes.
    pub const SIZE: usize = 20 + Welcome::TEXT;
    /// Maximum length of a refusal's text in bytes.
    pub const TEXT: usize = 236;
    /// Number of descriptors sent with a ring.
    pub const DESCRIPTORS: usize = 3;

    /// Grants a ring. `end` is 0, or 1 for a pipe's second end, whose TX ring is ring 1.
    pub fn ring(end: u32) -> Welcome {
        Welcome { end: end & 1, text_len: 0, text: [0; Welcome::TEXT] }
    }

    /// Refuses a ring, with a reason for the user, truncated to [`Welcome::TEXT`] bytes.
    pub fn refused(reason: &str) -> Welcome {
        let mut len = reason.len().min(Welcome::TEXT);
        while !reason.is_char_boundary(len) {
            len -= 1;
        }
        let mut text = [0; Welcome::TEXT];
        text[..len].copy_from_slice(&reason.as_bytes()[..len]);
        Welcome { end: REFUSED, text_len: len as u32, text }
    }

    /// Refuses a ring that no program ever gets on this port.
    pub fn refused_always(reason: &str) -> Welcome {
        let refused = Welcome::refused(reason);
        Welcome { text_len: refused.text_len | ALWAYS, ..refused }
    }

    /// Whether it refuses a ring that no program ever gets on this port: the request must change.
    pub fn is_final(&self) -> bool {
        self.end == REFUSED && self.text_len & ALWAYS != 0
    }

    /// The program's end of the ring, or the reason of a refusal.
    pub fn end(&self) -> Result<u32, &str> {
        if self.end != REFUSED {
            return Ok(self.end & 1);
        }
        let len = (self.text_len & !ALWAYS) as usize;
        let text = self.text.get(..len).unwrap_or(&self.text);
        Err(core::str::from_utf8(text).unwrap_or("no reason was given"))
    }

    /// Encodes the message.
    pub fn to_bytes(&self) -> [u8; Welcome::SIZE] {
        let mut bytes = [0; Welcome::SIZE];
        put_preamble(&mut bytes);
        bytes[12..16].copy_from_slice(&self.end.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.text_len.to_le_bytes());
        bytes[20..].copy_from_slice(&self.text);
        bytes
    }

    /// Decodes the message.
    pub fn from_bytes(bytes: &[u8; Welcome::SIZE]) -> Result<Welcome, HandshakeError> {
        check_preamble(bytes)?;
        let mut text = [0; Welcome::TEXT];
        text.copy_from_slice(&bytes[20..]);
        Ok(Welcome { end: u32_at(bytes, 12), text_len: u32_at(bytes, 16), text })
    }
}

fn put_preamble(bytes: &mut [u8]) {
    bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
}

fn check_preamble(bytes: &[u8]) -> Result<(), HandshakeError> {
    if bytes.get(..8) != Some(&MAGIC.to_le_bytes()[..]) {
        return Err(HandshakeError::Magic);
    }
    match u32_at(bytes, 8) {
        VERSION => Ok(()),
        version => Err(HandshakeError::Version(version)),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn handshake_messages_round_trip() {
        let mut hello = Hello {
            slots: [64, 128],
            slot_size: 2048,
            extra: 3,
            features: 1,
            largest: 1518,
            has_pool: false,
        };
        assert_eq!(Hello::from_bytes(&hello.to_bytes()), Ok(hello));
        hello.has_pool = true;
        assert_eq!(Hello::from_bytes(&hello.to_bytes()), Ok(hello));
        let pool = BufferPool { at: 1 << 32 | 4096, buffers: 300, first: 2 };
        assert_eq!(BufferPool::from_bytes(&pool.to_bytes()), Ok(pool));
        assert_eq!(BufferPool::from_bytes(&[0; BufferPool::SIZE]), Err(HandshakeError::Pool));
        assert_eq!(Welcome::from_bytes(&Welcome::ring(1).to_bytes()).unwrap().end(), Ok(1));
        let refused = Welcome::refused("the port is taken");
        assert_eq!(Welcome::from_bytes(&refused.to_bytes()).unwrap().end(), Err("the port is taken"));
        assert!(!refused.is_final() && !Welcome::ring(0).is_final());
        let always = Welcome::from_bytes(&Welcome::refused_always("3 slots").to_bytes()).unwrap();
        assert_eq!((always.end(), always.is_final()), (Err("3 slots"), true));
        let long = "ä".repeat(200);
        assert_eq!(Welcome::refused(&long).end(), Err(&long[..Welcome::TEXT]));
    }

    #[test]
    fn names_of_ports_round_trip_and_others_are_none() {
        let long = "n".repeat(64);
        for name in ["a", "me-2_x", &long] {
            let sent = PortName::new(name).unwrap().to_bytes();
            assert_eq!(PortName::from_bytes(&sent).unwrap().text(), Some(name));
        }
        assert_eq!((PortName::new(""), PortName::new(&"n".repeat(65))), (None, None));
        assert_eq!(PortName::from_bytes(&[0; PortName::SIZE]), Err(HandshakeError::Magic));
        for (len, first) in [(0, b'a'), (65, b'a'), (255, b'a'), (1, 0xff)] {
            let mut bytes = PortName::new("a").unwrap().to_bytes();
            (bytes[8], bytes[9]) = (len, first);
            assert_eq!(PortName::from_bytes(&bytes).unwrap().text(), None, "{len} {first}");
        }
    }

    #[test]
    fn other_protocols_and_versions_are_refused() {
        assert_eq!(Hello::from_bytes(&[0; Hello::SIZE]), Err(HandshakeError::Magic));
        let mut newer = Hello::default().to_bytes();
        newer[8] = 9;
        assert_eq!(Hello::from_bytes(&newer), Err(HandshakeError::Version(9)));
    }

    #[test]
    fn unset_parameters_use_defaults() {
        let hello = Hello { slots: [0, 128], ..Hello::default() };
        let geometry = hello.geometry(RingKind::Port, &Geometry::default());
        assert_eq!(geometry, Geometry { slots: [512, 128], ..Geometry::default() });
    }

    proptest! {
        #[test]
        fn arbitrary_messages_never_panic(
            mut bytes in prop::collection::vec(any::<u8>(), Welcome::SIZE),
            start in any::<bool>(),
        ) {
            if start { put_preamble(&mut bytes); }
            let bytes: [u8; Welcome::SIZE] = bytes.try_into().unwrap();
            if let Ok(welcome) = Welcome::from_bytes(&bytes) {
                prop_assert!(welcome.end().is_err() || welcome.end().unwrap() < 2);
            }
        }
    }
}
