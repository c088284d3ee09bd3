//! How many functions start at the same time; further ones wait for their turn, in order.

use super::{FunctionEvent, Functions, Life, What};
use crate::engine::Message;
use std::time::Duration;

/// Functions that start at the same time.
///
/// Attack: thousands of requests at once, each of which would have a process or a virtual machine that builds its
/// configuration.
pub const STARTS: usize = 64;
/// A start that takes longer does not keep others waiting any more. Attack: configurations that take long to build.
const SLOW: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 2 });
/// Interval at which it is looked whether a slow start, or one that was stopped, makes room.
const LOOK: Duration = Duration::from_millis(250);

impl Functions {
    /// Whether one more may start.
    fn has_room(&self) -> bool {
        let starts = self.records.values().filter(|record| {
            matches!(record.life, Life::Running { up: false, suspended: false, .. })
                && record.started.elapsed() < SLOW
        });
        starts.count() < STARTS
    }

    /// Starts a function, now or when it is its turn.
    pub(super) fn launch(&mut self, name: &str) {
        if self.queue.is_empty() && self.has_room() {
            return self.launch_now(name);
        }
        let Some(record) = self.records.get_mut(name) else { return };
        // Ignores further events of its last process.
        (record.life, record.turn) = (Life::Queued, 0);
        self.queue.push_back(name.into());
        self.look_later();
    }

    fn look_later(&mut self) {
        if !std::mem::replace(&mut self.looks, true) {
            let inbox = self.inbox.clone();
            tokio::spawn(async move {
                tokio::time::sleep(LOOK).await;
                let event = FunctionEvent { name: String::new(), turn: 0, what: What::Look };
                // Once nobody listens, the fabric is going down.
                let _ = inbox.send(Message::Function(event));
            });
        }
    }

    /// An event of a running function, or of none. Returns the names of functions that were requested at run time and
    /// removed, because they did not start.
    pub fn handle_event(&mut self, event: FunctionEvent) -> Vec<String> {
        self.looks &= !matches!(event.what, What::Look);
        let mut gone: Vec<String> = self.happened(event).into_iter().collect();
        while !self.queue.is_empty() && self.has_room() {
            gone.extend(self.queue.pop_front().and_then(|name| self.launch_next(&name)));
        }
        if !self.queue.is_empty() {
            self.look_later();
        }
        gone
    }

    /// Starts a function whose turn it is. Returns its name if it is removed instead.
    fn launch_next(&mut self, name: &str) -> Option<String> {
        // It may have been stopped meanwhile.
        let record = self.records.get(name).filter(|record| matches!(record.life, Life::Queued))?;
        if record.awaited.as_ref().is_some_and(|answer| answer.is_closed()) {
            return self.abandon(name, "its client is gone".into());
        }
        self.launch_now(name);
        self.abandon_failed(name)
    }

    /// Removes a function that was requested at run time and could not be launched. Returns its name.
    pub(super) fn abandon_failed(&mut self, name: &str) -> Option<String> {
        let record = self.records.get(name).filter(|record| matches!(record.life, Life::Waiting))?;
        let reason = record.reason.clone();
        self.abandon(name, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Failure;
    use crate::file::{Host, read};
    use crate::function::FunctionMessage;
    use crate::function::runner::What as Said;
    use std::ffi::OsString;
    use std::io::Read;
    use std::path::Path;
    use tokio::sync::{mpsc, oneshot};

    /// What runs the functions of the other test: this program with this test alone, which never says that it is up.
    #[test]
    fn a_function_that_never_comes_up() {
        let mode = rustix::fs::fstat(std::io::stdin()).unwrap().st_mode;
        if rustix::fs::FileType::from_raw_mode(mode) == rustix::fs::FileType::Socket {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
        }
    }

    fn count(functions: &Functions, state: &str) -> usize {
        functions.view().iter().filter(|view| view.state == state).count()
    }

    #[tokio::test]
    async fn functions_beyond_those_that_may_start_wait_for_their_turn() {
        let port = |number| format!("[port.p{number}]\nkind='ring'\nsocket='p{number}'\nswitch='s'\n");
        let function = |number| format!("[function.f{number}]\nclick='Idle;'\nport='p{number}'\n");
        let most = STARTS + 3;
        let text: String = (0..most).map(|number| port(number) + &function(number)).collect();
        let host = Host { cores: vec![0], base: None, run: None, find: None, kinds: &[] };
        let fabric = read("f", &format!("[switch.s]\n{text}"), &host).unwrap();
        let own = module_path!().split_once("::").unwrap().1;
        let arguments = ["--exact", &format!("{own}::a_function_that_never_comes_up")].map(OsString::from);
        let (inbox, _messages) = mpsc::unbounded_channel();
        let mut functions = Functions::new("f", arguments.to_vec(), inbox);
        let folder = std::env::temp_dir().join(format!("ringway-starts-{}", std::process::id()));
        let mut answers = Vec::new();
        for function in &fabric.functions {
            let (answer, answered) = oneshot::channel();
            assert!(functions.create(function, &fabric, Path::new(&folder), answer));
            answers.push(answered);
        }
        let states =
            |functions: &Functions| ["starting", "queued", "running"].map(|state| count(functions, state));
        assert_eq!(states(&functions), [STARTS, 3, 0]);
        let waiting: Vec<String> = functions.queue.iter().cloned().collect();
        let turn = |functions: &Functions, name: &str| functions.records[name].turn;
        let first = fabric.functions[0].name.clone();
        let up = |name: &str, turn| FunctionEvent::of(name, turn, Said::Message(FunctionMessage::Up));
        let number = turn(&functions, &first);
        assert!(functions.handle_event(up(&first, number)).is_empty());
        assert_eq!(states(&functions), [STARTS, 2, 1], "one is up, and the first that waited starts");
        assert_eq!(functions.queue.front(), Some(&waiting[1]));
        // The client of the next one goes away; the last one is stopped.
        let place = fabric.functions.iter().position(|function| function.name == waiting[1]).unwrap();
        drop(answers.remove(place));
        functions.stop(&waiting[2]).unwrap();
        let second = fabric.functions[1].name.clone();
        let why = Said::Message(FunctionMessage::Wrong("a wrong configuration".into()));
        let number = turn(&functions, &second);
        let gone = functions.handle_event(FunctionEvent::of(&second, number, why));
        assert_eq!(gone, [second.clone(), waiting[1].clone()]);
        assert_eq!((states(&functions), functions.queue.len()), ([STARTS - 1, 0, 1], 0));
        assert_eq!(functions.view().len(), most - 2);
        assert!(matches!(answers[1].try_recv(), Ok(Err(Failure::Wrong(_)))));
        functions.stop_all();
        std::fs::remove_dir_all(folder).unwrap();
    }
}
