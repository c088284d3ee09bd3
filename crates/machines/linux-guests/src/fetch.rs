//! Fetching of a guest's kernel as a package of this host's distribution, with its progress.

use crate::image::{Error, cache};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Time-outs for a mirror that does not answer.
const BOUNDS: [&str; 4] = ["-o", "Acquire::http::Timeout=30", "-o", "Acquire::Retries=2"];
/// `apt-get` reports its progress on standard output, in lines for programs.
const STATUS: [&str; 3] = ["-qq", "-o", "APT::Status-Fd=1"];
/// Progress is logged each time that so many percent more are there.
const STEP: u32 = 10;

/// What is being fetched, and how far it is.
static NEWS: Mutex<Option<String>> = Mutex::new(None);

/// What this process fetches at present for a guest that starts, or waits for, and how far it is.
pub fn fetching() -> Option<String> {
    NEWS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// What [`fetching`] returns as long as this exists.
struct News;

impl News {
    fn say(&self, what: String) {
        *NEWS.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
    }
}

impl Drop for News {
    fn drop(&mut self) {
        *NEWS.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Locks a file. Whoever has it fetches a kernel, which takes minutes.
pub fn lock(file: &fs::File) -> std::io::Result<()> {
    if file.try_lock().is_ok() {
        return Ok(());
    }
    let news = News;
    if fetching().is_none() {
        let what = "waiting for a kernel for guests, which another process fetches";
        tracing::info!("{what}");
        news.say(what.into());
    }
    let locked = file.lock();
    // At worst this drops the news of another folder's kernel, until its next percent.
    drop(news);
    locked
}

/// One of apt's programs, whose words are those that are looked for here in any locale.
fn apt(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C");
    command
}

/// Downloads a kernel package with this host's package manager and unpacks it to `into` without installing it.
pub fn download(into: &Path, packages: &[&str]) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| Error::File { path, source }
    };
    fs::create_dir_all(into).map_err(failed(into))?;
    let wanted = packages.iter().map(|package| kernel_packages(package)).find(|found| !found.is_empty());
    let Some(wanted) = wanted else {
        return Err(Error::Kernel(format!("apt knows none of {}", packages.join(", "))));
    };
    let folder = into.join("packages");
    fs::create_dir_all(&folder).map_err(failed(&folder))?;
    let (news, names) = (News, wanted.join(" "));
    let size = size(&wanted).map(|bytes| format!(" ({} MB)", bytes.div_ceil(1_000_000))).unwrap_or_default();
    let what = format!("fetching a kernel for guests, {names}{size}, once");
    tracing::info!("{what}; it is kept in {}", cache().display());
    news.say(what.clone());
    let mut logged = 0;
    let mut progress = |percent: u32| {
        news.say(format!("{what}: {percent}%"));
        if percent >= logged + STEP {
            tracing::info!("{what}: {percent}%");
            logged = percent;
        }
    };
    let mut download = apt("apt-get");
    download.args(BOUNDS).args(STATUS).arg("download").args(&wanted).current_dir(&folder);
    let fetched = followed(&mut download, &mut progress);
    fetched.map_err(|reason| Error::Kernel(format!("apt-get download {names}: {reason}")))?;
    news.say(format!("unpacking a kernel for guests, {names}, once"));
    for entry in fs::read_dir(&folder).map_err(failed(&folder))?.flatten() {
        quiet(Command::new("dpkg-deb").arg("-x").arg(entry.path()).arg(into)).map_err(Error::Kernel)?;
    }
    tracing::info!("the kernel for guests is there: {names}");
    fs::remove_dir_all(&folder).map_err(failed(&folder))
}

/// The packages with image and modules that a kernel's meta package depends on.
fn kernel_packages(meta: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut open = vec![meta.to_string()];
    while let Some(package) = open.pop() {
        for name in depends(&package) {
            let numbered = |prefix| {
                name.strip_prefix(prefix).is_some_and(|rest: &str| rest.starts_with(char::is_numeric))
            };
            if (numbered("linux-image-") || numbered("linux-modules-")) && !found.contains(&name) {
                open.push(name.clone());
                found.push(name);
            }
        }
    }
    found
}

fn depends(package: &str) -> Vec<String> {
    let output = apt("apt-cache").args(["depends", "--important", package]).stdin(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().strip_prefix("Depends: ").map(str::to_string)).collect()
}

/// Bytes of packages, without fetching them; `None` if apt does not say.
fn size(packages: &[String]) -> Option<u64> {
    let listed = quiet(apt("apt-get").args(["-qq", "--print-uris", "download"]).args(packages)).ok()?;
    listed_size(&String::from_utf8_lossy(&listed))
}

/// The sum of the sizes in `apt-get --print-uris`: a line has a package's address, file name, size and hash.
fn listed_size(lines: &str) -> Option<u64> {
    let sizes = lines.lines().map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    sizes.sum::<Option<u64>>().filter(|sum| *sum > 0)
}

/// The percentage in a line of `apt-get`'s progress: `dlstatus:ITEM:PERCENT:TEXT`.
fn percentage(line: &str) -> Option<u32> {
    let percent = line.strip_prefix("dlstatus:")?.split(':').nth(1)?;
    Some(percent.parse::<f64>().ok()?.clamp(0.0, 100.0) as u32)
}

/// Runs a program that reports its progress. On failure, the last line of its errors is the error.
fn followed(command: &mut Command, progress: &mut impl FnMut(u32)) -> Result<(), String> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        // What could not be read is missing in the error.
        let _ = errors.map(|mut errors| errors.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    });
    let lines =
        output.into_iter().flat_map(|output| BufReader::new(output).split(b'\n').map_while(Result::ok));
    let mut last = None;
    for percent in lines.filter_map(|line| percentage(&String::from_utf8_lossy(&line))) {
        if last.replace(percent) != Some(percent) {
            progress(percent);
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    let errors = errors.join().unwrap_or_default();
    if status.success() { Ok(()) } else { Err(last_of(&errors)) }
}

/// Runs a program without a terminal. On failure, the last line of its errors is the error.
pub fn quiet(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(last_of(&String::from_utf8_lossy(&output.stderr)))
    }
}

fn last_of(errors: &str) -> String {
    errors.lines().last().unwrap_or("it failed").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_packages_is_the_sum_of_their_lines() {
        let two = "'http://mirror/a_1_amd64.deb' a_1_amd64.deb 69000000 SHA256:0a\n\
                   'http://mirror/b_1_amd64.deb' b_1_amd64.deb 1500000 SHA256:0b\n";
        assert_eq!(listed_size(two), Some(70_500_000));
        assert_eq!((listed_size(""), listed_size("E: no such package")), (None, None));
    }

    #[test]
    fn progress_is_followed_and_an_error_is_the_last_line() {
        let script = "echo 'Get:1 a'; for p in 0.0000 12.5 12.9 100.0000; do \
                      echo \"dlstatus:1:$p:Retrieving file 1 of 1\"; done; echo 'dlstatus:x'; \
                      echo one >&2; echo two >&2; exit";
        let run = |status: &str| {
            let mut seen = Vec::new();
            let ended =
                followed(Command::new("sh").args(["-c", &format!("{script} {status}")]), &mut |percent| {
                    seen.push(percent);
                });
            (ended, seen)
        };
        assert_eq!(run("0"), (Ok(()), vec![0, 12, 100]));
        assert_eq!(run("1"), (Err("two".into()), vec![0, 12, 100]));
        assert!(followed(&mut Command::new("/no/program"), &mut |_| ()).is_err());
    }
}
