//! The line protocol of Click's ControlSocket, version 1.3: bytes in, bytes out.

/// The longest line. Attack: a peer that never ends one.
const LONGEST_LINE: usize = 1 << 16;
/// The largest value that may be written.
const LARGEST_VALUE: usize = 1 << 24;
/// The most data of an LLRPC: what its number can say.
const LARGEST_CALL: usize = 0xfff;
/// Bits of an LLRPC's number: data come out, go in, and hold no pointers.
const CALL_OUT: u32 = 0x4000_0000;
const CALL_IN: u32 = 0x8000_0000;
const CALL_FLAT: u32 = 0x4000;
/// Answers that wait for a peer, in bytes; more commands wait meanwhile. Attack: a peer that asks and never
/// reads, or that asks so much that packets would wait.
const MOST_OUTPUT: usize = 1 << 16;

/// What a session calls.
pub trait Handlers {
    /// Reads a handler; else the code and text of what is wrong.
    fn read(&mut self, name: &str, parameters: &str) -> Result<String, Failure>;
    /// Writes one.
    fn write(&mut self, name: &str, value: &str) -> Result<(), Failure>;
    /// Whether it can be read, or written.
    fn check(&mut self, name: &str, write: bool) -> Result<(), Failure>;
    /// Calls an element's LLRPC, which is called `name` in what is wrong.
    fn llrpc(&mut self, name: &str, element: &str, command: u32, data: &[u8]) -> Result<Vec<u8>, Failure>;
    /// Whether the configuration is being replaced, so that commands must wait for the next.
    fn is_replaced(&self) -> bool {
        false
    }
}

/// Code and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// 500 to 599.
    pub code: u16,
    /// For people; several lines are allowed.
    pub text: String,
}

impl Failure {
    /// One of them.
    pub fn new(code: u16, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

/// What is to be done with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Read,
    Write,
    Call,
}

#[derive(Clone, Debug)]
struct Pending {
    purpose: Purpose,
    name: String,
    data: Data,
}

#[derive(Clone, Debug)]
enum Data {
    Length(usize),
    /// Lines until this one.
    Until(String),
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    input: Vec<u8>,
    /// So much of the input has been seen to. It is taken away once a run. Attack: millions of short lines,
    /// each of which would move all that follow.
    at: usize,
    /// So much of the rest has been looked through without finding where it ends. Attack: data that come byte
    /// by byte.
    searched: usize,
    output: Vec<u8>,
    pending: Option<Pending>,
    closed: bool,
    stalled: bool,
}

impl Default for Session {
    fn default() -> Self {
        let output = b"Click::ControlSocket/1.3\r\n".to_vec();
        Self { input: Vec::new(), at: 0, searched: 0, output, pending: None, closed: false, stalled: false }
    }
}

impl Session {
    /// What is to be sent.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// So many bytes of it have been.
    pub fn sent(&mut self, bytes: usize) {
        self.output.drain(..bytes.min(self.output.len()));
    }

    /// Whether it has ended: nothing more is read.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether no command is under way and nothing is to be sent.
    pub fn is_idle(&self) -> bool {
        self.input.is_empty() && self.pending.is_none() && self.output.is_empty()
    }

    /// Whether more may be given to it.
    pub fn wants_input(&self) -> bool {
        !self.closed && self.output.len() < MOST_OUTPUT && self.input.len() < LARGEST_VALUE + LONGEST_LINE
    }

    /// Whether it stopped because of answers that wait, so that it is to be run again when they have gone
    /// out.
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Takes bytes.
    pub fn give(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Does what can be done. With `end`, the peer sends nothing more: an unended line is one.
    pub fn run(&mut self, end: bool, handlers: &mut impl Handlers) {
        while !self.closed && self.output.len() < MOST_OUTPUT && !handlers.is_replaced() {
            let went_on = match self.pending.take() {
                Some(pending) => self.collect(pending, handlers),
                None => self.next_line(end).is_some_and(|line| {
                    self.command(&line, handlers);
                    true
                }),
            };
            if !went_on {
                break;
            }
        }
        self.stalled = !self.closed && self.output.len() >= MOST_OUTPUT;
        if end && !self.stalled && !handlers.is_replaced() {
            self.closed = true;
        }
        self.input.drain(..self.at);
        self.at = 0;
    }

    /// What has not been seen to.
    fn rest(&self) -> &[u8] {
        self.input.get(self.at..).unwrap_or_default()
    }

    /// Sees to so many bytes of the rest.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let end = self.input.len().min(self.at + bytes);
        let taken = self.input.get(self.at..end).unwrap_or_default().to_vec();
        (self.at, self.searched) = (end, 0);
        taken
    }

