//! The line protocol of Click's ControlSocket, version 1.3: bytes in, bytes out.
use super::output::Output;
use ringway_click::prelude::*;
use ringway_click::{HandlerCall, Pieces, Progress};

/// Attack: a line without an end. Largest length of a line in bytes.
const LONGEST_LINE: usize = 1 << 16;
/// The largest value that may be written.
const LARGEST_VALUE: usize = 1 << 24;
/// Largest size of an LLRPC's data, which its number can encode.
const LARGEST_CALL: usize = 0xfff;
/// Bits of an LLRPC's number: data is returned, data is passed, and data contains no pointers.
const CALL_OUT: u32 = 0x4000_0000;
const CALL_IN: u32 = 0x8000_0000;
const CALL_FLAT: u32 = 0x4000;
/// Attack: a peer that never reads its answers, or requests so many that packets would wait. Largest size in
/// bytes of waiting answers; further commands wait meanwhile.
const MOST_OUTPUT: usize = 1 << 16;
/// Attack: a peer that sends commands in bulk, while packets wait. Largest number of commands handled at
/// once.
const COMMANDS: usize = 64;

/// Interface to the router's handlers.
pub trait Handlers {
    /// The call, without a value, that reads or writes a handler; or the code and text of the error.
    fn find(&mut self, name: &str, write: bool) -> Result<HandlerCall, Failure>;
    /// Reads the next part of a handler, named `name` in errors.
    fn read(&mut self, name: &str, call: &HandlerCall, pieces: &mut Pieces) -> Result<Progress, Failure>;
    /// Performs the next step of writing a handler.
    fn write(&mut self, name: &str, call: &HandlerCall, pieces: &mut Pieces) -> Result<Progress, Failure>;
    /// Calls an element's LLRPC, named `name` in errors.
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
    /// Text for people, of one or several lines.
    pub text: String,
}

