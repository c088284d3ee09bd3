//! Inputs that libFuzzer found and that reach different code, kept in `fuzz/corpus/TARGET.txt`: one a line, in
//! hexadecimal.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// Bytes of the inputs kept of a target, at most.
pub const MAX_BYTES: usize = 16 * 1024;

/// Why the inputs of a target can't be read or written.
#[derive(Debug)]
pub enum CorpusError {
    /// The file, or a folder of inputs, can't be read or written.
    Io(PathBuf, io::Error),
    /// This line is not in hexadecimal.
    Line(PathBuf, usize),
}

impl fmt::Display for CorpusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CorpusError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            CorpusError::Line(path, line) => {
                write!(f, "{}:{line}: not pairs of hexadecimal digits", path.display())
            }
        }
    }
}

impl std::error::Error for CorpusError {}

fn file(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format!("{target}.txt"))
}

fn bytes(line: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let pair = |digits: &[u8]| match *digits {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    line.as_bytes().chunks(2).map(pair).collect()
}

/// The inputs kept of a target; none if it has no file.
pub fn read(target: &str) -> Result<Vec<Vec<u8>>, CorpusError> {
    let path = file(target);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(CorpusError::Io(path, error)),
    };
    let lines = (1..).zip(text.lines());
    lines.map(|(number, line)| bytes(line).ok_or(CorpusError::Line(path.clone(), number))).collect()
}

/// Keeps the smallest of these inputs of a target, [`MAX_BYTES`] in all; returns their number.
pub fn keep(target: &str, mut inputs: Vec<Vec<u8>>) -> Result<usize, CorpusError> {
    inputs.retain(|input| !input.is_empty());
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    inputs.dedup();
    let mut left = MAX_BYTES;
    inputs.retain(|input| {
        let fits = input.len() <= left;
        left -= if fits { input.len() } else { 0 };
        fits
    });
    let line = |input: &Vec<u8>| input.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
    let (path, text) = (file(target), inputs.iter().map(line).collect::<String>());
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
    written.map(|()| inputs.len()).map_err(|error| CorpusError::Io(path, error))
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_are_pairs_of_digits() {
        assert_eq!(super::bytes("00ff1A"), Some(vec![0, 255, 26]));
        for wrong in ["0", "0g", "+1", " 1", "é"] {
            assert_eq!(super::bytes(wrong), None, "{wrong}");
        }
    }
}
