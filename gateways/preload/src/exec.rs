//! Starting programs: what they inherit is handed on, and what lies in Weft is run from a copy in
//! memory, since the kernel cannot read it there.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use weft_base::FileKind;

use crate::border::{Errno, Outcome, border, calls, checked, fail, set_errno, text};
use crate::shown::permits;
use crate::walk::{Begin, locate};
use crate::{attributes, data, handing, opening, real, session, table};

/// Strings as `execve` has them.
pub(crate) type Strings = *const *const c_char;

/// Longest first line of a script, in bytes, as in Linux.
const LINE_BYTES_MAX: usize = 256;
/// Programs that lie in Weft are not larger, in bytes.
const PROGRAM_BYTES_MAX: u64 = 1 << 32;
/// Scripts that run scripts, at most, as in Linux.
const DEPTH_MAX: usize = 4;

unsafe extern "C" {
    static environ: Strings;
}

/// Null-terminated strings, some of them our own.
pub(crate) struct Vector {
    pointers: Vec<*const c_char>,
    _own: Vec<CString>,
}

impl Vector {
    /// These pointers, and our own strings in front of them or behind.
    fn new(pointers: Vec<*const c_char>, own: Vec<CString>) -> Vector {
        let mut pointers = pointers;
        pointers.push(std::ptr::null());
        Vector { pointers, _own: own }
    }

    pub fn as_ptr(&self) -> Strings {
        self.pointers.as_ptr()
    }
}

/// The pointers of a list.
unsafe fn list(strings: Strings) -> Vec<*const c_char> {
    let mut all = Vec::new();
    if !strings.is_null() {
        while !(*strings.add(all.len())).is_null() {
            all.push(*strings.add(all.len()));
        }
    }
    all
}

/// The environment for a program that is started: what is handed on is added.
pub(crate) unsafe fn environment(envp: Strings) -> Vector {
    let name = [handing::VARIABLE.to_bytes(), b"="].concat();
    let mut pointers = list(envp);
    pointers.retain(|string| !CStr::from_ptr(*string).to_bytes().starts_with(&name));
    let own: Vec<CString> =
        handing::value().into_iter().filter_map(|value| CString::new([name.as_slice(), value.as_bytes()].concat()).ok()).collect();
    pointers.extend(own.iter().map(|own| own.as_ptr()));
    Vector::new(pointers, own)
}

/// Runs a program, wherever it lies.
pub(crate) unsafe fn execute(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    if session::prefix().is_none() {
        return real::execve(path, argv, envp);
    }
    let begin = locate(libc::AT_FDCWD, path);
    let result: c_int = border(|| match begin {
        Some(begin) => run_from_weft(&begin, text(path)?, argv, envp, 0),
        None => {
            let envp = environment(envp);
            handing::leave_for_exec();
            Err(Errno(exec_errno(real::execve(path, argv, envp.as_ptr()))))
        }
    });
    result
}

fn exec_errno(_failed: c_int) -> c_int {
    crate::border::errno()
}

/// Runs a program that lies in Weft; `name` is its path for scripts. Does not return if it can.
unsafe fn run_from_weft(begin: &Begin, name: &[u8], argv: Strings, envp: Strings, depth: usize) -> Outcome<c_int> {
    let fs = session::fs()?;
    let attr = match begin.attr(&fs, true)? {
        Ok(attr) => attr,
        Err(path) => {
            let envp = environment(envp);
            handing::leave_for_exec();
            return fail(exec_errno(real::execve(path.as_ptr(), argv, envp.as_ptr())));
        }
    };
    if attr.kind != FileKind::File || !permits(&fs, &attr, fs.who(), 1)? {
        return fail(libc::EACCES);
    }
    let fd = opening::open_inside(begin, libc::O_RDONLY | libc::O_CLOEXEC, 0)?;
    let outcome = run_descriptor(fd, name, argv, envp, depth);
    if table::is_weft(fd) {
        table::remove(fd).into_iter().for_each(opening::closed);
        crate::reserve::give_back(fd);
    }
    outcome
}

