//! How many functions start at the same time; further ones wait for their turn, in order.

use super::{FunctionEvent, Functions, Life, RESTARTS, STABLE, What};
use crate::engine::{Message, later};
use crate::events::EventKind;
use crate::function::runner::{self, Launch, Tell};
use crate::function::{Start, image_of};
use ringway_spec::Isolation;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Functions that start at the same time, of those that began in the last 2 s.
///
/// Attack: thousands of requests at once, each of which would have a process or a virtual machine that builds its
/// configuration.
pub const STARTS: usize = 64;
/// A start that takes longer does not keep others waiting any more. Attack: configurations that take long to build.
pub(super) const SLOW: Duration = Duration::from_secs(2);
/// Interval at which it is looked whether a slow start, or one that was stopped, makes room.
const LOOK: Duration = Duration::from_millis(250);

impl Functions {
    /// Whether one more may start.
    fn has_room(&self) -> bool {
        let starts = self.records.values().filter(|record| {
            matches!(record.life, Life::Running { up: false, suspended: false, .. })
                && record.started.elapsed() < self.slow
        });
        starts.count() < STARTS
    }

    /// Starts a function, now or when it is its turn.
    pub(super) fn launch(&mut self, name: &str) {
        if self.queue.is_empty() && self.has_room() {
            return self.launch_now(name);
        }
        let Some(record) = self.get(name) else { return };
        // Ignores further events of its last process.
        (record.life, record.turn) = (Life::Queued, 0);
        self.queue.push_back(name.into());
        self.look_later();
    }

    /// Starts it. A failure is recorded as the function's reason, and retried after a delay, except for a function that
    /// was requested at run time.
    pub(super) fn launch_now(&mut self, name: &str) {
        self.turn += 1;
        let (turn, tell) = (self.turn, self.teller(name, self.turn));
        self.changed.insert(name.into());
        let Some(record) = self.records.get_mut(name) else { return };
        let handlers = record.socket.display().to_string();
        let mut start = Start::of(&record.function, &self.fabric, handlers);
        start.snapshot = record.origin.as_ref().map(|origin| origin.state.clone());
        start.moved = record.origin.as_ref().is_some_and(|origin| origin.moved);
        let image = image_of(&record.function);
        let launch = Launch {
            name,
            function: &record.function,
            number: turn,
            start,
            arguments: &self.arguments,
            spare: (record.function.isolation == Isolation::Vm).then(|| self.spares.take()).flatten(),
            listener: record.listener.socket(),
            memory: match &image {
                Ok(Some(image)) => Some(image),
                _ => record.origin.as_ref().map(|origin| &origin.memory),
            },
            port_sockets: record.port_sockets.clone(),
            tell,
            inbox: self.inbox.clone(),
            keeper: &self.keeper,
        };
        let started = runner::launch(launch).and_then(|runner| image.map(|_| runner));
        if record.function.isolation == Isolation::Vm {
            self.spares.refill(&self.arguments);
        }
        (record.turn, record.draining) = (turn, false);
        record.launches += 1;
        record.fallback.clear();
        record.started = Instant::now();
        match started {
            Ok(runner) => {
                tracing::info!(function = name, pid = runner.pid(), "started");
                record.life = Life::Running { runner, up: false, suspended: false };
                if record.awaited.is_some() {
                    let limit = record.start_limit;
                    let late = FunctionEvent { name: name.into(), turn, what: What::Late(limit) };
                    later(&self.inbox, limit, Message::Function(late));
                }
            }
            // The function is removed: see `abandon_failed`.
            Err(error) if record.awaited.is_some() => {
                (record.life, record.reason) = (Life::Waiting, error.to_string());
            }
            Err(error) => self.again(name, error.to_string()),
        }
    }

    /// Reports what happens to the start `turn` of a function.
    pub(super) fn teller(&self, name: &str, turn: u64) -> Tell {
        let (inbox, told) = (self.inbox.clone(), name.to_string());
        Arc::new(move |what| {
            // Once nobody listens, the fabric is going down.
            let _ = inbox.send(Message::Function(FunctionEvent::of(&told, turn, what)));
        })
    }

    /// Schedules the restart of a function that ended by itself.
    pub(super) fn again(&mut self, name: &str, reason: String) {
        let events = self.inbox.event_log().clone();
        let Some(record) = self.get(name) else { return };
        let was_up = matches!(record.life, Life::Running { up: true, .. });
        // The first failure may be of the moment, and the next start follows at once.
        record.failing = !was_up && record.quick > 0;
        record.quick =
            if record.started.elapsed() > STABLE { 0 } else { (record.quick + 1).min(RESTARTS.len()) };
        let wait = RESTARTS[record.quick.saturating_sub(1)];
        tracing::error!(function = name, reason, wait_ms = wait, "it ended; starting it again");
        events.note(EventKind::FunctionEnded, name, &reason);
        // An error in its configuration is more useful than its exit status.
        if record.reason.is_empty() {
            record.reason = reason;
        }
        record.past.clone_from(&record.reason);
        record.life = Life::Waiting;
        let turn = record.turn;
        self.start_later(name, turn, Duration::from_millis(wait));
    }

