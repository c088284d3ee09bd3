//! Unmodified programs by `ringway exec`, beside the same programs on the kernel's TCP.

pub mod lab;
mod rates;
mod start;

use crate::keys::{Group, QUIET, Row, Several, With, keys};

/// All groups.
pub const GROUPS: &[Group] = &[Group {
    name: "exec",
    keys: keys! {
        "redis": Several(rates::redis),
            "redis-benchmark's GETs a second over 50 connections, through the switch; veth and a bridge";
        "redis.p99": With("redis"), "the 99th percentile of their times";
        "redis.1": Row(rates::redis_alone), "time of a GET over one connection";
        "redis.pipe": Row(rates::redis_pipe), "`redis` through a pipe; veth";
        "redis.direct": Several(rates::redis_direct), "`redis` with `--direct`";
        "redis.direct.p99": With("redis.direct"), "`redis.p99` with `--direct`";
        "redis.1.direct": Row(rates::redis_alone_direct), "`redis.1` with `--direct`";
        "nginx.wrk": Row(rates::nginx),
            "wrk's requests a second for 1 KB from nginx, 32 kept connections; veth and a bridge";
        "nginx.wrk.close": Row(rates::nginx_closing), "the same, a connection for each request";
        "nginx.wrk.direct": Row(rates::nginx_direct), "`nginx.wrk` with `--direct`";
        "nginx.wrk.close.direct": Row(rates::nginx_closing_direct), "`nginx.wrk.close` with `--direct`";
        "iperf3": Row(rates::stream), "one stream; veth and a bridge";
        "iperf3.direct": Row(rates::stream_direct), "`iperf3` with `--direct`";
        "iperf3.pipe": Row(rates::stream_pipe), "the same through a pipe; veth";
        "go.http": Row(rates::go), "wrk's requests a second from a static Go server; veth and a bridge";
        "kernel.iperf3": Row(rates::kernel_stream), "`iperf3` with `--stack kernel`; veth and a bridge";
        "start": Row(start::start),
            "from a command's start to the first byte from its program at a peer; without `ringway exec`";
        "loaded": Row(start::loaded),
            "BBR at 1% loss and 100 ms each way, every core busy; the same without load";
        "linux.iperf3": Row(rates::linux_stream), "`iperf3` with `--stack linux`; veth and a bridge";
        "linux.bbr.loss1": Row(start::linux_on_bad_line),
            "Linux's BBR in a guest at 1% loss and 100 ms each way; `--stack native`, and the host's kernel";
    },
    own_network: true,
    setup: 60.0,
    costs: 20.0,
    prepare: || lab::program().map(drop),
    ..QUIET
}];
