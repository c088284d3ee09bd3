//! Tests of functions: a configuration, the frames that its ports receive, and those it must send, in one file.
//!
//! The function runs in simulated time with the bursts of a real one, so that a test gives the same result each time.
//! docs/functions.md describes the file.
mod file;
pub(crate) mod frames;
pub(crate) mod ports;

pub use crate::click::Complaint;

use crate::click::{Configuration, Host, Recorder, check, complaints, function_registry};
use crate::inherited::{self, Inherited};
use file::{Section, Text, sections};
use frames::{Frame, Frames, seconds, to_capture};
use ports::{Sink, Source};
use ringway_click::{Clock, Options, PACKETS, Router, SECOND, SIMULATION_START, Turn};
use ringway_click_lang::Source as Configured;
use ringway_host::read_argument;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Largest test file or configuration, in bytes.
const LARGEST: usize = 16 << 20;
/// Precision of the times of frames that were sent.
const MICROSECOND: u64 = 1000;
/// Time after the last frame.
const AFTER: u64 = SECOND;
/// Attack: a configuration that is always busy, so that simulated time hardly passes. Largest number of turns.
const TURNS: usize = 1 << 13;

/// What a successful test did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Frames that the ports received.
    pub received: usize,
    /// Frames that the function sent.
    pub sent: usize,
    /// Compared values of handlers.
    pub handlers: usize,
}

/// Runs a test file. With `write`, what the function sent and the values of handlers replace the expected ones.
///
/// # Errors
/// The errors of the file and of its configuration, or all differences from the expected result.
pub fn run(path: &Path, write: bool) -> Result<Passed, Vec<Complaint>> {
    let name = path.display().to_string();
    let text = read(path)
        .map_err(|error| vec![Complaint { file: name.clone(), line: 1, column: 1, what: error }])?;
    let sections = sections(&name, &text)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let test = Test::of(sections, folder, write)?;
    let mut ran = test.run()?;
    if write {
        test.write(path, &text, folder, &mut ran)?;
        return Ok(ran.passed());
    }
    let wrong = test.compare(&ran);
    if wrong.is_empty() { Ok(ran.passed()) } else { Err(wrong) }
}

