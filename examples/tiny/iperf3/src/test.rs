//! A test, from its parameters to its results.

use crate::Bench;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::future::Future;
use core::time::Duration;
use ringway_tiny_program::{Error, Program, TcpStream};
use serde_json::{Value, json};

/// States, as the protocol numbers them.
const TEST_START: u8 = 1;
const TEST_RUNNING: u8 = 2;
const TEST_END: u8 = 4;
const PARAM_EXCHANGE: u8 = 9;
const CREATE_STREAMS: u8 = 10;
const CLIENT_TERMINATE: u8 = 12;
const EXCHANGE_RESULTS: u8 = 13;
const DISPLAY_RESULTS: u8 = 14;
/// State -2, after which the number of an error follows; that of a parameter that the server lacks.
const SERVER_ERROR: u8 = 0xfe;
const UNIMPLEMENTED: u32 = 13;
/// Attack: JSON without end.
const JSON: usize = 64 << 10;
/// Streams of a test, as iperf3 has at most.
const STREAMS: u64 = 128;
/// How long a peer may take for an answer. Attack: a client that begins a test and keeps others out.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// How long no stream may have a byte.
const STALL: Duration = Duration::from_secs(60);
/// Longest test: of a client that says how long, as iperf3 has at most, and of one that does not.
const LONGEST: u64 = 86_400;
const UNSAID: u64 = 3600;
/// How long a stream may take to notice the end of its test.
const SLICE: Duration = Duration::from_secs(1);
/// Bytes that are sent at once.
const BLOCK: usize = 64 << 10;

/// What the client asks for.
struct Parameters {
    streams: usize,
    reverse: bool,
    /// The longest time that the test may take.
    time: Duration,
}

/// The bytes of a stream.
#[derive(Default)]
struct Counted {
    bytes: Cell<u64>,
    /// The client has ended the test: no more are sent, and the stream is closed; otherwise it is aborted.
    ended: Cell<bool>,
    /// The test is over, or has failed: no more are received.
    over: Cell<bool>,
}

/// The streams of a test, which end with it whatever its result.
struct Streams(Vec<Rc<Counted>>);

impl Streams {
    fn sum(&self) -> u64 {
        self.0.iter().map(|count| count.bytes.get()).sum()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.0.iter().for_each(|count| count.over.set(true));
    }
}

/// Waits for the client, but not for ever.
async fn within<T>(program: &Program, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let late = || Err(Error::other("the client does not answer"));
    program.timeout(ANSWER_TIMEOUT, call).await.unwrap_or_else(late)
}

async fn json_of(stream: &mut TcpStream) -> Result<Value, Error> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).await?;
    let len = u32::from_be_bytes(len) as usize;
    if len > JSON {
        return Err(Error::other(format_args!("{len} bytes of JSON are too many")));
    }
    let mut text = vec![0; len];
    stream.read_exact(&mut text).await?;
    serde_json::from_slice(&text).map_err(Error::other)
}

async fn send_json(stream: &mut TcpStream, value: &Value) -> Result<(), Error> {
    let text = format!("{value}");
    stream.write_all(&(text.len() as u32).to_be_bytes()).await?;
    stream.write_all(text.as_bytes()).await
}

/// Reads the parameters; `None` if this server can't do that.
fn parameters(value: &Value) -> Option<Parameters> {
    let is_set =
        |name: &str| value[name].as_bool().unwrap_or(value[name].as_u64().is_some_and(|set| set != 0));
    let streams = value["parallel"].as_u64().unwrap_or(1);
    if is_set("udp") || is_set("sctp") || is_set("bidirectional") || !(1..=STREAMS).contains(&streams) {
        return None;
    }
    let seconds = |name: &str, other: u64| value[name].as_u64().unwrap_or(other).min(LONGEST);
    let is_said = !is_set("num") && !is_set("blockcount") && seconds("time", 10) > 0;
    let seconds = if is_said { seconds("time", 10) + seconds("omit", 0) } else { UNSAID };
    let time = Duration::from_secs(seconds) + ANSWER_TIMEOUT;
    Some(Parameters { streams: streams as usize, reverse: is_set("reverse"), time })
}

