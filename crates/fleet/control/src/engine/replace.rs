//! Another `data` process in place of one that runs: of another program.

use super::{Engine, EngineError, Envelope, Message, Messages};
use crate::data::{Data, DataError, Unregistered};
use crate::file::Fabric;
use crate::functions::Phase;
use ringway_fabric::proto::{Event, Reply, Request, State};
use ringway_spec::{Function, Isolation};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long frames may take to leave links and functions on workers before `data` is replaced. Those that take longer
/// are lost.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// How long functions on workers may take until they run in the other process. Frames for one that takes longer are
/// dropped until it does.
const START_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// How long `data` may take to end its turns.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Gauges of frames that ports have stored.
const STORED_GAUGES: [&str; 2] = ["queued", "in-flight"];
const SUBJECT: &str = "the data process that is replaced";

impl Engine {
    /// Replaces `data`, which runs functions of `fabric`: another process gets all ports, and the functions that
    /// `messages` ask to start; this one ends its turns and ends, and the other one goes on with the peers. If it
    /// fails, `data` is still there, or is started again later.
    ///
    /// # Errors
    /// The other process can't be started, or ended again.
    pub(super) async fn replace_data(
        &mut self,
        fabric: &Fabric,
        messages: &mut Messages,
    ) -> Result<(), EngineError> {
        let Some(mut former) = self.data.take() else {
            self.restart_data().await;
            return Ok(());
        };
        self.restarts += 1;
        let began = Instant::now();
        let here = |function: &&Function| function.isolation == Isolation::Worker;
        let inside = fabric.functions.iter().filter(here).flat_map(Function::fabric_ports).collect();
        match self.switch_data(&mut former, inside, messages).await {
            Ok(silence) => {
                let silence = silence.as_millis() as u64;
                tracing::info!(
                    silence,
                    all = began.elapsed().as_millis() as u64,
                    "the data process is replaced"
                );
                Ok(())
            }
            Err(error) => {
                // The other one ends.
                drop(self.data.replace(former));
                Err(error)
            }
        }
    }

    /// Returns how long no frames moved. `inside` are the ports of functions on workers.
    async fn switch_data(
        &mut self,
        former: &mut Data,
        inside: Vec<String>,
        messages: &mut Messages,
    ) -> Result<Duration, EngineError> {
        let (data, own, new): (Data, _, Unregistered) = self.spawn_data(former.generation + 1)?;
        self.data = Some(self.begin_data(data, own).await?);
        for switch in self.switches_for_data() {
            self.call(&switch.name.clone(), Request::AddSwitch(switch)).await?;
        }
        let lost = self.fabric.ports.iter().filter(|port| self.loses_peer(port));
        let lost: Vec<_> =
            lost.map(|port| format!("port {}: its peer must connect again", port.name)).collect();
        self.notes.extend(lost);
        let resuming = self.add_ports_again();
        self.start_functions(messages).await;
        // Frames pass on meanwhile: those of the next moment are not counted by the new process's flows.
        self.pass_flow_counts(former).await;
        let since = Instant::now();
        self.drain_data(former, inside).await;
        let left = match former.call(Request::Leave, Vec::new()) {
            Ok(left) => timeout(LEAVE_TIMEOUT, left).await.unwrap_or(Err(DataError::Silent)),
            Err(error) => Err(error),
        };
        if let Err(error) = left {
            tracing::warn!(%error, "the data process does not end its turns; killing it");
            former.kill();
            former.ended().await;
        }
        new.register(&self.keeper);
        self.attach_peers_again(resuming).await;
        let silence = since.elapsed();
        self.resume_captures().await;
        self.call("the data process", Request::State).await?;
        Ok(silence)
    }

    /// Waits until functions on workers, whose start `messages` ask for, run in the new process. The former one still
    /// runs them, and gets all frames: those of the new one's ports are held.
    async fn start_functions(&mut self, messages: &mut Messages) {
        let until = Instant::now() + START_TIMEOUT;
        while self.starts_functions() {
            let Ok(Some(envelope)) = timeout_at(until, messages.recv()).await else {
                return tracing::warn!("frames for functions on workers are dropped: they start slowly");
            };
            match is_about_functions(&envelope) {
                true => self.handle_message(envelope.into_message()).await,
                false => self.backlog.push_back(envelope),
            }
        }
    }

    /// Whether functions on workers start.
    fn starts_functions(&self) -> bool {
        let mut here =
            self.fabric.functions.iter().filter(|function| function.isolation == Isolation::Worker);
        here.any(|function| self.functions.phase(&function.name) == Phase::Starting)
    }

    /// Waits until links and functions on workers, which have the ports `inside`, have passed their frames on, while
    /// ports take no more.
    async fn drain_data(&mut self, former: &mut Data, inside: Vec<String>) {
        let State { ports, .. } = match ask(former, Request::State).await {
            Ok(Reply::State(state)) => state,
            _ => return,
        };
        let stores = |name: &&str| STORED_GAUGES.contains(name);
        let links: BTreeSet<&str> = ports
            .iter()
            .filter(|port| port.gauges.keys().any(|name| stores(&&**name)))
            .map(|port| &*port.name)
            .collect();
        if links.is_empty() && inside.is_empty() {
            return;
        }
        let is_source = |name: &&str| !links.contains(name) && !inside.iter().any(|port| port == name);
        let sources = ports.iter().map(|port| &*port.name).filter(is_source).map(String::from).collect();
        let hold = Request::Hold { ports: sources, held: true, watched: false };
        if let Err(error) = ask(former, hold).await {
            return tracing::warn!(%error, "frames in links and functions are lost");
        }
        let until = Instant::now() + DRAIN_TIMEOUT;
        // Links are asked first: a frame that a function hands to a link in between is seen the second time.
        let mut was_empty = false;
        while Instant::now() < until {
            let Ok(Reply::State(state)) = ask(former, Request::State).await else { return };
            let stored = |port: &ringway_fabric::proto::PortState| -> u64 {
                STORED_GAUGES.iter().filter_map(|name| port.gauges.get(*name)).sum()
            };
            let is_quiet = ask(former, Request::Quiet { ports: inside.clone() }).await;
            let is_empty = matches!(is_quiet, Ok(Reply::Quiet(true)))
                && state.ports.iter().map(stored).sum::<u64>() == 0;
            if is_empty && was_empty {
                return;
            }
            was_empty = is_empty;
            sleep(POLL_INTERVAL).await;
        }
        tracing::warn!("frames in links and functions are lost: they take longer");
    }
}

fn is_about_functions(envelope: &Envelope) -> bool {
    matches!(
        envelope.message(),
        Message::ForFunction { .. } | Message::Function(_) | Message::FromData(Event::Function { .. })
    )
}

pub(super) async fn ask(data: &mut Data, request: Request) -> Result<Reply, EngineError> {
    let failed = |error| EngineError::Data(SUBJECT.into(), error);
    data.call(request, Vec::new()).map_err(failed)?.await.map_err(failed)
}
