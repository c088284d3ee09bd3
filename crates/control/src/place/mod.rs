//! Placement in the control process: the engine on a file in the run directory, its paths of the API.

mod clock;
mod described;
mod door;
mod extender;
mod fabric;
mod keeper;
pub mod kubernetes;
mod measure;
mod metrics;
mod opened;
mod operators;
mod pods;
mod routes;
mod service;
mod this_host;
mod view;

pub use clock::Clock;
pub use door::{Patience, serve_extender};
pub use extender::{BindingResult, ExtenderArgs, ExtenderBindingArgs, ExtenderFilterResult, HostPriority};
pub(crate) use fabric::Link;
pub(crate) use keeper::keep;
pub use opened::Place;
use routes::extender_router;
pub(crate) use routes::not_so;
pub use routes::{description, router};
pub use service::{Failed, Service};
pub use this_host::this_host;
pub use view::*;
