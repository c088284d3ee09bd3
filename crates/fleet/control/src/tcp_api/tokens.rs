//! The file of tokens: a line for each, with its name, its role and the hash of what the client sends, or of the
//! client's certificate.
//!
//! ```text
//! # name role sha256:HASH, or certificate:HASH
//! grafana read sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
//! ```

use super::roles::Role;
use ring::digest::{SHA256, digest};
use ringway_host::{OwnFile, open_own, read_whole};
use ringway_spec::names;
use ringway_wire::fields::hex;
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

/// The file's name in the run directory.
pub(super) const FILE: &str = "tokens";
/// The most tokens of a fabric. Attack: an endless file.
const MOST: usize = 256;
/// The largest file, in bytes.
const LARGEST: usize = 64 << 10;
/// How each token begins, so that those who search for secrets find it.
const PREFIX: &str = "ringway_";

/// A hash by SHA-256. Tokens have 256 random bits, which no slow hash would protect better.
pub(super) type Hash = [u8; 32];

/// Errors of the file of tokens.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file can't be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    /// A line is wrong.
    #[error("{0}, line {1}: {2}")]
    Line(PathBuf, usize, String),
    /// There is such a token.
    #[error("there is a token {0} already; remove it first")]
    Taken(String),
    /// There is no such token.
    #[error("there is no token {0}; `ringway token list` shows those there are")]
    Unknown(String),
    /// There are too many.
    #[error("there are {MOST} tokens, which is the most")]
    Full,
    /// The name or the certificate is wrong.
    #[error("{0}")]
    Wrong(String),
}

/// What a client proves itself by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// A token, which is sent with each request.
    Token(Hash),
    /// A certificate, whose key the client has.
    Certificate(Hash),
}

/// A client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub name: String,
    pub role: Role,
    pub proof: Proof,
}

/// The tokens of a fabric, as its file has them.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    list: Vec<Token>,
}

/// The hash of a token or a certificate.
pub(super) fn hash(of: &[u8]) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(digest(&SHA256, of).as_ref());
    hash
}

fn parsed(text: &str) -> Option<Hash> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut hash = Hash::default();
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(hash)
}

/// Whether two hashes are equal, in a time that does not depend on where they differ.
fn is_same(one: &Hash, other: &Hash) -> bool {
    black_box(one.iter().zip(other).fold(0, |difference, (one, other)| difference | (one ^ other))) == 0
}

impl TokenFile {
    /// Reads a file; there are no tokens if there is none.
    ///
    /// # Errors
    /// It can't be read, another user can change it, or a line is wrong.
    pub fn open(path: PathBuf) -> Result<TokenFile, TokenError> {
        let text = match open_own(&path, OwnFile::Read, 0).and_then(|file| read_whole(file, LARGEST)) {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(TokenError::File(path, error)),
        };
        let mut list: Vec<Token> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: String| TokenError::Line(path.clone(), index + 1, what);
            let token = token_of(line).map_err(wrong)?;
            if list.iter().any(|other| other.name == token.name) {
                return Err(wrong(format!("token {} is there twice; remove one", token.name)));
            }
            if list.len() == MOST {
                return Err(TokenError::Full);
            }
            list.push(token);
        }
        Ok(TokenFile { path, list })
    }

    /// The tokens.
    pub fn list(&self) -> &[Token] {
        &self.list
    }

    /// Whose token this is. Each is compared, so that the time says nothing about them.
    pub fn of_token(&self, text: &[u8]) -> Option<&Token> {
        let given = hash(text);
        let mut found = None;
        for token in &self.list {
            if let Proof::Token(hash) = &token.proof
                && is_same(hash, &given)
            {
                found = Some(token);
            }
        }
        found
    }

    /// Whose certificate this is. Certificates are public.
    pub fn of_certificate(&self, hash: &Hash) -> Option<&Token> {
        self.list.iter().find(|token| token.proof == Proof::Certificate(*hash))
    }

    /// Adds a token for a client: with this certificate's hash, or one that is made, and returned.
    ///
    /// # Errors
    /// The name is wrong or taken, there are too many, or the file can't be written; then nothing changes.
    pub fn add(
        &mut self,
        name: &str,
        role: Role,
        certificate: Option<&str>,
    ) -> Result<Option<String>, TokenError> {
        names::name(name).map_err(|(what, fix)| TokenError::Wrong(format!("{what}; {fix}")))?;
        if self.list.iter().any(|token| token.name == name) {
            return Err(TokenError::Taken(name.into()));
        }
        if self.list.len() >= MOST {
            return Err(TokenError::Full);
        }
        let (proof, text) = match certificate {
            Some(text) => {
                let wrong = "a certificate's hash by SHA-256 has 64 hexadecimal digits".to_string();
                (Proof::Certificate(parsed(text).ok_or(TokenError::Wrong(wrong))?), None)
            }
            None => {
                let text = random().map_err(|error| TokenError::File("/dev/urandom".into(), error))?;
                (Proof::Token(hash(text.as_bytes())), Some(text))
            }
        };
        let mut list = self.list.clone();
        list.push(Token { name: name.into(), role, proof });
        self.write(list)?;
        Ok(text)
    }

    /// Removes the token of this name.
    ///
    /// # Errors
    /// There is none, or the file can't be written; then nothing changes.
    pub fn remove(&mut self, name: &str) -> Result<(), TokenError> {
        let mut list = self.list.clone();
        list.retain(|token| token.name != name);
        if list.len() == self.list.len() {
            return Err(TokenError::Unknown(name.into()));
        }
        self.write(list)
    }

    /// Replaces the file, as a whole, and the list.
    fn write(&mut self, list: Vec<Token>) -> Result<(), TokenError> {
        let mut text = String::from("# name role sha256:HASH, or certificate:HASH\n");
        for Token { name, role, proof } in &list {
            let (kind, hash) = match proof {
                Proof::Token(hash) => ("sha256", hash),
                Proof::Certificate(hash) => ("certificate", hash),
            };
            // A string takes everything.
            let _ = writeln!(text, "{name} {role} {kind}:{}", hex(hash));
        }
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        let replaced = open_own(&new, OwnFile::Rewrite, 0o600).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&new, &self.path)
        });
        replaced.map_err(|error| TokenError::File(self.path.clone(), error))?;
        self.list = list;
        Ok(())
    }
}

