//! HTTP/1.1 for a browser on this machine or a few people beside it: `hyper` on one thread, answers
//! computed on others, so that neither a slow answer nor a connection that stays open makes anybody
//! wait. When all places are taken, a connection that has not asked for anything yet makes room,
//! the oldest first, and then one that waits for its next question: whoever opens connections and
//! says nothing keeps nobody out.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{COOKIE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::AbortHandle;

use crate::door::{Answer, Ask};

/// Connections at the same time.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's line and headers.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// A request that is not complete after this time ends its connection, and so does silence; a
/// browser opens it anew.
const REQUEST_MAX: Duration = Duration::from_secs(20);
/// Nor does any connection last longer than this: its browser may have stopped reading.
const LIFE_MAX: Duration = Duration::from_secs(600);
/// After a failed accept, for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// While all connections are being answered.
const TURN: Duration = Duration::from_millis(5);

/// A connection.
struct Visitor {
    task: AbortHandle,
    state: Arc<VisitorState>,
}

#[derive(Default)]
struct VisitorState {
    /// Requests that are being answered, and those that were.
    answering: AtomicU32,
    answered: AtomicU32,
}

/// Who makes room for another one: of those who are not being answered the oldest, who never asked
/// before who did.
fn in_the_way(visitors: &VecDeque<Visitor>) -> Option<usize> {
    let idle = || visitors.iter().enumerate().filter(|(_, visitor)| visitor.state.answering.load(Ordering::Relaxed) == 0);
    let never_asked = idle().find(|(_, visitor)| visitor.state.answered.load(Ordering::Relaxed) == 0);
    never_asked.or_else(|| idle().next()).map(|(place, _)| place)
}

/// Answers requests for as long as the process lives. `answer` may take its time.
///
/// # Errors
/// If the listener cannot be used.
pub fn serve(listener: TcpListener, answer: impl Fn(&Ask<'_>) -> Answer + Send + Sync + 'static) -> io::Result<()> {
    let answer: Arc<Answering> = Arc::new(answer);
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(CONNECTIONS_MAX).build()?;
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut visitors: VecDeque<Visitor> = VecDeque::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            loop {
                visitors.retain(|visitor| !visitor.task.is_finished());
                if visitors.len() < CONNECTIONS_MAX {
                    break;
                }
                match in_the_way(&visitors).and_then(|place| visitors.remove(place)) {
                    Some(visitor) => visitor.task.abort(),
                    None => tokio::time::sleep(TURN).await,
                }
            }
            let (answer, state) = (answer.clone(), Arc::<VisitorState>::default());
            let theirs = state.clone();
            let task = tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let (answer, state) = (answer.clone(), theirs.clone());
                    async move {
                        state.answering.fetch_add(1, Ordering::Relaxed);
                        let answered = respond(answer, request).await;
                        state.answering.fetch_sub(1, Ordering::Relaxed);
                        state.answered.fetch_add(1, Ordering::Relaxed);
                        answered
                    }
                });
                let mut protocol = http1::Builder::new();
                protocol.timer(TokioTimer::new()).header_read_timeout(REQUEST_MAX).max_buf_size(HEAD_BYTES_MAX).title_case_headers(true);
                // Who has said all that it wants still hears the answer.
                protocol.half_close(true);
                // A browser that goes away in the middle of an answer is no event.
                let _ = tokio::time::timeout(LIFE_MAX, protocol.serve_connection(TokioIo::new(stream), service)).await;
            });
            visitors.push_back(Visitor { task: task.abort_handle(), state });
        }
    })
}

type Answering = dyn Fn(&Ask<'_>) -> Answer + Send + Sync;

async fn respond(answer: Arc<Answering>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, _body) = request.into_parts();
    // What came at once may be longer than what is read on.
    let target_bytes = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    let head_bytes = target_bytes + head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
    let answered = tokio::task::spawn_blocking(move || {
        if head_bytes > HEAD_BYTES_MAX {
            return Answer::refused(431, "the head of the request is too long");
        }
        let headers = [HOST, COOKIE].map(|name| only(&head.headers, &name));
        let [Ok(host), Ok(cookie)] = headers else {
            return Answer::refused(400, "a header comes twice or is no text");
        };
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        answer(&Ask { method: head.method.as_str(), target, host, cookie })
    });
    let answer = answered.await.unwrap_or_else(|_| Answer::refused(500, "the viewer failed at this; the terminal says more"));
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in answer.all_headers() {
        // What cannot be a header's value is left out: nothing that it says may begin another one.
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&value)) {
            response.headers_mut().append(name, value);
        }
    }
    *response.body_mut() = Full::new(answer.body.into());
    Ok(response)
}

