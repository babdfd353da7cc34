//! A peer that speaks the wire format by hand, so that it can say what no honest client says.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use weft_base::{ClientId, FsId, Handle, Payload, RequestId, ServerId, Status};
use weft_wire::handshake::{ANY_SERVER, Challenge, ClientHandshake, Hello, NONCE_BYTES, RegionAnswer, RegionOffer, Welcome, frame};
use weft_wire::{
    AUTH_TAG_BYTES, ClusterKey, Credential, Features, Flags, Frame, HEADER_BYTES, HandleTag, Header, KeyId, LENGTH_BYTES, MessageKind, Op,
    Operation, SessionCiphers, Tagged, Wire, crc32c,
};

/// A server answers or closes within this time, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection to one server.
#[derive(Debug)]
pub struct Peer {
    stream: Stream,
    /// Who we say we are.
    pub client: ClientId,
    /// Who the server says it is.
    pub server: ServerId,
    sequence: u64,
    /// What encrypts TCP, as honest clients do; and what was read and not asked for yet.
    ciphers: Option<SessionCiphers>,
    inbox: Vec<u8>,
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(buffer),
            Stream::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the key file of servers.
pub fn read_key(file: &Path) -> ClusterKey {
    read_credential(file).key
}

/// Reads a key file.
pub fn read_credential(file: &Path) -> Credential {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let (id, digits) = text.trim().split_once(':').unwrap_or(("0", text.trim()));
    let id = KeyId(id.parse().expect("the number of a key"));
    let (digits, root) = digits.split_once(':').unwrap_or((digits, "1"));
    let root = Handle(root.parse().expect("a handle"));
    let mut key = [0; 32];
    for (index, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[index * 2..index * 2 + 2], 16).expect("a key is 64 hexadecimal digits");
    }
    Credential { id, key: ClusterKey(key), root }
}

