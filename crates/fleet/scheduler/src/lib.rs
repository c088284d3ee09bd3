//! Placement as a service: the engine on a store in the run directory, its paths of the API, measurements of this
//! host, plugins, kube-scheduler's extender, and Kubernetes. Read `service.rs` first.

mod apply;
mod body;
mod clock;
mod connections;
mod drains;
mod error_body;
mod extender;
mod fabric;
pub mod kubernetes;
mod lazy_store;
mod measure;
mod metrics;
mod operators;
mod periodic;
mod placement;
pub mod plugins;
mod pods;
mod power;
mod routes;
mod service;
mod share;
mod streamed;
mod this_host;
mod view;

pub use clock::Clock;
pub use connections::{
    Bounds, Client, Gate, Timeouts, extender_thread, network, serve, serve_extender, serve_gated,
    serve_thread,
};
pub use drains::MOST_AT_ONCE;
pub use error_body::{ErrorBody, ProblemView};
pub use extender::{BindingResult, ExtenderArgs, ExtenderBindingArgs, ExtenderFilterResult, HostPriority};
pub use fabric::{Fabric, Machine, Traffic};
pub use lazy_store::Placer;
pub use operators::kind_and_name;
pub use periodic::keep;
pub use placement::Placement;
pub use power::PowerHook;
use routes::extender_router;
pub use routes::{description, not_so, router};
pub use service::{Failed, Service};
pub use streamed::{Cut, Feed};
pub use this_host::this_host;
pub use view::*;
