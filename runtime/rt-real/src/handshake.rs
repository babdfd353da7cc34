//! Moves the messages of [`weft_wire::handshake`]: on the client's side waiting with a deadline, on
//! the server's side step by step.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weft_base::{ClientId, FsId, Nanos, SECOND, ServerId, Status};
use weft_wire::handshake::{
    Accepted, Challenge, ClientHandshake, Hello, NONCE_BYTES, Proof, RegionAnswer, RegionOffer, ServerHandshake, Welcome, frame,
};
use weft_wire::{Credential, Features, Frame, MessageKind, SessionCiphers, Wire};

use crate::address::Address;
use crate::inbound::{Broken, FrameReader, Limits};
use crate::region::{Memory, REGION_BYTES};
use crate::sys::{self, Watched};
use crate::{OPEN_KEY, clock};

/// A handshake may take so long on either side, in nanoseconds.
pub(crate) const HANDSHAKE_NS_MAX: u64 = 5 * SECOND;

/// What a client says of itself and of the server that it wants.
#[derive(Clone, Debug)]
pub(crate) struct Introduction {
    pub(crate) fs_id: FsId,
    pub(crate) fs_name: String,
    pub(crate) key: Option<Credential>,
    pub(crate) server: ServerId,
    pub(crate) client: ClientId,
    pub(crate) incarnation: u32,
    /// Offer a server on this machine shared memory for bulk data.
    pub(crate) share: bool,
    /// Nothing goes over TCP that is not encrypted.
    pub(crate) needs_encryption: bool,
}

/// Why there is no connection: the status for the program and the words for people.
#[derive(Clone, Debug)]
pub(crate) struct DialError {
    pub(crate) status: Status,
    pub(crate) reason: String,
}

impl DialError {
    fn new(status: Status, reason: impl std::fmt::Display) -> DialError {
        DialError { status, reason: reason.to_string() }
    }
}

/// A connection after its handshake.
#[derive(Debug)]
pub(crate) struct Dialed {
    pub(crate) fd: OwnedFd,
    /// What is shared with the server.
    pub(crate) region: Option<Memory>,
    /// What encrypts it, if that was agreed on.
    pub(crate) ciphers: Option<SessionCiphers>,
}

/// As [`dial`], at the first of these addresses where the server is; those that fail go behind the
/// others.
///
/// # Errors
/// What is wrong at the first one.
pub(crate) fn dial_any(addresses: &mut [Address], introduction: &Introduction, deadline: Nanos) -> Result<Dialed, DialError> {
    let mut failed = None;
    for _ in 0..addresses.len() {
        match dial(&addresses[0], introduction, deadline) {
            Ok(dialed) => return Ok(dialed),
            Err(error) => failed.get_or_insert(error),
        };
        addresses.rotate_left(1);
    }
    Err(failed.unwrap_or_else(|| DialError::new(Status::Unreachable, "nobody knows where it is")))
}

/// Connects and proves both sides; waits until `deadline` or [`HANDSHAKE_NS_MAX`] at most.
pub(crate) fn dial(address: &Address, introduction: &Introduction, deadline: Nanos) -> Result<Dialed, DialError> {
    let deadline = deadline.min(clock::now() + HANDSHAKE_NS_MAX);
    let socket = address.connect(deadline).map_err(|error| DialError::new(Status::Unreachable, error))?;
    let wanted = match address {
        // There is nothing to encrypt with.
        _ if introduction.key.is_none() => Features::SHARED_MEMORY,
        Address::Tcp { .. } => Features::KNOWN,
        Address::Unix(_) => Features::KNOWN.without(Features::ENCRYPTION),
    };
    let needs = if introduction.needs_encryption { wanted.and(Features::ENCRYPTION) } else { Features::default() };
    let (features, ciphers) = introduce(socket.as_fd(), introduction, wanted, needs, deadline)?;
    let region = match address {
        Address::Unix(_) if introduction.share && features.contains(Features::SHARED_MEMORY) => share(socket.as_fd(), deadline)?,
        _ => None,
    };
    Ok(Dialed { fd: socket, region, ciphers })
}

/// Offers shared memory. `None` if the server does not want it or there is none to have: then bulk
/// data takes the socket.
fn share(fd: BorrowedFd<'_>, deadline: Nanos) -> Result<Option<Memory>, DialError> {
    let Ok((memory, file)) = Memory::create(REGION_BYTES) else { return Ok(None) };
    let offer = frame(&RegionOffer { bytes: memory.len() as u64 });
    let sent = loop {
        match sys::send_with_descriptor(fd, &offer, file.as_fd()) {
            Ok(sent) => break sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                expired(deadline)?;
                sys::poll(&mut [Watched::writable_only(fd)], deadline).map_err(|error| DialError::new(Status::Unreachable, error))?;
            }
            Err(error) => return Err(DialError::new(Status::Unreachable, error)),
        }
    };
    send_all(fd, &offer[sent..], deadline)?;
    let mut reader = FrameReader::new(Limits::HANDSHAKE);
    let answer: RegionAnswer = receive(fd, &mut reader, deadline)?;
    match answer.status {
        _ if reader.within_frame() => Err(DialError::new(Status::BadMessage, "the server speaks before it is asked")),
        0 => Ok(Some(memory)),
        _ => Ok(None),
    }
}

