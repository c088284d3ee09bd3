//! The process of a function.

mod trial;
mod vm;

pub use vm::check_image;

use crate::command_error::CommandError;
use ringway_click_driver::click::Configuration;
use ringway_click_driver::click::function;
use ringway_click_driver::inherited::{self, Inherited};
use ringway_control::function::trial::Trial;
use ringway_control::function::{First, FunctionMessage, Order, Start};
use ringway_fabric::{MessageStream, StreamError};
use ringway_host::{MonitorFence, wait_readable};
use ringway_spec::Isolation;
use rustix::fs::{FileType, fstat};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The task of a function's process.
enum ProcessTask {
    /// Run a function, with these descriptors.
    Start(Box<Start>, Vec<OwnedFd>, vm::Prepared),
    /// Say what a function would do with a frame.
    Trial(Box<Trial>),
}

/// Waits for the order, and prepares for it if `control` says so.
fn ordered(stream: &MessageStream) -> Result<ProcessTask, CommandError> {
    let mut prepared = vm::Prepared::default();
    loop {
        match stream.receive::<First>().map_err(CommandError::because)? {
            (First::Prepare, _) => prepared = vm::Prepared::new(),
            (First::Start(start), descriptors) => {
                return Ok(ProcessTask::Start(start, descriptors, prepared));
            }
            (First::Trial(trial), _) => return Ok(ProcessTask::Trial(trial)),
        }
    }
}

/// What a function has more of `oom_score_adj` than `control`: if the host has no memory left, the kernel ends
/// functions before the processes of their fabric, of whose memory they have none, and which start them again.
const OOM_SCORE: i32 = 300;
/// The largest value of `oom_score_adj`.
const MAX_OOM_SCORE: i32 = 1000;

/// Makes the kernel end this process earlier than `control`, from which its value is inherited. Where that fails, the
/// kernel chooses by memory.
fn go_first() {
    let file = "/proc/self/oom_score_adj";
    let inherited = std::fs::read_to_string(file).ok().and_then(|score| score.trim().parse::<i32>().ok());
    if let Some(inherited) = inherited {
        let score = inherited.saturating_add(OOM_SCORE).min(MAX_OOM_SCORE);
        let _ = std::fs::write(file, score.to_string());
    }
}

/// Confines the process and runs a function. Standard input is the stream to `control`, which sends the configuration.
pub fn run() -> Result<(), CommandError> {
    crate::name_process("ringway spare");
    let mode = fstat(rustix::stdio::stdin()).map_err(CommandError::because)?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::Socket {
        return Err(CommandError::Failed(
            "`ringway run-function` is started by `ringway up`, not by hand".into(),
        ));
    }
    let stream = Arc::new(MessageStream::new(crate::exec::take_input().map_err(CommandError::because)?));
    go_first();
    let (start, descriptors, prepared) = match ordered(&stream)? {
        ProcessTask::Start(start, descriptors, prepared) => (*start, descriptors, prepared),
        ProcessTask::Trial(trial) => return trial::run(&stream, *trial),
    };
    crate::name_process(&format!("ringway {}", start.name));
    let mut descriptors = descriptors.into_iter();
    let (Some(listener), Some(connector), memory) =
        (descriptors.next(), descriptors.next(), descriptors.next())
    else {
        return Err(CommandError::Failed("the function's sockets did not come with its order".into()));
    };
    if let Some(core) = start.core {
        ringway_host::pin(core).map_err(CommandError::because)?;
    }
    let is_up = Arc::new(AtomicBool::new(false));
    // If `control` is gone, sending fails, and the thread for its requests ends this process.
    let say = |message: FunctionMessage| {
        is_up.fetch_or(matches!(message, FunctionMessage::Up), SeqCst);
        drop(stream.send(&message, &[]));
    };
    if start.isolation == Isolation::Vm {
        let (machine, fence) = prepared.take();
        match vm::prepare(machine, &start, memory) {
            Ok(vm) => {
                let private = if start.snapshot.is_some() && !start.moved { start.memory } else { 0 };
                let fence = fence.map_or_else(MonitorFence::new, Ok).map_err(CommandError::because)?;
                fence.confine(start.user, private).map_err(CommandError::because)?;
                end_with_control(&stream, vm::snapshot_handle(&vm), &is_up)?;
                return vm::run(vm, &listener.into(), &connector.into(), say);
            }
            // A clone, or a function that moves, has its state in that memory only.
            Err(error) if start.fallback && start.snapshot.is_none() => {
                say(FunctionMessage::Fallback(error));
            }
            Err(error) => {
                say(FunctionMessage::Wrong(error.clone()));
                return Err(CommandError::Failed(error));
            }
        }
    }
    ringway_host::confine_function(start.user, start.memory).map_err(CommandError::because)?;
    end_with_control(&stream, None, &is_up)?;
    inherited::set(Some(Inherited {
        ports: start.ports.clone(),
        devices: start.devices.clone(),
        connector: Some(connector.into()),
        listeners: vec![(start.handlers.clone(), listener.into())],
        callers: None,
    }));
    function::run(configuration(&start), &start.handlers, start.burst as usize, || say(FunctionMessage::Up))
        .map_err(|wrong| {
            say(FunctionMessage::Wrong(wrong.clone()));
            CommandError::Failed(wrong)
        })
}

