//! Reading, writing and where in a file.

use std::ffi::{c_int, c_uint, c_void};

use libc::{iovec, off_t, size_t, ssize_t};
use weft_base::{FileKind, Payload};
use weft_client::{Fallocate, SeekFor};
use weft_rt::Bulk;

use crate::border::{Errno, Outcome, border, border_errno, calls, errno, fail, memory, memory_mut, set_errno};
use crate::table::{At, Open};
use crate::{real, reserve, table};

/// Most bytes of one read or write, as in Linux.
const BYTES_MAX: usize = 0x7fff_f000;
/// Bytes that a copy between descriptors moves at once.
const COPY_BYTES: usize = 1 << 20;
/// Most buffers of one call, as in Linux.
const BUFFERS_MAX: c_int = 1024;

/// Reads at an offset into buffers one after another.
fn read_at(open: &Open, at: &At, buffers: &mut [&mut [u8]], offset: u64) -> Outcome<usize> {
    let wanted = buffers.iter().map(|buffer| buffer.len()).sum::<usize>().min(BYTES_MAX) as u64;
    if offset.checked_add(wanted).is_none_or(|end| end > i64::MAX as u64) {
        return fail(libc::EINVAL);
    }
    if wanted == 0 {
        return Ok(0);
    }
    let pieces = at.fs.run("read", &open.path, async |posix| posix.read(at.number, offset, wanted).await)?;
    Ok(scatter(&pieces, buffers))
}

/// Copies pieces into buffers; returns their length.
fn scatter(pieces: &[Payload], buffers: &mut [&mut [u8]]) -> usize {
    let (mut buffer, mut at, mut done) = (0, 0, 0);
    for piece in pieces {
        let bytes = piece.to_bytes();
        let mut rest = &bytes[..];
        while !rest.is_empty() && buffer < buffers.len() {
            let room = buffers[buffer].len() - at;
            let part = room.min(rest.len());
            buffers[buffer][at..at + part].copy_from_slice(&rest[..part]);
            (rest, at, done) = (&rest[part..], at + part, done + part);
            if at == buffers[buffer].len() {
                (buffer, at) = (buffer + 1, 0);
            }
        }
    }
    done
}

/// Writes buffers one after another at an offset.
fn write_at(open: &Open, at: &At, buffers: Vec<&[u8]>, offset: u64) -> Outcome<usize> {
    let bytes = buffers.iter().map(|buffer| buffer.len()).sum::<usize>();
    if offset.checked_add(bytes as u64).is_none_or(|end| end > i64::MAX as u64) {
        return fail(libc::EFBIG);
    }
    if bytes > 0 {
        let how = open.write_how();
        at.fs.run("write", &open.path, async |posix| posix.write(at.fs.who(), at.number, offset, Bulk::Slices(buffers), how).await)?;
    }
    Ok(bytes)
}

/// The offset of a call: given, or that of the description, which moves on.
#[derive(Clone, Copy, Debug)]
enum Where {
    Given(off_t),
    Moving,
}

/// Moves bytes at the offset of a description. The offset moves on before they do, in one step of
/// the kernel, so that other processes with the same description get other places; what was not
/// moved is given back.
fn moving(fd: c_int, bytes: usize, work: impl FnOnce(u64) -> Outcome<usize>) -> Outcome<usize> {
    let from = match reserve::seek(fd, bytes as i64, libc::SEEK_CUR) {
        Ok(end) => end - bytes as u64,
        // There is no such place; the work says so in its own words.
        Err(Errno(libc::EINVAL)) => return work(reserve::offset(fd)?),
        Err(why) => return Err(why),
    };
    let outcome = work(from);
    let left = bytes - outcome.as_ref().map_or(0, |done| *done);
    if left > 0 {
        // Fails only if somebody has moved the offset to before that.
        let _ = reserve::seek(fd, -(left as i64), libc::SEEK_CUR);
    }
    outcome
}

fn read(fd: c_int, buffers: &mut [&mut [u8]], at: Where) -> Outcome<ssize_t> {
    let open = table::get(fd)?;
    let file = open.file()?;
    if !open.reads() {
        return fail(libc::EBADF);
    }
    let done = match at {
        Where::Given(..0) => return fail(libc::EINVAL),
        Where::Given(offset) => read_at(&open, &file.share(), buffers, offset as u64)?,
        Where::Moving => {
            let wanted = buffers.iter().map(|buffer| buffer.len()).sum::<usize>().min(BYTES_MAX);
            moving(fd, wanted, |from| read_at(&open, file.at(), buffers, from))?
        }
    };
    Ok(done as ssize_t)
}

