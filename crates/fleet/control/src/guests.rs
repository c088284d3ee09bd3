//! Starts, watches and stops the fabric's guests, each on a separate thread.

mod moving;

pub use moving::Started;

use crate::api::GuestView;
use crate::engine::{Inbox, Message};
use crate::events::{EventKind, EventLog};
use crate::file::{Fabric, number};
use crate::keeper::{Keeper, NO_DESCRIPTORS, StoredEntry};
use crate::kinds::{self, PortControl};
use crate::migration::Progress;
use crate::pages;
use moving::{Activated, Moving};
use ringway_host::HugePages as Free;
use ringway_host::jail::can_change_user;
use ringway_linux_guests::{Arrival, Guest, HeldGuest, Holder, Interface, Lease, Runner, Spec, fetching};
use ringway_spec::{Guest as Desired, GuestKind, HugePages, Port, printable};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long a guest may take to power off.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a guest may take to boot before that is logged.
const BOOT: Duration = Duration::from_secs(120);

/// Why an operation on a guest failed.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// No guest has this name.
    #[error("there is no guest \"{0}\"; `ringway guest list` shows those there are")]
    Unknown(String),
    /// The guest is starting, running or stopping already.
    #[error("guest {0} is {1} already")]
    Already(String, &'static str),
    /// The guest is starting.
    #[error("guest {0} is starting; wait for it by `ringway guest wait {0}`")]
    Starting(String),
    /// The guest is not running.
    #[error("guest {0} does not run; start it with `ringway guest start {0}`")]
    NotRunning(String),
    /// The guest is being migrated.
    #[error(
        "guest {0} is being migrated; `ringway guest migrate {0} --cancel` ends that, `--resolve` if the \
         other fabric is lost"
    )]
    Moving(String),
    /// The guest was not migrated.
    #[error("guest {0} was not migrated")]
    NotMoving(String),
    /// It is known where the guest runs, or the other fabric was not asked.
    #[error(
        "nobody has to decide where guest {0} runs: its migration is at stage {1}, and only while it asks \
         the other fabric (stage asking) that is not known"
    )]
    Known(String, String),
    /// No guest of this name can arrive.
    #[error(
        "it has no guest \"{0}\": describe it in its file as in the other one, with start = false, and use \
         `ringway apply`"
    )]
    NoPlace(String),
    /// The guest is not QEMU's.
    #[error("guest {0} is not run by QEMU (kind = \"qemu\"), and can't be migrated")]
    NotQemu(String),
    /// A guest of this name runs.
    #[error("its guest {0} is not stopped")]
    Taken(String),
    /// No guest arrives with this ticket.
    #[error("guest {0} does not arrive")]
    NotArriving(String),
    /// It was activated with so many tickets that this one is not known any more.
    #[error("whether guest {0} was activated here with this ticket is not known any more")]
    Forgotten(String),
    /// The guest has arrived.
    #[error("guest {0} was activated here, or is about to be")]
    Arrived(String),
    /// A port can't be migrated.
    #[error("port {port} of guest {guest} can't be migrated: its kind is \"{kind}\"")]
    Port {
        /// The guest.
        guest: String,
        /// The port.
        port: String,
        /// Its kind.
        kind: String,
    },
    /// The guest differs.
    #[error("it differs: {0}")]
    Differs(String),
    /// The guest can't run as its user.
    #[error("guest {0}: it can't run as user {1}: {2}")]
    User(String, String, String),
    /// A guest of a former `control` can't be gone on with.
    #[error("guest {0}: {1}")]
    Lost(String, io::Error),
    /// This host lacks what runs the guest.
    #[error(transparent)]
    Lacking(#[from] ringway_linux_guests::Error),
}

/// Checks that this host can run those of `guests`, which are `fabric`'s, that start with it.
pub async fn check(
    guests: impl Iterator<Item = &Desired>,
    fabric: &Fabric,
    kinds: &'static [&'static dyn PortControl],
) -> Result<(), GuestError> {
    check_specs(guests.filter(|guest| guest.start).map(|guest| spec(guest, fabric, kinds)).collect()).await
}