/// Runs what a descriptor of Weft is open on; `name` is its path for scripts.
unsafe fn run_descriptor(fd: c_int, name: &[u8], argv: Strings, envp: Strings, depth: usize) -> Outcome<c_int> {
    let open = table::get(fd)?;
    let (_, attr) = attributes::of_descriptor(fd)?;
    if attr.size > PROGRAM_BYTES_MAX {
        return fail(libc::ENOEXEC);
    }
    let file = open.file()?.share();
    let mut head = vec![0; LINE_BYTES_MAX.min(attr.size as usize)];
    let len = data::fill(&open, &file, &mut head, 0)?;
    if let Some((interpreter, argument)) = interpreter_of(&head[..len]) {
        if depth >= DEPTH_MAX {
            return fail(libc::ELOOP);
        }
        let string = |bytes: &[u8]| CString::new(bytes).map_err(|_| Errno(libc::ENOEXEC));
        let interpreter = string(interpreter)?;
        let mut own = vec![interpreter.clone()];
        if let Some(argument) = argument {
            own.push(string(argument)?);
        }
        own.push(string(name)?);
        let given = list(argv);
        let pointers = own.iter().map(|own| own.as_ptr()).chain(given.into_iter().skip(1)).collect();
        let argv = Vector::new(pointers, own);
        return match locate_inside(&interpreter) {
            Some(begin) => run_from_weft(&begin, interpreter.to_bytes(), argv.as_ptr(), envp, depth + 1),
            None => {
                let envp = environment(envp);
                handing::leave_for_exec();
                fail(exec_errno(real::execve(interpreter.as_ptr(), argv.as_ptr(), envp.as_ptr())))
            }
        };
    }
    let title = OsStr::from_bytes(name).to_string_lossy().replace('\0', "?");
    let title = CString::new(title.chars().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect::<String>()).unwrap_or_default();
    let copy = checked(libc::memfd_create(title.as_ptr(), libc::MFD_CLOEXEC))?;
    let outcome = copy_program(&open, &file, copy, attr.size).and_then(|()| {
        let envp = environment(envp);
        handing::leave_for_exec();
        let failed = libc::syscall(libc::SYS_execveat, copy, c"".as_ptr(), argv, envp.as_ptr(), libc::AT_EMPTY_PATH);
        fail(exec_errno(failed as c_int))
    });
    crate::reserve::give_back(copy);
    outcome
}

unsafe fn copy_program(open: &table::Open, file: &table::At, copy: c_int, bytes: u64) -> Outcome<()> {
    let mut buffer = vec![0; (1 << 20).min(bytes as usize).max(1)];
    let mut at = 0;
    loop {
        let got = data::fill(open, file, &mut buffer, at)?;
        let mut rest = &buffer[..got];
        while !rest.is_empty() {
            let put = checked(libc::syscall(libc::SYS_write, copy, rest.as_ptr(), rest.len()))?;
            rest = &rest[put as usize..];
        }
        at += got as u64;
        if got < buffer.len() {
            return Ok(());
        }
    }
}

/// A path of our own, located although this thread is at work for Weft.
fn locate_inside(path: &CStr) -> Option<Begin> {
    crate::walk::begin_of(libc::AT_FDCWD, path.to_bytes())
}

/// The interpreter of a script and its argument, from its first bytes.
fn interpreter_of(head: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (interpreter, argument) = (&line[..end], line[end..].trim_ascii());
    (!interpreter.is_empty()).then_some((interpreter, (!argument.is_empty()).then_some(argument)))
}

/// Runs what is found by a name in `PATH`, as `execvp` does.
pub(crate) unsafe fn search(file: *const c_char, argv: Strings, envp: Strings) -> c_int {
    let Ok(name) = text(file) else { return real::execvpe(file, argv, envp) };
    let path = session::variable(c"PATH").unwrap_or_else(|| b"/bin:/usr/bin".to_vec());
    if name.contains(&b'/') {
        return or_shell(execute(file, argv, envp), file, argv, envp);
    }
    if session::prefix().is_none() || name.is_empty() {
        return real::execvpe(file, argv, envp);
    }
    let mut seen = libc::ENOENT;
    for place in path.split(|byte| *byte == b':') {
        let place: &[u8] = if place.is_empty() { b"." } else { place };
        let Ok(whole) = CString::new([place, b"/", name].concat()) else { continue };
        // Nothing is given up for a program that is not there.
        if crate::attributes::access(whole.as_ptr(), libc::F_OK) != 0 {
            continue;
        }
        or_shell(execute(whole.as_ptr(), argv, envp), whole.as_ptr(), argv, envp);
        match crate::border::errno() {
            libc::EACCES => seen = libc::EACCES,
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
            _ => return -1,
        }
    }
    set_errno(seen);
    -1
}

/// What is no program is a script of the shell, as `execvp` has it.
unsafe fn or_shell(result: c_int, path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    if crate::border::errno() != libc::ENOEXEC {
        return result;
    }
    let shell = c"/bin/sh".as_ptr();
    let pointers = [shell, path].into_iter().chain(list(argv).into_iter().skip(1)).collect();
    execute(shell, Vector::new(pointers, Vec::new()).as_ptr(), envp)
}