/// A new token, of 256 random bits.
fn random() -> std::io::Result<String> {
    let mut bytes = [0; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(format!("{PREFIX}{}", hex(&bytes)))
}

/// Reads a line.
fn token_of(line: &str) -> Result<Token, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, role, proof] = words[..] else {
        return Err("write a name, a role and a hash".into());
    };
    let name = names::name(name).map_err(|(what, fix)| format!("{what}; {fix}"))?;
    let role = Role::find(role)
        .ok_or_else(|| format!("there is no role {}; use read, operate or admin", names::shown(role)))?;
    let proof = match proof.split_once(':') {
        Some(("sha256", text)) => parsed(text).map(Proof::Token),
        Some(("certificate", text)) => parsed(text).map(Proof::Certificate),
        _ => None,
    };
    let proof = proof.ok_or("write sha256: or certificate: and 64 hexadecimal digits")?;
    Ok(Token { name: name.into(), role, proof })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("ringway-tokens-{name}-{}", std::process::id()))
    }

    #[test]
    fn tokens_are_stored_as_hashes_and_found_again() {
        let path = path("stored");
        let mut file = TokenFile::open(path.clone()).unwrap();
        let text = file.add("ops", Role::Operate, None).unwrap().unwrap();
        assert!(text.starts_with(PREFIX) && text.len() == PREFIX.len() + 64, "{text}");
        let fingerprint = "ab".repeat(32);
        assert_eq!(file.add("laptop", Role::Admin, Some(&fingerprint)).unwrap(), None);
        assert!(matches!(file.add("ops", Role::Read, None), Err(TokenError::Taken(_))));
        assert!(matches!(file.add("a b", Role::Read, None), Err(TokenError::Wrong(_))));
        assert!(matches!(file.add("c", Role::Read, Some("ab")), Err(TokenError::Wrong(_))));
        let stored = std::fs::read_to_string(&path).unwrap();
        assert!(!stored.contains(&text[PREFIX.len()..]), "{stored}");
        let again = TokenFile::open(path.clone()).unwrap();
        assert_eq!(again.list(), file.list());
        assert_eq!(again.of_token(text.as_bytes()).map(|token| token.role), Some(Role::Operate));
        assert_eq!(again.of_token(&text.as_bytes()[1..]), None);
        assert_eq!(again.of_token(b""), None);
        assert_eq!(again.of_certificate(&[0xab; 32]).map(|token| &*token.name), Some("laptop"));
        file.remove("ops").unwrap();
        assert!(matches!(file.remove("ops"), Err(TokenError::Unknown(_))));
        assert_eq!(TokenFile::open(path.clone()).unwrap().of_token(text.as_bytes()), None);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn wrong_lines_are_named() {
        let path = path("lines");
        let hash = "0".repeat(64);
        for (text, said) in [
            ("ops read".into(), "line 1: write a name, a role and a hash"),
            (format!("# x\n\nops root sha256:{hash}"), "line 3: there is no role \"root\""),
            (format!("ops read md5:{hash}"), "line 1: write sha256: or certificate:"),
            (format!("ops read sha256:{}", &hash[1..]), "64 hexadecimal digits"),
            (format!("a read sha256:{hash}\na read sha256:{hash}"), "line 2: token a is there twice"),
        ] {
            std::fs::write(&path, &text).unwrap();
            let error = TokenFile::open(path.clone()).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        let many: String = (0..=MOST).map(|n| format!("t{n} read sha256:{hash}\n")).collect();
        std::fs::write(&path, many).unwrap();
        assert!(matches!(TokenFile::open(path.clone()), Err(TokenError::Full)));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_can_t_be_written_changes_nothing() {
        let mut file = TokenFile::open(path("none").join("tokens")).unwrap();
        assert!(matches!(file.add("ops", Role::Read, None), Err(TokenError::File(..))));
        assert!(file.list().is_empty());
    }
}
