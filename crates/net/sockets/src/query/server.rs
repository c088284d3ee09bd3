//! The side that answers.

use super::{About, Answer, Format, Reply, Request};
use ringway_host::spawn;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Bytes of a question at most. Attack: one without an end.
const LONGEST: u64 = 4096;
/// Bytes of an answer at most.
pub(super) const LONGEST_ANSWER: usize = 64 << 20;
/// How long a client may be silent. Attack: one that keeps others waiting.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Answers questions on a UNIX socket, until it is dropped.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Listens at a path whose folder is made if there is none. `answer` is called on the server's thread; without an
    /// answer the server ends.
    ///
    /// # Errors
    /// The folder or the socket can't be made: [`io::ErrorKind::AddrInUse`] if a program listens there.
    pub fn start(
        path: &Path,
        about: About,
        answer: impl FnMut(Request) -> Option<Answer> + Send + 'static,
    ) -> io::Result<Server> {
        let listener = listen(path)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        spawn("stack-query", None, move || serve(&listener, &stopped, &about, answer))
            .map_err(io::Error::other)?;
        Ok(Server { path: path.into(), stop })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread.
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Listens at a path, where a program that was killed may have left its socket. This user alone may connect.
fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    // Under another name until it listens: a socket that refuses connections is taken for one that was left.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // Seldom longer than a name, whose path may be as long as a socket's can be.
    let own = path.with_file_name(format!(".{:x}-{number:x}", std::process::id()));
    let listener = UnixListener::bind(&own)?;
    let named = std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| give_name(&own, path));
    // What is left only takes room.
    let _ = std::fs::remove_file(&own);
    named.map(|()| listener)
}

/// Gives a socket this name too, if no program listens there.
fn give_name(own: &Path, path: &Path) -> io::Result<()> {
    loop {
        match std::fs::hard_link(own, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) if UnixStream::connect(path).is_ok() => return Err(io::ErrorKind::AddrInUse.into()),
            Err(_) => match std::fs::remove_file(path) {
                // Another program was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            },
            Ok(()) => return Ok(()),
        }
    }
}

fn serve(
    listener: &UnixListener,
    stop: &AtomicBool,
    about: &About,
    mut answer: impl FnMut(Request) -> Option<Answer>,
) {
    for stream in listener.incoming() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // A client that has gone needs no answer.
        let Ok(stream) = stream else { continue };
        if let Ok(false) = converse(stream, about, &mut answer) {
            return;
        }
    }
}

/// Answers one client's questions. `false`: there will be no answers any more.
fn converse(
    stream: UnixStream,
    about: &About,
    answer: &mut impl FnMut(Request) -> Option<Answer>,
) -> io::Result<bool> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        (&mut stream).take(LONGEST).read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Ok(true);
        }
        let reply = match serde_json::from_slice(&line) {
            Err(error) => Reply::Error(format!("not a question: {error}")),
            Ok(Request::About) => Reply::About(about.clone()),
            Ok(request) => {
                let format = match request {
                    Request::Trace(_, format) => format,
                    _ => Format::Csv,
                };
                match answer(request) {
                    None => return Ok(false),
                    Some(answer) => reply(answer, format),
                }
            }
        };
        let mut text = serde_json::to_vec(&reply)?;
        text.push(b'\n');
        stream.get_mut().write_all(&text)?;
    }
}

fn reply(answer: Answer, format: Format) -> Reply {
    match answer {
        Answer::Reply(reply) => reply,
        Answer::Trace(trace, ended) => {
            let text = match format {
                Format::Csv => trace.csv(),
                Format::Qlog => trace.qlog(),
                Format::Svg => trace.svg(),
            };
            Reply::Trace { text, ended }
        }
    }
}