fn write(fd: c_int, buffers: Vec<&[u8]>, at: Where) -> Outcome<ssize_t> {
    let open = table::get(fd)?;
    if !open.writes() {
        return fail(libc::EBADF);
    }
    let file = open.file()?;
    let done = match at {
        Where::Given(..0) => return fail(libc::EINVAL),
        Where::Given(offset) => write_at(&open, &file.share(), buffers, offset as u64)?,
        // Writing nothing does not move the offset to the end.
        Where::Moving if buffers.iter().all(|buffer| buffer.is_empty()) => 0,
        Where::Moving if open.write_how().append => {
            let done = write_at(&open, file.at(), buffers, reserve::offset(fd)?)?;
            reserve::seek(fd, size(&open, file.at())? as i64, libc::SEEK_SET)?;
            done
        }
        Where::Moving => {
            let bytes = buffers.iter().map(|buffer| buffer.len()).sum::<usize>();
            moving(fd, bytes, |from| write_at(&open, file.at(), buffers, from))?
        }
    };
    Ok(done as ssize_t)
}

pub(crate) fn size(open: &Open, at: &At) -> Outcome<u64> {
    Ok(at.fs.run("stat", &open.path, async |posix| posix.getattr_open(at.number).await)?.size)
}

/// Moves the offset of a description, or finds data or a hole.
pub(crate) fn seek(fd: c_int, offset: off_t, whence: c_int) -> Outcome<off_t> {
    let open = table::get(fd)?;
    if open.is_path_only() {
        return fail(libc::EBADF);
    }
    let to = match whence {
        libc::SEEK_SET | libc::SEEK_CUR => return reserve::seek(fd, offset, whence).map(|at| at as off_t),
        libc::SEEK_END if open.kind == FileKind::Directory => return fail(libc::EINVAL),
        libc::SEEK_END => {
            let file = open.file()?;
            (size(&open, file.at())? as i64).checked_add(offset).filter(|to| *to >= 0).ok_or(Errno(libc::EINVAL))?
        }
        libc::SEEK_DATA | libc::SEEK_HOLE => {
            let what = if whence == libc::SEEK_DATA { SeekFor::Data } else { SeekFor::Hole };
            let file = open.file()?;
            let from = u64::try_from(offset).map_err(|_| Errno(libc::ENXIO))?;
            let at = file.at();
            let found = at.fs.run("seek", &open.path, async |posix| posix.seek(at.number, from, what).await)?;
            found.ok_or(Errno(libc::ENXIO))? as i64
        }
        _ => return fail(libc::EINVAL),
    };
    reserve::seek(fd, to, libc::SEEK_SET).map(|at| at as off_t)
}

fn sync(fd: c_int, data_only: bool) -> Outcome<c_int> {
    let open = table::get(fd)?;
    if open.kind == FileKind::Directory && !open.is_path_only() {
        let fs = crate::session::fs()?;
        fs.run("fsync", &open.path, async |posix| posix.fsync_dir(open.node).await)?;
        return Ok(0);
    }
    let at = open.file()?.share();
    at.fs.run("fsync", &open.path, async |posix| posix.fsync(at.number, data_only).await)?;
    Ok(0)
}

fn truncate_open(fd: c_int, bytes: off_t) -> Outcome<c_int> {
    let open = table::get(fd)?;
    let bytes = u64::try_from(bytes).map_err(|_| Errno(libc::EINVAL))?;
    if !open.writes() {
        return fail(if open.is_path_only() { libc::EBADF } else { libc::EINVAL });
    }
    let at = open.file()?.share();
    at.fs.run("truncate", &open.path, async |posix| posix.truncate_open(at.fs.who(), at.number, bytes).await)?;
    Ok(0)
}

fn allocate(fd: c_int, mode: c_int, offset: off_t, bytes: off_t) -> Outcome<()> {
    let open = table::get(fd)?;
    let (Ok(from), Ok(len)) = (u64::try_from(offset), u64::try_from(bytes)) else { return fail(libc::EINVAL) };
    if len == 0 {
        return fail(libc::EINVAL);
    }
    if from.checked_add(len).is_none_or(|end| end > i64::MAX as u64) {
        return fail(libc::EFBIG);
    }
    if !open.writes() {
        return fail(libc::EBADF);
    }
    let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    let how = match mode & !libc::FALLOC_FL_KEEP_SIZE {
        0 => Fallocate::Reserve { keep_size },
        libc::FALLOC_FL_ZERO_RANGE => Fallocate::Zero { keep_size },
        libc::FALLOC_FL_PUNCH_HOLE if keep_size => Fallocate::Punch,
        _ => return fail(libc::EOPNOTSUPP),
    };
    let at = open.file()?.share();
    at.fs.run("fallocate", &open.path, async |posix| posix.fallocate(at.fs.who(), at.number, from, len, how).await)?;
    Ok(())
}

