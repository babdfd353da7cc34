//! HTTP/1.1 for a browser on this machine or a few people beside it: a thread for each connection, GET without a body, connections that
//! stay open.
//!
//! Why not a library: of the small ones, `tiny_http` shares threads between connections, and a connection that arrives while the last idle
//! thread is just waking up is queued behind connections that stay open for minutes. A browser opens six at once, so on a busy machine
//! every few starts of the page hung. Larger ones bring an asynchronous runtime for what are a hundred lines.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::http::{Answer, Ask};

/// Connections at the same time; more are closed at once.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's line and headers.
const HEAD_MAX: u64 = 32 << 10;
/// A connection that says nothing for so long is closed; a browser opens it anew.
const IDLE: Duration = Duration::from_secs(60);
/// A browser that takes nothing for so long is gone.
const STUCK: Duration = Duration::from_secs(60);

/// Answers requests until the listener fails.
///
/// # Errors
/// Of the listener.
pub fn serve(listener: &TcpListener, answer: impl Fn(&Ask<'_>) -> Answer + Send + Sync + 'static) -> io::Result<()> {
    let (answer, open) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // Of one connection, not of the listener: it went away before it was accepted, or there are no descriptors for the moment.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted || error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.raw_os_error().is_some_and(|code| code == nix::libc::EMFILE || code == nix::libc::ENFILE) => {
                thread::sleep(Duration::from_millis(100));
                continue;
            }
            Err(error) => return Err(error),
        };
        if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            continue;
        }
        let place = Place::new(&open);
        let answer = answer.clone();
        thread::spawn(move || {
            let _place = place;
            // A browser that goes away in the middle of an answer is no event.
            let _ = connection(&stream, &*answer);
        });
    }
}

/// A connection that is counted while it lives.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn new(open: &Arc<AtomicUsize>) -> Place {
        open.fetch_add(1, Ordering::Relaxed);
        Place(open.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a request says, as far as it matters.
#[derive(Debug, Default, PartialEq, Eq)]
struct Head {
    method: String,
    target: String,
    host: Option<String>,
    cookie: Option<String>,
    keeps: bool,
    has_body: bool,
}

fn connection(stream: &TcpStream, answer: &dyn Fn(&Ask<'_>) -> Answer) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(STUCK))?;
    let mut reader = BufReader::new(stream);
    loop {
        let head = match read_head(&mut reader)? {
            Heard::Nothing => return Ok(()),
            Heard::Wrong => {
                write(stream, &Answer::refused(400, "this is not a request that the viewer understands"), false)?;
                return finish(stream);
            }
            Heard::Head(head) => head,
        };
        let ask = Ask { method: &head.method, target: &head.target, host: head.host.as_deref(), cookie: head.cookie.as_deref() };
        // A body is never read: the connection ends behind it.
        let keeps = head.keeps && !head.has_body;
        write(stream, &answer(&ask), keeps)?;
        if !keeps {
            return finish(stream);
        }
    }
}

enum Heard {
    /// The connection ended between two requests.
    Nothing,
    /// This is no request.
    Wrong,
    /// A request.
    Head(Head),
}

fn read_head(reader: &mut impl BufRead) -> io::Result<Heard> {
    let mut limited = reader.take(HEAD_MAX);
    let mut line = Vec::new();
    let mut next = |line: &mut Vec<u8>| -> io::Result<Option<String>> {
        line.clear();
        limited.read_until(b'\n', line)?;
        let whole = line.strip_suffix(b"\n").map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        Ok(whole.and_then(|line| std::str::from_utf8(line).ok()).map(str::to_string))
    };
    let Some(first) = next(&mut line)? else {
        return Ok(if line.is_empty() { Heard::Nothing } else { Heard::Wrong });
    };
    let words: Vec<&str> = first.split(' ').collect();
    let [method, target, version] = words[..] else { return Ok(Heard::Wrong) };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Ok(Heard::Wrong);
    }
    let mut head = Head { method: method.into(), target: target.into(), keeps: version == "HTTP/1.1", ..Head::default() };
    loop {
        let Some(line) = next(&mut line)? else { return Ok(Heard::Wrong) };
        if line.is_empty() {
            return Ok(Heard::Head(head));
        }
        let Some((name, value)) = line.split_once(':') else { return Ok(Heard::Wrong) };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            // Two names of this machine: one of them could be meant for somebody else.
            "host" if head.host.is_some() => return Ok(Heard::Wrong),
            "host" => head.host = Some(value.into()),
            "cookie" => head.cookie = Some(value.into()),
            "connection" if value.eq_ignore_ascii_case("close") => head.keeps = false,
            "content-length" => head.has_body |= value != "0",
            "transfer-encoding" => head.has_body = true,
            _ => {}
        }
    }
}

fn write(mut stream: &TcpStream, answer: &Answer, keeps: bool) -> io::Result<()> {
    let mut bytes = format!("HTTP/1.1 {} {}\r\n", answer.status, reason(answer.status)).into_bytes();
    for (name, value) in answer.all_headers() {
        // Nothing that a header says may begin another one.
        let value: String = value.chars().filter(|letter| !letter.is_control()).collect();
        bytes.extend(format!("{name}: {value}\r\n").into_bytes());
    }
    let connection = if keeps { "keep-alive" } else { "close" };
    bytes.extend(format!("Content-Length: {}\r\nConnection: {connection}\r\n\r\n", answer.body.len()).into_bytes());
    // One packet for a small answer.
    if answer.body.len() < 64 << 10 {
        bytes.extend(&answer.body);
        return stream.write_all(&bytes);
    }
    stream.write_all(&bytes)?;
    stream.write_all(&answer.body)
}

/// Ends a connection so that its last answer arrives even if the other side still sends: closing with unread bytes would reset it.
fn finish(mut stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    let mut rest = [0; 4096];
    for _ in 0..16 {
        if stream.read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        303 => "See Other",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        421 => "Misdirected Request",
        503 => "Service Unavailable",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || serve(&listener, |ask| Answer::ok("text/plain", format!("{} {} {:?}", ask.method, ask.target, ask.host))));
        address
    }

    /// The body of the next answer on a connection.
    fn answer(reader: &mut impl BufRead) -> String {
        let mut len = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                len = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
            assert!(!line.is_empty(), "the connection ended");
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
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
                assert_eq!(answer(reader), format!("GET /{round} Some(\"h\")"));
            }
        }
    }

    proptest::proptest! {
        /// Any bytes: a request, none, or an end; never a crash.
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300), begin in proptest::bool::ANY) {
            let mut whole = if begin { b"GET /x HTTP/1.1\r\n".to_vec() } else { Vec::new() };
            whole.extend(bytes);
            if let Heard::Head(head) = read_head(&mut whole.as_slice()).expect("memory does not fail") {
                proptest::prop_assert!(!head.target.contains(' '));
            }
        }
    }

    #[test]
    fn a_request_that_is_none_is_refused_and_the_next_connection_is_answered() {
        let address = start();
        let long = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(HEAD_MAX as usize));
        for wrong in [
            "nonsense\r\n\r\n",
            "GET /\r\n\r\n",
            "GET / HTTP/2\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            &long,
        ] {
            let mut stream = TcpStream::connect(address).unwrap();
            let _ = stream.write_all(wrong.as_bytes());
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert!(text.starts_with("HTTP/1.1 400 ") && text.contains("Connection: close"), "{wrong:.40}: {text}");
        }
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("POST /x Some(\"h\")"), "a body is not read, and the connection ends: {text}");
    }
}
