//! Sources, sinks, queues, schedulers and other elements independent of protocols.
use ringway_click::Class;

pub mod adjust_timestamp;
pub mod average_counter;
pub mod bandwidth_meter;
pub mod bandwidth_rated_splitter;
pub mod bandwidth_rated_unqueue;
pub mod bandwidth_shaper;
pub mod block;
pub mod burster;
pub mod bypass;
pub mod check_crc32;
pub mod check_length;
pub mod check_number_packet;
pub mod check_paint;
pub mod classifier;
pub mod clipboard;
pub mod compare_block;
pub mod counter;
pub mod counter_atomic;
pub mod counter_lock;
pub mod counter_mp;
pub mod counter_prw;
pub mod counter_rcu;
pub mod counter_rw;
mod crc32;
pub mod delay_shaper;
pub mod delay_unqueue;
pub mod discard;
pub mod drr_sched;
pub mod duplicate;
pub mod front_drop_queue;
pub mod full_note_queue;
mod gap;
pub mod hash_switch;
pub mod hub;
pub mod idle;
pub mod infinite_source;
pub mod input_switch;
pub mod link_emulator;
pub mod link_unqueue;
pub mod meter;
mod metering;
pub mod mixed_queue;
pub mod move_data;
pub mod ms_queue;
pub mod multi_replay_unqueue;
pub mod notifier_debug;
pub mod notifier_queue;
pub mod null;
pub mod number_packet;
pub mod pad;
pub mod paint;
pub mod paint_rr;
pub mod paint_switch;
pub mod paint_tee;
pub mod print;
pub mod prio_sched;
pub mod pull_null;
pub mod pull_switch;
pub mod pull_tee;
pub mod push_null;
pub mod queue;
pub mod quick_note_queue;
pub mod random_bit_errors;
pub mod random_sample;
pub mod random_source;
pub mod random_switch;
mod rated_pull;
pub mod rated_source;
pub mod rated_splitter;
pub mod rated_unqueue;
pub mod record_timestamp;
mod replay;
pub mod replay_unqueue;
pub mod resize;
pub mod round_robin_sched;
pub mod round_robin_switch;
pub mod set_anno_byte;
pub mod set_crc32;
pub mod set_packet_type;
pub mod set_timestamp;
pub mod set_timestamp_delta;
pub mod shaper;
pub mod simple_idle;
pub mod simple_prio_sched;
pub mod simple_pull_switch;
pub mod simple_queue;
pub mod simple_round_robin_sched;
mod splitter;
pub mod static_pull_switch;
pub mod static_switch;
pub mod store_data;
pub mod store_timestamp;
mod stride;
pub mod stride_sched;
pub mod stride_switch;
pub mod strip;
pub mod suppressor;
pub mod switch;
pub mod tee;
pub mod thread_safe_queue;
pub mod time_sorted_sched;
mod timed_pull;
pub mod timed_sink;
pub mod timed_source;
pub mod timed_unqueue;
pub mod timer_test;
pub mod timestamp_accum;
pub mod timestamp_diff;
pub mod truncate;
pub mod unqueue;
pub mod unstrip;

pub const CLASSES: &[&Class] = &[
    &adjust_timestamp::CLASS,
    &average_counter::CLASS,
    &bandwidth_meter::CLASS,
    &bandwidth_rated_splitter::CLASS,
    &bandwidth_rated_unqueue::CLASS,
    &bandwidth_shaper::CLASS,
    &block::CLASS,
    &burster::CLASS,
    &bypass::CLASS,
    &check_crc32::CLASS,
    &check_length::CLASS,
    &check_number_packet::CLASS,
    &check_paint::CLASS,
    &classifier::CLASS,
    &clipboard::CLASS,
    &compare_block::CLASS,
    &counter::CLASS,
    &counter_atomic::CLASS,
    &counter_lock::CLASS,
    &counter_mp::CLASS,
    &counter_prw::CLASS,
    &counter_rcu::CLASS,
    &counter_rw::CLASS,
    &delay_shaper::CLASS,
    &delay_unqueue::CLASS,
    &discard::CLASS,
    &drr_sched::CLASS,
    &duplicate::CLASS,
    &front_drop_queue::CLASS,
    &full_note_queue::CLASS,
    &hash_switch::CLASS,
    &hub::CLASS,
    &idle::CLASS,
    &infinite_source::CLASS,
    &input_switch::CLASS,
    &link_emulator::CLASS,
    &link_unqueue::CLASS,
    &meter::CLASS,
    &mixed_queue::CLASS,
    &move_data::CLASS,
    &ms_queue::CLASS,
    &multi_replay_unqueue::CLASS,
    &notifier_debug::CLASS,
    &notifier_queue::CLASS,
    &null::CLASS,
    &number_packet::CLASS,
    &pad::CLASS,
    &paint::CLASS,
    &paint_rr::CLASS,
    &paint_switch::CLASS,
    &paint_tee::CLASS,
    &print::CLASS,
    &prio_sched::CLASS,
    &pull_null::CLASS,
    &pull_switch::CLASS,
    &pull_tee::CLASS,
    &push_null::CLASS,
    &queue::CLASS,
    &quick_note_queue::CLASS,
    &random_bit_errors::CLASS,
    &random_sample::CLASS,
    &random_source::CLASS,
    &random_switch::CLASS,
    &rated_source::CLASS,
    &rated_splitter::CLASS,
    &rated_unqueue::CLASS,
    &record_timestamp::CLASS,
    &replay_unqueue::CLASS,
    &resize::CLASS,
    &round_robin_sched::CLASS,
    &round_robin_switch::CLASS,
    &set_anno_byte::CLASS,
    &set_crc32::CLASS,
    &set_packet_type::CLASS,
    &set_timestamp::CLASS,
    &set_timestamp_delta::CLASS,
    &shaper::CLASS,
    &simple_idle::CLASS,
    &simple_prio_sched::CLASS,
    &simple_pull_switch::CLASS,
    &simple_queue::CLASS,
    &simple_round_robin_sched::CLASS,
    &static_pull_switch::CLASS,
    &static_switch::CLASS,
    &store_data::CLASS,
    &store_timestamp::CLASS,
    &stride_sched::CLASS,
    &stride_switch::CLASS,
    &strip::CLASS,
    &suppressor::CLASS,
    &switch::CLASS,
    &tee::CLASS,
    &thread_safe_queue::CLASS,
    &time_sorted_sched::CLASS,
    &timed_sink::CLASS,
    &timed_source::CLASS,
    &timed_unqueue::CLASS,
    &timer_test::CLASS,
    &timestamp_accum::CLASS,
    &timestamp_diff::CLASS,
    &truncate::CLASS,
    &unqueue::CLASS,
    &unstrip::CLASS,
];