fn read(path: &Path) -> Result<String, String> {
    let bytes = read_argument(path, LARGEST).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

struct Test {
    sections: Vec<Section>,
    /// The configuration, and the line of its heading if it is in the test file.
    configuration: Text,
    heading: usize,
    ports: Vec<String>,
    devices: Vec<(String, String)>,
    parameters: Vec<(String, String)>,
    /// Frames to receive, by port.
    received: BTreeMap<String, Vec<Frame>>,
    /// Expected frames, by the index of the section.
    expected: BTreeMap<usize, Frames>,
    /// When the test ends.
    end: u64,
}

/// What happened.
#[derive(Default)]
struct Ran {
    received: usize,
    /// Frames sent, by port; times begin at 0.
    sent: BTreeMap<String, Vec<Frame>>,
    /// The value of each line of `handlers`, or why it could not be read.
    handlers: Vec<Result<String, String>>,
    chatter: String,
}

impl Ran {
    fn passed(&self) -> Passed {
        let sent = self.sent.values().map(Vec::len).sum();
        Passed { received: self.received, sent, handlers: self.handlers.len() }
    }
}

impl Test {
    /// Reads the sections.
    fn of(sections: Vec<Section>, folder: &Path, write: bool) -> Result<Self, Vec<Complaint>> {
        let one = |wrong: Complaint| vec![wrong];
        let find = |name: &str| sections.iter().find(|section| section.name == name);
        let pairs = |name: &str| find(name).map_or(Ok(Vec::new()), Section::pairs);
        let Some(own) = find("configuration") else { return Err(Vec::new()) };
        let configuration = match own.arguments.first() {
            None => own.body.clone(),
            Some(file) => {
                let path = folder.join(file);
                let text = read(&path);
                let text = text.map_err(|error| one(own.wrong(format!("{}: {error}", path.display()))))?;
                Text { file: path.display().to_string(), first: 1, text }
            }
        };
        let mut ports: BTreeSet<String> = BTreeSet::new();
        let listed = find("ports").map_or("", |section| section.body.text.as_str());
        ports.extend(listed.split_whitespace().map(String::from));
        let (devices, parameters) = (pairs("devices").map_err(one)?, pairs("parameters").map_err(one)?);
        ports.extend(devices.iter().map(|(_, port)| port.clone()));
        let (mut received, mut expected) = (BTreeMap::<String, Vec<Frame>>::new(), BTreeMap::new());
        let mut time = 0;
        for (index, section) in sections.iter().enumerate() {
            let Some(port) =
                section.arguments.first().filter(|_| matches!(&*section.name, "input" | "output"))
            else {
                continue;
            };
            ports.insert(port.clone());
            let frames = match Frames::of(section, folder) {
                // A missing capture is created.
                Err(_) if write && section.name == "output" => Frames::Capture(Vec::new()),
                frames => frames.map_err(one)?,
            };
            if section.name == "output" {
                expected.insert(index, frames);
            } else {
                received.entry(port.clone()).or_default().extend(frames.read(&mut time).map_err(one)?);
            }
        }
        let last = received.values().flatten().map(|frame| frame.time).max().unwrap_or(0);
        let end = match find("time") {
            None => last + AFTER,
            Some(section) => {
                let time = section.arguments.first().and_then(|time| seconds(time));
                time.ok_or_else(|| one(section.wrong("write `--- time SECONDS`")))?
            }
        };
        let (heading, ports) = (own.line, ports.into_iter().collect());
        Ok(Self { configuration, heading, ports, devices, parameters, received, expected, end, sections })
    }

    /// The configuration's text, with a line directive so that errors have positions in the test file.
    fn directed(&self) -> String {
        let Text { file, first, text } = &self.configuration;
        format!("# {first} {}\n{text}", ringway_click_lang::config::quote_lines(file.as_bytes()))
    }

    /// Complaints about the configuration; those without a position in it are at its heading.
    fn placed(&self, mut complaints: Vec<Complaint>) -> Vec<Complaint> {
        let Text { file, first, .. } = &self.configuration;
        for complaint in &mut complaints {
            if complaint.file.is_empty() || (complaint.file == *file && complaint.line < *first) {
                (complaint.file, complaint.line, complaint.column) = (file.clone(), self.heading.max(1), 1);
            }
        }
        complaints
    }

    /// Checks, builds and runs the configuration.
    fn run(&self) -> Result<Ran, Vec<Complaint>> {
        let text = self.directed();
        let file = &self.configuration.file;
        let Self { ports, devices, parameters, .. } = self;
        let configuration = Configuration { text: &text, file, parameters, ports, devices, resident: false };
        let wrong = check(configuration);
        if !wrong.is_empty() {
            return Err(self.placed(wrong));
        }
        let mut registry = function_registry();
        registry.add(&ports::CLASSES.each_ref());
        registry.add(&ports::DEVICES.each_ref());
        let source = Configured { variables: parameters, ..Configured::new(&text, file) };
        let parsed = source.read(&mut Host::new(&registry));
        let console = Recorder::default();
        let options = Options::simulated(PACKETS, console.clone(), &text);
        let known = inherited::set(Some(Inherited {
            ports: ports.clone(),
            devices: devices.clone(),
            ..Inherited::default()
        }));
        let built = Router::build(parsed.graph, &registry, options);
        inherited::set(known);
        let mut router = built.map_err(|error| self.placed(complaints(&error.diagnostics)))?;
        self.load(&mut router);
        let ended = self.drive(&mut router);
        let mut ran = self.collect(&mut router);
        ran.chatter = console.chatter();
        ended.map(|()| ran).map_err(|wrong| self.placed(vec![wrong]))
    }

    /// Schedules the frames of each port.
    fn load(&self, router: &mut Router) {
        for id in router.ids() {
            router.with::<Source, _>(id, |source, cx| {
                let mut frames = self.received.get(&source.port).cloned().unwrap_or_default();
                frames.iter_mut().for_each(|frame| frame.time += SIMULATION_START);
                frames.sort_by_key(|frame| frame.time);
                source.load(frames.into(), cx);
            });
        }
    }

    fn drive(&self, router: &mut Router) -> Result<(), Complaint> {
        let end = SIMULATION_START + self.end;
        for _ in 0..TURNS {
            let is_over = matches!(router.clock(), Clock::Simulated(now) if *now > end);
            if is_over || matches!(router.turn(), Turn::Stopped | Turn::Idle) {
                return Ok(());
            }
        }
        let what = format!("still busy after {TURNS} turns; shorten the test with `--- time SECONDS`");
        Err(Complaint { file: String::new(), line: 0, column: 0, what })
    }

    /// What the function sent, and its handlers' values.
    fn collect(&self, router: &mut Router) -> Ran {
        let received = self.received.values().map(Vec::len).sum();
        let mut ran = Ran { received, ..Ran::default() };
        for id in router.ids() {
            router.with::<Sink, _>(id, |sink, _| {
                let mut sent = std::mem::take(&mut sink.sent);
                // A simulation's clock advances by a nanosecond with each query.
                for frame in &mut sent {
                    frame.time = frame.time.saturating_sub(SIMULATION_START) / MICROSECOND * MICROSECOND;
                }
                ran.sent.entry(sink.port.clone()).or_default().extend(sent);
            });
        }
        for (_, _, handler, _) in self.handlers() {
            let value = router.read(handler).map(|value| value.trim_end().replace('\n', "\\n"));
            ran.handlers.push(value.map_err(|error| error.to_string()));
        }
        ran
    }

    fn find(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// The lines of `handlers`: line, column of the value, handler, value.
    fn handlers(&self) -> impl Iterator<Item = (usize, usize, &str, &str)> {
        let lines = self.find("handlers").into_iter().flat_map(|section| section.body.lines());
        lines.map(|(line, text)| {
            let (handler, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
            let value = rest.trim();
            (line, text.len() - rest.trim_start().len() + 1, handler, value)
        })
    }

    /// All differences from the expected result.
    fn compare(&self, ran: &Ran) -> Vec<Complaint> {
        let mut wrong = Vec::new();
        let mut ports: BTreeSet<&str> = BTreeSet::new();
        for (index, expected) in &self.expected {
            let section = &self.sections[*index];
            let Some(port) = section.arguments.first() else { continue };
            ports.insert(port);
            wrong.extend(expected.compare(section, ran.sent.get(port).map_or(&[], |sent| sent)));
        }
        for (port, sent) in
            ran.sent.iter().filter(|(port, sent)| !sent.is_empty() && !ports.contains(&***port))
        {
            let what = format!(
                "{} frames were sent to port {port}; add the heading `--- output {port}`",
                sent.len()
            );
            wrong.push(self.sections[0].body.complaint(1, 1, what));
        }
        for ((line, column, handler, expected), value) in self.handlers().zip(&ran.handlers) {
            let what = match value {
                Ok(value) if value == expected => continue,
                Ok(value) => format!("{handler} is {value}, not {expected}"),
                Err(error) => error.clone(),
            };
            wrong.push(self.sections[0].body.complaint(line, column, what));
        }
        wrong.extend(self.find("chatter").and_then(|section| compare_chatter(section, &ran.chatter)));
        wrong
    }

    /// Writes the result into the test file and the captures that it names.
    fn write(&self, path: &Path, text: &str, folder: &Path, ran: &mut Ran) -> Result<(), Vec<Complaint>> {
        let failed = |section: &Section, error: std::io::Error| vec![section.wrong(error.to_string())];
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let before = self.sections.first().map_or(0, |section| section.line - 1);
        let mut new = lines[..before].concat();
        for section in &self.sections {
            let body = &section.body;
            new.push_str(lines[section.line - 1]);
            let sent =
                || section.arguments.first().and_then(|port| ran.sent.get(port)).map_or(&[][..], |sent| sent);
            match (&*section.name, section.arguments.get(1)) {
                ("output", Some(file)) => {
                    let file = folder.join(file);
                    let frames = match read(&file) {
                        Ok(text) => {
                            Frames::rewritten(&Text { text, ..body.clone() }, sent()).map(String::into_bytes)
                        }
                        Err(_) => Ok(to_capture(sent())),
                    };
                    let frames = frames.map_err(|wrong| vec![wrong])?;
                    std::fs::write(file, frames).map_err(|error| failed(section, error))?;
                    new.push_str(&body.text);
                }
                ("output", None) => {
                    new.push_str(&Frames::rewritten(body, sent()).map_err(|wrong| vec![wrong])?);
                }
                ("handlers", _) => new.push_str(&self.rewritten_handlers(section, ran)?),
                ("chatter", _) => new.push_str(&ran.chatter),
                _ => new.push_str(&body.text),
            }
        }
        std::fs::write(path, new).map_err(|error| failed(&self.sections[0], error))
    }

    /// The section with the values that were read.
    fn rewritten_handlers(&self, section: &Section, ran: &Ran) -> Result<String, Vec<Complaint>> {
        let mut lines: Vec<String> = section.body.text.lines().map(|line| format!("{line}\n")).collect();
        for ((line, column, handler, _), value) in self.handlers().zip(&ran.handlers) {
            let value = value.as_ref().map_err(|error| vec![section.body.complaint(line, column, error)])?;
            lines[line - section.body.first] = format!("{handler} {value}\n");
        }
        Ok(lines.concat())
    }
}

/// The first difference of what elements printed.
fn compare_chatter(section: &Section, chatter: &str) -> Option<Complaint> {
    let mut lines = chatter.lines();
    for (line, expected) in section.body.lines() {
        let printed = lines.next().unwrap_or("nothing");
        if printed != expected {
            return Some(section.body.complaint(line, 1, format!("printed was {printed}")));
        }
    }
    lines.next().map(|more| section.wrong(format!("printed was also {more}")))
}
