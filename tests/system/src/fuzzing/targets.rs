//! The readers, each with what it must never do.

use bytes::Bytes;
use weft_base::{ClientId, Extensions, FsId, ServerId, refuse_unknown};
use weft_inspect::{ServerFiles, StoreFile, inspect_file, inspect_server};
use weft_namespace::{Change, Record};
use weft_store::Lsn;
use weft_store::checkpoint::CheckpointReader;
use weft_store::journal::{Replay, scan};
use weft_store::objects::{ContainerHeader, ObjectRecord};
use weft_wire::handshake::{
    ANY_SERVER, Challenge, ClientHandshake, Hello, NONCE_BYTES, Proof, RegionAnswer, RegionOffer, ServerHandshake, Welcome,
};
use weft_wire::{BODY_BYTES_MAX, BULK_BYTES_MAX, ClusterKey, HEADER_BYTES, Header, KeyRing, Op, Request, Wire, crc32c};

use super::stored;

const KEY: ClusterKey = ClusterKey([3; 32]);

/// A whole frame as a server reads it: header, lengths, checksum, body.
pub fn frame(bytes: &[u8]) {
    let Some((block, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return };
    let Ok(header) = Header::decode(block) else { return };
    assert_eq!(header.encode(), *block, "a header is accepted in one encoding only");
    assert!(header.body_bytes as usize <= BODY_BYTES_MAX && header.bulk_bytes as usize <= BULK_BYTES_MAX);
    let Some(body) = rest.get(..header.body_bytes as usize) else { return };
    if crc32c(body) == header.body_crc {
        request(&[&header.op.to_le_bytes(), body].concat());
    }
}

/// Number of an operation, body of its request.
pub fn request(bytes: &[u8]) {
    let Some((op, body)) = bytes.split_first_chunk::<2>() else { return };
    let op = u16::from_le_bytes(*op);
    if let Ok(request) = Request::decode(op, Bytes::copy_from_slice(body)) {
        assert_eq!(request.op().code(), op);
        skips_only_extensions(body, &request.encode());
    }
}

/// What was accepted has one encoding; of the extensions behind its fields those that are not known
/// may be skipped.
fn skips_only_extensions(bytes: &[u8], known: &[u8]) {
    let list = |bytes| Extensions::filling(bytes).collect::<Result<Vec<_>, _>>().ok();
    let same = bytes.iter().zip(known).take_while(|(byte, known)| byte == known).count();
    // Where the fields end only the message knows.
    let skips_only = |fields: usize| {
        let (Some(all), Some(known)) = (list(&bytes[fields..]), list(&known[fields..])) else { return false };
        let (taken, skipped): (Vec<_>, Vec<_>) = all.into_iter().partition(|extension| known.contains(extension));
        taken == known && skipped.iter().all(|(tag, _)| refuse_unknown(*tag).is_ok())
    };
    assert!((0..=same).rev().any(skips_only), "what is understood is there, in one encoding");
}

/// Number of an operation, body of its reply.
pub fn reply(bytes: &[u8]) {
    let Some((op, body)) = bytes.split_first_chunk::<2>() else { return };
    if let Some(op) = Op::from_code(u16::from_le_bytes(*op)) {
        // Whatever comes of it.
        let _ = op.check_reply(Bytes::copy_from_slice(body));
    }
}

/// One message of the handshake: the first byte says which. Nobody gets in with bytes that were not
/// made with the key for this connection.
pub fn handshake(bytes: &[u8]) {
    let Some((which, body)) = bytes.split_first() else { return };
    let body = Bytes::copy_from_slice(body);
    let nonce = [9; NONCE_BYTES];
    let mut server = ServerHandshake::new(KeyRing::new(KEY), FsId(5), "weft", ServerId(1));
    let ours = ClientHandshake::hello(FsId(5), "weft", ANY_SERVER, ClientId(7), 1, nonce);
    match which % 6 {
        0 => {
            if let Ok(hello) = Hello::from_bytes(body) {
                let challenge = server.challenge(hello, nonce);
                assert_eq!(challenge.status == 0, challenge.proof.len() == 32, "proofs go to those who may stay");
            }
        }
        1 => {
            if let Ok(challenge) = Challenge::from_bytes(body) {
                let accepted = ClientHandshake::new(KEY, ours).answer(&challenge);
                assert!(accepted.is_err(), "a challenge for another connection was accepted");
            }
        }
        2 => {
            if let Ok(proof) = Proof::from_bytes(body) {
                server.challenge(ours, nonce);
                assert!(server.accept(&proof).is_err(), "a proof from another connection was accepted");
            }
        }
        3 => drop(Welcome::from_bytes(body)),
        4 => drop(RegionOffer::from_bytes(body)),
        _ => drop(RegionAnswer::from_bytes(body)),
    }
}

/// A segment of a journal.
pub fn journal(bytes: &[u8]) {
    if let Ok(found) = scan(bytes) {
        assert!(found.end_offset <= bytes.len());
        let mut next = found.header.first_lsn;
        let mut record_bytes = 0;
        for (lsn, record) in found.records() {
            assert_eq!(lsn, next, "records are numbered without gaps");
            next = next.next();
            record_bytes += record.len();
        }
        assert_eq!(next, found.next_lsn);
        assert!(record_bytes <= bytes.len(), "more records than bytes");
        let mut replay = Replay::new(found.header.fs_id, found.header.server_id, found.header.first_lsn);
        if let Ok(records) = replay.segment(found.header.sequence, bytes) {
            records.for_each(|(_, bytes)| record(bytes));
        }
        // Whether it is a whole journal is the answer either way.
        let _ = replay.finish(Lsn::NONE);
    }
    let _ = ContainerHeader::decode(bytes);
}

/// A checkpoint, in pieces whose size the first byte chooses.
pub fn checkpoint(bytes: &[u8]) {
    let Some((first, stream)) = bytes.split_first() else { return };
    let mut reader = CheckpointReader::new();
    for piece in stream.chunks(usize::from(*first) * 16 + 1) {
        reader.push(piece);
        loop {
            match reader.next_chunk() {
                Ok(Some(chunk)) => chunk.records().for_each(record),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    if let Ok(end) = reader.finish() {
        assert!(end.record_count <= bytes.len() as u64, "more records than bytes");
    }
}

/// A file of a server behind the byte that says which, alone and in place of the valid one among
/// all files of a server.
pub fn inspect(bytes: &[u8]) {
    let Some((which, content)) = bytes.split_first() else { return };
    let kinds = [StoreFile::Superblock, StoreFile::Segment, StoreFile::Checkpoint, StoreFile::Container, StoreFile::Tail];
    let report = inspect_file("file", kinds[usize::from(*which) % kinds.len()], content, content.len() as u64, true);
    assert!(report.is_whole() || report.damage.iter().all(|damage| damage.offset.is_none_or(|at| at <= content.len() as u64)));
    let mut files = stored::server_files();
    files[usize::from(*which) % 4].1 = content.to_vec();
    inspect_server(&Files(files), true);
}

struct Files([(&'static str, Vec<u8>); 4]);

impl Files {
    fn find(&self, wanted: &str) -> Result<&[u8], String> {
        self.0.iter().find(|(name, _)| *name == wanted).map(|(_, bytes)| &bytes[..]).ok_or_else(|| "there is none".into())
    }
}

impl ServerFiles for Files {
    type Error = String;
    fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.to_string()).collect()
    }
    fn len(&self, name: &str) -> Result<u64, String> {
        Ok(self.find(name)?.len() as u64)
    }
    fn read(&self, name: &str, bytes: u64) -> Result<Vec<u8>, String> {
        let all = self.find(name)?;
        Ok(all[..all.len().min(bytes as usize)].to_vec())
    }
}

/// Such a record ends with an extension of its own.
fn has_strips(change: &Change) -> bool {
    matches!(change, Change::PutInode { inode, .. } if inode.layout.is_varstrip())
}

/// A record of either kind of server.
pub fn record(bytes: &[u8]) {
    if let Ok(record) = Record::decode(Bytes::copy_from_slice(bytes)) {
        let mut again = Vec::new();
        record.encode(&mut again);
        // The version before is read, too; what both have is written alike.
        again[0] = bytes[0];
        match bytes.strip_prefix(&again[..]) {
            Some(rest) if record.changes.iter().any(has_strips) => skips_only_extensions(rest, &[]),
            Some([0, rest @ ..]) => skips_only_extensions(rest, &[]),
            rest => assert_eq!(rest, Some(&[][..]), "a record is accepted in one encoding only: {record:?}"),
        }
    }
    if let Ok(record) = ObjectRecord::decode(bytes) {
        assert_eq!(ObjectRecord::decode(&record.to_vec()), Ok(record));
    }
}
