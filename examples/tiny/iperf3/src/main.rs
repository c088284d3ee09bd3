//! The server that iperf3 measures TCP with: `iperf3 -c ADDRESS`, also with `-P` and `-R`. One test at a time.
//!
//! A test has a control connection, on which each side tells the other its state by a byte, and streams; all begin with
//! the test's cookie. Parameters and results are JSON.
#![no_std]
#![no_main]

extern crate alloc;

mod test;

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::poll_fn;
use core::task::{Poll, Waker};
use core::time::Duration;
use ringway_tiny_program::{Error, Program, TcpStream, log};

const PORT: u16 = 5201;
/// Bytes of a cookie, the zero at its end included.
const COOKIE: usize = 37;
/// How long a peer may take for its cookie.
const COOKIE_TIMEOUT: Duration = Duration::from_secs(10);
/// The state of a server that is busy: -1.
const ACCESS_DENIED: u8 = 0xff;

type Cookie = [u8; COOKIE];

ringway_tiny_program::main!(main);

/// The test that runs.
struct Running {
    cookie: Cookie,
    /// Streams that it still needs, and those that it has not taken.
    wanted: usize,
    streams: Vec<TcpStream>,
    waiter: Option<Waker>,
}

/// What connections share.
#[derive(Default)]
pub struct Bench(RefCell<Option<Running>>);

impl Bench {
    /// Begins a test, unless one runs.
    fn begin(&self, cookie: Cookie) -> bool {
        let mut running = self.0.borrow_mut();
        let is_free = running.is_none();
        if is_free {
            *running = Some(Running { cookie, wanted: 0, streams: Vec::new(), waiter: None });
        }
        is_free
    }

    fn end(&self) {
        *self.0.borrow_mut() = None;
    }

    /// Gives a stream to the test that waits for it.
    fn offer(&self, cookie: &Cookie, stream: TcpStream) -> Result<(), TcpStream> {
        let mut running = self.0.borrow_mut();
        match running.as_mut().filter(|running| running.cookie == *cookie && running.wanted > 0) {
            Some(running) => {
                running.wanted -= 1;
                running.streams.push(stream);
                running.waiter.take().into_iter().for_each(Waker::wake);
                Ok(())
            }
            None => Err(stream),
        }
    }

    /// From now on the test takes so many streams.
    pub fn want(&self, count: usize) {
        self.0.borrow_mut().iter_mut().for_each(|running| running.wanted = count);
    }

    /// All streams of the test, once they are there.
    pub async fn streams(&self) -> Vec<TcpStream> {
        poll_fn(|cx| {
            let mut running = self.0.borrow_mut();
            match running.as_mut() {
                Some(running) if running.wanted > 0 => {
                    running.waiter = Some(cx.waker().clone());
                    Poll::Pending
                }
                running => Poll::Ready(
                    running.map(|running| core::mem::take(&mut running.streams)).unwrap_or_default(),
                ),
            }
        })
        .await
    }
}

async fn main(program: Program) -> Result<(), Error> {
    let mut listener = program.network()?.listen(PORT)?;
    let bench = Rc::new(Bench::default());
    log!(program, "iperf3 -c ADDRESS measures");
    loop {
        let stream = listener.accept().await?;
        // Where there are as many tasks as there may be, the connection is closed.
        let _ = program.spawn(greet(program.clone(), stream, bench.clone()));
    }
}

/// Finds out what a connection is for.
async fn greet(program: Program, mut stream: TcpStream, bench: Rc<Bench>) {
    let mut cookie = [0; COOKIE];
    if !matches!(program.timeout(COOKIE_TIMEOUT, stream.read_exact(&mut cookie)).await, Some(Ok(()))) {
        return;
    }
    let Err(mut stream) = bench.offer(&cookie, stream) else { return };
    if !bench.begin(cookie) {
        // The peer may be gone.
        let _ = program.timeout(COOKIE_TIMEOUT, stream.write_all(&[ACCESS_DENIED])).await;
        return;
    }
    let peer = stream.peer();
    match test::run(&program, stream, &bench).await {
        Ok(text) => log!(program, "{peer}: {text}"),
        Err(error) => log!(program, "{peer}: the test failed: {error}"),
    }
    bench.end();
}
