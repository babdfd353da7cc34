//! FUSE over io_uring, which only root can switch on, for the whole machine.

use std::fs::File;

use crate::needs::{Need, available, skip};

/// The switch of the kernel.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// While this lives, the kernel offers it to new mounts.
#[derive(Debug)]
pub struct Uring {
    before: String,
    /// Locked: tests take turns, those of other programs too.
    _turn: File,
}

impl Uring {
    /// Switches it on; `None`, and words on the terminal, where that cannot be.
    pub fn on(test: &str) -> Option<Uring> {
        if !available(test, &[Need::Fuse, Need::Root]) {
            return None;
        }
        let switched = File::open(SWITCH).and_then(|turn| {
            turn.lock()?;
            let before = std::fs::read_to_string(SWITCH)?;
            std::fs::write(SWITCH, "Y")?;
            Ok(Uring { before, _turn: turn })
        });
        match switched {
            Ok(uring) => Some(uring),
            Err(error) => {
                skip(test, &format!("the kernel has no FUSE over io_uring: {SWITCH}: {error}"));
                None
            }
        }
    }

    /// Until this is dropped, the kernel offers it to no new mount.
    pub fn off(&self) {
        std::fs::write(SWITCH, "N").expect("what was switched on can be switched off");
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // Nothing can be done if it fails; mounts that exist go on either way.
        let _ = std::fs::write(SWITCH, self.before.trim());
    }
}
