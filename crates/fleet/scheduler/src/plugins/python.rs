//! The system's Python, and the sources of the package `ringway`, which are embedded in the program, so that
//! nothing has to be installed.

use super::connection::ConnectionError;
use super::options::{Folder, Options};
use ringway_host::{PluginFences, memfd, pass_on, wait_readable};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// Runs the code from the descriptor given as the first argument.
const RUN: &str =
    "import json,sys; given=json.load(open(int(sys.argv.pop(1)),encoding='utf-8')); exec(given['boot'])";
const BOOT: &str = include_str!("boot.py");

/// Prints Python's paths. It must run with any version.
const LOOK: &str = "
import json, os, sys, sysconfig
paths = sysconfig.get_paths()
needed = [sys.executable, paths['stdlib'], paths['platstdlib']]
more = [os.path.join(sys.prefix, 'pyvenv.cfg'), sysconfig.get_config_var('LIBDIR')]
more += [paths['purelib'], paths['platlib']]
# The folder that a program was started in is on the path too, and isn't Python's.
more += [path for path in sys.path if '-packages' in path or path.endswith('.zip')]
needed, more = [[os.path.realpath(path) for path in some if path] for some in (needed, more)]
found = {'version': sys.version_info[:2], 'program': sys.executable, 'needed': needed, 'more': more}
print(json.dumps(found))
";
/// Time limit for that query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(20);
const OLDEST: (u32, u32) = (3, 11);

/// System files that the C library and Python read.
const SYSTEM: &[&str] = &[
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/lib",
    "/lib64",
    "/usr/share/zoneinfo",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/ld.so.cache",
    "/dev/urandom",
    "/dev/random",
    "/dev/zero",
];
/// System files for name resolution and TLS.
const NETWORK: &[&str] = &[
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/ssl",
    "/etc/pki",
    "/usr/share/ca-certificates",
    "/run/systemd/resolve",
];

/// A Python found on the system.
#[derive(Deserialize)]
struct Found {
    version: (u32, u32),
    program: PathBuf,
    needed: Vec<PathBuf>,
    more: Vec<PathBuf>,
}

/// A command that runs `python` with the code in `given`.
fn command(python: &Path) -> Command {
    let mut command = Command::new(python);
    // Nothing is imported from the current folder.
    command.args(["-P", "-c", RUN]);
    command
}

/// A descriptor with a module of the package; its `main` gets `beside` as keyword arguments.
fn given(module: &str, beside: Map<String, Value>) -> Result<OwnedFd, ConnectionError> {
    let sources: Map<String, Value> =
        SOURCES.iter().map(|(name, text)| (name.to_string(), json!(text))).collect();
    let given = json!({"boot": BOOT, "module": module, "sources": sources, "beside": beside}).to_string();
    let file =
        memfd("ringway-python", given.len()).map_err(|error| ConnectionError::Gone(error.to_string()))?;
    let mut file = File::from(file);
    let written = file.write_all(given.as_bytes()).and_then(|()| file.rewind());
    written.map_err(|error| ConnectionError::Gone(format!("what Python is handed: {error}")))?;
    Ok(file.into())
}

/// A command that runs a module of the package `ringway` with this machine's Python.
pub fn module(name: &str) -> Result<Command, String> {
    let given = given(name, Map::new()).map_err(|error| error.to_string())?;
    let mut command = command(Path::new("python3"));
    command.arg(given.as_raw_fd().to_string());
    pass_on(&mut command, given);
    Ok(command)
}