/// Checks that this host can run guests.
async fn check_specs(specs: Vec<Spec>) -> Result<(), GuestError> {
    // Asking a QEMU for its devices blocks for a moment.
    let checked =
        tokio::task::spawn_blocking(move || specs.iter().try_for_each(ringway_linux_guests::check)).await;
    // A panic of the task was reported by its thread.
    Ok(checked.unwrap_or(Ok(()))?)
}

/// The keeper's names for what it has of a guest.
mod kept {
    /// Whether the guest is to run.
    pub fn wanted(guest: &str) -> String {
        format!("guest/{guest}")
    }

    /// Its process.
    pub fn process(guest: &str) -> String {
        format!("guest-process/{guest}")
    }

    /// Where it is being migrated to.
    pub fn departure(guest: &str) -> String {
        format!("guest-departure/{guest}")
    }

    /// The ticket with which it has arrived.
    pub fn arrived(guest: &str) -> String {
        format!("guest-arrived/{guest}")
    }

    /// The tickets with which it was activated here, wherever it is now.
    pub fn activated(guest: &str) -> String {
        format!("guest-activated/{guest}")
    }

    /// Why its process ended.
    pub fn end(guest: &str) -> String {
        format!("guest-end/{guest}")
    }

    /// Its user.
    pub fn user(guest: &str) -> String {
        format!("guest-user/{guest}")
    }
}

/// What the keeper has of a guest's user, with its lock.
#[derive(Debug, Serialize, Deserialize)]
struct KeptUser {
    /// As configured.
    wanted: Option<String>,
    user: u32,
}

/// Lets a guest outlive this process.
struct GuestHolder {
    name: String,
    keeper: Keeper,
    events: EventLog,
}

impl Holder for GuestHolder {
    fn hold(&self, guest: &HeldGuest, descriptors: &[BorrowedFd<'_>]) {
        if let Some(process) = Pid::from_raw(guest.process) {
            self.keeper.watch(process);
            self.keeper.put_value(&kept::process(&self.name), guest, descriptors);
        }
    }

    fn status(&self, process: Pid) -> ExitStatus {
        self.keeper.status(process)
    }

    fn ended(&self, reason: &str) {
        self.events.note(EventKind::GuestEnded, &self.name, reason);
        self.keeper.put(&kept::end(&self.name), reason, NO_DESCRIPTORS);
        self.keeper.remove(&kept::process(&self.name));
    }
}

/// State of a guest.
enum Life {
    Stopped,
    /// The guest ended by itself under a former `control`.
    Ended,
    /// A thread starts the guest; if the flag is set, the thread ends the guest again.
    Starting(Arc<AtomicBool>, JoinHandle<()>),
    Running(Arc<Guest>),
    Stopping(JoinHandle<()>),
}

struct Record {
    spec: Spec,
    /// Page size of its memory, as configured.
    pages: HugePages,
    folder: PathBuf,
    ports: Vec<String>,
    life: Life,
    /// Number of its last start; events of earlier starts are ignored.
    turn: u64,
    reason: String,
    /// Set while it leaves or arrives.
    moving: Option<Moving>,
    /// How far its last migration from here is.
    progress: Option<Arc<Progress>>,
    /// The ticket with which it arrived last.
    arrived: Option<String>,
}

/// Result of starting a guest.
pub struct GuestEvent {
    name: String,
    turn: u64,
    result: Result<Arc<Guest>, String>,
}

impl std::fmt::Debug for GuestEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {:?}", self.name, self.turn, self.result.as_ref().err())
    }
}

/// All guests of a fabric.
pub struct Guests {
    records: BTreeMap<String, Record>,
    /// Each guest's user as configured, and the lease of its user ID.
    users: BTreeMap<String, (Option<String>, Arc<Lease>)>,
    inbox: Inbox,
    turn: u64,
    /// Kinds of port that are not the project's.
    kinds: &'static [&'static dyn PortControl],
    keeper: Keeper,
    /// The tickets with which each guest was activated here: its former places may ask for them long after it has left,
    /// was removed, or was changed.
    activated: BTreeMap<String, Activated>,
}