    fn next_line(&mut self, end: bool) -> Option<String> {
        let rest = self.rest();
        let found = rest.iter().skip(self.searched).position(|byte| *byte == b'\n');
        let length = found.map_or(rest.len(), |at| self.searched + at);
        if length > LONGEST_LINE {
            self.answer(500, "Syntax error: line too long");
            self.closed = true;
            return None;
        }
        if found.is_none() && (!end || length == 0) {
            self.searched = length;
            return None;
        }
        let line = self.take(length + 1);
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = if found.is_some() { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
        Some(String::from_utf8_lossy(line).into_owned())
    }

    fn answer(&mut self, code: u16, text: &str) {
        let lines: Vec<&str> = text.trim_end().lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let mark = if index + 1 < lines.len() { '-' } else { ' ' };
            self.output.extend_from_slice(format!("{code}{mark}{line}\r\n").as_bytes());
        }
    }

    fn fail(&mut self, failure: &Failure) {
        self.answer(failure.code, &failure.text);
    }

    fn command(&mut self, line: &str, handlers: &mut impl Handlers) {
        let (word, rest) = split(line);
        let (name, value) = split(rest);
        let word = word.to_ascii_uppercase();
        match word.as_str() {
            "" => {}
            "READ" | "GET" if !name.is_empty() => self.read(name, value, handlers),
            "WRITE" | "SET" if !name.is_empty() => self.write(name, value, handlers),
            "READDATA" | "WRITEDATA" => match value.trim().parse::<usize>() {
                Ok(length) if length <= LARGEST_VALUE && !name.is_empty() => {
                    let purpose = if word == "WRITEDATA" { Purpose::Write } else { Purpose::Read };
                    self.pending = Some(Pending { purpose, name: name.into(), data: Data::Length(length) });
                }
                _ => self.answer(500, &format!("Syntax error in '{word}'")),
            },
            "READUNTIL" | "WRITEUNTIL" if !name.is_empty() => {
                let purpose = if word == "WRITEUNTIL" { Purpose::Write } else { Purpose::Read };
                let data = Data::Until(value.trim().to_string());
                self.pending = Some(Pending { purpose, name: name.into(), data });
            }
            "CHECKREAD" | "CHECKWRITE" if !name.is_empty() => {
                let write = word == "CHECKWRITE";
                let way = if write { "Write" } else { "Read" };
                match handlers.check(name, write) {
                    Ok(()) => self.answer(200, &format!("{way} handler '{name}' OK")),
                    Err(failure) => self.fail(&failure),
                }
            }
            "LLRPC" if name.contains('#') => match value.trim() {
                "" => self.llrpc(name, &[], handlers),
                length => match length.parse::<usize>() {
                    Ok(length) if length <= LARGEST_CALL => {
                        let (name, data) = (name.into(), Data::Length(length));
                        self.pending = Some(Pending { purpose: Purpose::Call, name, data });
                    }
                    _ => self.answer(500, "Syntax error in 'LLRPC'"),
                },
            },
            "QUIT" | "CLOSE" | "BYE" => {
                self.answer(200, "Goodbye!");
                self.closed = true;
            }
            "HELP" => self.help(),
            "READ" | "GET" | "WRITE" | "SET" | "READUNTIL" | "WRITEUNTIL" | "CHECKREAD" | "CHECKWRITE"
            | "LLRPC" => {
                self.answer(500, &format!("Wrong number of arguments to '{word}'"));
            }
            _ => self.answer(501, &format!("Unimplemented command '{word}'")),
        }
    }

    fn help(&mut self) {
        self.answer(
            200,
            "Commands supported:\n\
             READ handler [arg...]   call read handler, return result\n\
             READDATA handler len    call read handler with len data bytes\n\
             READUNTIL handler term  call read handler with data until term\n\
             WRITE handler [arg...]  call write handler\n\
             WRITEDATA handler len   call write handler with len data bytes\n\
             WRITEUNTIL handler term call write handler with data until term\n\
             CHECKREAD handler       check if read handler exists\n\
             CHECKWRITE handler      check if write handler exists\n\
             LLRPC elt#number [len]  call LLRPC, perhaps with len data bytes\n\
             QUIT                    close connection",
        );
    }

