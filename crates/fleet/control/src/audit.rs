//! The audit log: who asked by the API for changes, and what came of it.
//!
//! A thread of its own writes a line of JSON for each request that is not a query, so that a slow disk delays nobody.

use crate::api::{AuditView, NewTrace};
use crate::tcp_api::Caller;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{MatchedPath, Query, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json};
use ringway_host::{OwnFile, check_own_path, open_own, since_1970};
use ringway_scheduler::{Client, ErrorBody};
use ringway_spec::{printable, printable_lines};
use serde::Deserialize;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};
use utoipa::{IntoParams, OpenApi};

/// The log's name in the run directory.
pub const FILE: &str = "audit.log";
/// Bytes of a log; then the one before it is replaced by it. Attack: requests without end, which fill the disk.
const LOG: u64 = 4 << 20;
/// Bytes of a request's body, and of an error, in an entry. Attack: large bodies, which replace the entries of others.
const TEXT: usize = 1024;
/// Entries that wait to be written. Attack: requests without end while the disk stands still. Others are counted.
const WAITING: usize = 256;
/// Time between two entries of refused requests of a token. Attack: a token that may do nothing asks without end, and
/// replaces the entries of others. Others are counted.
const REFUSALS: Duration = Duration::from_secs(1);

/// Most entries of an answer.
const MOST: usize = 10_000;
/// How long a reader waits for entries that are not written yet, and the end of the fabric.
const FLUSH: Duration = Duration::from_secs(2);
/// Routes whose POST changes nothing, although it has a body.
const QUERIES: [&str; 4] =
    ["/v1/ports/{name}/trace", "/v1/place/try", "/v1/place/why-not", "/v1/place/facts"];

/// Attack: readers of a whole log without end. One at a time.
static READERS: Semaphore = Semaphore::const_new(1);

/// What the thread is asked for.
enum Message {
    Write(Box<AuditView>),
    /// To say when all before is written.
    Flush(oneshot::Sender<()>),
}

/// The log of a fabric; clones are the same one.
#[derive(Clone, Debug)]
pub struct AuditLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    thread: SyncSender<Message>,
    /// Entries that were not written since the last one that was.
    lost: Arc<AtomicU64>,
    /// When a token had its last entry of a refused request, of those within [`REFUSALS`].
    refused: Mutex<HashMap<String, Instant>>,
}

impl AuditLog {
    /// Begins to write to a file, which is made by the first entry. Its thread ends with the last clone.
    ///
    /// # Errors
    /// There is no thread left.
    pub fn at(path: PathBuf) -> io::Result<AuditLog> {
        let (thread, messages) = sync_channel(WAITING);
        let lost = Arc::<AtomicU64>::default();
        let refused = Mutex::default();
        let shared = Arc::new(Shared { path: path.clone(), thread, lost: lost.clone(), refused });
        std::thread::Builder::new().name("audit".into()).spawn(move || write_all(&path, &messages, &lost))?;
        Ok(AuditLog(shared))
    }

    fn write(&self, entry: AuditView) {
        let is_left_out = self.is_refused_again(&entry);
        if is_left_out || self.0.thread.try_send(Message::Write(Box::new(entry))).is_err() {
            self.0.lost.fetch_add(1, Relaxed);
        }
    }

    /// Whether it is of a refused request, and its token has an entry of one a moment ago.
    fn is_refused_again(&self, entry: &AuditView) -> bool {
        let is_refused = (400..500).contains(&entry.status);
        let Some(token) = entry.token.as_ref().filter(|_| is_refused) else { return false };
        let mut refused = self.0.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        refused.retain(|_, at| now.duration_since(*at) < REFUSALS);
        if refused.contains_key(token) {
            return true;
        }
        refused.insert(token.clone(), now);
        false
    }