impl Guests {
    /// Creates an empty set, of guests on ports of the project's kinds and of `kinds`.
    pub fn new(inbox: Inbox, kinds: &'static [&'static dyn PortControl], keeper: Keeper) -> Guests {
        let (records, users, activated) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Guests { records, users, inbox, turn: 0, kinds, keeper, activated }
    }

    /// Adds a guest whose ports are in `fabric`, and starts it if its `start` is set.
    pub fn add(&mut self, guest: &Desired, fabric: &Fabric, folder: PathBuf) -> Result<(), GuestError> {
        self.insert(guest, fabric, folder)?;
        self.want(&guest.name, guest.start);
        if guest.start {
            // Can't fail: the guest exists and is stopped.
            let _ = self.start(&guest.name);
        }
        Ok(())
    }

    fn insert(&mut self, guest: &Desired, fabric: &Fabric, folder: PathBuf) -> Result<(), GuestError> {
        let record = Record {
            spec: Spec { user: self.user(guest)?, ..spec(guest, fabric, self.kinds) },
            pages: fabric.huge_pages,
            folder,
            ports: guest.ports.clone(),
            life: Life::Stopped,
            turn: 0,
            reason: String::new(),
            moving: None,
            progress: None,
            arrived: None,
        };
        self.records.insert(guest.name.clone(), record);
        Ok(())
    }

    /// Records for the next `control` whether a guest is to run.
    fn want(&self, name: &str, wanted: bool) {
        self.keeper.put_value(&kept::wanted(name), &wanted, NO_DESCRIPTORS);
    }

    /// Goes on with the users of guests, and the tickets with which they were activated, that a former `control` had.
    pub fn adopt_users(&mut self, fabric: &Fabric, found: &mut BTreeMap<String, StoredEntry>) {
        self.adopt_activated(found);
        for guest in &fabric.guests {
            let Some(StoredEntry { text, descriptors }) = found.remove(&kept::user(&guest.name)) else {
                continue;
            };
            let user = serde_json::from_str::<KeptUser>(&text).ok();
            if let Some((KeptUser { wanted, user }, lock)) = user.zip(descriptors.into_iter().next()) {
                self.users.insert(guest.name.clone(), (wanted, Arc::new(Lease::adopted(user, lock))));
            }
        }
    }

    /// Goes on with a guest of a former `control`, whose ports are in `fabric`; returns whether there was one.
    pub fn adopt(
        &mut self,
        guest: &Desired,
        fabric: &Fabric,
        folder: PathBuf,
        found: &mut BTreeMap<String, StoredEntry>,
    ) -> Result<bool, GuestError> {
        let name = &guest.name;
        let wanted = found.remove(&kept::wanted(name));
        let wanted: Option<bool> = wanted.and_then(|kept| serde_json::from_str(&kept.text).ok());
        let (process, end) = (found.remove(&kept::process(name)), found.remove(&kept::end(name)));
        let (departure, arrived) = (found.remove(&kept::departure(name)), found.remove(&kept::arrived(name)));
        let Some(is_wanted) = wanted else { return Ok(false) };
        self.insert(guest, fabric, folder)?;
        let running = process.map(|process| self.go_on(name, process)).transpose();
        let running = running.map_err(|error| GuestError::Lost(name.clone(), error))?;
        self.turn += 1;
        let Some(record) = self.records.get_mut(name) else { return Ok(false) };
        match (running, end) {
            (Some(running), _) => {
                tracing::info!(guest = name, pid = running.process(), "continues");
                let running = Arc::new(running);
                let asked = running.clone();
                // Attack: a guest that reads no commands.
                tokio::task::spawn_blocking(move || asked.probe());
                (record.life, record.turn) = (Life::Running(running), self.turn);
                if !is_wanted {
                    self.stop(name)?;
                }
            }
            (None, Some(end)) if is_wanted => (record.life, record.reason) = (Life::Ended, end.text),
            // The guest was being started.
            (None, None) if is_wanted => self.start(name)?,
            (None, _) => {}
        }
        let departure = departure.as_ref().map(|kept| &*kept.text);
        self.go_on_moving(name, departure, arrived.map(|kept| kept.text));
        Ok(true)
    }

    /// The guest with a process that a former `control` had started.
    fn go_on(&self, name: &str, process: StoredEntry) -> io::Result<Guest> {
        let held: HeldGuest = serde_json::from_str(&process.text)?;
        let record = self.records.get(name).ok_or(io::ErrorKind::NotFound)?;
        let holder = GuestHolder {
            name: name.into(),
            keeper: self.keeper.clone(),
            events: self.inbox.event_log().clone(),
        };
        Guest::adopt(record.spec.clone(), &record.folder, held, process.descriptors, Arc::new(holder))
    }

    /// The processes of guests that run.
    pub fn processes(&self) -> impl Iterator<Item = Pid> {
        self.records.values().filter_map(|record| match &record.life {
            Life::Running(guest) => Pid::from_raw(guest.process()),
            _ => None,
        })
    }

    /// The port to open: the socket of a guest's port is owned by the guest's user.
    pub fn own(&mut self, port: &Port, fabric: &Fabric) -> Result<Port, GuestError> {
        let mut port = port.clone();
        let guest = fabric.guests.iter().find(|guest| guest.ports.contains(&port.name));
        if let (Some(guest), Some(socket)) = (guest, &mut port.socket)
            && let Some(lease) = self.user(guest)?
        {
            socket.owner = Some(lease.user().to_string());
        }
        Ok(port)
    }

    /// The user of a guest; `None` if the guest runs as this process's user, which can't change users.
    fn user(&mut self, guest: &Desired) -> Result<Option<Arc<Lease>>, GuestError> {
        if let Some((_, lease)) = self.users.get(&guest.name).filter(|(wanted, _)| *wanted == guest.user) {
            return Ok(Some(lease.clone()));
        }
        let name = guest.user.clone().unwrap_or_else(|| "of its own".into());
        let failed = |why: String| GuestError::User(guest.name.clone(), name.clone(), why);
        let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let wanted =
            guest.user.as_ref().map(|user| number(user, &known).ok_or("there is no user of that name"));
        let wanted = wanted.transpose().map_err(|why| failed(why.into()))?;
        let ours = rustix::process::geteuid().as_raw();
        match wanted {
            Some(0) => return Err(failed("a guest can't run as root".into())),
            Some(user) if user != ours && !can_change_user() => {
                return Err(failed("only root can run it as another user".into()));
            }
            _ if !can_change_user() => return Ok(None),
            _ => {}
        }
        let lease = wanted.map_or_else(Lease::any, Lease::of).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => failed("another guest or program does".into()),
            _ => failed(error.to_string()),
        })?;
        let lease = Arc::new(lease);
        let kept = KeptUser { wanted: guest.user.clone(), user: lease.user() };
        self.keeper.put_value(&kept::user(&guest.name), &kept, [&lease.lock()]);
        self.users.insert(guest.name.clone(), (guest.user.clone(), lease.clone()));
        Ok(Some(lease))
    }

    /// Releases the users of guests that are not in this fabric.
    pub fn forget_users(&mut self, fabric: &Fabric) {
        self.users.retain(|name, _| {
            let stays = fabric.guest(name).is_some();
            if !stays {
                self.keeper.remove(&kept::user(name));
            }
            stays
        });
    }

    /// Starts a guest without waiting for it to boot, if this host can run it.
    pub async fn start_checked(&mut self, name: &str) -> Result<(), GuestError> {
        let record = self.records.get(name).ok_or_else(|| GuestError::Unknown(name.into()))?;
        check_specs(vec![record.spec.clone()]).await?;
        self.start(name)?;
        self.want(name, true);
        Ok(())
    }

    /// As [`Guests::start_checked`], if it does not run.
    pub async fn start_stopped(&mut self, name: &str) -> Result<(), GuestError> {
        match self.running(name) {
            Ok(_) | Err(GuestError::Starting(_)) => Ok(()),
            Err(_) => self.start_checked(name).await,
        }
    }

    /// Starts a guest without waiting for it to boot.
    fn start(&mut self, name: &str) -> Result<(), GuestError> {
        self.start_as(name, None)
    }

    /// Starts a guest, which may arrive from elsewhere instead of booting.
    fn start_as(&mut self, name: &str, arrival: Option<Arrival>) -> Result<(), GuestError> {
        let record = self.records.get_mut(name).ok_or_else(|| GuestError::Unknown(name.into()))?;
        if record.moving.is_some() {
            return Err(GuestError::Moving(name.into()));
        }
        match &record.life {
            Life::Stopped | Life::Ended => {}
            Life::Starting(..) => return Err(GuestError::Already(name.into(), "starting")),
            Life::Running(guest) if guest.state().0 => {
                return Err(GuestError::Already(name.into(), "running"));
            }
            Life::Running(_) => {}
            Life::Stopping(task) if task.is_finished() => {}
            Life::Stopping(_) => return Err(GuestError::Already(name.into(), "stopping")),
        }
        self.turn += 1;
        let (mut spec, folder, inbox) = (record.spec.clone(), record.folder.clone(), self.inbox.clone());
        let pages = record.pages;
        (spec.arrival, record.arrived) = (arrival, None);
        let (name, turn, cancelled) = (name.to_string(), self.turn, Arc::new(AtomicBool::new(false)));
        tracing::info!(guest = name, "starting");
        self.keeper.remove(&kept::end(&name));
        // Of a guest that ended while it was not known where it runs.
        self.keeper.remove(&kept::departure(&name));
        let holder = GuestHolder {
            name: name.clone(),
            keeper: self.keeper.clone(),
            events: self.inbox.event_log().clone(),
        };
        // Without a keeper that is another process, nobody would go on with it.
        let holder = self.keeper.is_process().then(|| Arc::new(holder) as Arc<dyn Holder>);
        let is_cancelled = cancelled.clone();
        let task = tokio::task::spawn_blocking(move || {
            // User-Mode Linux allocates its memory itself, without huge pages.
            let huge = match spec.kind {
                Runner::Qemu => pages::of_guest(pages, spec.memory, &Free::list()),
                Runner::Uml => Ok(None),
            };
            let result = huge.and_then(|huge| {
                spec.huge = huge;
                Guest::start_held(spec, &folder, holder).map(Arc::new).map_err(|error| error.to_string())
            });
            // If the start was cancelled, dropping the result ends the guest.
            if !is_cancelled.load(Ordering::Acquire) {
                let _ = inbox.send(Message::Guest(GuestEvent { name, turn, result }));
            }
        });
        record.turn = turn;
        record.life = Life::Starting(cancelled, task);
        record.reason.clear();
        Ok(())
    }

    /// Handles the result of starting a guest.
    pub fn started(&mut self, event: GuestEvent) {
        let Some(record) = self.records.get_mut(&event.name).filter(|record| record.turn == event.turn)
        else {
            // The guest was removed or stopped in the meantime; dropping it blocks until it has ended.
            tokio::task::spawn_blocking(move || drop(event));
            return;
        };
        match event.result {
            Ok(guest) if let Some(Moving::Arrives(arriving)) = &record.moving => {
                record.life = Life::Running(guest.clone());
                arriving.started(Ok(guest));
            }
            Ok(guest) => {
                let watched = guest.clone();
                let events = self.inbox.event_log().clone();
                tokio::task::spawn_blocking(move || watch(&watched, &events));
                record.life = Life::Running(guest);
            }
            Err(error) => {
                tracing::error!(guest = event.name, error, "did not start");
                self.inbox.event_log().note(EventKind::GuestFailed, &event.name, &error);
                record.life = Life::Stopped;
                if let Some(Moving::Arrives(arriving)) = record.moving.take() {
                    arriving.started(Err(error.clone()));
                }
                record.reason = error;
            }
        }
    }

    /// Stops a guest, unless it leaves or arrives.
    pub fn stop_settled(&mut self, name: &str) -> Result<(), GuestError> {
        if self.is_moving(name) {
            return Err(GuestError::Moving(name.into()));
        }
        self.stop(name)
    }

    /// Stops a guest: asks it to power off, and kills it if it does not.
    pub fn stop(&mut self, name: &str) -> Result<(), GuestError> {
        let record = self.records.get_mut(name).ok_or_else(|| GuestError::Unknown(name.into()))?;
        record.turn = 0;
        record.reason.clear();
        record.life = match std::mem::replace(&mut record.life, Life::Stopped) {
            Life::Running(guest) => {
                tracing::info!(guest = name, "stopping");
                Life::Stopping(tokio::task::spawn_blocking(move || guest.stop(STOP_TIMEOUT)))
            }
            Life::Starting(cancelled, task) => {
                cancelled.store(true, Ordering::Release);
                Life::Stopping(task)
            }
            Life::Ended => Life::Stopped,
            same => same,
        };
        self.want(name, false);
        Ok(())
    }

    /// Stops a guest and forgets it. The returned task, if it was not stopped before, ends once it has ended.
    pub fn remove(&mut self, name: &str) -> Result<Option<JoinHandle<()>>, GuestError> {
        self.stop(name)?;
        let kept = [kept::wanted(name), kept::end(name), kept::departure(name), kept::arrived(name)];
        kept.iter().for_each(|kept| self.keeper.remove(kept));
        Ok(match self.records.remove(name) {
            Some(Record { life: Life::Stopping(task), .. }) => Some(task),
            _ => None,
        })
    }

    /// Stops all guests at the same time.
    pub async fn stop_all(&mut self) {
        let names: Vec<String> = self.records.keys().cloned().collect();
        for name in &names {
            // Can't fail: the guest exists.
            let _ = self.stop(name);
        }
        for name in names {
            if let Ok(Some(ending)) = self.remove(&name) {
                // A panic of the task was reported by its thread.
                let _ = ending.await;
            }
        }
    }

    /// The handle of a running guest.
    pub fn running(&self, name: &str) -> Result<Arc<Guest>, GuestError> {
        let record = self.records.get(name).ok_or_else(|| GuestError::Unknown(name.into()))?;
        match &record.life {
            Life::Running(guest) => Ok(guest.clone()),
            Life::Starting(..) => Err(GuestError::Starting(name.into())),
            _ => Err(GuestError::NotRunning(name.into())),
        }
    }

    /// Number of guests.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// All guests, for the API.
    pub fn view(&self) -> Vec<GuestView> {
        self.records.iter().map(|(name, record)| view(name, record)).collect()
    }
}