    /// Gathers the data of a command; false if there is more to come.
    fn collect(&mut self, pending: Pending, handlers: &mut impl Handlers) -> bool {
        let data: Vec<u8> = match &pending.data {
            Data::Length(length) => {
                if self.rest().len() < *length {
                    self.pending = Some(pending);
                    return false;
                }
                self.take(*length)
            }
            Data::Until(until) => {
                let mut at = self.searched;
                let found = self.rest()[at..].split_inclusive(|byte| *byte == b'\n').find_map(|line| {
                    let bare = line.strip_suffix(b"\n")?;
                    let start = at;
                    at += line.len();
                    (bare.trim_ascii() == until.as_bytes()).then_some(start)
                });
                let Some(length) = found else {
                    if self.rest().len() > LARGEST_VALUE {
                        self.answer(500, "Syntax error: data too long");
                        self.closed = true;
                    }
                    self.searched = at;
                    self.pending = Some(pending);
                    return false;
                };
                let mut data = self.take(at);
                data.truncate(length);
                data
            }
        };
        let text = String::from_utf8_lossy(&data);
        match pending.purpose {
            Purpose::Write => self.write(&pending.name, &text, handlers),
            Purpose::Read => self.read(&pending.name, &text, handlers),
            Purpose::Call => self.llrpc(&pending.name, &data, handlers),
        }
        true
    }

    fn read(&mut self, name: &str, parameters: &str, handlers: &mut impl Handlers) {
        match handlers.read(name, parameters) {
            Ok(value) => {
                self.answer(200, &format!("Read handler '{name}' OK"));
                self.output.extend_from_slice(format!("DATA {}\r\n", value.len()).as_bytes());
                self.output.extend_from_slice(value.as_bytes());
            }
            Err(failure) => self.fail(&failure),
        }
    }

    /// A call's number says, besides which it is, how many bytes go in or come out, and whether other
    /// programs can make it at all: its data must hold no pointers.
    fn llrpc(&mut self, name: &str, data: &[u8], handlers: &mut impl Handlers) {
        let (element, number) = name.rsplit_once('#').unwrap_or((name, ""));
        let Ok(command) = u32::from_str_radix(number, 16) else {
            return self.answer(500, &format!("Syntax error in LLRPC name '{name}'"));
        };
        if let Err(failure) = handlers.check(&format!("{element}.name"), false) {
            return self.fail(&failure);
        }
        let size = (command >> 16 & 0xfff) as usize;
        if size == 0 || command & (CALL_IN | CALL_OUT) == 0 || command & CALL_FLAT == 0 {
            return self.answer(501, &format!("Cannot call LLRPC '{name}' remotely"));
        }
        if command & CALL_IN != 0 && data.len() != size {
            return self.answer(540, &format!("LLRPC '{name}' requires {size} bytes input data"));
        }
        match handlers.llrpc(name, element, command, data) {
            Ok(result) => {
                self.answer(200, &format!("LLRPC '{name}' OK"));
                let result = if command & CALL_OUT != 0 { &result[..] } else { &[] };
                self.output.extend_from_slice(format!("DATA {}\r\n", result.len()).as_bytes());
                self.output.extend_from_slice(result);
            }
            Err(failure) => self.fail(&failure),
        }
    }

