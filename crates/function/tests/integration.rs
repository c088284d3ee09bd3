//! Tests of functions as their users see them.

mod conf;
mod control_socket;
mod dump;
mod function_test;
mod golden;
mod ipfix;
mod port;
mod reference;
mod threads;
