//! Handlers implemented by the runtime: the router's own, and those of every element.
use super::{Router, profile};
use crate::{ElementId, HandlerCall, HandlerError, HandlerInfo, Pieces, Progress, Task};
use alloc::format;
use alloc::string::{String, ToString};
use ringway_click_lang::config;

/// A handler that functions of the router read and write.
pub(super) struct Own<R, W> {
    pub(super) info: HandlerInfo,
    pub(super) read: Option<R>,
    pub(super) write: Option<W>,
}

type GlobalRead = fn(&mut Router) -> String;
type GlobalWrite = fn(&mut Router, &HandlerCall, &mut Pieces) -> Result<Progress, HandlerError>;
/// Returns `None` if the element has no task.
type CommonRead = fn(&Router, ElementId) -> Option<String>;
type CommonWrite = fn(&mut Router, ElementId, &str) -> Result<(), HandlerError>;

impl<R, W> Own<R, W> {
    const fn calm(mut self) -> Self {
        self.info.calm = true;
        self
    }

    const fn raw(mut self) -> Self {
        self.info.raw = true;
        self
    }
}

/// A handler of the router.
const fn global(
    name: &'static str,
    read: Option<GlobalRead>,
    write: Option<GlobalWrite>,
) -> Own<GlobalRead, GlobalWrite> {
    Own { info: HandlerInfo::of(name, read.is_some(), write.is_some()), read, write }
}

/// A handler of each element.
const fn common(
    name: &'static str,
    read: Option<CommonRead>,
    write: Option<CommonWrite>,
) -> Own<CommonRead, CommonWrite> {
    Own { info: HandlerInfo::of(name, read.is_some(), write.is_some()), read, write }
}

/// Only where the configuration can be replaced.
pub(super) const HOTCONFIG: &str = "hotconfig";
/// Written only where time is real.
pub(super) const TIMEWARP: &str = "timewarp";

/// Only where the processor's clock is known.
pub(super) const PROFILE: &str = "profile";
pub(super) const GRAPH: &str = "graph";

/// The router's own handlers.
pub(super) const GLOBAL: &[Own<GlobalRead, GlobalWrite>] = &[
    global("version", Some(|_| env!("CARGO_PKG_VERSION").to_string()), None),
    global("driver", Some(|_| "userlevel".to_string()), None),
    global("config", Some(|router| gathered(router).configuration()), None),
    global("flatconfig", Some(|router| gathered(router).flat_configuration()), None),
    global("requirements", Some(|router| router.requirements()), None),
    global("handlers", Some(|router| lines(&router.handlers(None))), None),
    global("list", Some(|router| router.list()), None),
    global("stop", None, Some(stop)),
    global("active_ports", Some(|router| router.active_ports()), None),
    global("drops", Some(|router| drops(gathered(router).all_drops())), None),
    global("classes", Some(|router| router.classes.iter().map(|name| format!("{name}\n")).collect()), None),
    global("packages", Some(|_| String::new()), None),
    global(GRAPH, Some(Router::graph_text), None),
    global(PROFILE, Some(|router| router.profile_table()), Some(profile::write)),
    global(TIMEWARP, Some(speed), Some(set_speed)),
    global(HOTCONFIG, None, Some(|router, call, pieces| router.hotconfig_on(&call.value, pieces))).raw(),
];

/// Handlers of every element; the configuration is writable if the class permits it.
pub(super) const COMMON: &[Own<CommonRead, CommonWrite>] = &[
    common("name", Some(|router, id| Some(router.name(id).to_string())), None).calm(),
    common("class", Some(|router, id| Some(router.class(id).name.to_string())), None).calm(),
    common(
        "config",
        Some(|router, id| Some(router.info(id).configuration.clone())),
        Some(|router, id, value| router.reconfigure(id, value)),
    )
    .calm(),
    common("ports", Some(|router, id| Some(router.ports_text(id))), None).calm(),
    common("handlers", Some(|router, id| Some(lines(&router.handlers(Some(id))))), None).calm(),
];

/// Handlers of every element that lists of handlers omit, as Click has none of that name.
pub(super) const UNLISTED: &[Own<CommonRead, CommonWrite>] =
    &[common("is_fullpush", Some(|router, id| Some(router.is_fullpush(id).to_string())), None).calm()];

/// Additional handlers of elements with a task.
pub(super) const TASK: &[Own<CommonRead, CommonWrite>] = &[
    common(
        "scheduled",
        Some(|router, id| Some(router.tasks.is_scheduled(task(router, id)?).to_string())),
        Some(schedule),
    ),
    common(
        "tickets",
        Some(|router, id| Some(router.tasks.all[task(router, id)?.0 as usize].tickets.to_string())),
        Some(|router, id, value| {
            let (task, tickets) = (written_task(router, id)?, number(value)?);
            router.tasks.set_tickets(task, u32::try_from(tickets).unwrap_or(1));
            Ok(())
        }),
    ),
    common(
        "home_thread",
        Some(|router, id| Some(router.tasks.all[task(router, id)?.0 as usize].thread.to_string())),
        Some(|router, id, value| router.move_task(written_task(router, id)?, number(value)? as i32)),
    ),
];

/// The handler of this name in a table.
pub(super) fn own<R, W>(table: &'static [Own<R, W>], name: &str) -> Option<&'static Own<R, W>> {
    table.iter().find(|own| own.info.name == name)
}

/// The router, after querying the other threads.
fn gathered(router: &mut Router) -> &Router {
    router.gather();
    router
}

fn lines(infos: &[HandlerInfo]) -> String {
    infos.iter().map(HandlerInfo::line).collect()
}

fn drops([circle, incomplete]: [u64; 2]) -> String {
    format!("circle {circle}\nincomplete {incomplete}\n")
}

fn speed(router: &mut Router) -> String {
    router.clock.speed().map_or("simulation".into(), |speed| speed.to_string())
}

fn set_speed(router: &mut Router, call: &HandlerCall, _: &mut Pieces) -> Result<Progress, HandlerError> {
    router.set_speed(call.value.trim())?;
    router.write_everywhere(call);
    Ok(Progress::Done)
}

fn stop(router: &mut Router, call: &HandlerCall, _: &mut Pieces) -> Result<Progress, HandlerError> {
    router.adjust_runcount(-config::integer(call.value.trim()).unwrap_or(1));
    Ok(Progress::Done)
}

/// An element's first task.
fn task(router: &Router, id: ElementId) -> Option<Task> {
    router.info(id).tasks.first().copied()
}

fn written_task(router: &Router, id: ElementId) -> Result<Task, HandlerError> {
    task(router, id).ok_or_else(|| HandlerError::failed("the element has no task here"))
}

fn number(value: &str) -> Result<i64, HandlerError> {
    config::integer(value.trim()).ok_or_else(|| HandlerError::failed("syntax error"))
}

fn schedule(router: &mut Router, id: ElementId, value: &str) -> Result<(), HandlerError> {
    let task = written_task(router, id)?;
    match crate::arg::parse_bool(value.trim()) {
        Some(true) => router.tasks.reschedule(task),
        Some(false) => router.tasks.unschedule(task),
        None => return Err(HandlerError::failed("syntax error")),
    }
    Ok(())
}
