//! Files that elements read and write.
use ringway_click::Context;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Cursor, Read, Write};

/// Attack: a file without an end of line, which would be read into memory whole. Largest length of a line in
/// bytes.
const LONGEST_LINE: u64 = 1 << 20;

/// Largest size in bytes of a configuration or library file: an archive contains other files, too.
pub const CONFIGURATION: usize = 64 << 20;

/// A file, standard input, or a text.
pub struct Input {
    /// Its name.
    pub name: String,
    reader: Box<dyn BufRead>,
    /// Lines or records read so far.
    pub line: u64,
    /// Bytes read so far.
    pub position: u64,
    /// Its size, if known.
    pub size: Option<u64>,
}

impl Input {
    /// Opens a file; `-` is standard input.
    ///
    /// # Errors
    /// The operating system's, or the file is compressed.
    pub fn open(path: &str) -> io::Result<Self> {
        if path == "-" {
            return Ok(Self::new("<stdin>", Box::new(BufReader::new(io::stdin())), None));
        }
        let file = File::open(path)?;
        let size = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|about| about.len());
        let mut reader = BufReader::new(file);
        if size.is_some() && is_compressed(reader.fill_buf()?) {
            return Err(io::Error::other(
                "compressed; unpack it first, or read '-' behind a program that does",
            ));
        }
        Ok(Self::new(path, Box::new(reader), size))
    }

    /// Reads from a text.
    pub fn text(text: Vec<u8>) -> Self {
        let size = text.len() as u64;
        Self::new("DATA", Box::new(Cursor::new(text)), Some(size))
    }

    fn new(name: &str, reader: Box<dyn BufRead>, size: Option<u64>) -> Self {
        Self { name: name.into(), reader, line: 0, position: 0, size }
    }

    /// Reads a line into `line`, without its end; false at the end of the file.
    ///
    /// # Errors
    /// The operating system's, or a line longer than any.
    pub fn read_line(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        line.clear();
        let read = self.reader.by_ref().take(LONGEST_LINE).read_until(b'\n', line)?;
        if read as u64 == LONGEST_LINE {
            return Err(io::Error::other(format!("line longer than {LONGEST_LINE} bytes")));
        }
        self.position += read as u64;
        self.line += 1;
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(read > 0)
    }

    /// Reads exactly `bytes` into `data`; false if the file ends before.
    ///
    /// # Errors
    /// The operating system's.
    pub fn read_bytes(&mut self, bytes: usize, data: &mut Vec<u8>) -> io::Result<bool> {
        data.clear();
        let read = self.reader.by_ref().take(bytes as u64).read_to_end(data)?;
        self.position += read as u64;
        Ok(read == bytes)
    }
}

/// A file, or standard output.
pub enum Output {
    /// A file.
    File(BufWriter<File>),
    /// Standard output, by way of the router's console.
    Console,
}

impl Output {
    /// Creates or truncates a file; `-` is standard output.
    ///
    /// # Errors
    /// The operating system's.
    pub fn create(path: &str) -> io::Result<Self> {
        if path == "-" { Ok(Self::Console) } else { Ok(Self::File(BufWriter::new(File::create(path)?))) }
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// The operating system's.
    pub fn write(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all(bytes),
            Self::Console => {
                cx.output(bytes);
                Ok(())
            }
        }
    }

    /// Writes buffered data to the operating system.
    ///
    /// # Errors
    /// The operating system's.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Console => Ok(()),
        }
    }
}

/// Whether a file begins like those of gzip, compress, bzip2, xz and zstd.
fn is_compressed(start: &[u8]) -> bool {
    let marks: [&[u8]; 5] = [b"\x1f\x8b", b"\x1f\x9d", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"];
    marks.iter().any(|mark| start.starts_with(mark))
}

/// The operating system's text of an error, without its number.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_files_are_refused_by_their_magic_number() {
        let path = std::env::temp_dir().join(format!("ringway-compressed-{}", std::process::id()));
        for (bytes, compressed) in
            [(&b"\x1f\x8b\x08"[..], true), (b"BZh9", true), (b"!data src", false), (b"", false)]
        {
            std::fs::write(&path, bytes).unwrap();
            let opened = Input::open(path.to_str().unwrap());
            assert_eq!(
                opened.err().is_some_and(|error| error.to_string().starts_with("compressed")),
                compressed
            );
        }
        std::fs::remove_file(&path).unwrap();
    }
}