/// What `execl` and its relatives do (`which`: 0, `execlp` 1, `execle` 2) with arguments that the
/// assembler below has put into memory: those that came in registers, and the others.
unsafe extern "C" fn weft_preload_execl(path: *const c_char, registers: Strings, stack: Strings, which: c_int) -> c_int {
    let at = |index: usize| if index < REGISTERS { *registers.add(index) } else { *stack.add(index - REGISTERS) };
    let mut pointers = Vec::new();
    while !at(pointers.len()).is_null() {
        pointers.push(at(pointers.len()));
    }
    // Behind the strings comes the environment, for this one only.
    let envp = if which == 2 { at(pointers.len() + 1).cast() } else { environ };
    let argv = Vector::new(pointers, Vec::new());
    if which == 1 { search(path, argv.as_ptr(), envp) } else { execute(path, argv.as_ptr(), envp) }
}

/// Registers in which arguments behind the first one come.
#[cfg(target_arch = "x86_64")]
const REGISTERS: usize = 5;
#[cfg(target_arch = "aarch64")]
const REGISTERS: usize = 7;

#[cfg(all(target_arch = "x86_64", not(test)))]
macro_rules! trampoline {
    ($name:ident, $which:literal) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
            "push rbp",
            "mov rbp, rsp",
            "sub rsp, 48",
            "mov [rbp - 48], rsi",
            "mov [rbp - 40], rdx",
            "mov [rbp - 32], rcx",
            "mov [rbp - 24], r8",
            "mov [rbp - 16], r9",
            "lea rsi, [rbp - 48]",
            "lea rdx, [rbp + 16]",
            concat!("mov ecx, ", $which),
            "call {call}",
            "leave",
            "ret",
            call = sym weft_preload_execl,
            )
        }
    };
}

#[cfg(all(target_arch = "aarch64", not(test)))]
macro_rules! trampoline {
    ($name:ident, $which:literal) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
            "stp x29, x30, [sp, #-80]!",
            "mov x29, sp",
            "stp x1, x2, [sp, #16]",
            "stp x3, x4, [sp, #32]",
            "stp x5, x6, [sp, #48]",
            "str x7, [sp, #64]",
            "add x1, sp, #16",
            "add x2, sp, #80",
            concat!("mov w3, ", $which),
            "bl {call}",
            "ldp x29, x30, [sp], #80",
            "ret",
            call = sym weft_preload_execl,
            )
        }
    };
}

// Variadic functions cannot be written in Rust: these put their arguments where it can read them.
#[cfg(not(test))]
trampoline!(execl, "0");
#[cfg(not(test))]
trampoline!(execlp, "1");
#[cfg(not(test))]
trampoline!(execle, "2");

calls! {
    fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int { execute(path, argv, envp) }

    fn execv(path: *const c_char, argv: Strings) -> c_int { execute(path, argv, environ) }

    fn execvp(file: *const c_char, argv: Strings) -> c_int { search(file, argv, environ) }

    fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int { search(file, argv, envp) }

    fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int { execveat(fd, c"".as_ptr(), argv, envp, libc::AT_EMPTY_PATH) }

    fn execveat(dir: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int) -> c_int {
        if session::prefix().is_none() {
            return real::execveat(dir, path, argv, envp, flags);
        }
        let begin = locate(dir, path);
        border(|| match begin {
            Some(begin) => run_from_weft(&begin, &begin.shown(), argv, envp, 0),
            None if table::is_weft(dir) => run_descriptor(dir, &table::get(dir)?.path, argv, envp, 0),
            None => {
                let envp = environment(envp);
                handing::leave_for_exec();
                fail(exec_errno(real::execveat(dir, path, argv, envp.as_ptr(), flags)))
            }
        })
    }

    fn system(command: *const c_char) -> c_int { with_handed(|| real::system(command)) }

    fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE { with_handed(|| real::popen(command, mode)) }
}

/// Does a call that starts a program by itself, with the environment of this one.
unsafe fn with_handed<T>(call: impl FnOnce() -> T) -> T {
    let value = if handing::is_needed() { handing::value().and_then(|value| CString::new(value).ok()) } else { None };
    let Some(value) = value else { return call() };
    libc::setenv(handing::VARIABLE.as_ptr(), value.as_ptr(), 1);
    let result = call();
    let why = crate::border::errno();
    libc::unsetenv(handing::VARIABLE.as_ptr());
    set_errno(why);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_script_is_read_as_the_kernel_does() {
        assert_eq!(interpreter_of(b"#!/bin/sh\necho"), Some((b"/bin/sh".as_slice(), None)));
        assert_eq!(interpreter_of(b"#! /usr/bin/env python3 -u \nx"), Some((b"/usr/bin/env".as_slice(), Some(b"python3 -u".as_slice()))));
        assert_eq!((interpreter_of(b"\x7fELF"), interpreter_of(b"#!\n"), interpreter_of(b"")), (None, None, None));
    }
}
