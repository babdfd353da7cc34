//! ONC RPC (RFC 5531): calls with `AUTH_SYS` or without credentials, and answers. One record is one
//! message; how records are cut from a connection is in `records.rs`.

use bytes::Bytes;

use crate::xdr::{Garbage, Reader, Result, Writer, padding};

/// Longest credentials or verifier, in bytes.
const AUTH_BYTES_MAX: usize = 400;
/// Most groups of `AUTH_SYS`.
const GROUPS_MAX: u32 = 16;
/// Longest name of a client's machine, in bytes.
const MACHINE_BYTES_MAX: usize = 255;

/// Who calls, as the caller says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Nobody in particular (`AUTH_NONE`).
    Nobody,
    /// A user (`AUTH_SYS`).
    User {
        /// User.
        uid: u32,
        /// Primary group.
        gid: u32,
        /// Further groups.
        groups: Vec<u32>,
    },
}

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Its number, which the answer repeats.
    pub xid: u32,
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// Who calls.
    pub identity: Identity,
    /// What follows.
    pub arguments: Reader,
}

/// Why a call is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The program is not served here.
    NoProgram,
    /// This version of it is not, but those from the first to the second.
    NoVersion(u32, u32),
    /// There is no such procedure.
    NoProcedure,
    /// The arguments cannot be read.
    Arguments,
    /// It is not RPC version 2.
    RpcVersion,
    /// The credentials cannot be read.
    BadCredentials,
    /// Credentials of this kind are not taken.
    WeakCredentials,
    /// Whoever asks may not.
    Rejected,
}

impl From<Garbage> for Refusal {
    fn from(_: Garbage) -> Refusal {
        Refusal::Arguments
    }
}

/// An answer: the message, and data at its end that is not copied into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RpcAnswer {
    /// All up to the data.
    pub head: Vec<u8>,
    /// The data, in pieces.
    pub data: Vec<Bytes>,
}

impl RpcAnswer {
    /// Bytes of the whole message, with what fills the data up.
    pub fn bytes(&self) -> usize {
        let data: usize = self.data.iter().map(Bytes::len).sum();
        self.head.len() + data + padding(data)
    }

    /// The bytes of the whole message.
    #[cfg(test)]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.clone();
        self.data.iter().for_each(|piece| bytes.extend_from_slice(piece));
        bytes.resize(self.bytes(), 0);
        bytes
    }
}

/// Reads a call.
///
/// # Errors
/// The number of the call and why it is refused; `None` for what is no call at all.
pub fn parse(record: Bytes) -> std::result::Result<Call, Option<(u32, Refusal)>> {
    let mut reader = Reader::new(record);
    let (Ok(xid), Ok(0)) = (reader.u32(), reader.u32()) else { return Err(None) };
    read_call(xid, reader).map_err(|refusal| Some((xid, refusal)))
}

fn read_call(xid: u32, mut reader: Reader) -> std::result::Result<Call, Refusal> {
    if reader.u32()? != 2 {
        return Err(Refusal::RpcVersion);
    }
    let (program, version, procedure) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let (flavor, body) = read_auth(&mut reader)?;
    read_auth(&mut reader)?;
    let identity = match flavor {
        0 => Identity::Nobody,
        1 => read_user(Reader::new(body)).map_err(|Garbage| Refusal::BadCredentials)?,
        _ => return Err(Refusal::WeakCredentials),
    };
    Ok(Call { xid, program, version, procedure, identity, arguments: reader })
}

fn read_auth(reader: &mut Reader) -> std::result::Result<(u32, Bytes), Refusal> {
    let flavor = reader.u32()?;
    Ok((flavor, reader.opaque(AUTH_BYTES_MAX).map_err(|Garbage| Refusal::BadCredentials)?))
}

