//! Files that elements read and write.
use ringway_click::{Context, Element, Failed, Handler};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Cursor, Read, Seek, SeekFrom, Stdin, Write};

/// Attack: a file without an end of line, which would be read into memory whole. Largest length of a line in
/// bytes.
const LONGEST_LINE: u64 = 1 << 20;

/// Largest size in bytes of a configuration or library file: an archive contains other files, too.
pub const CONFIGURATION: usize = 64 << 20;

/// Bytes to read.
enum Reader {
    File(BufReader<File>),
    Stdin(BufReader<Stdin>),
    Text(Cursor<Vec<u8>>),
}

impl Reader {
    fn bytes(&mut self) -> &mut dyn BufRead {
        match self {
            Self::File(file) => file,
            Self::Stdin(stdin) => stdin,
            Self::Text(text) => text,
        }
    }
}

/// A file, standard input, or a text.
pub struct Input {
    /// Its name.
    pub name: String,
    reader: Reader,
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
            return Ok(Self::new("<stdin>", Reader::Stdin(BufReader::new(io::stdin())), None));
        }
        let file = File::open(path)?;
        let size = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|about| about.len());
        let mut reader = BufReader::new(file);
        if size.is_some() && is_compressed(reader.fill_buf()?) {
            return Err(io::Error::other(
                "compressed; decompress it first, or read '-' from a program that does",
            ));
        }
        Ok(Self::new(path, Reader::File(reader), size))
    }

    /// Reads from a text.
    pub fn text(text: Vec<u8>) -> Self {
        let size = text.len() as u64;
        Self::new("DATA", Reader::Text(Cursor::new(text)), Some(size))
    }

    fn new(name: &str, reader: Reader, size: Option<u64>) -> Self {
        Self { name: name.into(), reader, line: 0, position: 0, size }
    }

    /// Reads a line into `line`, without its end; false at the end of the file.
    ///
    /// # Errors
    /// The operating system's, or a line longer than any.
    pub fn read_line(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        line.clear();
        let read = self.reader.bytes().take(LONGEST_LINE).read_until(b'\n', line)?;
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
        let read = self.reader.bytes().take(bytes as u64).read_to_end(data)?;
        self.position += read as u64;
        Ok(read == bytes)
    }

    /// Continues at this position in bytes.
    ///
    /// # Errors
    /// The operating system's; standard input has no positions.
    pub fn seek(&mut self, position: u64) -> io::Result<()> {
        self.position = match &mut self.reader {
            Reader::File(file) => file.seek(SeekFrom::Start(position))?,
            Reader::Text(text) => text.seek(SeekFrom::Start(position))?,
            Reader::Stdin(_) => return Err(io::ErrorKind::NotSeekable.into()),
        };
        Ok(())
    }

    /// The handlers `filename`, `filesize` and `filepos` of an element that reads `file`, given as its path and the
    /// open file.
    pub fn handlers<E: Element>(file: impl Fn(&E) -> (&str, Option<&Self>) + Copy + 'static) -> [Handler; 3] {
        let size = |input: &Self| input.size.map(|size| size.to_string());
        [
            Handler::read("filename", move |e: &E| file(e).0.to_string()),
            Handler::read("filesize", move |e: &E| file(e).1.and_then(size).unwrap_or("-".into())),
            Handler::read("filepos", move |e: &E| file(e).1.map_or(0, |input| input.position)),
        ]
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
    /// Checks that the file can be created here.
    ///
    /// # Errors
    /// The file can't be opened, which is reported.
    pub fn check(path: &str, cx: &mut Context<'_>) -> Result<(), Failed> {
        if path == "-" { Ok(()) } else { cx.check_file(path) }
    }

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

/// The operating system's text of an error, without its number. In a confined function, with what else can do it.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    // What seccomp(2) answers there; a file's permissions give EACCES.
    match error.raw_os_error() {
        Some(number) if number == rustix::io::Errno::PERM.raw_os_error() => format!("{text}; {NO_FILES}"),
        _ => text.to_string(),
    }
}

/// What does what no function may.
pub const NO_FILES: &str =
    "no function opens files or sockets: `ringway click` does, on the socket of a ring port";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_confinement_says_what_opens_files() {
        let text = |number| reason(&io::Error::from_raw_os_error(number));
        assert_eq!(text(2), "No such file or directory");
        assert_eq!(text(13), "Permission denied");
        assert_eq!(text(1), format!("Operation not permitted; {NO_FILES}"));
    }

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
