//! Placement: decides which host runs a VM or a function, by filters, weights and balancers combined in
//! policies.
//!
//! Decisions use a [`Model`](model::Model), which holds all hosts in columns. A model is built from a store's
//! objects, so a decision can be repeated exactly at its revision. [`engine::Engine`] ties model and store
//! together; read `decide/mod.rs` first, then `engine/mod.rs`.

pub mod balancers;
pub mod decide;
pub mod engine;
mod expression;
pub mod filters;
mod fit;
pub mod inventory;
pub mod model;
pub mod object;
mod os;
pub mod policy;
mod ratio;
pub mod simulate;
pub mod store;
pub mod unit;
pub mod weights;

pub use expression::{Expression, ExpressionError, FIGURES};