    /// Waits until what was noted is written, for a limited time.
    pub async fn flush(&self) {
        let (answer, answered) = oneshot::channel();
        if self.0.thread.try_send(Message::Flush(answer)).is_ok() {
            // Later ones come late.
            let _ = tokio::time::timeout(FLUSH, answered).await;
        }
    }

    /// The newest entries, at most `count`, oldest first.
    async fn newest(&self, count: usize) -> io::Result<Vec<AuditView>> {
        self.flush().await;
        let _one = READERS.acquire().await.map_err(io::Error::other)?;
        let path = self.0.path.clone();
        tokio::task::spawn_blocking(move || read(&path, count.min(MOST))).await.map_err(io::Error::other)?
    }
}

/// The file of a log.
#[derive(Debug)]
pub struct AuditFile {
    /// Where it is.
    pub path: PathBuf,
    /// It goes with the fabric.
    is_in_run: bool,
}

impl AuditFile {
    /// The file that a fabric names, or that in its run directory.
    pub fn of(named: Option<&Path>, run: &Path) -> AuditFile {
        let path = named.map_or_else(|| run.join(FILE), PathBuf::from);
        AuditFile { path, is_in_run: named.is_none() }
    }

    /// Checks its folder.
    ///
    /// # Errors
    /// The folder is not there, or another user could exchange it.
    pub fn check(&self) -> io::Result<()> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        // Of a name alone.
        let folder = folder.unwrap_or(Path::new("."));
        check_own_path(folder)?;
        match std::fs::metadata(folder)?.is_dir() {
            true => Ok(()),
            false => Err(ErrorKind::NotADirectory.into()),
        }
    }

    /// Removes it at the end of the fabric, if it goes with that.
    pub fn remove(&self) {
        for path in [former(&self.path), self.path.clone()].iter().filter(|_| self.is_in_run) {
            // There may be none.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Serves the log until all its clones are gone.
fn write_all(path: &Path, messages: &Receiver<Message>, lost: &AtomicU64) {
    let mut fails = false;
    for message in messages {
        match message {
            Message::Write(mut entry) => {
                let before = lost.swap(0, Relaxed);
                entry.lost = before;
                let written = append(path, &entry);
                if let Err(error) = &written {
                    lost.fetch_add(before + 1, Relaxed);
                    if !fails {
                        tracing::error!(file = %path.display(), %error, "the audit log can't be written");
                    }
                }
                fails = written.is_err();
            }
            Message::Flush(answer) => {
                // A client that is gone needs no answer.
                let _ = answer.send(());
            }
        }
    }
}

/// Where a log goes that has become too long.
fn former(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Appends an entry, or nothing.
fn append(path: &Path, entry: &AuditView) -> io::Result<()> {
    let mut log = open_own(path, OwnFile::Append, 0o600)?;
    let mut len = log.metadata()?.len();
    if len >= LOG {
        std::fs::rename(path, former(path))?;
        log = open_own(path, OwnFile::Append, 0o600)?;
        len = 0;
    }
    let mut last = *b"\n";
    if len > 0 {
        log.read_exact_at(&mut last, len - 1)?;
    }
    // What another program, or the end of the machine, left of a line.
    let mut line = if last == *b"\n" { String::new() } else { "\n".into() };
    line.push_str(&serde_json::to_string(entry)?);
    line.push('\n');
    let written = log.write_all(line.as_bytes());
    if written.is_err() {
        // A part of a line, as on a full disk.
        log.set_len(len)?;
    }
    written
}

fn read(path: &Path, count: usize) -> io::Result<Vec<AuditView>> {
    let mut newest = VecDeque::new();
    for path in [former(path), path.to_path_buf()] {
        let log: File = match open_own(&path, OwnFile::Read, 0) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened?,
        };
        for line in BufReader::new(log).split(b'\n') {
            // Lines of another program, or damaged ones.
            let Ok(entry) = serde_json::from_slice(&line?) else { continue };
            newest.push_back(entry);
            if newest.len() > count {
                newest.pop_front();
            }
        }
    }
    Ok(newest.into())
}

/// The first bytes of a text, without control characters.
fn beginning(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(TEXT + 3)]);
    printable_lines(&text[..text.floor_char_boundary(TEXT)]).into_owned()
}

