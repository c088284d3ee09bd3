//! Which host runs a VM or a function, and why: filters, weights and balancers, put together by policies.
//!
//! Decisions are made in a [`Model`](model::Model) of all hosts in columns. A model is what the objects of a store
//! make it, so a decision can be made again, exactly, from the revision it was made at.

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
pub mod simulate;
pub mod store;
pub mod unit;
pub mod weights;

pub use expression::{Expression, ExpressionError, FIGURES};
