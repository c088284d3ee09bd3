//! The line protocol of ControlSocket.

use ringway_click::{HandlerCall, Pieces, Progress};
use ringway_click_driver::elements::{Failure, Handlers, Session};

/// Largest value that handlers here return or accept.
const MOST: usize = 1 << 12;

/// A router with one handler.
struct One(String);

impl Handlers for One {
    fn find(&mut self, name: &str, _: bool) -> Result<HandlerCall, Failure> {
        if !name.starts_with("a.") {
            return Err(Failure::new(511, format!("none\nnamed '{name}'")));
        }
        Ok(HandlerCall { element: None, handler: name.into(), value: String::new() })
    }

    /// Returns the value in two pieces.
    fn read(&mut self, _: &str, call: &HandlerCall, pieces: &mut Pieces) -> Result<Progress, Failure> {
        let half: bool = pieces.kept();
        let part = if half { &call.value } else { &self.0 };
        pieces.text.extend(part.chars().take(MOST));
        Ok(if half { Progress::Done } else { pieces.keep(true) })
    }

    fn write(&mut self, _: &str, call: &HandlerCall, _: &mut Pieces) -> Result<Progress, Failure> {
        self.0 = call.value.chars().take(MOST).collect();
        Ok(Progress::Done)
    }

    fn llrpc(&mut self, _: &str, _: &str, _: u32, data: &[u8]) -> Result<Vec<u8>, Failure> {
        Ok(data.to_vec())
    }
}

/// The responses of a session that receives `data` in pieces of `bytes` bytes.
fn talk(data: &[u8], bytes: usize) -> Vec<u8> {
    let (mut session, mut one) = (Session::default(), One("x".into()));
    let mut answer = Vec::new();
    for piece in data.chunks(bytes) {
        session.give(piece);
        go_on(&mut session, false, &mut one, &mut answer);
    }
    go_on(&mut session, true, &mut one, &mut answer);
    answer
}

fn go_on(session: &mut Session, end: bool, one: &mut One, answer: &mut Vec<u8>) {
    loop {
        session.run(end, one);
        while !session.output().is_empty() {
            answer.extend_from_slice(session.output());
            session.sent(session.output().len());
        }
        if !session.is_unfinished() && !session.is_stalled() {
            return;
        }
    }
}

/// Uses `data` as a peer's input: responses begin with the banner, and don't depend on how the input is split.
pub fn run(data: &[u8]) {
    let answer = talk(data, usize::MAX);
    assert!(answer.starts_with(b"Click::ControlSocket/1."));
    assert_eq!(answer, talk(data, 7));
    assert_eq!(answer, talk(data, 1));
}

/// Sessions with all commands.
pub fn seeds() -> Vec<Vec<u8>> {
    let talks = [
        "read a.b\r\nwrite a.b 1 2\nREADDATA a.b 3\nabcWRITEUNTIL a.b .\nl\n.\nread c\nquit\n",
        "WRITEDATA a.b 5\nhelloCHECKREAD a.b\nCHECKWRITE c\nREADUNTIL a.b END\n1\n2\nEND\nhelp\nfoo\n",
        "llrpc a#4004C005\nLLRPC a#80044006 4\n\0\0\0\0llrpc a#1\nread a.b",
    ];
    talks.iter().map(|talk| talk.as_bytes().to_vec()).collect()
}