/// The name of a client's program, while it waits for its answer.
fn program_of(client: Option<&Client>) -> Option<String> {
    let process = client?.peer?.process;
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(printable(name.trim_end()).into_owned())
}

/// An entry that is written when it is dropped: a client that leaves before its answer ends the request's task, but not
/// what was asked for.
struct Noted {
    log: AuditLog,
    entry: AuditView,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.log.write(std::mem::take(&mut self.entry));
    }
}

/// Answers a request, and notes it if it is not a query.
async fn note(State(log): State<AuditLog>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("", |route| route.as_str());
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let is_query = request.method() == Method::POST && QUERIES.contains(&route);
    let (parts, body) = request.into_parts();
    // The server has bounded it, and has received all of it.
    let Ok(body) = to_bytes(body, usize::MAX).await else { return StatusCode::BAD_REQUEST.into_response() };
    if is_query && !sends(&body) {
        return next.run(Request::from_parts(parts, Body::from(body))).await;
    }
    let client = parts.extensions.get::<Client>().copied();
    let entry = AuditView {
        time: since_1970(),
        user: client.and_then(|client| Some(client.peer?.user)),
        process: client.and_then(|client| Some(client.peer?.process)),
        program: program_of(client.as_ref()),
        address: client.and_then(|client| Some(client.address?.to_string())),
        token: parts.extensions.get::<Caller>().map(|caller| caller.name.clone()),
        request: beginning(format!("{} {}", parts.method, parts.uri).as_bytes()),
        error: "the client left before its answer".into(),
        ..AuditView::default()
    };
    let mut noted = Noted { log, entry };
    let entry = &mut noted.entry;
    entry.body = beginning(&body);
    let mut response = next.run(Request::from_parts(parts, Body::from(body))).await;
    entry.status = response.status().as_u16();
    entry.error = String::new();
    if !response.status().is_success() {
        let (parts, body) = response.into_parts();
        // An error is made as a whole.
        let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
        entry.error = error_of(&body);
        response = Response::from_parts(parts, Body::from(body));
    }
    response
}

/// Whether a trace sends its frame.
fn sends(body: &Bytes) -> bool {
    serde_json::from_slice::<NewTrace>(body).is_ok_and(|trace| trace.inject)
}

/// The sentence of an error's body.
fn error_of(body: &Bytes) -> String {
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => beginning(body.error.as_bytes()),
        Err(_) => beginning(body),
    }
}

/// Notes what `router` is asked for, which has the path of the log too; `checked` puts what may refuse a request before
/// it, so that refusals are noted.
pub fn audited(router: Router, log: AuditLog, checked: impl FnOnce(Router) -> Router) -> Router {
    let own = Router::new().route("/v1/audit", get(audit)).layer(Extension(log.clone()));
    checked(router.merge(own)).layer(from_fn_with_state(log, note))
}

/// The log as OpenAPI describes it.
pub fn description() -> utoipa::openapi::OpenApi {
    #[derive(OpenApi)]
    #[openapi(paths(audit))]
    struct Described;
    Described::openapi()
}

/// Which entries.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Newest {
    /// The newest so many at most; 100 by default.
    #[serde(default = "hundred")]
    count: usize,
}

fn hundred() -> usize {
    100
}

/// Requests for changes, and what came of them; oldest first.
#[utoipa::path(get, path = "/v1/audit",
    security(("token" = ["admin"])), params(Newest), responses(
    (status = 200, body = Vec<AuditView>),
    (status = 503, body = ErrorBody, description = "The log can't be read")))]