fn read_user(mut reader: Reader) -> Result<Identity> {
    reader.u32()?;
    reader.opaque(MACHINE_BYTES_MAX)?;
    let (uid, gid, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
    if count > GROUPS_MAX {
        return Err(Garbage);
    }
    let groups = (0..count).map(|_| reader.u32()).collect::<Result<_>>()?;
    Ok(Identity::User { uid, gid, groups })
}

/// The beginning of a call of the gateway itself, to a program of a client or of this machine.
pub fn call(xid: u32, (program, version, procedure): (u32, u32, u32)) -> Writer {
    let mut user = Writer::default();
    user.u32(0).opaque(b"weft").u32(0).u32(0).u32(0);
    let mut writer = Writer::default();
    writer.u32(xid).u32(0).u32(2).u32(program).u32(version).u32(procedure).u32(1).opaque(&user.0).u32(0).u32(0);
    writer
}

/// The results of such a call in its answer; `None` if it was not carried out.
///
/// # Errors
/// [`Garbage`] for what is no answer to it.
pub fn results(xid: u32, record: Bytes) -> Result<Option<Reader>> {
    let mut reader = Reader::new(record);
    if reader.u32()? != xid || reader.u32()? != 1 {
        return Err(Garbage);
    }
    if reader.u32()? != 0 {
        return Ok(None);
    }
    reader.u32()?;
    reader.opaque(AUTH_BYTES_MAX)?;
    Ok((reader.u32()? == 0).then_some(reader))
}

/// The beginning of an answer to a call that was carried out.
pub fn accepted(xid: u32) -> Writer {
    let mut writer = Writer(Vec::with_capacity(256));
    writer.u32(xid).u32(1).u32(0).u32(0).u32(0).u32(0);
    writer
}

/// The answer to a call that is not carried out.
pub fn refused(xid: u32, refusal: Refusal) -> RpcAnswer {
    let mut writer = Writer::default();
    writer.u32(xid).u32(1);
    match refusal {
        Refusal::RpcVersion => writer.u32(1).u32(0).u32(2).u32(2),
        Refusal::BadCredentials => writer.u32(1).u32(1).u32(1),
        Refusal::Rejected => writer.u32(1).u32(1).u32(2),
        Refusal::WeakCredentials => writer.u32(1).u32(1).u32(5),
        Refusal::NoProgram => writer.u32(0).u32(0).u32(0).u32(1),
        Refusal::NoVersion(first, last) => writer.u32(0).u32(0).u32(0).u32(2).u32(first).u32(last),
        Refusal::NoProcedure => writer.u32(0).u32(0).u32(0).u32(3),
        Refusal::Arguments => writer.u32(0).u32(0).u32(0).u32(4),
    };
    RpcAnswer { head: writer.0, data: Vec::new() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A call of `AUTH_SYS` with so many groups.
    fn call(groups: u32) -> Vec<u8> {
        let mut user = Writer::default();
        user.u32(1).opaque(b"host").u32(1000).u32(100).u32(groups);
        (0..groups).for_each(|group| {
            user.u32(group);
        });
        let mut writer = Writer::default();
        writer.u32(77).u32(0).u32(2).u32(100_003).u32(3).u32(1).u32(1).opaque(&user.0).u32(0).u32(0).u32(9);
        writer.0
    }

    #[test]
    fn a_call_is_read_with_its_user() {
        let mut read = parse(call(2).into()).expect("it is whole");
        assert_eq!((read.xid, read.program, read.version, read.procedure), (77, 100_003, 3, 1));
        assert_eq!(read.identity, Identity::User { uid: 1000, gid: 100, groups: vec![0, 1] });
        assert_eq!(read.arguments.u32(), Ok(9));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let refusal = |bytes: Vec<u8>| parse(bytes.into()).expect_err("it is wrong");
        assert_eq!(refusal(call(17)), Some((77, Refusal::BadCredentials)));
        let mut other = call(0);
        other[11] = 3;
        assert_eq!(refusal(other), Some((77, Refusal::RpcVersion)));
        let mut kerberos = call(0);
        kerberos[27] = 6;
        assert_eq!(refusal(kerberos), Some((77, Refusal::WeakCredentials)));
        let mut reply = call(0);
        reply[7] = 1;
        assert_eq!(refusal(reply), None, "answers are not answered");
        assert_eq!(refusal(vec![1, 2, 3]), None);
        assert_eq!(refused(5, Refusal::NoVersion(3, 3)).head.len(), 32);
    }

    #[test]
    fn a_call_of_its_own_is_one_and_its_answer_is_read() {
        let read = parse(super::call(9, (100_000, 2, 3)).0.into()).expect("it is whole");
        assert_eq!((read.xid, read.program, read.version, read.procedure), (9, 100_000, 2, 3));
        let mut answer = accepted(9);
        answer.u32(7);
        assert_eq!(results(9, answer.0.clone().into()).map(|found| found.map(|mut found| found.u32())), Ok(Some(Ok(7))));
        assert!(results(8, answer.0.into()).is_err(), "an answer to another call");
        for refusal in [Refusal::NoProgram, Refusal::NoProcedure, Refusal::WeakCredentials] {
            assert!(results(9, refused(9, refusal).head.into()).is_ok_and(|found| found.is_none()));
        }
        assert!(results(9, vec![0, 0, 0, 9].into()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..100, at in 0usize..100) {
            drop(parse(bytes.clone().into()));
            let mut damaged = call(3);
            damaged.truncate(cut);
            if let (Some(byte), Some(other)) = (damaged.get_mut(at), bytes.first()) {
                *byte = *other;
            }
            drop(parse(damaged.into()));
        }
    }
}
