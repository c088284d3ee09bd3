//! `ringway up`, `apply` and `down`.

use crate::arguments::{Log, Target, Up};
use crate::check;
use crate::client::Client;
use crate::command_error::CommandError;
use crate::guest_start::{is_lost, reason_and_console, wait_until_started};
use crate::page;
use crate::text;
use ringway_control::api::{Changes, FabricView, FunctionView, GuestView, NewFabric};
use ringway_control::file::Fabric;
use ringway_control::keeper::{Keeper, StoredEntry, process};
use ringway_control::{KeptFabric, Options, Program, TcpAddresses, run_dir};
use ringway_host::{OwnFile, open_own, wait_readable};
use ringway_spec::printable_lines;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for the end of the `control` process after shutdown, in nanoseconds.
const END_TIMEOUT: u64 = 5_000_000_000;
/// The line that a detached fabric prints when it is up.
const READY: &str = "ready";
/// Largest error in bytes that a detached fabric may report. Attack: a program in place of the fabric.
const MAX_ERROR_LEN: u64 = 1 << 20;

#[derive(Serialize)]
struct UpView {
    fabric: String,
    socket: PathBuf,
    log: PathBuf,
    /// The page's address, if it is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<String>,
    /// The guests, a moment after their start.
    guests: Vec<GuestView>,
}

/// Paths of a fabric.
pub struct FabricPaths {
    /// The fabric's run directory.
    pub run: PathBuf,
    /// The fabric's control socket.
    pub socket: PathBuf,
    log: PathBuf,
}

impl FabricPaths {
    /// The paths of a fabric.
    pub fn of(fabric: &Fabric, target: &Target) -> FabricPaths {
        let run = match (&fabric.run, &target.fabric) {
            // A second fabric from the same file must not use the first one's run directory.
            (Some(run), None) => run.clone(),
            _ => run_dir::base().join(&fabric.name),
        };
        let socket = target.socket.clone().unwrap_or_else(|| run_dir::api_socket(&run));
        let mut log = run.clone().into_os_string();
        log.push(".log");
        FabricPaths { run, socket, log: log.into() }
    }
}

/// Brings a fabric up.
pub fn up(target: &Target, json: bool, up: Up) -> Result<(), CommandError> {
    let is_detached = up.detached;
    bring_up(target, json, up).inspect_err(|error| {
        if is_detached {
            // The log may be on a full disk.
            std::println!("{error}");
        }
    })
}

fn bring_up(target: &Target, json: bool, up: Up) -> Result<(), CommandError> {
    if target.api.is_some() {
        let how = "a fabric comes up on the host of this command; run `ringway up` there";
        return Err(CommandError::Failed(how.into()));
    }
    if up.kept {
        return control(target, &up);
    }
    if up.keeper_image.is_some() {
        return keep(target, &up);
    }
    let (fabric, _) = check::load(target, &up.file)?;
    let place = FabricPaths::of(&fabric, target);
    if up.detach {
        return detach(target, json, &up, &fabric, &place);
    }
    if up.detached {
        // Detaches from the terminal: the fabric keeps running when the terminal is closed.
        rustix::process::setsid().map_err(CommandError::because)?;
    }
    drop(fabric);
    keep(target, &up)
}

/// Becomes the keeper of the fabric, whose control process is started by the same command line.
fn keep(target: &Target, up: &Up) -> Result<(), CommandError> {
    crate::name_process("ringway keeper");
    crate::log::start(up.log);
    let programs = Programs { words: words(target, up)?, is_first: up.keeper_image.is_none() };
    let code = match up.keeper_image {
        Some(image) => process::resume(programs, image),
        None => process::run(programs),
    };
    std::process::exit(code.map_err(CommandError::because)?.into())
}

/// How the keeper starts programs: by the words of its own command line, split where options are added.
struct Programs {
    words: [Vec<OsString>; 2],
    is_first: bool,
}

impl Programs {
    fn with(&self, added: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
        let [before, after] = self.words.clone();
        before.into_iter().chain(added).chain(after).collect()
    }
}

