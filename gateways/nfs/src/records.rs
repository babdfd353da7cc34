//! Record marking (RFC 5531, section 11): on a connection each message is one record, in fragments
//! that say their length. A record has a bound, and its memory is taken as its bytes arrive.

use std::io::{self, IoSlice, Read, Write};

use crate::rpc::RpcAnswer;
use crate::xdr::padding;

/// Most bytes of one read or write.
pub const DATA_BYTES_MAX: u32 = 1 << 20;
/// Most bytes of a record: the largest write, with room for its head and credentials.
pub const RECORD_BYTES_MAX: usize = DATA_BYTES_MAX as usize + 4096;
/// Of a record no more memory is touched before its bytes arrive.
const PIECE_BYTES: usize = 256 << 10;
/// Most fragments of a record.
const FRAGMENTS_MAX: usize = 1024;
/// The mark of a last fragment.
const LAST: u32 = 1 << 31;

/// Reads a record. `None` if the connection ended before one began; `begun` is called when the
/// first byte is there.
///
/// # Errors
/// Of the connection; [`io::ErrorKind::InvalidData`] for a record that is too long or in too many
/// fragments.
pub fn read<R: Read>(from: &mut R, begun: impl FnOnce(&mut R)) -> io::Result<Option<Vec<u8>>> {
    let mut mark = [0; 4];
    if from.read(&mut mark[..1])? == 0 {
        return Ok(None);
    }
    begun(from);
    from.read_exact(&mut mark[1..])?;
    let mut record = Vec::new();
    for _ in 0..FRAGMENTS_MAX {
        let marked = u32::from_be_bytes(mark);
        let bytes = (marked & !LAST) as usize;
        if bytes > RECORD_BYTES_MAX - record.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a record is too long"));
        }
        record.reserve_exact(bytes);
        let end = record.len() + bytes;
        while record.len() < end {
            let begin = record.len();
            record.resize(end.min(begin + PIECE_BYTES), 0);
            from.read_exact(&mut record[begin..])?;
        }
        if marked & LAST != 0 {
            return Ok(Some(record));
        }
        from.read_exact(&mut mark)?;
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "a record has too many fragments"))
}

/// Writes an answer as one record of one fragment.
///
/// # Errors
/// Of the connection.
pub fn write(to: &mut impl Write, answer: &RpcAnswer) -> io::Result<()> {
    let bytes = u32::try_from(answer.bytes()).expect("answers are bounded");
    let mark = (bytes | LAST).to_be_bytes();
    let data: usize = answer.data.iter().map(|piece| piece.len()).sum();
    let mut slices = Vec::with_capacity(answer.data.len() + 3);
    slices.extend([IoSlice::new(&mark), IoSlice::new(&answer.head)]);
    slices.extend(answer.data.iter().map(|piece| IoSlice::new(piece)));
    slices.push(IoSlice::new(&[0; 3][..padding(data)]));
    let mut left = &mut slices[..];
    // Empty ones at the front would look like the end of the connection.
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match to.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(bytes: &[u8], is_last: bool) -> Vec<u8> {
        let mark = bytes.len() as u32 | if is_last { LAST } else { 0 };
        [&mark.to_be_bytes(), bytes].concat()
    }

    fn read_all(bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
        read(&mut &bytes[..], |_| {})
    }

    #[test]
    fn fragments_are_put_together() {
        assert_eq!(read_all(b"").unwrap(), None);
        let bytes = [fragment(b"abcd", false), fragment(b"", false), fragment(b"ef", true)].concat();
        assert_eq!(read_all(&bytes).unwrap(), Some(b"abcdef".to_vec()));
        assert_eq!(read_all(&bytes[..bytes.len() - 1]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(read_all(&bytes[..3]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn long_records_are_refused_before_their_bytes_come() {
        let refused = |bytes: &[u8]| read_all(bytes).unwrap_err().kind() == io::ErrorKind::InvalidData;
        assert!(refused(&u32::MAX.to_be_bytes()));
        assert!(refused(&(RECORD_BYTES_MAX as u32 + 1).to_be_bytes()));
        let two = [fragment(&vec![0; RECORD_BYTES_MAX], false), 1u32.to_be_bytes().to_vec()].concat();
        assert!(refused(&two), "all fragments together count");
        assert!(refused(&fragment(b"", false).repeat(FRAGMENTS_MAX + 1)));
    }

    /// Takes a few bytes at a time.
    struct Slow(Vec<u8>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(3);
            self.0.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_answer_is_written_whole() {
        let answer = RpcAnswer { head: b"headhead".to_vec(), data: vec![b"da"[..].into(), b""[..].into(), b"tas"[..].into()] };
        let mut slow = Slow(Vec::new());
        write(&mut slow, &answer).unwrap();
        assert_eq!(read_all(&slow.0).unwrap(), Some(answer.to_bytes()));
        assert_eq!(answer.to_bytes(), b"headheaddatas\0\0\0");
    }
}
