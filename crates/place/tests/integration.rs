//! Tests of placement as its users see it.

mod balance;
mod crash;
mod damage;
mod docs;
mod engine;
mod mirror;
mod model;
mod naive;
mod objects;
mod outside;
mod traces;
mod units;
