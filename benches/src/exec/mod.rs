//! Unmodified programs by `ringway exec`, beside the same programs on the kernel's TCP.

mod lab;
mod rates;
mod start;

use crate::Failure;
use crate::entry::Entry;
use crate::harness::two_cores;
use crate::keys::{Group, QUIET};
use crate::plan::Plan;
use crate::run::Output;

/// All groups.
pub const GROUPS: &[Group] = &[Group {
    name: "exec",
    keys: &[
        (
            "redis",
            "redis-benchmark's GETs a second over 50 connections, through the switch; veth and a bridge",
        ),
        ("redis.p99", "the 99th percentile of their times"),
        ("redis.1", "time of a GET over one connection"),
        ("redis.pipe", "`redis` through a pipe; veth"),
        ("nginx.wrk", "wrk's requests a second for 1 KB from nginx, 32 kept connections; veth and a bridge"),
        ("nginx.wrk.close", "the same, a connection for each request"),
        ("iperf3", "one stream; veth and a bridge"),
        ("iperf3.pipe", "the same through a pipe; veth"),
        ("go.http", "wrk's requests a second from a static Go server; veth and a bridge"),
        ("kernel.iperf3", "`iperf3` with `--stack kernel`; veth and a bridge"),
        (
            "start",
            "from a command's start to the first byte from its program at a peer; without `ringway exec`",
        ),
        ("loaded", "BBR at 1% loss and 100 ms each way, every core busy; the same without load"),
    ],
    own_network: true,
    setup: 60.0,
    costs: 20.0,
    run,
    ..QUIET
}];

/// A benchmark.
type Measure = fn(&Plan) -> Result<Entry, Failure>;

fn run(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    two_cores()?;
    lab::program()?;
    if output.wants("redis") || output.wants("redis.p99") {
        let [rate, p99] = crate::tcp::all(rates::redis(plan));
        output.put("redis", rate);
        output.put("redis.p99", p99);
    }
    let each: [(&str, Measure); 10] = [
        ("redis.1", rates::redis_alone),
        ("redis.pipe", rates::redis_pipe),
        ("nginx.wrk", rates::nginx),
        ("nginx.wrk.close", rates::nginx_closing),
        ("iperf3", rates::stream),
        ("iperf3.pipe", rates::stream_pipe),
        ("go.http", rates::go),
        ("kernel.iperf3", rates::kernel_stream),
        ("start", start::start),
        ("loaded", start::loaded),
    ];
    for (key, measure) in each {
        if output.wants(key) {
            output.put(key, measure(plan));
        }
    }
    Ok(())
}