/// The buffers of a list.
///
/// # Safety
/// The list and its buffers are there, and nobody else uses them.
unsafe fn buffers<'a>(list: *const iovec, count: c_int) -> Outcome<Vec<&'a mut [u8]>> {
    if !(0..=BUFFERS_MAX).contains(&count) {
        return fail(libc::EINVAL);
    }
    let (mut found, mut total) = (Vec::with_capacity(count as usize), 0usize);
    for at in 0..count as usize {
        let one = *list.add(at);
        total = total.checked_add(one.iov_len).filter(|total| *total <= isize::MAX as usize).ok_or(Errno(libc::EINVAL))?;
        found.push(memory_mut(one.iov_base, one.iov_len)?);
    }
    Ok(found)
}

unsafe fn read_list(fd: c_int, list: *const iovec, count: c_int, at: Where) -> ssize_t {
    border(|| read(fd, &mut buffers(list, count)?, at))
}

unsafe fn write_list(fd: c_int, list: *const iovec, count: c_int, at: Where) -> ssize_t {
    border(|| write(fd, buffers(list, count)?.into_iter().map(|buffer| &*buffer).collect(), at))
}

/// Copies between descriptors of which one is Weft's at least, by what programs would call.
unsafe fn copy(out: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t {
    let mut buffer = vec![0u8; bytes.min(COPY_BYTES)];
    let mut done: usize = 0;
    while done < bytes.min(BYTES_MAX) {
        let wanted = (bytes.min(BYTES_MAX) - done).min(buffer.len());
        let got = match offset.is_null() {
            true => crate::data::read_call(from, buffer.as_mut_ptr().cast(), wanted),
            false => pread(from, buffer.as_mut_ptr().cast(), wanted, *offset),
        };
        let put = if got > 0 { write_call(out, buffer.as_ptr().cast(), got as usize) } else { got };
        if put <= 0 {
            if got > 0 && offset.is_null() {
                let why = errno();
                lseek(from, -(got as off_t), libc::SEEK_CUR);
                set_errno(why);
            }
            return if done > 0 { done as ssize_t } else { put };
        }
        if offset.is_null() {
            if put < got {
                lseek(from, (put - got) as off_t, libc::SEEK_CUR);
            }
        } else {
            *offset += put as off_t;
        }
        done += put as usize;
        if put < got || (got as usize) < wanted {
            break;
        }
    }
    done as ssize_t
}

unsafe fn read_call(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t {
    match table::is_weft(fd) {
        true => border(|| read(fd, &mut [memory_mut(buffer, bytes.min(BYTES_MAX))?], Where::Moving)),
        false => real::read(fd, buffer, bytes),
    }
}

unsafe fn write_call(fd: c_int, data: *const c_void, bytes: size_t) -> ssize_t {
    match table::is_weft(fd) {
        true => border(|| write(fd, vec![memory(data, bytes.min(BYTES_MAX))?], Where::Moving)),
        false => real::write(fd, data, bytes),
    }
}

/// The names of `read` and `write` are those of functions here.
mod exported {
    use super::*;
    calls! {
        fn read | __read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t { read_call(fd, buffer, bytes) }

        fn write | __write(fd: c_int, data: *const c_void, bytes: size_t) -> ssize_t { write_call(fd, data, bytes) }
    }
}

calls! {
    fn __read_chk(fd: c_int, buffer: *mut c_void, bytes: size_t, room: size_t) -> ssize_t {
        if bytes > room { libc::abort() }
        read_call(fd, buffer, bytes)
    }

    fn pread | pread64 | __pread64(fd: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t {
        match table::is_weft(fd) {
            true => border(|| read(fd, &mut [memory_mut(buffer, bytes.min(BYTES_MAX))?], Where::Given(offset))),
            false => real::pread(fd, buffer, bytes, offset),
        }
    }

    fn __pread_chk | __pread64_chk(fd: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t, room: size_t) -> ssize_t {
        if bytes > room { libc::abort() }
        pread(fd, buffer, bytes, offset)
    }

    fn pwrite | pwrite64 | __pwrite64(fd: c_int, data: *const c_void, bytes: size_t, offset: off_t) -> ssize_t {
        match table::is_weft(fd) {
            true => border(|| write(fd, vec![memory(data, bytes.min(BYTES_MAX))?], Where::Given(offset))),
            false => real::pwrite(fd, data, bytes, offset),
        }
    }

    fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
        match table::is_weft(fd) {
            true => read_list(fd, list, count, Where::Moving),
            false => real::readv(fd, list, count),
        }
    }

    fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
        match table::is_weft(fd) {
            true => write_list(fd, list, count, Where::Moving),
            false => real::writev(fd, list, count),
        }
    }

    fn preadv | preadv64(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        match table::is_weft(fd) {
            true => read_list(fd, list, count, Where::Given(offset)),
            false => real::preadv(fd, list, count, offset),
        }
    }

    fn pwritev | pwritev64(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        match table::is_weft(fd) {
            true => write_list(fd, list, count, Where::Given(offset)),
            false => real::pwritev(fd, list, count, offset),
        }
    }

    fn preadv2 | preadv64v2(fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        match (table::is_weft(fd), flags) {
            (false, _) => real::preadv2(fd, list, count, offset, flags),
            (true, 0) => read_list(fd, list, count, if offset == -1 { Where::Moving } else { Where::Given(offset) }),
            _ => border(|| fail(libc::EOPNOTSUPP)),
        }
    }

    fn pwritev2 | pwritev64v2(fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        match (table::is_weft(fd), flags) {
            (false, _) => real::pwritev2(fd, list, count, offset, flags),
            (true, 0) => write_list(fd, list, count, if offset == -1 { Where::Moving } else { Where::Given(offset) }),
            _ => border(|| fail(libc::EOPNOTSUPP)),
        }
    }

    fn lseek | lseek64 | __lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
        match table::is_weft(fd) {
            true => border(|| seek(fd, offset, whence)),
            false => real::lseek(fd, offset, whence),
        }
    }

    fn fsync(fd: c_int) -> c_int {
        if table::is_weft(fd) { border(|| sync(fd, false)) } else { real::fsync(fd) }
    }

    fn fdatasync(fd: c_int) -> c_int {
        if table::is_weft(fd) { border(|| sync(fd, true)) } else { real::fdatasync(fd) }
    }

    fn sync_file_range(fd: c_int, offset: off_t, bytes: off_t, flags: c_uint) -> c_int {
        if table::is_weft(fd) { border(|| sync(fd, true)) } else { real::sync_file_range(fd, offset, bytes, flags) }
    }

    fn syncfs(fd: c_int) -> c_int {
        if table::is_weft(fd) { border(|| fail(libc::EOPNOTSUPP)) } else { real::syncfs(fd) }
    }

    fn ftruncate | ftruncate64(fd: c_int, bytes: off_t) -> c_int {
        if table::is_weft(fd) { border(|| truncate_open(fd, bytes)) } else { real::ftruncate(fd, bytes) }
    }

    fn fallocate | fallocate64(fd: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int {
        match table::is_weft(fd) {
            true => border(|| allocate(fd, mode, offset, bytes).map(|()| 0)),
            false => real::fallocate(fd, mode, offset, bytes),
        }
    }

    fn posix_fallocate | posix_fallocate64(fd: c_int, offset: off_t, bytes: off_t) -> c_int {
        match table::is_weft(fd) {
            true => border_errno(|| allocate(fd, 0, offset, bytes)),
            false => real::posix_fallocate(fd, offset, bytes),
        }
    }

    fn posix_fadvise | posix_fadvise64(fd: c_int, offset: off_t, bytes: off_t, advice: c_int) -> c_int {
        match table::is_weft(fd) {
            // It is an advice.
            true => 0,
            false => real::posix_fadvise(fd, offset, bytes, advice),
        }
    }

    fn readahead(fd: c_int, offset: off_t, bytes: size_t) -> ssize_t {
        if table::is_weft(fd) { 0 } else { real::readahead(fd, offset, bytes) }
    }

    fn sendfile | sendfile64(out: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t {
        match table::is_weft(out) || table::is_weft(from) {
            true => copy(out, from, offset, bytes),
            false => real::sendfile(out, from, offset, bytes),
        }
    }

    fn copy_file_range(from: c_int, at: *mut off_t, out: c_int, to: *mut off_t, bytes: size_t, flags: c_uint) -> ssize_t {
        match table::is_weft(out) || table::is_weft(from) {
            // As between any two file systems: programs go on with read and write.
            true => border(|| fail(libc::EXDEV)),
            false => real::copy_file_range(from, at, out, to, bytes, flags),
        }
    }

    fn splice(from: c_int, at: *mut off_t, out: c_int, to: *mut off_t, bytes: size_t, flags: c_uint) -> ssize_t {
        match table::is_weft(out) || table::is_weft(from) {
            true => border(|| fail(libc::EINVAL)),
            false => real::splice(from, at, out, to, bytes, flags),
        }
    }
}

/// Reads from an offset until the memory is full or the file ends; returns how much there was.
pub(crate) fn fill(open: &Open, at: &At, memory: &mut [u8], offset: u64) -> Outcome<usize> {
    let mut done = 0;
    while done < memory.len() {
        let end = memory.len().min(done + 4 * COPY_BYTES);
        match read_at(open, at, &mut [&mut memory[done..end]], offset + done as u64)? {
            0 => break,
            some => done += some,
        }
    }
    Ok(done)
}
