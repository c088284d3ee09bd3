//! Files that people name, read whole.

use rustix::fs::{FileType, Mode, OFlags, fcntl_setfl, open, stat};
use std::fs::File;
use std::io::{Error, Read, Result};
use std::path::Path;

/// Reads everything, up to `most` bytes. Attack: the name of a device that never ends.
///
/// # Errors
/// The operating system's, or there is more data.
pub fn read_whole(mut from: impl Read, most: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.by_ref().take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(Error::other(format!("larger than {most} bytes")));
    }
    Ok(bytes)
}

/// Reads a regular file of at most `most` bytes, named in another file.
///
/// # Errors
/// The operating system's, the file is not a regular file, or it is larger.
pub fn read_file(path: &Path, most: usize) -> Result<Vec<u8>> {
    match kind(path)? {
        FileType::RegularFile => read_whole(open_at_once(path)?, most),
        other => Err(Error::other(format!("{}, not a file", word(other)))),
    }
}

/// As [`read_file`], for a file named on a command line, which may also be a pipe, such as a shell's
/// `<(...)`.
///
/// # Errors
/// The operating system's, it is neither a regular file nor a pipe, no process writes to the pipe, or it is
/// larger.
pub fn read_argument(path: &Path, most: usize) -> Result<Vec<u8>> {
    if kind(path)? != FileType::Fifo {
        return read_file(path, most);
    }
    let pipe = open_at_once(path)?;
    fcntl_setfl(&pipe, OFlags::empty())?;
    match read_whole(pipe, most)? {
        empty if empty.is_empty() => Err(Error::other("a pipe that nobody writes to")),
        bytes => Ok(bytes),
    }
}

/// Opens a file for reading. Attack: a FIFO without a writer, whose opening blocks.
fn open_at_once(path: &Path) -> Result<File> {
    Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?
        .into())
}

/// The type of the file at a path. Checked before the file is opened, since opening a device may have side
/// effects.
fn kind(path: &Path) -> Result<FileType> {
    Ok(FileType::from_raw_mode(stat(path)?.st_mode))
}

pub(crate) fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a folder",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Write, repeat};
    use std::os::fd::AsRawFd;

    #[test]
    fn endless_input_is_refused() {
        assert_eq!(read_whole(&b"abc"[..], 3).unwrap(), b"abc");
        assert!(read_whole(&b"abcd"[..], 3).is_err());
        assert!(read_whole(repeat(0), 1 << 20).unwrap_err().to_string().contains("larger than"));
    }

    #[test]
    fn files_named_by_files_must_be_regular_and_bounded() {
        let folder = std::env::temp_dir().join(format!("ringway-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, fifo) = (folder.join("file"), folder.join("fifo"));
        std::fs::write(&file, "four").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let message = |path: &Path, most| read_file(path, most).unwrap_err().to_string();
        assert_eq!(read_file(&file, 4).unwrap(), b"four");
        assert_eq!(message(&file, 3), "larger than 3 bytes");
        assert_eq!(message(&fifo, 4), "a pipe, not a file");
        assert_eq!(message(&folder, 4), "a folder, not a file");
        assert_eq!(message(Path::new("/dev/zero"), 4), "a device, not a file");
        let nobody = read_argument(&fifo, 4).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(nobody, "a pipe that nobody writes to");
    }

    #[test]
    fn a_pipe_is_accepted_as_an_argument() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        let writing = std::thread::spawn(move || writer.write_all(b"four").unwrap());
        assert_eq!(read_argument(Path::new(&path), 4).unwrap(), b"four");
        writing.join().unwrap();
        assert_eq!(read_argument(Path::new("/dev/zero"), 4).unwrap_err().to_string(), "a device, not a file");
    }
}
