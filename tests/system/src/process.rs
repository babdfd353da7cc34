//! Processes by number: do they live, and what do their threads wait for.

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Sends a signal to a process, which a test must have started itself.
///
/// # Errors
/// If there is no such process or it belongs to somebody else.
pub fn signal(pid: u32, signal: Signal) -> std::io::Result<()> {
    Ok(kill_process(as_pid(pid), signal)?)
}

/// True if the process exists and is no zombie. One whose first thread is a zombie lives until the
/// kernel is through with the others.
pub fn alive(pid: u32) -> bool {
    test_kill_process(as_pid(pid)).is_ok() && states_of_threads(pid).iter().any(|state| *state != 'Z' && *state != 'X')
}

/// The state letters of the threads of a process (`R` runs, `S` sleeps, `D` waits uninterruptibly
/// ...).
pub fn states_of_threads(pid: u32) -> Vec<char> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks.flatten().filter_map(|task| state_of(task.path().join("stat").to_str()?)).collect()
}

fn as_pid(pid: u32) -> Pid {
    Pid::from_raw(pid as i32).expect("process numbers begin at 1")
}

/// The field behind the name, which may hold any characters and ends with the last parenthesis.
fn state_of(stat: &str) -> Option<char> {
    let text = std::fs::read_to_string(stat).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives() {
        let me = std::process::id();
        assert!(alive(me) && states_of_threads(me).contains(&'R'));
    }
}