impl process::Programs for Programs {
    fn control(&mut self, binary: Option<&OwnedFd>, socket: OwnedFd) -> Command {
        // Resolved by the new process, before it closes its copy of the descriptor.
        let path = binary.map_or_else(
            || "/proc/self/exe".into(),
            |binary| format!("/proc/self/fd/{}", binary.as_raw_fd()),
        );
        let mut command = Command::new(path);
        command.arg0("ringway").args(self.with(["--kept".into()])).stdin(socket);
        // Only the keeper tells the service manager something: it is the service's main process.
        command.env_remove("NOTIFY_SOCKET");
        if !std::mem::replace(&mut self.is_first, false) {
            command.stdout(Stdio::null());
        }
        command
    }

    fn started(&mut self) {
        close_output();
    }

    fn serving(&mut self) {
        // Does nothing unless a service manager started this process.
        if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
            tracing::warn!(%error, "the service manager could not be told that the fabric is up");
        }
    }

    fn keeper(&self, image: i32) -> Vec<OsString> {
        self.with([format!("--keeper-image={image}").into()])
    }
}

/// The command line of the control process and the keeper, before and behind the option that says which.
fn words(target: &Target, up: &Up) -> Result<[Vec<OsString>; 2], CommandError> {
    let mut before = target_words(target)?;
    before.push("up".into());
    before.extend(up.detached.then(|| "--detached".into()));
    let mut after: Vec<OsString> = vec!["--log".into(), up.log.word().into()];
    after.extend(tcp_words(up).map(OsString::from));
    after.extend(["--".into(), up.file.clone().into()]);
    Ok([before, after])
}

/// The words of a command line with the TCP addresses at which a fabric is served.
fn tcp_words(up: &Up) -> impl Iterator<Item = String> {
    let words =
        [("extender", up.extender), ("metrics", up.metrics), ("listen", up.listen), ("page", up.page)];
    words.into_iter().filter_map(|(option, address)| Some(format!("--{option}={}", address?)))
}

/// The words of a command line that name the fabric.
fn target_words(target: &Target) -> Result<Vec<OsString>, CommandError> {
    let mut words = Vec::new();
    if let Some(name) = &target.fabric {
        words.extend(["--fabric".into(), name.into()]);
    }
    if let Some(socket) = &target.socket {
        words.extend(["--socket".into(), std::path::absolute(socket).map_err(CommandError::because)?.into()]);
    }
    Ok(words)
}

/// Is the control process, whose keeper is at standard input. It goes on with the fabric of a former one.
fn control(target: &Target, up: &Up) -> Result<(), CommandError> {
    crate::name_process("ringway up");
    ringway_host::unblock_signals();
    let keeper = rustix::stdio::stdin().try_clone_to_owned().map_err(CommandError::because)?;
    let null: OwnedFd = std::fs::File::open("/dev/null").map_err(CommandError::because)?.into();
    rustix::stdio::dup2_stdin(&null).map_err(CommandError::because)?;
    drop(null);
    let keeper = Keeper::new(keeper);
    let found = keeper.entries();
    let (source, found) = match KeptFabric::find(&found) {
        Some(kept) => {
            let file = PathBuf::from(&kept.file);
            let (fabric, text) = kept.fabric(&check::host()).map_err(CommandError::because)?;
            ((fabric, file, text), Some(found))
        }
        None => {
            // What a process has left that crashed before the fabric was up.
            found.into_keys().for_each(|name| keeper.remove(&name));
            keeper.flush();
            let (fabric, text) = check::load(target, &up.file)?;
            let file = std::path::absolute(&up.file).map_err(CommandError::because)?;
            ((fabric, file, text), None)
        }
    };
    let (place, api) = (FabricPaths::of(&source.0, target), target.socket.clone());
    let is_shown = up.page.is_some() && !up.detached && found.is_none();
    let shown = is_shown.then(|| place.socket.clone());
    let tcp = TcpAddresses { extender: up.extender, metrics: up.metrics, api: up.listen, page: up.page };
    serve(source, (place.run, api), (keeper, found), tcp, up.log, || ready(up.detached, shown))
}