impl Failure {
    /// A failure with this code and text.
    pub fn new(code: u16, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

/// Use of the data.
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

/// A handler that is being read or written.
#[derive(Debug)]
struct Doing {
    write: bool,
    name: String,
    value: String,
    /// Set, with the value, once the handler was found.
    call: Option<HandlerCall>,
    pieces: Pieces,
    /// What was read before.
    read: Output,
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    input: Vec<u8>,
    /// Number of input bytes already processed. They are removed once they are half of the input. Attack:
    /// millions of short lines; removing each would move all that follow.
    at: usize,
    /// Number of the remaining bytes already searched for an end of line. Attack: data that arrives byte by
    /// byte.
    searched: usize,
    output: Output,
    pending: Option<Pending>,
    doing: Option<Doing>,
    closed: bool,
    stalled: bool,
    unfinished: bool,
}

impl Default for Session {
    fn default() -> Self {
        let mut output = Output::default();
        output.add(b"Click::ControlSocket/1.3\r\n");
        Self {
            input: Vec::new(),
            at: 0,
            searched: 0,
            output,
            pending: None,
            doing: None,
            closed: false,
            stalled: false,
            unfinished: false,
        }
    }
}

impl Session {
    /// The next bytes to send; more may follow.
    pub fn output(&self) -> &[u8] {
        self.output.first()
    }

    /// Records that this many bytes were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.output.sent(bytes);
    }

    /// Whether the session has ended, and reads no more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether no command is in progress and no output is waiting.
    pub fn is_idle(&self) -> bool {
        self.input.is_empty() && self.pending.is_none() && self.doing.is_none() && self.output.len() == 0
    }

    /// Whether more input is accepted.
    pub fn wants_input(&self) -> bool {
        !self.closed
            && !self.unfinished
            && self.output.len() < MOST_OUTPUT
            && self.input.len() < LARGEST_VALUE + LONGEST_LINE
    }

    /// Whether it waits for its answers to be sent, and must be run again afterwards.
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Whether a handler is being read or written.
    pub fn is_doing(&self) -> bool {
        self.doing.is_some()
    }

    /// Whether it paused to let packets pass, and must be run again soon.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// Switches to another router: commands in progress start again, and waiting ones must be run.
    pub fn begin_again(&mut self) {
        self.unfinished = true;
        if let Some(doing) = &mut self.doing {
            // Without a call, the command has not begun in the previous router.
            if let Some(call) = doing.call.take() {
                doing.value = call.value;
            }
            (doing.pieces, doing.read) = (Pieces::default(), Output::default());
        }
    }

    /// The peer is gone: only the current handler call is completed.
    pub fn abandon(&mut self) {
        (self.input, self.output, self.pending) = (Vec::new(), Output::default(), None);
        (self.at, self.searched) = (0, 0);
    }

    /// Takes bytes.
    pub fn give(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Processes commands for a short time. With `end`, the peer sends nothing more: an unterminated line
    /// counts as complete.
    pub fn run(&mut self, end: bool, handlers: &mut impl Handlers) {
        let mut commands = 0;
        self.unfinished = false;
        while !self.closed && self.output.len() < MOST_OUTPUT && !handlers.is_replaced() {
            if commands == COMMANDS {
                self.unfinished = true;
                break;
            }
            commands += 1;
            let went_on = match (self.doing.take(), self.pending.take()) {
                (Some(doing), pending) => {
                    self.pending = pending;
                    self.go_on(doing, handlers);
                    true
                }
                (None, Some(pending)) => self.collect(pending, handlers),
                (None, None) => self.next_line(end).is_some_and(|line| {
                    self.command(&line, handlers);
                    true
                }),
            };
            self.unfinished = self.doing.is_some();
            if !went_on || self.unfinished {
                break;
            }
        }
        self.stalled = !self.closed && self.output.len() >= MOST_OUTPUT;
        if end && !self.stalled && !self.unfinished && !handlers.is_replaced() {
            self.closed = true;
        }
        if self.at >= self.input.len() / 2 {
            self.input.drain(..self.at);
            self.at = 0;
        }
    }

    /// The unprocessed input.
    fn rest(&self) -> &[u8] {
        self.input.get(self.at..).unwrap_or_default()
    }

    /// Removes this many bytes of unprocessed input.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let end = self.input.len().min(self.at + bytes);
        if end == self.input.len() {
            self.input.drain(..self.at);
            (self.at, self.searched) = (0, 0);
            return core::mem::take(&mut self.input);
        }
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
            self.output.add(format!("{code}{mark}{line}\r\n").as_bytes());
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
            "READ" | "GET" if !name.is_empty() => self.begin(false, name, value.into(), handlers),
            "WRITE" | "SET" if !name.is_empty() => self.begin(true, name, value.into(), handlers),
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
                match handlers.find(name, write) {
                    Ok(_) => self.answer(200, &format!("{way} handler '{name}' OK")),
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

    /// Collects the data of a command; false if more is to come.
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
        if pending.purpose == Purpose::Call {
            self.llrpc(&pending.name, &data, handlers);
            return true;
        }
        let text = String::from_utf8(data);
        let text = text.unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into_owned());
        self.begin(pending.purpose == Purpose::Write, &pending.name, text, handlers);
        true
    }

    fn begin(&mut self, write: bool, name: &str, value: String, handlers: &mut impl Handlers) {
        let doing = Doing {
            write,
            name: name.into(),
            value,
            call: None,
            pieces: Pieces::default(),
            read: Output::default(),
        };
        self.go_on(doing, handlers);
    }

    /// Performs the next step of a command.
    fn go_on(&mut self, mut doing: Doing, handlers: &mut impl Handlers) {
        let Doing { write, name, value, call, pieces, read } = &mut doing;
        let call = match call {
            Some(call) => call,
            None => match handlers.find(name, *write) {
                Ok(found) => call.insert(HandlerCall { value: core::mem::take(value), ..found }),
                Err(failure) => return self.fail(&failure),
            },
        };
        let way = if *write { Handlers::write } else { Handlers::read };
        match way(handlers, name, call, pieces) {
            Ok(Progress::More) => {
                read.add_whole(core::mem::take(&mut pieces.text).into_bytes());
                self.doing = Some(doing);
            }
            Ok(Progress::Done) if *write => self.answer(200, &format!("Write handler '{name}' OK")),
            Ok(Progress::Done) => {
                read.add_whole(core::mem::take(&mut pieces.text).into_bytes());
                self.answer(200, &format!("Read handler '{name}' OK"));
                self.output.add(format!("DATA {}\r\n", read.len()).as_bytes());
                self.output.append(core::mem::take(read));
            }
            Err(failure) => self.fail(&failure),
        }
    }

    /// The call's number also encodes how many bytes are passed and returned, and whether other programs may
    /// call it at all: its data must not contain pointers.
    fn llrpc(&mut self, name: &str, data: &[u8], handlers: &mut impl Handlers) {
        let (element, number) = name.rsplit_once('#').unwrap_or((name, ""));
        let Ok(command) = u32::from_str_radix(number, 16) else {
            return self.answer(500, &format!("Syntax error in LLRPC name '{name}'"));
        };
        if let Err(failure) = handlers.find(&format!("{element}.name"), false) {
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
                self.output.add(format!("DATA {}\r\n", result.len()).as_bytes());
                self.output.add(result);
            }
            Err(failure) => self.fail(&failure),
        }
    }
}

