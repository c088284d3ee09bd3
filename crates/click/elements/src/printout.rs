//! Files and chatter channels to which elements print lines.
use ringway_click::arg::{Filename, Word};
use ringway_click::prelude::*;

/// Bytes buffered before a write to the file.
const BUFFER: usize = 1 << 16;

/// A file, or a channel of chatter.
#[derive(Debug, Default)]
pub(crate) struct Printout {
    file: String,
    channel: String,
    buffer: Vec<u8>,
}

impl Printout {
    /// Prints to a file; `-` is standard output.
    pub(crate) fn to_file(file: String) -> Self {
        Self { file, ..Self::default() }
    }

    /// Reads `OUTFILE` and `CHANNEL`.
    pub(crate) fn read(&mut self, args: &mut Args) {
        let (mut file, mut channel) = (Filename::default(), Word::default());
        args.read("OUTFILE", &mut file);
        args.read("CHANNEL", &mut channel);
        (self.file, self.channel) = (file.0, channel.0);
    }

    fn is_file(&self) -> bool {
        !matches!(self.file.as_str(), "" | "-")
    }

    /// Checks that the file can be created here.
    pub(crate) fn check(&self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if self.is_file() { cx.check_file(&self.file) } else { Ok(()) }
    }

    /// Creates the file.
    pub(crate) fn create(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if !self.is_file() {
            return Ok(());
        }
        cx.console().write_file(&self.file, b"", false).map_err(|error| cx.error(error))
    }

    /// Prints a line.
    pub(crate) fn print(&mut self, line: &str, cx: &mut Context<'_>) {
        if self.file.is_empty() {
            cx.chatter_on(&self.channel, format_args!("{line}"));
            return;
        }
        self.buffer.extend_from_slice(line.as_bytes());
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER {
            self.flush(cx);
        }
    }

    /// Writes the buffered bytes to the file.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) {
        let buffer = core::mem::take(&mut self.buffer);
        if self.file == "-" {
            cx.output(&buffer);
        } else if !buffer.is_empty()
            && let Err(error) = cx.console().write_file(&self.file, &buffer, true)
        {
            cx.chatter(format_args!("{error}"));
        }
    }

    /// The resource shared with other elements: all elements that print to a channel run on one thread.
    pub(crate) fn shares(&self) -> Option<String> {
        (!self.channel.is_empty()).then(|| format!("chatter channel {}", self.channel))
    }
}