impl Peer {
    /// Connects to `unix:PATH` or `tcp:HOST:PORT` without saying anything.
    ///
    /// # Errors
    /// Of the socket.
    pub fn connect(address: &str) -> io::Result<Peer> {
        let stream = match address.split_once(':') {
            Some(("unix", path)) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Stream::Unix(stream)
            }
            Some(("tcp", address)) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Stream::Tcp(stream)
            }
            _ => panic!("no address: {address}"),
        };
        Ok(Peer { stream, client: ClientId(0), server: ANY_SERVER, sequence: 0, ciphers: None, inbox: Vec::new() })
    }

    /// Connects and proves the key.
    ///
    /// # Errors
    /// Of the socket, or the server's refusal as [`Status`] inside.
    pub fn join(address: &str, key: &ClusterKey, client: ClientId) -> io::Result<Peer> {
        let hello = ClientHandshake::hello(FsId(0), "", ANY_SERVER, client, 1, [client.0 as u8; NONCE_BYTES]);
        Peer::join_with(address, key, hello)
    }

    /// Connects as a client with its own key.
    ///
    /// # Errors
    /// As [`Peer::join`].
    pub fn join_as(address: &str, credential: &Credential, client: ClientId) -> io::Result<Peer> {
        let hello = ClientHandshake::hello(FsId(0), "", ANY_SERVER, client, 1, [client.0 as u8; NONCE_BYTES]);
        Peer::join_with(address, &credential.key, Hello { key: credential.id, ..hello })
    }

    /// The same with any hello.
    ///
    /// # Errors
    /// As [`Peer::join`].
    pub fn join_with(address: &str, key: &ClusterKey, hello: Hello) -> io::Result<Peer> {
        let mut peer = Peer::connect(address)?;
        let hello = match &peer.stream {
            Stream::Tcp(_) => Hello { features: hello.features.with(Features::ENCRYPTION), ..hello },
            Stream::Unix(_) => hello,
        };
        let client = hello.client;
        peer.send(&frame(&hello))?;
        let mut handshake = ClientHandshake::new(key.clone(), hello);
        let challenge: Challenge = peer.handshake_message()?;
        peer.server = challenge.server;
        let proof = handshake.answer(&challenge).map_err(io::Error::other)?;
        peer.send(&frame(&proof))?;
        let welcome: Welcome = peer.handshake_message()?;
        if welcome.status != 0 {
            return Err(io::Error::other(Status::from_code(welcome.status)));
        }
        peer.client = client;
        peer.ciphers = handshake.ciphers(&challenge);
        Ok(peer)
    }

    /// Sends any bytes. Bulk data of whole frames at their beginning gets envelopes of its own.
    ///
    /// # Errors
    /// Of the socket.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(ciphers) = &mut self.ciphers else { return self.stream.write_all(bytes) };
        let (mut out, mut rest) = (Vec::with_capacity(bytes.len()), bytes);
        while !rest.is_empty() {
            let ends = rest.first_chunk::<HEADER_BYTES>().and_then(|head| {
                let header = Header::decode(head).ok()?;
                let end = HEADER_BYTES + header.body_bytes as usize;
                rest.get(..end + header.following_bulk_bytes()).map(|whole| [end, whole.len()])
            });
            let [head, end] = ends.unwrap_or([rest.len(); 2]);
            for part in [&rest[..head], &rest[head..end]] {
                let mut pieces = &mut [io::IoSlice::new(part)][..];
                while !pieces.is_empty() && !pieces[0].is_empty() {
                    ciphers.to_server.encrypt(&mut pieces, &mut out);
                }
            }
            rest = &rest[end..];
        }
        self.stream.write_all(&out)
    }

    /// The next frame, its checksums checked.
    ///
    /// # Errors
    /// Of the socket (`UnexpectedEof` if the server has closed), `InvalidData` if the server sends
    /// nonsense.
    pub fn receive(&mut self) -> io::Result<Frame> {
        let block = self.take(HEADER_BYTES)?;
        let block = block.first_chunk().expect("so many bytes were taken");
        let header = Header::decode(block).map_err(|status| io::Error::new(io::ErrorKind::InvalidData, status))?;
        let body = self.take(header.body_bytes as usize)?;
        let bulk = self.take(header.following_bulk_bytes())?;
        let has_checksums = self.ciphers.is_none();
        if has_checksums && (crc32c(&body) != header.body_crc || (!header.names_region() && crc32c(&bulk) != header.bulk_crc)) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, Status::BadChecksum));
        }
        Ok(Frame { header, body, bulk: Payload::Real(bulk) })
    }

    fn take(&mut self, len: usize) -> io::Result<Bytes> {
        let Some(ciphers) = &mut self.ciphers else {
            let mut bytes = vec![0; len];
            self.stream.read_exact(&mut bytes)?;
            return Ok(bytes.into());
        };
        while self.inbox.len() < len {
            let mut length = [0; LENGTH_BYTES];
            self.stream.read_exact(&mut length)?;
            let mut envelope = vec![0; u32::from_le_bytes(length) as usize + AUTH_TAG_BYTES];
            self.stream.read_exact(&mut envelope)?;
            let content = ciphers.to_client.open(&mut envelope, 0).map_err(|status| io::Error::new(io::ErrorKind::InvalidData, status))?;
            self.inbox.extend_from_slice(&envelope[..content]);
        }
        Ok(self.inbox.drain(..len).collect::<Vec<u8>>().into())
    }

    fn handshake_message<T: Wire>(&mut self) -> io::Result<T> {
        let frame = self.receive()?;
        if frame.header.kind != MessageKind::Handshake {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a handshake frame was expected"));
        }
        T::from_bytes(frame.body).map_err(|status| io::Error::new(io::ErrorKind::InvalidData, status))
    }

    /// Offers memory to share, as a frame with this many bytes stated and these descriptors beside
    /// it; what the server answers.
    ///
    /// # Errors
    /// Of the socket. Panics if it is no Unix socket.
    pub fn offer(&mut self, bytes: u64, descriptors: &[BorrowedFd<'_>]) -> io::Result<u16> {
        let Stream::Unix(stream) = &self.stream else { panic!("descriptors travel by Unix sockets") };
        let message = frame(&RegionOffer { bytes });
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "there is space for four");
        }
        let sent = sendmsg(stream, &[io::IoSlice::new(&message)], &mut control, SendFlags::empty())?;
        assert_eq!(sent, message.len(), "an empty socket takes a small message whole");
        Ok(self.handshake_message::<RegionAnswer>()?.status)
    }

    /// A frame with the next number that names `bytes` bytes of the shared region from `page`.
    pub fn naming(&mut self, op: Op, body: &[u8], flag: Flags, page: u32, bytes: u32) -> Vec<u8> {
        let whole = self.request(op, body, &[]);
        let mut header = Header::decode(whole.first_chunk().expect("a frame has a header")).expect("it was just made");
        header.name_region(flag, page, bytes);
        [&header.encode(), body].concat()
    }

    /// True if the server closes the connection (whatever it sends before) instead of waiting for
    /// more.
    pub fn is_closed_by_server(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::ConnectionReset || error.kind() == io::ErrorKind::BrokenPipe,
            }
        }
    }

    /// Asks and waits for the answer to this request.
    ///
    /// # Errors
    /// Of the socket; what the server answers is inside.
    pub fn ask<O: Operation>(&mut self, request: &O, bulk: &[u8]) -> io::Result<Result<(O::Reply, Payload), Status>> {
        let bytes = self.request(O::OP, &request.to_bytes(), bulk);
        self.send(&bytes)?;
        loop {
            let frame = self.receive()?;
            if frame.header.request.sequence != self.sequence {
                continue;
            }
            return match frame.status() {
                Err(status) => Ok(Err(status)),
                Ok(()) => match O::Reply::from_bytes(frame.body) {
                    Ok(reply) => Ok(Ok((reply, frame.bulk))),
                    Err(status) => Err(io::Error::new(io::ErrorKind::InvalidData, status)),
                },
            };
        }
    }

    /// As [`Peer::ask`], with these tags of the handles in the request; with those of the reply.
    ///
    /// # Errors
    /// As [`Peer::ask`].
    pub fn ask_showing<O: Operation>(&mut self, request: &O, tags: &[HandleTag]) -> io::Result<Result<Tagged<O::Reply>, Status>> {
        let mut body = request.to_bytes().to_vec();
        weft_wire::put_tags(tags, &mut body);
        let bytes = self.request(O::OP, &body, &[]);
        self.send(&bytes)?;
        let frame = self.receive()?;
        let body = match frame.status() {
            Err(status) => return Ok(Err(status)),
            Ok(()) => frame.body,
        };
        Tagged::from_bytes(body).map(Ok).map_err(|status| io::Error::new(io::ErrorKind::InvalidData, status))
    }

    /// A frame with the next number and correct lengths and checksums, whatever is in it.
    pub fn request(&mut self, op: Op, body: &[u8], bulk: &[u8]) -> Vec<u8> {
        self.sequence += 1;
        let request = RequestId { client: self.client, incarnation: 1, sequence: self.sequence };
        let mut header = Header::request(op, self.server, request, 0);
        header.body_bytes = body.len() as u32;
        header.bulk_bytes = bulk.len() as u32;
        header.body_crc = crc32c(body);
        header.bulk_crc = crc32c(bulk);
        [&header.encode(), body, bulk].concat()
    }
}