    /// Starts a function that waits for its restart after a while.
    pub(super) fn start_later(&self, name: &str, turn: u64, wait: Duration) {
        let again = FunctionEvent { name: name.into(), turn, what: What::Again };
        later(&self.inbox, wait, Message::Function(again));
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
        // The function may have been stopped meanwhile.
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
    use crate::engine::{Messages, inbox};
    use crate::file::{Host, read};
    use crate::function::FunctionMessage;
    use crate::function::runner::What as Said;
    use crate::functions::FunctionError;
    use crate::keeper::Keeper;
    use ringway_spec::Configuration;
    use std::ffi::OsString;
    use std::io::Read;
    use std::path::PathBuf;
    use tokio::sync::oneshot;

    /// What runs the functions of the other test: this program with this test alone, which never says that it is up.
    #[test]
    fn a_function_that_never_comes_up() {
        let mode = rustix::fs::fstat(std::io::stdin()).unwrap().st_mode;
        if rustix::fs::FileType::from_raw_mode(mode) == rustix::fs::FileType::Socket {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
        }
    }

    /// Functions that never come up, all requested at once, and what their fabric tells.
    struct Crowd {
        functions: Functions,
        names: Vec<String>,
        answers: Vec<oneshot::Receiver<Result<(), Failure>>>,
        messages: Messages,
        folder: PathBuf,
    }

    impl Crowd {
        fn new(name: &str, count: usize) -> Crowd {
            let port = |number| format!("[port.p{number}]\nkind='ring'\nsocket='p{number}'\nswitch='s'\n");
            let function = |number| format!("[function.f{number}]\nclick='Idle;'\nport='p{number}'\n");
            let text: String = (0..count).map(|number| port(number) + &function(number)).collect();
            let host = Host { cores: vec![0], ..Host::default() };
            let fabric = read("f", &format!("[switch.s]\n{text}"), &host).unwrap();
            let own = module_path!().split_once("::").unwrap().1;
            let arguments =
                ["--exact", &format!("{own}::a_function_that_never_comes_up")].map(OsString::from);
            let (inbox, messages) = inbox();
            let mut functions = Functions::new("f", arguments.to_vec(), inbox, Keeper::thread().unwrap());
            functions.slow = Duration::from_secs(3600);
            let folder = std::env::temp_dir().join(format!("ringway-starts-{name}-{}", std::process::id()));
            let mut answers = Vec::new();
            for function in &fabric.functions {
                let (answer, answered) = oneshot::channel();
                assert!(functions.create(function, &fabric, &folder, answer));
                answers.push(answered);
            }
            let names = fabric.functions.iter().map(|function| function.name.clone()).collect();
            Crowd { functions, names, answers, messages, folder }
        }

        /// How many start, wait for their turn, and run.
        fn states(&self) -> [usize; 3] {
            let views = self.functions.view();
            ["starting", "queued", "running"]
                .map(|state| views.iter().filter(|one| one.state == state).count())
        }

        fn say(&mut self, name: &str, what: FunctionMessage) -> Vec<String> {
            let turn = self.functions.records[name].turn;
            self.functions.handle_event(FunctionEvent::of(name, turn, Said::Message(what)))
        }

        /// Waits for an event.
        async fn event(&mut self, is_it: impl Fn(&FunctionEvent) -> bool) -> FunctionEvent {
            loop {
                match self.messages.recv().await.unwrap().into_message() {
                    Message::Function(event) if is_it(&event) => return event,
                    _ => {}
                }
            }
        }
    }

    impl Drop for Crowd {
        fn drop(&mut self) {
            self.functions.stop_all();
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    #[tokio::test]
    async fn functions_beyond_those_that_may_start_wait_for_their_turn() {
        let most = STARTS + 3;
        let mut crowd = Crowd::new("turns", most);
        assert_eq!(crowd.states(), [STARTS, 3, 0]);
        let waiting: Vec<String> = crowd.functions.queue.iter().cloned().collect();
        let [first, second] = [0, 1].map(|at: usize| crowd.names[at].clone());
        assert!(crowd.say(&first, FunctionMessage::Up).is_empty());
        assert_eq!(crowd.states(), [STARTS, 2, 1], "one is up, and the first that waited starts");
        assert_eq!(crowd.functions.queue.front(), Some(&waiting[1]));
        assert!(matches!(crowd.functions.socket(&waiting[1]), Err(FunctionError::Queued(_))));
        // The client of the next one goes away; the last one is stopped.
        let place = crowd.names.iter().position(|name| *name == waiting[1]).unwrap();
        drop(crowd.answers.remove(place));
        crowd.functions.stop(&waiting[2]).unwrap();
        let gone = crowd.say(&second, FunctionMessage::Wrong("a wrong configuration".into()));
        assert_eq!(gone, [second.clone(), waiting[1].clone()]);
        assert_eq!((crowd.states(), crowd.functions.queue.len()), ([STARTS - 1, 0, 1], 0));
        assert_eq!(crowd.functions.view().len(), most - 2);
        assert!(matches!(crowd.answers[1].try_recv(), Ok(Err(Failure::Wrong(_)))));
    }

    #[tokio::test]
    async fn a_reason_of_a_function_is_one_short_line_that_is_safe_to_show() {
        let mut crowd = Crowd::new("reasons", 2);
        let [first, second] = [0, 1].map(|at: usize| crowd.names[at].clone());
        crowd.say(&first, FunctionMessage::Up);
        let hostile = "\u{1b}]0;title\u{7}one\ntwo\u{202e}";
        crowd.say(&first, FunctionMessage::Wrong(format!("{hostile}{}", "x".repeat(64 << 10))));
        let reason = crowd.functions.records[&first].reason.clone();
        assert!(reason.starts_with("\\u{1b}]0;title\\u{7}one; two\\u{202e}xxx"), "{reason}");
        assert!(reason.len() < 4200 && reason.ends_with("bytes more)"), "{}", reason.len());
        // Who requested a function gets all lines.
        crowd.say(&second, FunctionMessage::Wrong(hostile.into()));
        let Ok(Err(Failure::Wrong(why))) = crowd.answers[1].try_recv() else { panic!("it is wrong") };
        assert!(why.error.contains("\\u{7}one\ntwo\\u{202e}"), "{}", why.error);
    }

    #[tokio::test]
    async fn starts_that_take_long_keep_no_other_one_waiting() {
        let mut crowd = Crowd::new("slow", STARTS + 1);
        let look = crowd.event(|event| matches!(event.what, What::Look)).await;
        assert!(crowd.functions.handle_event(look).is_empty());
        assert_eq!(crowd.states(), [STARTS, 1, 0], "there is no room");
        crowd.functions.slow = Duration::ZERO;
        let look = crowd.event(|event| matches!(event.what, What::Look)).await;
        assert!(crowd.functions.handle_event(look).is_empty());
        assert_eq!(crowd.states(), [STARTS + 1, 0, 0]);
    }

    #[tokio::test]
    async fn a_function_that_does_not_start_says_why_and_nobody_waits_for_it() {
        let mut crowd = Crowd::new("fails", 1);
        let name = crowd.names[0].clone();
        crowd.say(&name, FunctionMessage::Up);
        let fail = |crowd: &mut Crowd| {
            let turn = crowd.functions.records[&name].turn;
            crowd.functions.handle_event(FunctionEvent::failed(&name, turn, "it is not permitted"));
        };
        // The function was up: the next start is a matter of milliseconds, and requests wait for it.
        fail(&mut crowd);
        assert!(crowd.functions.socket(&name).is_ok());
        let says = "function f0 does not run: it is not permitted; it is tried again";
        assert_eq!(crowd.functions.start(&name).unwrap_err().to_string(), says);
        let again = crowd.event(|event| matches!(event.what, What::Again)).await;
        crowd.functions.handle_event(again);
        assert!(crowd.functions.socket(&name).is_ok());
        assert!(matches!(crowd.functions.start(&name), Err(FunctionError::Already(_))));
        // The function does not come up, now and at the next trial.
        fail(&mut crowd);
        assert_eq!(crowd.functions.socket(&name).unwrap_err().to_string(), says);
        let again = crowd.event(|event| matches!(event.what, What::Again)).await;
        crowd.functions.handle_event(again);
        assert_eq!(crowd.states(), [1, 0, 0]);
        assert_eq!(crowd.functions.socket(&name).unwrap_err().to_string(), says);
        crowd.say(&name, FunctionMessage::Up);
        assert!(crowd.functions.socket(&name).is_ok());
    }

    #[tokio::test]
    async fn only_a_function_that_took_its_configuration_over_in_another_launch_is_started_anew() {
        let mut crowd = Crowd::new("updates", 1);
        let name = crowd.names[0].clone();
        let (_, launch) = crowd.functions.socket(&name).unwrap();
        let text = |text: &str| Configuration { text: text.into(), ..Configuration::default() };
        // Its answer may come before it says that it is up.
        crowd.functions.updated(&name, launch, text("Idle; // 1")).unwrap();
        assert!(crowd.say(&name, FunctionMessage::Up).is_empty());
        assert_eq!(crowd.states(), [0, 0, 1]);
        // The process ended behind its answer, and is up again.
        crowd.functions.updated(&name, launch - 1, text("Idle; // 2")).unwrap();
        let end = crowd.event(|event| matches!(event.what, What::Runner(Said::Ended(_)))).await;
        assert!(crowd.functions.handle_event(end).is_empty());
        let (_, next) = crowd.functions.socket(&name).unwrap();
        assert_eq!(next, launch + 1, "the launch that is waited for");
        let again = crowd.event(|event| matches!(event.what, What::Again)).await;
        assert!(crowd.functions.handle_event(again).is_empty());
        assert_eq!((crowd.states(), crowd.functions.records[&name].launches), ([1, 0, 0], next));
        assert_eq!(crowd.functions.records[&name].function.configuration.text, "Idle; // 2");
    }
}