/// Serves the fabric of a file and its text in a run directory until it is shut down; calls `ready` when it is up.
pub fn serve(
    (fabric, file, text): (Fabric, PathBuf, String),
    (run, api): (PathBuf, Option<PathBuf>),
    (keeper, found): (Keeper, Option<BTreeMap<String, StoredEntry>>),
    tcp: TcpAddresses,
    log: Log,
    ready: impl FnOnce(),
) -> Result<(), CommandError> {
    crate::log::start(log);
    // `ps` shows the arguments: whose process it is.
    let name = fabric.name.clone();
    let of = |words: &[&str]| ["--fabric", &name].iter().chain(words).map(OsString::from).collect();
    let program = Program {
        data: of(&["data", "--log", log.word()]),
        function: of(&["run-function"]),
        exec: of(&["exec"]),
        check: crate::function::check,
    };
    let host = check::host();
    let options = Options { fabric, file, text, keeper, found, run, api, tcp, host, program };
    ringway_host::withhold_descriptors();
    ringway_control::run(options, ready).map_err(CommandError::because)
}

/// Tells the process that started the detached fabric that the fabric is up.
fn ready(detached: bool, page: Option<PathBuf>) {
    if !detached {
        if let Some(socket) = page {
            // The API answers once this thread goes on.
            std::thread::spawn(move || match page_address(socket) {
                Ok(url) => println!("page {url}"),
                Err(error) => text::warn(&error.to_string()),
            });
        }
        return;
    }
    std::println!("{READY}");
    close_output();
}

