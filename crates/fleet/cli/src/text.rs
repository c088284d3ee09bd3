//! Output: aligned columns, with colours on a terminal, for people; JSON for programs.

use crate::command_error::CommandError;
use anstyle::{AnsiColor, Style};
use ringway_spec::{printable, printable_json, printable_lines};
use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, Write};
use std::panic::resume_unwind;
use std::time::Duration;

/// Headings.
pub const HEAD: Style = Style::new().bold();
/// Good states.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Transient states, and states that need attention.
pub const FAIR: Style = AnsiColor::Yellow.on_default();
/// Errors.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Text without colour.
pub const PLAIN: Style = Style::new();

/// What unwinds the program when nobody reads its output any more, as with `ringway ps | head -1`: what it holds is
/// given back, and nothing is said.
pub struct ClosedOutput;

/// Prints to standard output, for the crate's `print!` and `println!`.
pub fn print(arguments: std::fmt::Arguments<'_>) {
    ended_with(anstream::stdout().write_fmt(arguments));
}

fn ended_with(written: std::io::Result<()>) {
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => resume_unwind(Box::new(ClosedOutput)),
        // A full disk: the program can't do what it was started for.
        Err(error) => {
            anstream::eprintln!("{BAD}error:{BAD:#} standard output: {error}");
            resume_unwind(Box::new(ClosedOutput));
        }
    }
}

/// Prints JSON on a separate line.
pub fn json<T: serde::Serialize>(value: &T) {
    println!("{}", to_json(value));
}

/// Prints to standard error.
pub fn complain(arguments: std::fmt::Arguments<'_>) {
    anstream::eprint!("{}", printable_lines(&arguments.to_string()));
}

/// One line of JSON, without characters that a terminal would obey.
pub fn to_json<T: serde::Serialize>(value: &T) -> String {
    // Serialization fails only for maps whose keys are not strings.
    let json = serde_json::to_string(value);
    let json = json.unwrap_or_else(|error| format!("{{\"error\":{:?}}}", error.to_string()));
    match printable_json(&json) {
        Cow::Borrowed(_) => json,
        Cow::Owned(escaped) => escaped,
    }
}

/// Prints what passed between two samples, `interval` seconds apart, `count` times or without end; on a terminal each
/// time in the place of the former one.
pub fn watch<S, R: serde::Serialize>(
    json: bool,
    (interval, count): (f64, Option<u64>),
    mut sample: impl FnMut() -> Result<S, CommandError>,
    between: impl Fn(&S, &S) -> R,
    table: impl Fn(&R) -> Table,
) -> Result<(), CommandError> {
    let repaint = std::io::stdout().is_terminal() && !json;
    let mut last = sample()?;
    let mut printed = 0;
    while count.is_none_or(|count| printed < count) {
        std::thread::sleep(Duration::from_secs_f64(interval));
        let now = sample()?;
        let passed = between(&last, &now);
        let lines = if json {
            to_json(&passed)
        } else if repaint {
            // Cursor home, clear the screen, then the table.
            format!("\x1b[H\x1b[2J{}every {interval} s; Ctrl-C ends it", table(&passed).render(None))
        } else {
            table(&passed).render(None)
        };
        if writeln!(anstream::stdout(), "{lines}").is_err() {
            // The reader closed the pipe.
            return Ok(());
        }
        last = now;
        printed += 1;
    }
    Ok(())
}

/// Prints a remark to standard error.
pub fn note(what: &str) {
    anstream::eprintln!("{}", printable_lines(what));
}

/// Prints a warning to standard error.
pub fn warn(what: &str) {
    anstream::eprintln!("{FAIR}warning:{FAIR:#} {}", printable_lines(what));
}

/// Prints what a guest or a function wrote: as it is, unless a terminal would obey it.
pub fn foreign(text: &str) {
    match std::io::stdout().is_terminal() {
        true => print!("{}", printable_lines(text)),
        false => ended_with(std::io::stdout().write_all(text.as_bytes())),
    }
}

/// Smallest width of the last column, even on a narrower terminal.
const MIN_LAST_WIDTH: usize = 24;