/// Runs a test; returns what it found.
pub async fn run(program: &Program, mut control: TcpStream, bench: &Bench) -> Result<String, Error> {
    control.set_nodelay(true)?;
    within(program, control.write_all(&[PARAM_EXCHANGE])).await?;
    let asked = within(program, json_of(&mut control)).await?;
    let Some(parameters) = parameters(&asked) else {
        let mut error = vec![SERVER_ERROR];
        error.extend([UNIMPLEMENTED, 0].map(u32::to_be_bytes).concat());
        within(program, control.write_all(&error)).await?;
        return Err(Error::other("only TCP in one direction is there"));
    };
    bench.want(parameters.streams);
    within(program, control.write_all(&[CREATE_STREAMS])).await?;
    let streams = program.timeout(ANSWER_TIMEOUT, bench.streams()).await;
    let streams = streams.ok_or_else(|| Error::other("the client opens too few streams"))?;
    within(program, control.write_all(&[TEST_START, TEST_RUNNING])).await?;
    let begun = program.now();
    let streams = begin(program, streams, parameters.reverse)?;
    let state = told(program, &mut control, &streams, parameters.time).await?;
    let time = program.now() - begun;
    match state {
        TEST_END => {}
        CLIENT_TERMINATE => return Err(Error::other("the client ended it")),
        other => return Err(Error::other(format_args!("the client is in state {other}"))),
    }
    streams.0.iter().for_each(|count| count.ended.set(true));
    settle(program, &streams).await;
    within(program, control.write_all(&[EXCHANGE_RESULTS])).await?;
    within(program, json_of(&mut control)).await?;
    within(program, send_json(&mut control, &results(&streams.0, time))).await?;
    within(program, control.write_all(&[DISPLAY_RESULTS])).await?;
    // IPERF_DONE, or the end.
    let _ = within(program, control.read(&mut [0])).await;
    let bytes = streams.sum();
    let rate = bytes as u128 * 8_000 / time.as_nanos().max(1);
    let way = if parameters.reverse { "sent" } else { "received" };
    Ok(format!("{way} {} MB in {} ms, {rate} Mbit/s", bytes / 1_000_000, time.as_millis()))
}

/// The client's next state, once it ends the test.
async fn told(
    program: &Program,
    control: &mut TcpStream,
    streams: &Streams,
    most: Duration,
) -> Result<u8, Error> {
    let (begun, mut state) = (program.now(), [0]);
    loop {
        let before = streams.sum();
        let left = most.saturating_sub(program.now() - begun);
        match program.timeout(left.min(STALL), control.read(&mut state)).await {
            Some(read) => return if read? == 0 { Err(Error::Ended) } else { Ok(state[0]) },
            None if left <= STALL => return Err(Error::other("the client does not end the test")),
            None if streams.sum() == before => return Err(Error::other("no stream has bytes")),
            None => {}
        }
    }
}

/// Waits for what is still on the way: the control connection may be faster than the streams.
async fn settle(program: &Program, streams: &Streams) {
    for _ in 0..50 {
        let before = streams.sum();
        program.sleep(Duration::from_millis(10)).await;
        if streams.sum() == before {
            return;
        }
    }
}

/// Begins to send or receive on all streams.
fn begin(program: &Program, streams: Vec<TcpStream>, reverse: bool) -> Result<Streams, Error> {
    let mut all = Streams(Vec::new());
    for mut stream in streams {
        let counted = Rc::new(Counted::default());
        all.0.push(counted.clone());
        let own = program.clone();
        program.spawn(async move {
            // An error ends the stream; the control connection tells why.
            let _ = match reverse {
                true => send(&own, &mut stream, &counted).await,
                false => receive(&own, &mut stream, &counted).await,
            };
            if !counted.ended.get() {
                stream.abort();
            }
        })?;
    }
    Ok(all)
}

async fn receive(program: &Program, stream: &mut TcpStream, counted: &Counted) -> Result<(), Error> {
    while !counted.over.get() {
        match program.timeout(SLICE, stream.skip(usize::MAX)).await.transpose()? {
            Some(0) => return Ok(()),
            count => counted.bytes.set(counted.bytes.get() + count.unwrap_or_default() as u64),
        }
    }
    Ok(())
}

async fn send(program: &Program, stream: &mut TcpStream, counted: &Counted) -> Result<(), Error> {
    let block = vec![0; BLOCK];
    while !counted.ended.get() && !counted.over.get() {
        let count = program.timeout(SLICE, stream.write(&block)).await.transpose()?;
        counted.bytes.set(counted.bytes.get() + count.unwrap_or_default() as u64);
    }
    Ok(())
}

/// What the client shows of this side.
fn results(counts: &[Rc<Counted>], time: Duration) -> Value {
    let stream = |(at, count): (usize, &Rc<Counted>)| {
        json!({
            // iperf3 numbers streams 1, 3, 4 and so on.
            "id": if at == 0 { 1 } else { at + 2 },
            "bytes": count.bytes.get(),
            "retransmits": -1,
            "jitter": 0,
            "errors": 0,
            "omitted_errors": 0,
            "packets": 0,
            "omitted_packets": 0,
            "start_time": 0,
            "end_time": time.as_micros() as f64 / 1e6,
        })
    };
    json!({
        "cpu_util_total": 0,
        "cpu_util_user": 0,
        "cpu_util_system": 0,
        "sender_has_retransmits": 0,
        "streams": counts.iter().enumerate().map(stream).collect::<Vec<Value>>(),
    })
}
