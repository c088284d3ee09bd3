//! Elements for threads and locks.
use ringway_click::Class;

pub mod balanced_thread_sched;
pub mod cpu_switch;
pub mod exact_cpu_switch;
pub mod mt_die_test;
pub mod pipeliner;
mod spinlock;
pub mod spinlock_acquire;
pub mod spinlock_info;
pub mod spinlock_push;
pub mod spinlock_release;
pub mod static_thread_sched;

pub const CLASSES: &[&Class] = &[
    &balanced_thread_sched::CLASS,
    &cpu_switch::CLASS,
    &exact_cpu_switch::CLASS,
    &mt_die_test::CLASS,
    &pipeliner::CLASS,
    &spinlock_acquire::CLASS,
    &spinlock_info::CLASS,
    &spinlock_push::CLASS,
    &spinlock_release::CLASS,
    &static_thread_sched::CLASS,
];
