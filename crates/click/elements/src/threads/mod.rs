//! Elements for threads and locks.
pub mod balanced_thread_sched;
pub mod cpu_switch;
pub mod mt_die_test;
pub mod pipeliner;
mod spinlock;
pub mod spinlock_acquire;
pub mod spinlock_info;
pub mod spinlock_push;
pub mod static_thread_sched;