async fn audit(Extension(log): Extension<AuditLog>, Query(Newest { count }): Query<Newest>) -> Response {
    match log.newest(count).await {
        Ok(entries) => Json(entries).into_response(),
        Err(error) => {
            let error = ErrorBody::new(format!("the audit log: {error}"));
            (StatusCode::SERVICE_UNAVAILABLE, Json(error)).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::{patch, post};
    use ringway_scheduler::{Bounds, serve};
    use std::os::unix::fs::PermissionsExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{UnixListener, UnixStream};

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let folder = std::env::temp_dir().join(format!("ringway-audit-{name}-{}", std::process::id()));
            // Left by an earlier test.
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// The body of an answer.
    async fn ask(socket: &Path, method: &str, path: &str, body: &str) -> String {
        let mut stream = UnixStream::connect(socket).await.unwrap();
        let len = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.into()
    }

    #[tokio::test]
    async fn each_change_is_noted_with_who_asked_and_what_came_of_it() {
        let folder = Folder::new("notes");
        let path = folder.0.join(FILE);
        let refused = async || (StatusCode::NOT_FOUND, Json(ErrorBody::new("there is no port left")));
        let router = Router::new()
            .route("/v1/ports/{name}", patch(refused).get(async || "a port"))
            .route("/v1/guests", post(async |body: String| body));
        let router = audited(router, AuditLog::at(path.clone()).unwrap(), |router| router);
        let socket = folder.0.join("api.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let serving = serve(listener, |_| None, router, Bounds::of_api(), std::future::pending());
        let serving = tokio::spawn(serving);
        let large = format!("\u{1b}[2J{}", "ä".repeat(3000));
        ask(&socket, "GET", "/v1/ports/left", "").await;
        let answer = ask(&socket, "PATCH", "/v1/ports/left", "{\"tag\":10}").await;
        assert!(answer.starts_with("{\"error\":\"there is no port left\""), "{answer}");
        assert_eq!(ask(&socket, "POST", "/v1/guests", &large).await, large, "the whole body is passed on");
        let text = ask(&socket, "GET", "/v1/audit?count=5", "").await;
        serving.abort();
        let entries: Vec<AuditView> = serde_json::from_str(&text).unwrap();
        let [wrong, large] = <[AuditView; 2]>::try_from(entries).unwrap();
        assert_eq!((&*wrong.request, &*wrong.body), ("PATCH /v1/ports/left", "{\"tag\":10}"));
        assert_eq!((wrong.status, &*wrong.error), (404, "there is no port left"));
        let user = rustix::process::geteuid().as_raw();
        assert_eq!((wrong.user, wrong.process), (Some(user), Some(std::process::id() as i32)));
        assert!(wrong.program.is_some_and(|name| !name.is_empty()));
        assert_eq!((large.status, &*large.error, large.lost), (200, "", 0));
        assert!(large.body.len() <= TEXT + 8 && !large.body.contains('\u{1b}'), "{}", large.body);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_log_is_bounded_and_damaged_lines_are_left_out() {
        let folder = Folder::new("bounded");
        let path = folder.0.join(FILE);
        let entry = |number| AuditView { time: number, body: "b".repeat(TEXT), ..AuditView::default() };
        let most = 2 * LOG / TEXT as u64 + 100;
        (0..most).for_each(|number| append(&path, &entry(number)).unwrap());
        let sizes = [&path, &former(&path)].map(|path| std::fs::metadata(path).unwrap().len());
        assert!(sizes.iter().all(|size| *size < LOG + 2 * TEXT as u64), "{sizes:?}");
        let times = |count| read(&path, count).unwrap().iter().map(|entry| entry.time).collect::<Vec<_>>();
        assert_eq!(times(3), [most - 3, most - 2, most - 1]);
        assert!(times(usize::MAX).is_sorted() && times(usize::MAX).len() > LOG as usize / TEXT / 2);
        std::fs::write(&path, b"{\"time\":\xff").unwrap();
        append(&path, &entry(most)).unwrap();
        append(&path, &entry(most + 1)).unwrap();
        assert_eq!(times(2), [most, most + 1]);
        assert!(read(&folder.0.join("none"), 5).unwrap().is_empty());
    }

    #[test]
    fn a_folder_that_is_not_there_or_another_s_is_refused() {
        let folder = Folder::new("folders");
        let check = |path: PathBuf| AuditFile::of(Some(&path), Path::new("/")).check();
        let path = folder.0.join(FILE);
        assert!(check(path.clone()).is_ok());
        assert_eq!(check(folder.0.join("none").join(FILE)).unwrap_err().kind(), ErrorKind::NotFound);
        std::fs::write(folder.0.join("file"), "").unwrap();
        assert_eq!(check(folder.0.join("file").join(FILE)).unwrap_err().kind(), ErrorKind::NotADirectory);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&folder.0, Some(65_534), None).unwrap();
            assert!(check(path).unwrap_err().to_string().contains("belongs to user 65534"));
        }
    }

    #[test]
    fn the_log_in_a_run_directory_goes_with_the_fabric() {
        let folder = Folder::new("goes");
        let named = folder.0.join("named");
        for (file, stays) in
            [(AuditFile::of(None, &folder.0), false), (AuditFile::of(Some(&named), &folder.0), true)]
        {
            append(&file.path, &AuditView::default()).unwrap();
            std::fs::rename(&file.path, former(&file.path)).unwrap();
            append(&file.path, &AuditView::default()).unwrap();
            file.remove();
            assert_eq!([&file.path, &former(&file.path)].map(|path| path.exists()), [stays; 2]);
        }
    }

    #[tokio::test]
    async fn a_token_that_is_refused_again_and_again_has_one_entry() {
        let folder = Folder::new("refused");
        let log = AuditLog::at(folder.0.join(FILE)).unwrap();
        let write = |token: Option<&str>, status| {
            log.write(AuditView { token: token.map(String::from), status, ..AuditView::default() });
        };
        let began = Instant::now();
        (0..5).for_each(|_| write(Some("reader"), 403));
        write(Some("other"), 403);
        write(Some("reader"), 404);
        write(Some("reader"), 200);
        // At the socket, of the fabric's user.
        (0..2).for_each(|_| write(None, 404));
        let is_slow = began.elapsed() >= REFUSALS;
        let entries = log.newest(20).await.unwrap();
        let written: Vec<_> = entries.iter().map(|entry| (entry.token.as_deref(), entry.status)).collect();
        let expected = [("reader", 403_u16), ("other", 403), ("reader", 200)];
        let expected = expected.map(|(token, status)| (Some(token), status));
        assert!(is_slow || written == [&expected[..], &[(None, 404); 2]].concat(), "{written:?}");
        assert!(is_slow || entries.iter().map(|entry| entry.lost).sum::<u64>() == 5, "{entries:?}");
    }

    #[tokio::test]
    async fn entries_that_can_t_be_written_are_counted() {
        let folder = Folder::new("lost");
        let path = folder.0.join(FILE);
        std::fs::create_dir(&path).unwrap();
        let log = AuditLog::at(path.clone()).unwrap();
        (0..3).for_each(|number| log.write(AuditView { time: number, ..AuditView::default() }));
        assert!(log.newest(1).await.is_err());
        std::fs::remove_dir(&path).unwrap();
        log.write(AuditView { time: 3, ..AuditView::default() });
        let entries = log.newest(9).await.unwrap();
        assert_eq!(entries.iter().map(|entry| (entry.time, entry.lost)).collect::<Vec<_>>(), [(3, 3)]);
        // Attack: a link to a file that root must not write.
        let precious = folder.0.join("precious");
        std::fs::write(&precious, "precious").unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        log.write(AuditView::default());
        assert!(log.newest(1).await.unwrap_err().to_string().contains("symbolic link"));
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
    }
}
