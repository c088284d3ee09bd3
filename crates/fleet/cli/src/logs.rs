//! Logs: that of a fabric, and those of its guests, hosts, functions and programs.

use crate::arguments::{LogOptions, Target};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::object_kind::{FUNCTION, GUEST, HOST, ObjectKind, PROGRAM};
use crate::text;
use ringway_control::api::{FabricView, FunctionView, GuestView, HostView, ProgramView};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;
use std::time::Duration;

/// Longest line. Attack: a program that never ends its line.
const MAX_LINE_LEN: usize = 64 << 10;
/// Time between two looks at a log that grows.
const PAUSE: Duration = Duration::from_millis(100);

/// Prints the fabric's log.
pub fn fabric(target: &Target, json: bool, logs: &LogOptions) -> Result<(), CommandError> {
    let fabric: FabricView = Client::connect(target)?.get("/v1/fabric")?;
    print(own_log(&fabric)?, &fabric, json, logs, |_| true)
}

/// Prints the lines of the fabric's log that are about a function.
pub fn function(target: &Target, json: bool, name: &str, logs: &LogOptions) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    let all: Vec<FunctionView> = client.get(FUNCTION.all)?;
    all.iter().find(|function| function.name == name).ok_or_else(|| FUNCTION.unknown(name))?;
    let fabric: FabricView = client.get("/v1/fabric")?;
    let marks = [format!("function=\"{name}\""), format!("\"function\":\"{name}\"")];
    print(own_log(&fabric)?, &fabric, json, logs, |line| marks.iter().any(|mark| line.contains(mark)))
}

/// Prints what a guest's console has said.
pub fn guest(target: &Target, json: bool, name: &str, logs: &LogOptions) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    let all: Vec<GuestView> = client.get(GUEST.all)?;
    let found = all.into_iter().find(|guest| guest.name == name).ok_or_else(|| GUEST.unknown(name))?;
    of_file(&mut client, (&GUEST, name), &found.console, json, logs)
}

/// Prints what a host's programs have written.
pub fn host(target: &Target, json: bool, name: &str, logs: &LogOptions) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    let all: Vec<HostView> = client.get(HOST.all)?;
    let found = all.into_iter().find(|host| host.name == name).ok_or_else(|| HOST.unknown(name))?;
    of_file(&mut client, (&HOST, name), &found.output, json, logs)
}

/// Prints what a program has written.
pub fn program(target: &Target, json: bool, name: &str, logs: &LogOptions) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    let all: Vec<ProgramView> = client.get(PROGRAM.all)?;
    let found = all.into_iter().find(|program| program.name == name).ok_or_else(|| PROGRAM.unknown(name))?;
    of_file(&mut client, (&PROGRAM, name), &found.output, json, logs)
}

fn of_file(
    client: &mut Client,
    (kind, name): (&ObjectKind, &str),
    path: &str,
    json: bool,
    logs: &LogOptions,
) -> Result<(), CommandError> {
    let fabric: FabricView = client.get("/v1/fabric")?;
    let file = match File::open(path) {
        Err(error) if path.is_empty() || error.kind() == io::ErrorKind::NotFound => {
            return Err(CommandError::Failed(format!("{} {name} has not written anything yet", kind.word)));
        }
        opened => opened.map_err(|error| CommandError::Failed(format!("{path}: {error}")))?,
    };
    print(file, &fabric, json, logs, |_| true)
}

/// The file that the fabric's control process logs to.
fn own_log(fabric: &FabricView) -> Result<File, CommandError> {
    let path = format!("/proc/{}/fd/2", fabric.pid);
    let failed = |error| CommandError::Failed(format!("the log of fabric {}: {error}", fabric.name));
    if !std::fs::metadata(&path).map_err(failed)?.is_file() {
        let what =
            format!("fabric {} logs to the terminal or the program that it was started in", fabric.name);
        return Err(CommandError::Failed(format!("{what}; `ringway up FILE --detach` writes a file")));
    }
    File::open(&path).map_err(failed)
}

/// Prints the wanted lines of a log.
fn print(
    file: File,
    fabric: &FabricView,
    json: bool,
    logs: &LogOptions,
    wanted: impl Fn(&str) -> bool,
) -> Result<(), CommandError> {
    let control = format!("/proc/{}", fabric.pid);
    let show = |line: &String| if json { text::json(line) } else { text::foreign(&format!("{line}\n")) };
    let mut log = Lines::new(file);
    let mut next = move || -> Result<Option<String>, CommandError> {
        loop {
            match log.next().map_err(CommandError::because)? {
                Some(line) if !wanted(&line) => {}
                found => return Ok(found),
            }
        }
    };
    let mut last = VecDeque::new();
    while let Some(line) = next()? {
        match logs.lines {
            None => show(&line),
            Some(most) => {
                last.push_back(line);
                last.drain(..last.len().saturating_sub(most));
            }
        }
    }
    last.iter().for_each(show);
    let mut goes_on = logs.follow;
    while goes_on {
        // What it wrote before it ended is read once more.
        goes_on = Path::new(&control).exists();
        while let Some(line) = next()? {
            show(&line);
        }
        std::thread::sleep(if goes_on { PAUSE } else { Duration::ZERO });
    }
    Ok(())
}

/// The lines of a file that may grow, and begin anew.
struct Lines {
    file: BufReader<File>,
    /// The part of a line whose end is not there yet.
    begun: Vec<u8>,
}

impl Lines {
    fn new(file: File) -> Lines {
        Lines { file: BufReader::new(file), begun: Vec::new() }
    }

    /// The next line, without its end; `None` if it is not there yet.
    fn next(&mut self) -> io::Result<Option<String>> {
        loop {
            let room = MAX_LINE_LEN.saturating_sub(self.begun.len()) as u64;
            let read = self.file.by_ref().take(room).read_until(b'\n', &mut self.begun)?;
            if self.begun.ends_with(b"\n") || self.begun.len() >= MAX_LINE_LEN {
                let line = String::from_utf8_lossy(&self.begun).trim_end_matches(['\r', '\n']).to_string();
                self.begun.clear();
                return Ok(Some(line));
            }
            if read == 0 {
                // A guest that starts again empties the file.
                if self.file.get_ref().metadata()?.len() >= self.file.stream_position()? {
                    return Ok(None);
                }
                self.file.rewind()?;
                self.begun.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_log_that_grows_and_begins_anew_is_read_by_lines() {
        let path = std::env::temp_dir().join(format!("ringway-logs-{}", std::process::id()));
        let mut out = File::create(&path).unwrap();
        let mut lines = Lines::new(File::open(&path).unwrap());
        let mut next = || lines.next().unwrap();
        assert_eq!(next(), None);
        out.write_all(b"one\r\ntwo").unwrap();
        assert_eq!((next(), next()), (Some("one".into()), None));
        out.write_all(b" and more\n\n").unwrap();
        assert_eq!([next(), next(), next()], [Some("two and more".into()), Some(String::new()), None]);
        let long = vec![b'x'; MAX_LINE_LEN + 1];
        out.write_all(&long).unwrap();
        assert_eq!(next().map(|line| line.len()), Some(MAX_LINE_LEN));
        assert_eq!(next(), None);
        let mut anew = File::create(&path).unwrap();
        anew.write_all(b"again\n").unwrap();
        assert_eq!((next(), next()), (Some("again".into()), None));
        std::fs::remove_file(&path).unwrap();
    }
}