/// What was agreed with a server.
type Agreed = (Features, Option<SessionCiphers>);

/// Returns the features that both have, and what encrypts the connection.
fn introduce(fd: BorrowedFd<'_>, who: &Introduction, wanted: Features, needs: Features, deadline: Nanos) -> Result<Agreed, DialError> {
    let mut nonce = [0; NONCE_BYTES];
    clock::fill_random(&mut nonce);
    let hello = ClientHandshake::hello(who.fs_id, &who.fs_name, who.server, who.client, who.incarnation, nonce);
    let Credential { id, key, .. } = who.key.clone().unwrap_or(OPEN_KEY.into());
    let hello = Hello { key: id, features: wanted, needs, ..hello };
    let mut client = ClientHandshake::new(key, hello);
    if wanted.contains(Features::ENCRYPTION) {
        client = client.with_exchange(clock::key_pair());
    }
    let mut reader = FrameReader::new(Limits::HANDSHAKE);
    send_all(fd, &frame(client.first_message()), deadline)?;
    let challenge: Challenge = receive(fd, &mut reader, deadline)?;
    let proof = client.answer(&challenge).map_err(|status| DialError::new(status, client.explain(status, &challenge)))?;
    send_all(fd, &frame(&proof), deadline)?;
    let welcome: Welcome = receive(fd, &mut reader, deadline)?;
    match welcome.status {
        0 if reader.within_frame() => Err(DialError::new(Status::BadMessage, "the server speaks before it is asked")),
        0 => Ok((challenge.features, client.ciphers(&challenge))),
        code => Err(DialError::new(Status::from_code(code), Status::from_code(code))),
    }
}

fn send_all(fd: BorrowedFd<'_>, mut bytes: &[u8], deadline: Nanos) -> Result<(), DialError> {
    let lost = |error: io::Error| DialError::new(Status::Unreachable, error);
    while !bytes.is_empty() {
        match sys::send(fd, &[io::IoSlice::new(bytes)]) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                expired(deadline)?;
                sys::poll(&mut [Watched::writable_only(fd)], deadline).map_err(lost)?;
            }
            Err(error) => return Err(lost(error)),
        }
    }
    Ok(())
}

fn receive<M: Wire>(fd: BorrowedFd<'_>, reader: &mut FrameReader, deadline: Nanos) -> Result<M, DialError> {
    let mut frames = Vec::new();
    loop {
        let outcome = reader.receive(fd, 1, &mut frames);
        if let Some(frame) = frames.pop() {
            // A second message cannot be there: the server waits for our next one.
            return if frame.header.kind == MessageKind::Handshake && frames.is_empty() {
                M::from_bytes(frame.body).map_err(|status| DialError::new(status, status))
            } else {
                Err(DialError::new(Status::BadMessage, "the server does not keep to the handshake"))
            };
        }
        match outcome {
            Ok(_) => {
                expired(deadline)?;
                sys::poll(&mut [Watched::new(fd, false)], deadline).map_err(|error| DialError::new(Status::Unreachable, error))?;
            }
            Err(Broken::Malformed(status)) => return Err(DialError::new(status, status)),
            Err(broken) => return Err(DialError::new(Status::Unreachable, format!("{broken} during the handshake"))),
        }
    }
}

fn expired(deadline: Nanos) -> Result<(), DialError> {
    if clock::now() >= deadline { Err(DialError::new(Status::TimedOut, "no answer to the handshake")) } else { Ok(()) }
}

/// What the server does after a message of a client that is not authenticated.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send this and wait for the next message.
    Answer(Vec<u8>),
    /// Send this; the peer is this client.
    Accept(Vec<u8>, Accepted, Option<Box<SessionCiphers>>),
    /// Send this and close, for this reason.
    Refuse(Vec<u8>, String),
}

/// The server's side of one handshake.
#[derive(Debug)]
pub(crate) struct Greeting {
    state: ServerHandshake,
    greeted: bool,
}

impl Greeting {
    pub(crate) fn new(state: ServerHandshake) -> Greeting {
        Greeting { state, greeted: false }
    }

    /// Handles the peer's next message.
    pub(crate) fn step(&mut self, message: Frame) -> Result<Step, Status> {
        if message.header.kind != MessageKind::Handshake {
            return Err(Status::BadMessage);
        }
        if !self.greeted {
            let hello = Hello::from_bytes(message.body)?;
            let mut nonce = [0; NONCE_BYTES];
            clock::fill_random(&mut nonce);
            let challenge = self.state.challenge(hello, nonce);
            let answer = frame(&challenge);
            self.greeted = true;
            return Ok(match challenge.status {
                0 => Step::Answer(answer),
                code if challenge.reason.is_empty() => Step::Refuse(answer, Status::from_code(code).to_string()),
                _ => Step::Refuse(answer, challenge.reason),
            });
        }
        let accepted = self.state.accept(&Proof::from_bytes(message.body)?);
        let welcome = frame(&self.state.welcome(accepted));
        Ok(match accepted {
            Ok(accepted) => Step::Accept(welcome, accepted, self.state.ciphers().map(Box::new)),
            Err(status) => Step::Refuse(welcome, self.state.explain(status)),
        })
    }
}
