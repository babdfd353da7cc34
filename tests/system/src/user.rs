//! Other users of the machine.

use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Runs an action as somebody else, in a thread of its own: on Linux every thread has its own
/// identity. The first group is the main one. Needs root.
pub fn as_user<T: Send>(uid: u32, groups: &[u32], action: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let ids: Vec<_> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
            set_thread_groups(&ids).expect("root may become anybody");
            let (uid, gid) = (Uid::from_raw(uid), ids[0]);
            set_thread_res_gid(gid, gid, gid).expect("root may become anybody");
            set_thread_res_uid(uid, uid, uid).expect("root may become anybody");
            action()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
