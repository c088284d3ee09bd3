//! The line protocol of ControlSocket.

use ringway_function::elements::control_socket::{Failure, Handlers, Session};

/// The most that handlers here say or take.
const MOST: usize = 1 << 12;

/// A router with one handler.
struct One(String);

impl Handlers for One {
    fn read(&mut self, name: &str, parameters: &str) -> Result<String, Failure> {
        self.check(name, false)?;
        Ok(format!("{}{parameters}", self.0).chars().take(MOST).collect())
    }

    fn write(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        self.check(name, true)?;
        self.0 = value.chars().take(MOST).collect();
        Ok(())
    }

    fn check(&mut self, name: &str, _: bool) -> Result<(), Failure> {
        if name.starts_with("a.") { Ok(()) } else { Err(Failure::new(511, format!("none\nnamed '{name}'"))) }
    }

    fn llrpc(&mut self, _: &str, _: &str, _: u32, data: &[u8]) -> Result<Vec<u8>, Failure> {
        Ok(data.to_vec())
    }
}

/// What a session answers if it gets `data` in pieces of so many bytes.
fn talk(data: &[u8], bytes: usize) -> Vec<u8> {
    let (mut session, mut one) = (Session::default(), One("x".into()));
    for piece in data.chunks(bytes) {
        session.give(piece);
        session.run(false, &mut one);
    }
    session.run(true, &mut one);
    session.output().to_vec()
}

/// Takes `data` for what a peer sends: answers begin with the banner, and don't depend on how it arrives.
pub fn run(data: &[u8]) {
    let answer = talk(data, usize::MAX);
    assert!(answer.starts_with(b"Click::ControlSocket/1."));
    assert_eq!(answer, talk(data, 7));
    assert_eq!(answer, talk(data, 1));
}

/// Talks of all commands.
pub fn seeds() -> Vec<Vec<u8>> {
    let talks = [
        "read a.b\r\nwrite a.b 1 2\nREADDATA a.b 3\nabcWRITEUNTIL a.b .\nl\n.\nread c\nquit\n",
        "WRITEDATA a.b 5\nhelloCHECKREAD a.b\nCHECKWRITE c\nREADUNTIL a.b END\n1\n2\nEND\nhelp\nfoo\n",
        "llrpc a#4004C005\nLLRPC a#80044006 4\n\0\0\0\0llrpc a#1\nread a.b",
    ];
    talks.iter().map(|talk| talk.as_bytes().to_vec()).collect()
}
