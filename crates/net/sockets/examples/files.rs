//! Serves the files of a folder by HTTP/1.0 on a ring port: `files PATH ADDRESS/PREFIX FOLDER`. Files are mapped, and
//! sent from the page cache without a copy to a send buffer.

use ringway_sockets::{Config, Mapped, Network, RingDevice, Source, TcpListener, TcpStream};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest accepted request line. Attack: a client that never ends its line.
const LINE: u64 = 4096;

#[allow(dead_code, reason = "the test includes this file")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, address, folder] = &arguments[..] else {
        return Err("usage: files PATH ADDRESS/PREFIX FOLDER".into());
    };
    let network = Network::new(RingDevice::connect(path.as_ref())?, Config::new(address.parse()?))?;
    Ok(serve(&TcpListener::bind(&network, "0.0.0.0:80")?, folder.as_ref())?)
}

/// Serves connections until the ring closes.
pub fn serve(listener: &TcpListener, folder: &Path) -> io::Result<()> {
    let folder = folder.canonicalize()?;
    loop {
        let (stream, _peer) = listener.accept()?;
        let folder = folder.clone();
        std::thread::spawn(move || answer(&stream, &folder));
    }
}

fn answer(mut stream: &TcpStream, folder: &Path) -> io::Result<()> {
    let mut line = String::new();
    let mut request = BufReader::new(stream).take(LINE);
    request.read_line(&mut line)?;
    // The headers are read too, since closing a connection with unread bytes resets it.
    let mut header = String::new();
    while request.read_line(&mut header)? > 2 {
        header.clear();
    }
    let name = line.split_whitespace().nth(1).unwrap_or("/");
    match open(folder, name) {
        Ok(file) => {
            // The header waits for the file's first bytes.
            let header = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", file.len());
            stream.write_more(header.as_bytes())?;
            stream.write_source(&file)
        }
        Err(_) => stream.write_all(b"HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
    }
}

/// Maps a file of the folder, not one that `..` or a symbolic link leads to outside of it.
fn open(folder: &Path, name: &str) -> io::Result<Arc<dyn Source>> {
    let path: PathBuf = folder.join(name.trim_start_matches('/')).canonicalize()?;
    let file = File::open(&path)?;
    if !path.starts_with(folder) || !file.metadata()?.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Mapped::of(&file)
}