/// The first word and the rest.
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
        fn find(&mut self, name: &str, _: bool) -> Result<HandlerCall, Failure> {
            if name != "a.b" && name != "a.name" {
                return Err(Failure::new(511, format!("No handler named '{name}'")));
            }
            Ok(HandlerCall { element: None, handler: name.into(), value: String::new() })
        }

        /// Reads in pieces of one byte.
        fn read(&mut self, _: &str, call: &HandlerCall, pieces: &mut Pieces) -> Result<Progress, Failure> {
            let all = format!("{}{}", self.0, call.value);
            let at: usize = pieces.kept();
            pieces.text.extend(all.chars().nth(at));
            Ok(if at + 1 < all.len() { pieces.keep(at + 1) } else { Progress::Done })
        }

        /// Writes in three steps.
        fn write(&mut self, _: &str, call: &HandlerCall, pieces: &mut Pieces) -> Result<Progress, Failure> {
            let done = pieces.kept::<u32>();
            if done < 2 {
                return Ok(pieces.keep(done + 1));
            }
            self.0.clone_from(&call.value);
            Ok(Progress::Done)
        }

        fn llrpc(&mut self, _: &str, _: &str, command: u32, data: &[u8]) -> Result<Vec<u8>, Failure> {
            Ok(format!("{:02x}{}", command & 0xff, data.len()).into())
        }
    }

    /// Runs a session until it is idle. Returns how often it paused for packets.
    fn run(session: &mut Session, end: bool, one: &mut One) -> usize {
        let mut stops = 0;
        session.run(end, one);
        while session.is_unfinished() {
            session.run(end, one);
            stops += 1;
        }
        stops
    }

    fn output(session: &mut Session) -> String {
        let mut all = Vec::new();
        while !session.output().is_empty() {
            all.extend_from_slice(session.output());
            session.sent(session.output().len());
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    fn talk(input: &str, bytes: usize) -> String {
        let mut session = Session::default();
        let mut one = One("x".into());
        for part in input.as_bytes().chunks(bytes) {
            session.give(part);
            run(&mut session, false, &mut one);
        }
        run(&mut session, true, &mut one);
        let text = output(&mut session).replace("\r\n", "|");
        text.strip_prefix("Click::ControlSocket/1.3|").unwrap_or_default().to_string()
    }

    #[test]
    fn sessions_are_independent_of_input_splitting() {
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
    fn llrpc_calls_state_their_data_length() {
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
    fn large_and_split_inputs_have_linear_cost() {
        // Each of these would take hours if every line moved the rest of the input, or every byte caused a
        // new search.
        let (mut session, mut one) = (Session::default(), One("x".into()));
        session.give(&vec![b'\n'; 8 << 20]);
        run(&mut session, false, &mut one);
        session.give(b"WRITEUNTIL a.b .\n");
        for _ in 0..1 << 20 {
            session.give(b"abc\n");
            session.run(false, &mut one);
        }
        session.give(b".\n");
        assert_eq!(run(&mut session, false, &mut one), 2);
        assert_eq!(one.0.len(), 4 << 20);
    }

    #[test]
    fn commands_wait_while_the_output_is_full() {
        let (mut session, mut one) = (Session::default(), One("x".into()));
        session.give(&b"read a.b\n".repeat(5000));
        let mut stops = run(&mut session, true, &mut one);
        let mut answers = 0;
        while session.is_stalled() {
            let output = output(&mut session);
            assert!(output.len() < MOST_OUTPUT + 100 && !session.is_closed());
            answers += output.matches("200 ").count();
            stops += run(&mut session, true, &mut one);
        }
        answers += output(&mut session).matches("200 ").count();
        assert!(session.is_closed() && answers == 5000);
        assert!(stops > 5000 / COMMANDS / 2, "{stops}: packets have their turn");
    }

    #[test]
    fn unfinished_commands_restart_with_a_new_router() {
        let (mut session, mut one) = (Session::default(), One("abc".into()));
        session.give(b"read a.b\nwrite a.b new\n");
        session.run(false, &mut one);
        one.0 = "xyz".into();
        session.begin_again();
        assert!(session.is_unfinished());
        // Another router has replaced the first one.
        session.begin_again();
        run(&mut session, false, &mut one);
        assert!(output(&mut session).contains("DATA 3\r\nxyz200 Write") && one.0 == "new");
    }

    #[test]
    fn invalid_and_endless_commands_are_refused() {
        assert!(talk("READDATA a.b 99999999999\n", 100).starts_with("500 "));
        assert!(talk("WRITE\n", 100).starts_with("500 "));
        assert!(talk(&"x".repeat(LONGEST_LINE + 2), 4096).starts_with("500 "));
        assert_eq!(talk("read a.b", 3), "200 Read handler 'a.b' OK|DATA 1|x");
    }
}
