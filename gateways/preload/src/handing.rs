//! What a program gets from the one before it by `exec`: descriptors of Weft that stay open, and a
//! working directory in Weft, told by an environment variable.

use std::ffi::{CStr, c_int};
use std::sync::Arc;

use weft_base::FileKind;

use crate::table::{Cwd, Open};
use crate::walk::{attr_of, node_of};
use crate::{jumps, reserve, session, table};

/// The variable. It is taken out of the environment when it has been read.
pub(crate) const VARIABLE: &CStr = c"WEFT_PRELOAD_HANDED";

/// The longest value that is read, in bytes; Linux allows one string twice as many.
const BYTES_MAX: usize = 64 << 10;

/// One thing that is handed on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Handed {
    /// The descriptor; -1: the working directory.
    fd: c_int,
    handle: u64,
    kind: FileKind,
    flags: c_int,
    path: Vec<u8>,
}

fn encode(all: &[Handed]) -> String {
    let one = |handed: &Handed| {
        let path: String = handed.path.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}:{:x}:{:x}:{:x}:{path}", handed.fd, handed.handle, handed.kind.mode_bits() >> 12, handed.flags)
    };
    all.iter().map(one).collect::<Vec<_>>().join(";")
}

fn decode(text: &str) -> Option<Vec<Handed>> {
    let one = |text: &str| {
        let mut parts = text.split(':');
        let fd = parts.next()?.parse().ok()?;
        let handle = u64::from_str_radix(parts.next()?, 16).ok()?;
        let kind = FileKind::from_code(u8::from_str_radix(parts.next()?, 16).ok()?)?;
        let flags = c_int::from_str_radix(parts.next()?, 16).ok()?;
        let digits = parts.next()?.as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let path = digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>()?;
        parts.next().is_none().then_some(Handed { fd, handle, kind, flags, path })
    };
    text.split(';').filter(|part| !part.is_empty()).map(one).collect()
}

/// Descriptors that a program that is started now would have.
pub(crate) fn descriptors() -> Vec<(c_int, Arc<Open>)> {
    let mut all = table::all();
    // SAFETY: takes no memory.
    all.retain(|(fd, _)| unsafe { libc::syscall(libc::SYS_fcntl, *fd, libc::F_GETFD) } & libc::c_long::from(libc::FD_CLOEXEC) == 0);
    all
}

/// True if there is anything to be handed on.
pub(crate) fn is_needed() -> bool {
    session::prefix().is_some() && (table::is_cwd_weft() || !descriptors().is_empty())
}

/// What is handed on, as the value of the variable; `None`: nothing.
pub(crate) fn value() -> Option<String> {
    let mut all = Vec::new();
    if let Some(Cwd { node, path }) = table::cwd() {
        all.push(Handed { fd: -1, handle: node.handle().0, kind: FileKind::Directory, flags: 0, path });
    }
    for (fd, open) in descriptors() {
        all.push(Handed { fd, handle: open.node.handle().0, kind: open.kind, flags: open.flags(), path: open.path.clone() });
    }
    (!all.is_empty()).then(|| encode(&all))
}

/// The process becomes another program, if nothing is in the way: servers hear what is closed. What
/// the program gets is opened there, and here if there is something in the way. A file without a
/// name is kept open until it has been: its server takes this process for alive a while longer.
pub(crate) fn leave_for_exec() {
    if !session::is_open() {
        return;
    }
    let handed = descriptors();
    let is_named = |open: &Arc<Open>| session::fs().and_then(|fs| attr_of(&fs, open.node)).is_ok_and(|attr| attr.nlink > 0);
    if !handed.iter().all(|(_, open)| is_named(open)) {
        return;
    }
    let all = table::all();
    session::leave();
    all.into_iter().for_each(|(_, open)| std::mem::forget(open.detach()));
}

/// Takes over what the program before has handed on. What is no descriptor of Weft (any more) is
/// left alone.
pub(crate) fn take_over() {
    let Some(value) = session::variable(VARIABLE) else { return };
    // SAFETY: the program has not begun.
    unsafe { libc::unsetenv(VARIABLE.as_ptr()) };
    let text = String::from_utf8_lossy(&value);
    let Some(all) = (if value.len() <= BYTES_MAX { decode(&text) } else { None }) else { return };
    if session::prefix().is_none() {
        return;
    }
    let mut known: Vec<(u64, Arc<Open>)> = Vec::new();
    for Handed { fd, handle, kind, flags, path } in all {
        if fd < 0 {
            table::set_cwd(Some(Cwd { node: node_of(handle), path }));
            continue;
        }
        if fd as usize >= reserve::NUMBERS_MAX || !reserve::is_ours(fd) || reserve::prepare().is_err() {
            continue;
        }
        jumps::watch();
        // Duplicates share their offset in the kernel whether or not they are one here.
        let same = known.iter().find(|(other, open)| *other == handle && open.flags() == flags).map(|(_, open)| open.clone());
        let open = same.unwrap_or_else(|| {
            let mut open = Open::new(node_of(handle), kind, path, flags, None);
            open.is_inherited = true;
            Arc::new(open)
        });
        known.push((handle, open.clone()));
        drop(table::put(fd, open));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_on_arrives() {
        let file =
            Handed { fd: 1, handle: 0xffff_0000_0000_0007, kind: FileKind::File, flags: libc::O_WRONLY, path: b"/weft/a:b;\xff".to_vec() };
        let cwd = Handed { fd: -1, handle: 1, kind: FileKind::Directory, flags: 0, path: b"/weft".to_vec() };
        let all = vec![file, cwd];
        assert_eq!(decode(&encode(&all)), Some(all));
        assert_eq!(decode(""), Some(Vec::new()));
        for bad in ["x", "1:2", "1:2:8:0:zz", "1:2:8:0:00:1", "1:2:3:0:00"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