/// A command that runs the plugin host of a folder, confined.
pub(super) fn host(python: &Path, folder: &Folder) -> Result<Command, ConnectionError> {
    let gone = |error: &dyn std::fmt::Display| ConnectionError::Gone(error.to_string());
    let path = folder.path.canonicalize().ok().filter(|path| path.is_dir());
    let path =
        path.ok_or_else(|| ConnectionError::Gone(format!("there is no folder {}", folder.path.display())))?;
    let mut found = look(python)?;
    let mut more: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    if folder.network {
        more.extend(NETWORK.iter().map(PathBuf::from));
    }
    more.append(&mut found.more);
    found.needed.push(path.clone());
    let fences = PluginFences::new(&found.needed, &more, is_private(&path), folder.network);
    let fences = fences.map_err(|error| gone(&error))?;
    let missing = match (&fences.ruleset, fences.filters.is_empty()) {
        (None, _) => Some("landlock (CONFIG_SECURITY_LANDLOCK, and `landlock` among the kernel's lsm=)"),
        (_, true) => Some("seccomp (CONFIG_SECCOMP_FILTER)"),
        _ => None,
    };
    if let Some(missing) = missing.filter(|_| !folder.unconfined) {
        return Err(ConnectionError::Gone(format!(
            "plugins are not confined here: the kernel has no {missing}; `unconfined = true` runs them \
             all the same"
        )));
    }
    let hex = |filter: &Vec<u8>| filter.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let beside = Map::from_iter([
        ("filters".to_string(), json!(fences.filters.iter().map(hex).collect::<Vec<_>>())),
        ("ruleset".to_string(), json!(fences.ruleset.as_ref().map(AsRawFd::as_raw_fd))),
    ]);
    let given = given("ringway.plugin_host.__main__", beside)?;
    let mut command = command(&found.program);
    command.arg(given.as_raw_fd().to_string()).arg(&path);
    command.args(["--memory", &folder.memory_mb.max(16).to_string()]);
    if folder.network {
        command.arg("--network");
    }
    environment(&mut command);
    let user = ringway_host::jail::dynamic_user("plugins", &path.display().to_string());
    fences.confine(&mut command, user, given);
    Ok(command)
}

/// Turns this process into the plugin host of a folder, on its standard input and output; returns only on
/// failure, with the reason.
pub fn become_host(options: &Options, folder: &Folder) -> String {
    match host(&options.python, folder) {
        Ok(mut command) => {
            let error = command.exec();
            format!("{}: {error}", command.get_program().display())
        }
        Err(error) => error.to_string(),
    }
}

/// Whether some file of plugins is readable by its owner only.
fn is_private(folder: &Path) -> bool {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files = files.filter(|file| file.path().extension().is_some_and(|it| it == "py"));
    files.any(|file| file.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o004 == 0))
}

/// The working directory and environment of programs that we start.
fn environment(command: &mut Command) {
    command.env_clear().current_dir("/");
    for name in ["PATH", "HOME", "TZ"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
}

/// Identifies a Python installation: path, device, inode and modification time.
pub(super) type Identity = (PathBuf, u64, u64, i64, i64);

/// The Python that would be started now.
pub(super) fn identity(python: &Path) -> Option<Identity> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A path with a folder is not searched for along PATH.
    let folders = std::env::split_paths(&path).filter(|_| python.components().count() == 1);
    folders.chain([PathBuf::new()]).find_map(|folder| {
        let program = folder.join(python);
        let file = program.metadata().ok().filter(|file| file.is_file() && file.mode() & 0o111 != 0)?;
        Some((program, file.dev(), file.ino(), file.mtime(), file.mtime_nsec()))
    })
}

/// Queries a Python's paths.
fn look(python: &Path) -> Result<Found, ConnectionError> {
    let gone = |what: &dyn std::fmt::Display| ConnectionError::Gone(format!("{}: {what}", python.display()));
    let mut command = Command::new(python);
    command.args(["-c", LOOK]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    environment(&mut command);
    let mut child = command.spawn().map_err(|error| gone(&error))?;
    let mut output = String::new();
    if let Some(out) = child.stdout.take() {
        let ready = wait_readable(&[out.as_fd()], Some(QUERY_TIMEOUT.as_nanos() as u64));
        if !ready.is_ok_and(|ready| ready == [true]) {
            let _ = child.kill();
        }
        // The output fits into a pipe.
        let _ = out.take(1 << 16).read_to_string(&mut output);
    }
    let status = child.wait().map_err(|error| gone(&error))?;
    let found: Found = match serde_json::from_str(&output) {
        Ok(found) if status.success() => found,
        _ => return Err(gone(&format!("doesn't say where its library is ({status})"))),
    };
    if found.version < OLDEST {
        let (major, minor) = found.version;
        return Err(gone(&format!("is Python {major}.{minor}; plugins need {}.{}", OLDEST.0, OLDEST.1)));
    }
    Ok(found)
}