/// The configuration to run.
fn configuration(start: &Start) -> Configuration<'_> {
    Configuration {
        text: &start.text,
        file: &start.title,
        parameters: &start.parameters,
        ports: &start.ports,
        devices: &start.devices,
        resident: false,
    }
}

/// Carries out requests for snapshots.
struct SnapshotHandle {
    /// Takes a snapshot, whose memory goes to the file; with `true` the guest is then stopped. The description, or the
    /// reason for a failure, is passed on.
    take: Box<dyn Fn(OwnedFd, bool, Passed) + Send>,
    /// Lets a stopped guest run again.
    thaw: Box<dyn Fn() + Send>,
}

type Passed = Box<dyn FnOnce(Result<String, String>) + Send>;

/// Makes this process end with its stream to `control`, and follow its requests.
fn end_with_control(
    stream: &Arc<MessageStream>,
    snapshot_handle: Option<SnapshotHandle>,
    is_up: &Arc<AtomicBool>,
) -> Result<(), CommandError> {
    let (copy, is_up) = (stream.clone(), is_up.clone());
    ringway_host::spawn("requests", None, move || follow_requests(&copy, snapshot_handle, &is_up))
        .map(drop)
        .map_err(CommandError::because)
}

/// Time after which a function has started, in nanoseconds.
const START_NANOSECONDS: u64 = 100_000_000;

/// Ends this process when its stream to `control` is closed.
fn follow_requests(stream: &Arc<MessageStream>, snapshot_handle: Option<SnapshotHandle>, is_up: &AtomicBool) {
    // An order may come before; a failure is noticed below.
    let _ = wait_readable(&[stream.as_fd()], Some(START_NANOSECONDS));
    ringway_host::forget_program_pages(vm::shared_pages());
    loop {
        match stream.receive::<Order>() {
            Ok((Order::Thaw, _)) => {
                snapshot_handle.iter().for_each(|snapshot_handle| (snapshot_handle.thaw)())
            }
            Ok((Order::Report, _)) => {
                if is_up.load(SeqCst) {
                    drop(stream.send(&FunctionMessage::Up, &[]));
                }
            }
            Ok((order @ (Order::Snapshot | Order::Freeze), descriptors)) => {
                let freeze = matches!(order, Order::Freeze);
                let stream = stream.clone();
                let passed = move |result| drop(stream.send(&FunctionMessage::Snapshot(result), &[]));
                match (&snapshot_handle, descriptors.into_iter().next()) {
                    (Some(snapshot_handle), Some(file)) => {
                        (snapshot_handle.take)(file, freeze, Box::new(passed))
                    }
                    _ => passed(Err("it does not run in a VM".into())),
                }
            }
            Err(StreamError::Json(_)) => {}
            Err(_) => std::process::exit(0),
        }
    }
}