/// Waits until a guest has booted, and logs the outcome.
fn watch(guest: &Guest, events: &EventLog) {
    let name = &guest.spec().name;
    match guest.ready(BOOT) {
        Ok(()) => {
            tracing::info!(guest = name, "up");
            events.note(EventKind::GuestUp, name, "");
        }
        Err(error) => tracing::warn!(guest = name, %error),
    }
}

fn view(name: &str, record: &Record) -> GuestView {
    let (state, note, pid) = match &record.life {
        Life::Stopped => ("stopped", "", 0),
        Life::Ended => ("ended", "", 0),
        Life::Starting(..) => ("starting", "", 0),
        Life::Running(guest) => match guest.state() {
            (true, 0) if matches!(record.moving, Some(Moving::Arrives(_))) => {
                ("arriving", guest.note(), guest.process())
            }
            (true, 0) => ("starting", guest.note(), guest.process()),
            (true, _) => ("running", guest.note(), guest.process()),
            (false, _) => ("ended", guest.note(), 0),
        },
        Life::Stopping(task) if task.is_finished() => ("stopped", "", 0),
        Life::Stopping(_) => ("stopping", "", 0),
    };
    let console = record.folder.join("console.log").display().to_string();
    let reason = match &record.life {
        Life::Running(guest) => guest.reason(),
        Life::Starting(..) if record.spec.kind == Runner::Qemu => fetching(),
        _ => None,
    };
    GuestView {
        name: name.into(),
        kind: if record.spec.kind == Runner::Uml { "uml" } else { "qemu" }.into(),
        state: state.into(),
        note: note.into(),
        pid: pid.unsigned_abs(),
        ports: record.ports.clone(),
        console,
        reason: printable(&reason.unwrap_or_else(|| record.reason.clone())).into_owned(),
    }
}

/// Converts a guest's description to its runner's.
fn spec(guest: &Desired, fabric: &Fabric, kinds: &'static [&'static dyn PortControl]) -> Spec {
    let interfaces = guest
        .ports
        .iter()
        .enumerate()
        .filter_map(|(index, port)| {
            let port = fabric.port(port)?;
            let side = kinds::find(port.kind.name(), kinds)?.guest_side(port)?;
            let address = guest.addresses.get(index).map(ToString::to_string);
            Some(Interface { address, ..side.interface })
        })
        .collect();
    let kind = if guest.kind == GuestKind::Uml { Runner::Uml } else { Runner::Qemu };
    Spec {
        memory: guest.memory >> 20,
        processors: guest.cpus,
        program: guest.program.clone(),
        kernel: guest.kernel.clone(),
        modules: guest.modules.clone(),
        initrd: guest.initrd.clone(),
        script: guest.init.clone(),
        append: guest.append.clone(),
        ..Spec::new(&guest.name, kind, interfaces)
    }
}
