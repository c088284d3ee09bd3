//! Units in other languages: the protocol's calls as JSON over HTTP.

use super::link::{LONGEST, Link, LinkError, Request, bounded};
use super::options::Service;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A service. A separate thread waits for it, whatever thread makes the call.
pub(super) struct Http {
    orders: Sender<(String, Vec<u8>, Duration)>,
    answers: Receiver<Result<Vec<u8>, LinkError>>,
    is_new: bool,
    ended: bool,
}

/// Host, port and path of a service.
struct Address {
    authority: String,
    path: String,
}

impl Http {
    /// Prepares a client for a service; the first request connects.
    pub fn new(service: &Service) -> Result<Http, LinkError> {
        let address = address(&service.url)?;
        let (orders, ordered) = channel::<(String, Vec<u8>, Duration)>();
        let (answered, answers) = channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| LinkError::Gone(error.to_string()))?;
        std::thread::spawn(move || {
            let mut connection = None;
            while let Ok((op, body, within)) = ordered.recv() {
                let asked = ask(&mut connection, &address, &op, body);
                let answer = runtime.block_on(async {
                    tokio::time::timeout(within, asked).await.unwrap_or(Err(LinkError::Late(within)))
                });
                if answered.send(answer).is_err() {
                    break;
                }
            }
        });
        Ok(Http { orders, answers, is_new: true, ended: false })
    }
}

impl Link for Http {
    fn exchange(&mut self, requests: &[Request]) -> Vec<Result<Vec<u8>, LinkError>> {
        let (mut answers, mut bytes) = (Vec::new(), 0);
        for request in requests {
            let order = (request.op.to_string(), request.body.clone(), request.within);
            let over = || LinkError::Gone("its thread ended".into());
            let sent = self.orders.send(order).map_err(|_| over());
            let answer = sent.and_then(|()| self.answers.recv().map_err(|_| over())?);
            let answer = bounded(answer, &mut bytes);
            let is_over = answer.is_err();
            answers.push(answer);
            if is_over {
                self.ended = true;
                break;
            }
        }
        answers
    }

    fn changed(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }

    fn ended(&self) -> bool {
        self.ended
    }
}

/// Whether an address is valid for a service.
pub fn is_url(url: &str) -> bool {
    address(url).is_ok()
}

fn address(url: &str) -> Result<Address, LinkError> {
    let wrong = || LinkError::Gone(format!("{url}: is not http://HOST:PORT/PATH"));
    let uri: hyper::Uri = url.parse().map_err(|_| wrong())?;
    let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http")).ok_or_else(wrong)?;
    let port = authority.port_u16().unwrap_or(80);
    let path = uri.path().trim_end_matches('/').to_string();
    Ok(Address { authority: format!("{}:{port}", authority.host()), path })
}

async fn ask(
    connection: &mut Option<SendRequest<Full<Bytes>>>,
    address: &Address,
    op: &str,
    body: Vec<u8>,
) -> Result<Vec<u8>, LinkError> {
    let gone = |error: &dyn std::fmt::Display| LinkError::Gone(format!("{}: {error}", address.authority));
    let is_open = match connection {
        Some(open) => open.ready().await.is_ok(),
        None => false,
    };
    if !is_open {
        let stream =
            tokio::net::TcpStream::connect(&address.authority).await.map_err(|error| gone(&error))?;
        // Requests are small, and their answers are waited for.
        stream.set_nodelay(true).map_err(|error| gone(&error))?;
        let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(|error| gone(&error))?;
        tokio::spawn(driver);
        *connection = Some(sender);
    }
    let Some(sender) = connection.as_mut() else { return Err(gone(&"not connected")) };
    let request = hyper::Request::post(format!("{}/{op}", address.path))
        .header("host", &address.authority)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| gone(&error))?;
    let response = sender.send_request(request).await.map_err(|error| gone(&error))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LONGEST).collect().await.map_err(|error| gone(&error))?;
    if status.is_success() { Ok(body.to_bytes().to_vec()) } else { Err(gone(&format!("answers {status}"))) }
}