fn close_output() {
    // Closes the pipe: the process that reads it waits for its end.
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

fn detach(
    target: &Target,
    json: bool,
    up: &Up,
    fabric: &Fabric,
    place: &FabricPaths,
) -> Result<(), CommandError> {
    let refused = |error: std::io::Error| {
        let how = "choose a run directory beside which you may write, in [fabric] or by RINGWAY_RUN";
        CommandError::Failed(format!("the log {}: {error}; {how}", place.log.display()))
    };
    if let Some(parent) = place.log.parent() {
        run_dir::make_base(parent).map_err(CommandError::because)?;
    }
    // The log of a fabric that is up stays as it is.
    run_dir::check_free(&place.run).map_err(CommandError::because)?;
    let log = open_own(&place.log, OwnFile::Append, 0o644).map_err(refused)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("ringway");
    command.args(target_words(target)?);
    command.args(["up", "--detached", "--log", up.log.word()]);
    command.args(tcp_words(up)).arg("--").arg(&up.file);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(CommandError::because)?;
    let output = child.stdout.take().ok_or_else(|| CommandError::Failed("no output of the fabric".into()))?;
    let mut output = BufReader::new(output.take(MAX_ERROR_LEN));
    let mut said = String::new();
    output.read_line(&mut said).map_err(CommandError::because)?;
    if said.trim_end() == READY {
        return report(json, fabric, place, up.page.is_some());
    }
    output.read_to_string(&mut said).map_err(CommandError::because)?;
    let status = child.wait().map_err(CommandError::because)?;
    Err(CommandError::Failed(match said.trim_end() {
        "" => format!("the fabric did not come up ({status}); see {}", place.log.display()),
        why => why.into(),
    }))
}

/// The page's address for whoever brought the fabric up.
fn page_address(socket: PathBuf) -> Result<String, CommandError> {
    page::first_address(&mut Client::to(socket)?)
}

/// Tells that a fabric is up, and how its guests fare.
fn report(json: bool, fabric: &Fabric, place: &FabricPaths, has_page: bool) -> Result<(), CommandError> {
    if !json {
        println!("{}up:{:#} fabric {}", text::GOOD, text::GOOD, fabric.name);
        println!("  socket  {}", place.socket.display());
        println!("  log     {}", place.log.display());
    }
    let page = has_page.then(|| page_address(place.socket.clone())).transpose()?;
    if let Some(page) = page.as_ref().filter(|_| !json) {
        println!("  page    {page}");
    }
    let guests = match fabric.guests.iter().any(|guest| guest.start) {
        true => wait_until_started(&mut Client::to(place.socket.clone())?)?,
        false => Vec::new(),
    };
    if json {
        let (socket, log) = (place.socket.clone(), place.log.clone());
        text::json(&UpView { fabric: fabric.name.clone(), socket, log, page, guests });
        return Ok(());
    }
    for GuestView { name, state, pid, .. } in &guests {
        let (state, style) = text::state(state);
        let process = if *pid == 0 { String::new() } else { format!(", process {pid}") };
        println!("  guest   {name}: {style}{state}{style:#}{process}");
    }
    guests.iter().filter(|guest| is_lost(guest)).for_each(|guest| text::warn(&reason_and_console(guest)));
    for FunctionView { name, reason, .. } in lost_functions(fabric, place)? {
        text::warn(&format!("function {name} does not start, and is tried again: {reason}"));
    }
    Ok(())
}

/// How long functions may take to start before `ringway up` reports that the fabric is up. Those that can't start end
/// sooner.
const START_WAIT: Duration = Duration::from_millis(300);

/// Waits a moment for functions, and returns those that do not start.
fn lost_functions(fabric: &Fabric, place: &FabricPaths) -> Result<Vec<FunctionView>, CommandError> {
    if !fabric.functions.iter().any(|function| function.start && !function.first_frame) {
        return Ok(Vec::new());
    }
    let (mut client, end) = (Client::to(place.socket.clone())?, Instant::now() + START_WAIT);
    loop {
        let functions: Vec<FunctionView> = client.get("/v1/functions")?;
        let some_start = functions.iter().any(|function| matches!(&*function.state, "queued" | "starting"));
        if !some_start || Instant::now() >= end {
            return Ok(functions.into_iter().filter(|function| function.state == "ended").collect());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Changes the running fabric to match a file; with `dry_run`, only says how.
pub fn apply(target: &Target, json: bool, file: &Path, dry_run: bool) -> Result<(), CommandError> {
    // Errors of the file are reported by this process, which can show lines of the file.
    let (fabric, text) = check::load(target, file)?;
    let path = std::path::absolute(file).map_err(CommandError::because)?;
    let socket = FabricPaths::of(&fabric, target).socket;
    if target.api.is_none() && !socket.exists() {
        let how = format!("start it with `ringway up {}`", file.display());
        let what = format!("fabric {} is not up: there is no {}; {how}", fabric.name, socket.display());
        return Err(CommandError::NotUp(what));
    }
    let mut client = if target.api.is_some() { Client::connect(target)? } else { Client::to(socket)? };
    let new = NewFabric { file: path.display().to_string(), text, dry_run };
    let done: Changes = client.put("/v1/fabric", &new)?;
    if json {
        text::json(&done);
    } else if done.changes.is_empty() {
        println!("nothing to change");
    } else {
        done.changes.iter().for_each(|change| println!("{}", printable_lines(change)));
    }
    Ok(())
}

/// Takes a fabric down.
pub fn down(target: &Target, json: bool) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    let fabric: FabricView = client.get("/v1/fabric")?;
    // Of another host, the number may be another process's here.
    let process = Pid::from_raw(fabric.pid.cast_signed()).filter(|_| target.api.is_none());
    let process = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    client.post("/v1/shutdown")?;
    if let Some(process) = process {
        // `control` removes its run directory last. If it does not end in time, the fabric is down all the same.
        let _ = wait_readable(&[process.as_fd()], Some(END_TIMEOUT));
    }
    if json {
        text::json(&serde_json::json!({ "down": fabric.name }));
    } else {
        println!("{}down:{:#} fabric {}", text::GOOD, text::GOOD, fabric.name);
    }
    Ok(())
}
