//! Where the time of a start goes, and the start of QEMU's microvm.

use crate::Failure;
use crate::entry::Entry;
use crate::keys::Folder;
use crate::peer::program;
use ringway_vmm::{FunctionEvent, FunctionStart, FunctionVm, PreparedVm, TINY};
use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const RUNS: usize = 20;
const MEMORY: usize = 32 << 20;
/// What the image of roles writes.
const HELLO: &str = "tiny: sent";

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// One start in this process: making the empty machine, loading, and the guest's own times: until it knows the classes,
/// has read and has built the configuration; and what remains until the monitor knows that it runs.
fn once(folder: &Folder) -> Result<[f64; 6], Failure> {
    let begin = Instant::now();
    let prepared = PreparedVm::new()?;
    let machine = ms(begin);
    let path = folder.path().join("stages");
    let listener = UnixListener::bind(&path)?;
    let start = FunctionStart {
        text: super::WIRE("in", "out"),
        title: "wire".into(),
        ports: vec!["in".into(), "out".into()],
        handlers: path.display().to_string(),
        burst: 64,
        ..FunctionStart::default()
    };
    let begin = Instant::now();
    let vm = FunctionVm::on(prepared, MEMORY, start)?;
    let loaded = ms(begin);
    let begin = Instant::now();
    let mut up = None;
    let connect = |_| Err::<UnixStream, _>(std::io::ErrorKind::NotFound.into());
    std::thread::scope(|scope| {
        let (sender, events) = std::sync::mpsc::channel();
        let listener = &listener;
        scope.spawn(move || vm.run(listener, connect, |event| drop(sender.send((ms(begin), event)))));
        for (time, event) in events {
            if let FunctionEvent::Up(stages) = event {
                up = Some((time, stages));
                // Ends the guest, and with it this loop.
                if let Ok(mut stream) = UnixStream::connect(&path) {
                    let _ = std::io::Write::write_all(&mut stream, b"WRITE stop\n");
                    let _ = stream.read_to_end(&mut Vec::new());
                }
            }
        }
    });
    std::fs::remove_file(&path)?;
    let (time, stages) = up.ok_or("the guest does not start")?;
    let [registry, parse, build] = stages.map(|us| f64::from(us) / 1e3);
    Ok([machine, loaded, registry, parse, build, time - registry - parse - build])
}

/// Adds the stages as steps.
pub fn steps(row: Entry) -> Result<Entry, Failure> {
    let folder = Folder::new()?;
    let runs = (0..RUNS).map(|_| once(&folder)).collect::<Result<Vec<_>, Failure>>()?;
    let names = [
        // By the spare process.
        "before it: empty machine made",
        "of it: memory added, image loaded, channel made",
        "of it: guest: element classes",
        "of it: guest: configuration read",
        "of it: guest: configuration built",
        "of it: guest's other time until it runs",
    ];
    Ok(names.iter().enumerate().fold(row, |row, (at, name)| {
        let figures: Vec<f64> = runs.iter().map(|times| times[at]).collect();
        row.step_of_times(*name, &figures)
    }))
}

/// Starts QEMU's microvm; the time until the image of roles has written its first output, in milliseconds, and what
/// `then` says about its process.
fn hello<T>(
    qemu: &Path,
    image: &Path,
    then: impl FnOnce(u32) -> Result<T, Failure>,
) -> Result<(f64, T), Failure> {
    let begin = Instant::now();
    let mut child = Command::new(qemu)
        // QEMU can't set the MSR of these capabilities on every KVM.
        .args(["-M", "microvm,accel=kvm,isa-serial=on", "-cpu", "host,-arch-capabilities", "-m", "32M"])
        .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"])
        .args(["-append", "role=hello", "-kernel"])
        .arg(image)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut output = String::new();
    let mut byte = [0];
    let mut time = None;
    if let Some(from) = &mut child.stdout {
        // Attack: none; a guest that hangs is ended with this group's process.
        while time.is_none() && from.read(&mut byte)? == 1 {
            output.push(char::from(byte[0]));
            time = output.contains(HELLO).then(|| ms(begin));
        }
    }
    let said = time.is_some().then(|| then(child.id()));
    let _ = child.kill();
    child.wait()?;
    match (time, said) {
        (Some(time), Some(said)) => Ok((time, said?)),
        _ => Err(format!("it ended without output: {output}").into()),
    }
}

/// QEMU, and the image of roles in a file.
fn peer(folder: &Folder) -> Result<(PathBuf, PathBuf), Failure> {
    let qemu = program("qemu-system-x86_64-microvm").or_else(|_| program("qemu-system-x86_64"))?;
    let image = folder.path().join("tiny");
    std::fs::write(&image, TINY)?;
    Ok((qemu, image))
}

/// Times from the start of QEMU's microvm to the first output of the image of roles, in milliseconds.
pub fn microvm() -> Result<Vec<f64>, Failure> {
    let folder = Folder::new()?;
    let (qemu, image) = peer(&folder)?;
    (0..RUNS / 2).map(|_| Ok(hello(&qemu, &image, |_| Ok(()))?.0)).collect()
}

/// What `say` says about the process of QEMU's microvm once its guest has written something.
pub fn microvm_process<T>(say: impl FnOnce(u32) -> Result<T, Failure>) -> Result<T, Failure> {
    let folder = Folder::new()?;
    let (qemu, image) = peer(&folder)?;
    Ok(hello(&qemu, &image, say)?.1)
}
