//! The control API: HTTP and JSON on a UNIX socket, described at `/openapi.json`.

mod audit;
mod events;
mod flows;
mod migration;
mod objects;
mod profile;
mod programs;
mod rates;
mod routes;
mod trace;
mod usage;
mod view;

pub use crate::migration::{
    ArrivalView, GuestArrival, MigrationDecision, MigrationEnd, MigrationView, MovingPort, NewMigration,
};
pub use crate::tcp_api::{CreatedToken, NewToken, PageView, Role, TokenView};
pub use audit::AuditView;
pub use events::EventView;
pub use flows::{FlowPortView, FlowView, FlowsChange, FlowsChanged, FlowsView, MeterView};
pub use objects::{NewPort, NewSwitch, PortChange};
pub use profile::{FunctionProfileView, ProfileView, StageView, WorkerProfileView};
pub use rates::{LinkRates, PortRates, RatesView};
pub use ringway_scheduler::{ErrorBody, ProblemView};
pub(crate) use routes::unread;
pub use routes::{description, router};
pub use trace::{
    CompletionView, DestinationView, ElementPassView, ElementTraceView, FunctionTraceView, HopView,
    LinkTraceView, MirroredView, MulticastView, NewTrace, SentFrameView, TraceView,
};
pub(crate) use usage::usage;
pub use view::*;
