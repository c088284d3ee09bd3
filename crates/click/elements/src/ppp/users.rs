//! Subscribers' names and passwords.
use super::packet::same;
use alloc::collections::BTreeMap;
use md5::{Digest, Md5};
use ringway_click::prelude::*;

/// Attack: a file of any length. Most users.
const MOST: usize = 1 << 20;
/// Longest name and password, as in RADIUS (RFC 2865, 5.1 and 5.2).
pub(super) const LONGEST_NAME: usize = 253;
pub(super) const LONGEST_PASSWORD: usize = 128;

/// How a subscriber proves that it knows its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// PAP: by telling it.
    Password(Vec<u8>),
    /// CHAP: by a hash of it with a challenge (RFC 1994, 4.1).
    Hash { id: u8, response: [u8; 16], challenge: [u8; 16] },
}

impl Proof {
    fn is_right(&self, password: &str) -> bool {
        match self {
            Self::Password(told) => same(told, password.as_bytes()),
            Self::Hash { id, response, challenge } => {
                let hash = Md5::new().chain_update([*id]).chain_update(password).chain_update(challenge);
                same(&hash.finalize(), response)
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Users(BTreeMap<String, String>);

impl Users {
    /// Parses lines NAME:PASSWORD; empty ones and those that begin with `#` are ignored.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut users = Self::default();
        for (number, line) in text.lines().enumerate() {
            if !line.trim().is_empty() && !line.starts_with('#') {
                users.add(line).map_err(|error| format!("line {}: {error}", number + 1))?;
            }
        }
        Ok(users)
    }

    /// Adds a user NAME:PASSWORD.
    pub(super) fn add(&mut self, line: &str) -> Result<(), String> {
        let (name, password) = line.split_once(':').ok_or("expected NAME:PASSWORD")?;
        if !(1..=LONGEST_NAME).contains(&name.len()) || password.len() > LONGEST_PASSWORD {
            return Err(format!(
                "names have 1 to {LONGEST_NAME} bytes, passwords at most {LONGEST_PASSWORD}"
            ));
        }
        if self.0.len() >= MOST {
            return Err(format!("more than {MOST} users"));
        }
        if self.0.insert(name.into(), password.into()).is_some() {
            return Err(format!("{name} appears twice"));
        }
        Ok(())
    }

    /// Whether the proof is that of a user; `None` if there is no such user.
    pub(super) fn check(&self, name: &[u8], proof: &Proof) -> Option<bool> {
        let name = core::str::from_utf8(name).ok()?;
        self.0.get(name).map(|password| proof.is_right(password))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