/// Columns of text.
pub struct Table {
    heads: Vec<&'static str>,
    /// Whether each column has numbers, which are aligned right.
    numbers: Vec<bool>,
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    /// Creates a table with these columns; `>` before a name marks a column of numbers.
    pub fn new(heads: &[&'static str]) -> Table {
        Table {
            heads: heads.iter().map(|head| head.trim_start_matches('>')).collect(),
            numbers: heads.iter().map(|head| head.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<(String, Style)>) {
        self.rows.push(cells);
    }

    /// Renders the table, one line per row, with escape codes for colours. If a row would be longer than `limit`, its
    /// last column is wrapped.
    pub fn render(&self, limit: Option<usize>) -> String {
        let width = |column: usize| {
            let cells =
                self.rows.iter().filter_map(|row| row.get(column)).map(|(cell, _)| cell.chars().count());
            cells.chain([self.heads[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let heads = self.heads.iter().map(|head| (head.to_string(), HEAD)).collect();
        let before: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
        let room = limit.map_or(usize::MAX, |limit| limit.saturating_sub(before).max(MIN_LAST_WIDTH));
        let mut out = String::new();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let Some(((last, style), first)) = row.split_last() else { continue };
            let mut row = first.to_vec();
            for part in wrapped(last, room) {
                row.push((part, *style));
                self.line(&row, &widths, &mut out);
                row = vec![cell(""); first.len()];
            }
        }
        out
    }

    fn line(&self, row: &[(String, Style)], widths: &[usize], out: &mut String) {
        let mut line = String::new();
        let mut owed = 0;
        for (column, (cell, style)) in row.iter().enumerate() {
            let pad = widths[column].saturating_sub(cell.chars().count());
            let (left, right) = if self.numbers[column] { (pad, 0) } else { (0, pad) };
            // No trailing spaces.
            if !cell.is_empty() {
                line.push_str(&" ".repeat(owed + left));
                line.push_str(&format!("{style}{cell}{style:#}"));
                owed = 0;
            } else {
                owed += left;
            }
            owed += right + 2;
        }
        out.push_str(&line);
        out.push('\n');
    }

    /// Prints it.
    pub fn print(&self) {
        print!("{}", self.fitting());
    }

    /// Prints its rows without the headings, to continue a table printed earlier.
    pub fn print_rows(&self) {
        let text = self.fitting();
        print!("{}", text.split_once('\n').map_or("", |(_, rows)| rows));
    }

    /// Renders the table for the width of the terminal.
    fn fitting(&self) -> String {
        let size = rustix::termios::tcgetwinsize(std::io::stdout());
        let limit = size.ok().map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0);
        self.render(limit)
    }
}

/// Wraps a text at spaces into lines of at most `room` characters; a longer word has a separate line.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// A time in nanoseconds since 1970 as RFC 3339 writes it, in seconds.
pub fn date(time: u64) -> String {
    let time = jiff::Timestamp::from_nanosecond(time.into()).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A cell without colour.
pub fn cell(text: impl ToString) -> (String, Style) {
    (printable(&text.to_string()).into_owned(), PLAIN)
}

/// The colour of a state.
pub fn state(state: &str) -> (String, Style) {
    let style = match state {
        "up" | "running" => GOOD,
        "waiting" | "attached" | "queued" | "starting" | "stopping" | "suspended" => FAIR,
        "ended" | "down" => BAD,
        _ => PLAIN,
    };
    (printable(state).into_owned(), style)
}

/// A rate or count with about three digits: `950`, `12.3k`, `1.25M`.
pub fn short(value: f64) -> String {
    for (factor, unit) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= factor {
            let scaled = value / factor;
            let digits = if scaled >= 100.0 {
                0
            } else if scaled >= 10.0 {
                1
            } else {
                2
            };
            return format!("{scaled:.digits$}{unit}");
        }
    }
    format!("{value:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_without_trailing_spaces() {
        let mut table = Table::new(&["NAME", ">FRAMES", "NOTE"]);
        table.row(vec![cell("a"), cell(5), cell("")]);
        table.row(vec![cell("longer"), cell(12_345), cell("full")]);
        let plain = anstream::adapter::strip_str(&table.render(None)).to_string();
        assert_eq!(plain, "NAME    FRAMES  NOTE\na            5\nlonger   12345  full\n");
    }

    #[test]
    fn cells_have_no_escape_sequences_of_others() {
        let mut table = Table::new(&["NAME", "REASON"]);
        table.row(vec![cell("a\u{202e}b"), cell("bad\u{1b}[2J\nup  all is well")]);
        table.row(vec![cell("b"), state("\u{1b}]0;x\u{7}")]);
        let plain = anstream::adapter::strip_str(&table.render(None)).to_string();
        let lines = ["NAME        REASON", "a\\u{202e}b  bad\\u{1b}[2J\\nup  all is well"];
        assert_eq!(plain.lines().take(2).collect::<Vec<_>>(), lines);
        assert!(plain.ends_with("b           \\u{1b}]0;x\\u{7}\n"), "{plain}");
    }

    #[test]
    fn the_last_column_wraps_at_the_terminal_width() {
        let mut table = Table::new(&["NAME", "NOTE"]);
        table.row(vec![cell("a"), cell("packed in-order mrg-rxbuf csum guest-tso4")]);
        let plain = anstream::adapter::strip_str(&table.render(Some(32))).to_string();
        assert_eq!(plain, "NAME  NOTE\na     packed in-order mrg-rxbuf\n      csum guest-tso4\n");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 950.0, 12_345.0, 1.25e6, 123e9].map(short), ["0", "950", "12.3k", "1.25M", "123G"]);
    }
}