/// The value of a header that may come once. Two names of this machine, for example: one of them
/// could be meant for somebody else.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(|value| value.to_str().map_err(|_| ())).transpose()?;
    if values.next().is_some() { Err(()) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{Shutdown, TcpStream};
    use std::thread;

    fn start() -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            serve(listener, |ask| match ask.target {
                "/panic" => panic!("as asked"),
                _ => Answer::ok("text/plain", format!("{} {} {:?}", ask.method, ask.target, ask.host)),
            })
        });
        address
    }

    /// Status and body of the next answer on a connection.
    fn answer(reader: &mut impl BufRead) -> (u16, String) {
        let (mut len, mut status) = (0, 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            assert!(!line.is_empty(), "the connection ended");
            let line = line.trim().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().unwrap();
            } else if let Some(value) = line.strip_prefix("content-length: ") {
                len = value.parse().unwrap();
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body).unwrap();
        (status, String::from_utf8(body).unwrap())
    }

    #[test]
    fn many_connections_that_stay_open_are_all_answered_again_and_again() {
        let address = start();
        let mut open: Vec<_> = (0..40).map(|_| BufReader::new(TcpStream::connect(address).unwrap())).collect();
        for round in 0..3 {
            for reader in &mut open {
                write!(reader.get_mut(), "GET /{round} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            }
            for reader in open.iter_mut().rev() {
                assert_eq!(answer(reader), (200, format!("GET /{round} Some(\"h\")")));
            }
        }
    }

    #[test]
    fn half_requests_keep_nobody_out() {
        let address = start();
        let mut known = BufReader::new(TcpStream::connect(address).unwrap());
        write!(known.get_mut(), "GET /first HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        assert_eq!(answer(&mut known).0, 200);
        let half: Vec<_> = (0..3 * CONNECTIONS_MAX)
            .map(|_| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(b"GET / HTTP/1.1\r\nHos").unwrap();
                stream
            })
            .collect();
        for _ in 0..5 {
            let stream = TcpStream::connect(address).unwrap();
            // Half of the time that a request may take: nobody waited for the others to be given
            // up.
            stream.set_read_timeout(Some(REQUEST_MAX / 2)).unwrap();
            let mut reader = BufReader::new(stream);
            write!(reader.get_mut(), "GET /next HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            assert_eq!(answer(&mut reader).0, 200);
        }
        write!(known.get_mut(), "GET /again HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        assert_eq!(answer(&mut known).0, 200, "who has asked before stays");
        drop(half);
    }

    #[test]
    fn who_ends_its_side_is_answered() {
        let mut reader = BufReader::new(TcpStream::connect(start()).unwrap());
        write!(reader.get_mut(), "GET /last HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        reader.get_mut().shutdown(Shutdown::Write).unwrap();
        assert_eq!(answer(&mut reader), (200, "GET /last Some(\"h\")".to_string()));
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn what_is_no_request_is_refused_and_the_next_connection_is_answered() {
        let address = start();
        let long = [5, 8, 32].map(|quarters| format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(quarters * HEAD_BYTES_MAX / 4)));
        let [too_long, longer, longest] = &long;
        for wrong in [
            "nonsense\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            too_long,
            longer,
            longest,
        ] {
            let mut stream = TcpStream::connect(address).unwrap();
            // It may be refused before it has been read to its end.
            let _ = stream.write_all(wrong.as_bytes());
            let _ = stream.shutdown(Shutdown::Write);
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said);
            assert!(wrong != too_long || said.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&said));
            assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 4"), "{wrong:?}: {}", String::from_utf8_lossy(&said));
        }
        let mut reader = BufReader::new(TcpStream::connect(address).unwrap());
        write!(reader.get_mut(), "GET /panic HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        assert_eq!(answer(&mut reader).0, 500);
        write!(reader.get_mut(), "GET /a HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(answer(&mut reader), (200, "GET /a None".to_string()));
    }
}