    fn write(&mut self, name: &str, value: &str, handlers: &mut impl Handlers) {
        match handlers.write(name, value) {
            Ok(()) => self.answer(200, &format!("Write handler '{name}' OK")),
            Err(failure) => self.fail(&failure),
        }
    }
}

/// The first word and what follows it.
fn split(line: &str) -> (&str, &str) {
    let line = line.trim_start_matches([' ', '\t']);
    line.split_once([' ', '\t'])
        .map_or((line, ""), |(word, rest)| (word, rest.trim_start_matches([' ', '\t'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One(String);

    impl Handlers for One {
        fn read(&mut self, name: &str, parameters: &str) -> Result<String, Failure> {
            self.check(name, false).map(|()| format!("{}{parameters}", self.0))
        }

        fn write(&mut self, name: &str, value: &str) -> Result<(), Failure> {
            self.check(name, true)?;
            self.0 = value.into();
            Ok(())
        }

        fn check(&mut self, name: &str, _: bool) -> Result<(), Failure> {
            if name == "a.b" || name == "a.name" {
                Ok(())
            } else {
                Err(Failure::new(511, format!("No handler named '{name}'")))
            }
        }

        fn llrpc(&mut self, _: &str, _: &str, command: u32, data: &[u8]) -> Result<Vec<u8>, Failure> {
            Ok(format!("{:02x}{}", command & 0xff, data.len()).into())
        }
    }

    fn talk(input: &str, bytes: usize) -> String {
        let mut session = Session::default();
        let mut one = One("x".into());
        for part in input.as_bytes().chunks(bytes) {
            session.give(part);
            session.run(false, &mut one);
        }
        session.run(true, &mut one);
        let text = String::from_utf8_lossy(session.output()).replace("\r\n", "|");
        text.strip_prefix("Click::ControlSocket/1.3|").unwrap_or_default().to_string()
    }

    #[test]
    fn known_talks_however_they_are_cut() {
        let input = "read a.b\r\nwrite a.b 1 2\nREADDATA a.b 3\nabcWRITEUNTIL a.b .\nl\n.\n\
            read a.b\nread c\nfoo\nquit\n";
        let expected = "200 Read handler 'a.b' OK|DATA 1|x200 Write handler 'a.b' OK|\
            200 Read handler 'a.b' OK|DATA 6|1 2abc200 Write handler 'a.b' OK|\
            200 Read handler 'a.b' OK|DATA 2|l\n511 No handler named 'c'|501 Unimplemented command 'FOO'|\
            200 Goodbye!|";
        for bytes in [1, 2, 5, 7, 1000] {
            assert_eq!(talk(input, bytes), expected, "{bytes} at a time");
        }
    }

    #[test]
    fn calls_say_how_long_their_data_are() {
        let input =
            "llrpc a#4004C005\nLLRPC a#80044006 4\n\0\n\0\0llrpc a#80044006\nllrpc a#80040006 0\nllrpc a\n";
        let expected = "200 LLRPC 'a#4004C005' OK|DATA 3|050200 LLRPC 'a#80044006' OK|DATA 0|\
            540 LLRPC 'a#80044006' requires 4 bytes input data|\
            501 Cannot call LLRPC 'a#80040006' remotely|500 Wrong number of arguments to 'LLRPC'|";
        for bytes in [1, 3, 1000] {
            assert_eq!(talk(input, bytes), expected, "{bytes} at a time");
        }
    }

    #[test]
    fn what_comes_at_once_costs_as_much_as_what_comes_in_pieces() {
        // Each of these would take hours if a line moved what follows it, or a byte had what came before
        // searched.
        let (mut session, mut one) = (Session::default(), One("x".into()));
        session.give(&vec![b'\n'; 8 << 20]);
        session.run(false, &mut one);
        session.give(b"WRITEUNTIL a.b .\n");
        for _ in 0..1 << 20 {
            session.give(b"abc\n");
            session.run(false, &mut one);
        }
        session.give(b".\nread a.b\n");
        session.run(false, &mut one);
        assert_eq!(one.0.len(), 4 << 20);
        assert!(session.is_stalled());
    }

    #[test]
    fn commands_wait_for_answers_that_wait_and_go_on_behind_them() {
        let (mut session, mut one) = (Session::default(), One("x".into()));
        session.give(&b"read a.b\n".repeat(5000));
        session.run(true, &mut one);
        let mut answers = 0;
        while session.is_stalled() {
            assert!(session.output().len() < MOST_OUTPUT + 100 && !session.is_closed());
            answers += String::from_utf8_lossy(session.output()).matches("200 ").count();
            session.sent(usize::MAX);
            session.run(true, &mut one);
        }
        answers += String::from_utf8_lossy(session.output()).matches("200 ").count();
        assert!(session.is_closed() && answers == 5000);
    }

    #[test]
    fn wrong_and_endless_ones() {
        assert!(talk("READDATA a.b 99999999999\n", 100).starts_with("500 "));
        assert!(talk("WRITE\n", 100).starts_with("500 "));
        assert!(talk(&"x".repeat(LONGEST_LINE + 2), 4096).starts_with("500 "));
        assert_eq!(talk("read a.b", 3), "200 Read handler 'a.b' OK|DATA 1|x");
    }
}
