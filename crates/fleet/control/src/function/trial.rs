//! What a function would do with a frame: a private instance of its configuration, in a confined process of its own.

use super::spare::Spare;
use super::{First, Start};
use ringway_spec::{Isolation, printable, printable_lines};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::process::{Child, Stdio};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::{spawn, spawn_blocking};

/// Attack: traces that keep every core busy. Most instances at a time.
const INSTANCES: usize = 4;
static ROOM: Semaphore = Semaphore::const_new(INSTANCES);
/// Attack: a configuration that runs for ever. How long an instance may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Attack: an instance whose answer has no end. Largest answer in bytes.
const LARGEST: usize = 4 << 20;
/// Most elements, connections, frames and lines of an answer.
const MOST: usize = 1024;
/// Longest name or line, in bytes.
const LONGEST: usize = 1024;
/// Least memory of an instance: simulated time needs more than the function's packets.
const MEMORY: u64 = 256 << 20;

/// An order to a function's process: say what the function would do with a frame.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// The function.
    pub start: Start,
    /// The name by which its configuration knows the port that receives the frame.
    pub port: String,
    /// The frame, in hexadecimal.
    pub frame: String,
}

/// The answer: what it did, or why that is not known.
pub type TrialAnswer = Result<Passage, String>;

/// What the instance did with the frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// The elements that it reached: name, class, packets dropped or kept, whether it has a state.
    pub elements: Vec<(String, String, u64, bool)>,
    /// Connections that were passed: element, output, element, input, packets.
    pub connections: Vec<(usize, usize, usize, usize, u64)>,
    /// Frames that it sent: port, frame in hexadecimal, nanoseconds after the frame.
    pub sent: Vec<(String, String, u64)>,
    /// Number of frames that it sent beside these.
    pub omitted: usize,
    /// What its elements printed.
    pub printed: Vec<String>,
}

impl Passage {
    /// With texts that are safe to show; an error if it is larger than an instance makes it. The process is not
    /// trusted.
    fn checked(self) -> TrialAnswer {
        let Passage { elements, connections, sent, printed, .. } = &self;
        let counts = [elements.len(), connections.len(), sent.len(), printed.len()];
        let texts = elements.iter().flat_map(|(name, class, ..)| [name, class]).chain(printed);
        let is_short = texts.chain(sent.iter().map(|(port, ..)| port)).all(|text| text.len() <= LONGEST);
        let exist = connections.iter().all(|(from, _, to, ..)| (*from).max(*to) < elements.len());
        if counts.into_iter().any(|count| count > MOST) || !is_short || !exist {
            return Err("the answer of its instance is malformed".into());
        }
        let text = |text: &str| printable(text).into_owned();
        Ok(Passage {
            elements: elements.iter().map(|(n, c, kept, state)| (text(n), text(c), *kept, *state)).collect(),
            printed: printed.iter().map(|line| text(line)).collect(),
            ..self
        })
    }
}

impl Trial {
    /// A trial of `function` with a frame that its port receives.
    pub fn new(function: &ringway_spec::Function, fabric: &str, port: String, frame: String) -> Trial {
        let mut start = Start::of(function, fabric, String::new());
        start.isolation = Isolation::Process;
        start.memory = start.memory.max(MEMORY);
        Trial { start, port, frame }
    }

    /// Runs it. `arguments` make this program a function's process.
    pub async fn run(self, arguments: Vec<OsString>) -> TrialAnswer {
        // A task of its own ends the process even if the client disconnects.
        let run = spawn(async move {
            let _room = ROOM.acquire().await.map_err(|error| error.to_string())?;
            let failed = |error: io::Error| format!("its instance can't be started: {error}");
            let started =
                spawn_blocking(move || begin(&arguments)).await.map_err(|error| error.to_string())?;
            let (child, stream, descriptor) = started.map_err(failed)?;
            let mut done = spawn_blocking(move || ask(child, &stream, self));
            tokio::select! {
                answer = &mut done => answer.map_err(|error| error.to_string())?,
                () = tokio::time::sleep(LIMIT) => {
                    let _ = pidfd_send_signal(&descriptor, Signal::KILL);
                    let _ = done.await;
                    Err(format!("its instance has not finished within {} s", LIMIT.as_secs()))
                }
            }
        });
        run.await.map_err(|error| error.to_string())?
    }
}

type Started = (Child, ringway_fabric::MessageStream, std::os::fd::OwnedFd);

fn begin(arguments: &[OsString]) -> io::Result<Started> {
    let spare = Spare::start("/proc/self/exe".as_ref(), arguments, Stdio::null(), Stdio::null())?;
    let (mut child, stream) = spare.take()?;
    let pid = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(descriptor) => Ok((child, stream, descriptor)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error.into())
        }
    }
}

fn ask(mut child: Child, stream: &ringway_fabric::MessageStream, trial: Trial) -> TrialAnswer {
    let sent = stream.send(&First::Trial(Box::new(trial)), &[]);
    let answer = sent.and_then(|()| stream.receive_plain::<TrialAnswer>(LARGEST));
    // It has nothing more to do.
    let _ = child.kill();
    let _ = child.wait();
    match answer {
        Ok(answer) => answer.map_err(|why| printable_lines(&why).into_owned()).and_then(Passage::checked),
        Err(error) => Err(format!("its instance ended: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_a_process_that_is_not_trusted_are_checked() {
        let element = |name: &str| (name.to_string(), "Discard".to_string(), 1, false);
        let good = Passage { elements: vec![element("d\u{1b}[2J")], ..Passage::default() };
        let shown = good.clone().checked().unwrap();
        assert!(!shown.elements[0].0.contains('\u{1b}'));
        for bad in [
            Passage { connections: vec![(0, 0, 1, 0, 1)], ..good.clone() },
            Passage { printed: vec![String::new(); MOST + 1], ..good.clone() },
            Passage { elements: vec![element(&"x".repeat(LONGEST + 1))], ..good },
        ] {
            assert!(bad.checked().is_err());
        }
    }
}
