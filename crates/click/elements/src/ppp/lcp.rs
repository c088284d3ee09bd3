//! LCP's options: maximum receive unit, authentication protocol, magic number (RFC 1661, 6; RFC 2516, 7).
use super::automaton::Layer;
use super::packet::{CHAP, MRU, PAP, options, put_option};
use super::session::Turn;
use alloc::vec::Vec;

const OPTION_MRU: u8 = 1;
const OPTION_AUTH: u8 = 3;
const OPTION_MAGIC: u8 = 5;
/// MD5 as an algorithm of CHAP.
const MD5: u8 = 5;
/// Least receive unit that makes sense.
const LEAST: u16 = 128;

/// An authentication protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Pap,
    Chap,
}

impl Method {
    fn value(self) -> &'static [u8] {
        match self {
            Self::Pap => &const { PAP.to_be_bytes() },
            Self::Chap => &const { [CHAP.to_be_bytes()[0], CHAP.to_be_bytes()[1], MD5] },
        }
    }
}

/// The permitted authentication protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Methods {
    pub(super) pap: bool,
    pub(super) chap: bool,
}

impl Methods {
    fn has(self, method: Method) -> bool {
        match method {
            Method::Pap => self.pap,
            Method::Chap => self.chap,
        }
    }

    /// The one to ask for first: CHAP, which does not send the password.
    fn first(self) -> Method {
        if self.chap { Method::Chap } else { Method::Pap }
    }
}

/// The link's options as negotiated so far.
#[derive(Debug)]
pub(super) struct Link {
    methods: Methods,
    pub(super) method: Method,
    pub(super) magic: u32,
    /// The receive unit to ask for, if any.
    mru: Option<u16>,
    sends_magic: bool,
}

impl Link {
    pub(super) fn new(methods: Methods, magic: u32) -> Self {
        Self { methods, method: methods.first(), magic, mru: Some(MRU), sends_magic: true }
    }
}

impl Layer for Link {
    fn request(&self, out: &mut Vec<u8>) {
        if let Some(mru) = self.mru {
            put_option(out, OPTION_MRU, &mru.to_be_bytes());
        }
        put_option(out, OPTION_AUTH, self.method.value());
        if self.sends_magic {
            put_option(out, OPTION_MAGIC, &self.magic.to_be_bytes());
        }
    }

    /// Field compression and character maps make no sense on Ethernet, and the server does not authenticate itself.
    fn judge(&mut self, data: &[u8], turn: &mut Turn<'_>, nak: &mut Vec<u8>, reject: &mut Vec<u8>) {
        for option in options(data) {
            match (option.kind, option.value) {
                (OPTION_MRU, [high, low]) => {
                    let bounded = u16::from_be_bytes([*high, *low]).clamp(LEAST, MRU).to_be_bytes();
                    if bounded != option.value {
                        put_option(nak, OPTION_MRU, &bounded);
                    }
                }
                (OPTION_MAGIC, [_, _, _, _]) => {
                    if option.value == [0; 4] || option.value == self.magic.to_be_bytes() {
                        put_option(nak, OPTION_MAGIC, &turn.nonce.number().to_be_bytes());
                    }
                }
                _ => reject.extend_from_slice(option.bytes),
            }
        }
    }

    fn refused(&mut self, data: &[u8], rejected: bool, turn: &mut Turn<'_>) -> bool {
        for option in options(data) {
            match (option.kind, rejected) {
                (OPTION_MRU, rejected) => {
                    let wanted = <[u8; 2]>::try_from(option.value).map(u16::from_be_bytes);
                    self.mru = wanted.ok().filter(|mru| !rejected && (LEAST..=MRU).contains(mru));
                }
                // Nobody gets in without authentication.
                (OPTION_AUTH, true) => return false,
                (OPTION_AUTH, false) => {
                    let offered = [Method::Chap, Method::Pap].into_iter().find(|method| match method {
                        Method::Chap => option.value == method.value(),
                        Method::Pap => option.value.starts_with(method.value()),
                    });
                    // Without a permitted counter-proposal the other one is tried.
                    let other = if self.method == Method::Chap { Method::Pap } else { Method::Chap };
                    let next = offered.unwrap_or(other);
                    if !self.methods.has(next) {
                        return false;
                    }
                    self.method = next;
                }
                (OPTION_MAGIC, true) => self.sends_magic = false,
                (OPTION_MAGIC, false) => self.magic = turn.nonce.number(),
                _ => {}
            }
        }
        true
    }
}
