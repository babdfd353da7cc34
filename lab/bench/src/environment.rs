//! What results depend on and no plan says: the machine, its load, and what is mounted where.

use std::path::Path;

use serde::{Deserialize, Serialize};
use weft_host::{mounts, proc};

use crate::setup::Place;

/// A machine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Of Weft.
    pub weft: String,
    /// Name of the machine.
    pub machine: String,
    /// Version of its kernel.
    pub kernel: String,
    /// Processors that may be used.
    pub processors: usize,
    /// What they are.
    pub processor: String,
    /// Memory in KiB.
    pub memory_kib: u64,
    /// Processes that were ready to run, over the last minute.
    pub load: f64,
    /// What is mounted at each place, in their order.
    pub mounts: Vec<MountSeen>,
}

/// What is mounted at a place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MountSeen {
    /// The place.
    pub place: String,
    /// Type of the file system; empty where nobody can tell.
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// How.
    pub options: String,
}

impl Environment {
    /// Now, here.
    pub fn look(places: &[(String, Place)]) -> Environment {
        let names = nix::sys::utsname::uname().ok();
        let text = |of: fn(&nix::sys::utsname::UtsName) -> &std::ffi::OsStr| {
            names.as_ref().map(|names| of(names).to_string_lossy().into_owned()).unwrap_or_default()
        };
        let file = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
        let processor = proc::line(&file("/proc/cpuinfo"), "model name").unwrap_or_default().to_string();
        Environment {
            weft: env!("CARGO_PKG_VERSION").to_string(),
            machine: text(|names| names.nodename()),
            kernel: text(|names| names.release()),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get()),
            processor,
            memory_kib: proc::memory(&file("/proc/meminfo"), "MemTotal").unwrap_or(0) >> 10,
            load: load(),
            mounts: places.iter().map(|(name, place)| seen(name, place)).collect(),
        }
    }

    /// What is not as it was then, for people; the load aside.
    pub fn changed(&self, then: &Environment) -> Vec<String> {
        let mut changes = Vec::new();
        let mut told = |what: &str, then: &str, now: &str| {
            if then != now {
                changes.push(format!("{what} was `{then}` and is `{now}`"));
            }
        };
        told("the version of Weft", &then.weft, &self.weft);
        told("the machine", &then.machine, &self.machine);
        told("the kernel", &then.kernel, &self.kernel);
        told("the number of processors", &then.processors.to_string(), &self.processors.to_string());
        for mount in &self.mounts {
            if let Some(known) = then.mounts.iter().find(|known| known.place == mount.place) {
                let words = |seen: &MountSeen| format!("{} {} {}", seen.kind, seen.source, seen.options);
                told(&format!("what is mounted at {}", mount.place), &words(known), &words(mount));
            }
        }
        changes
    }
}

fn seen(name: &str, place: &Place) -> MountSeen {
    let found = match place {
        Place::Directory(path) => mount_of(path),
        Place::FileSystem(fs) => Some(MountSeen { kind: "weft".into(), source: fs.to_string_lossy().into_owned(), ..MountSeen::default() }),
        Place::Build(program) => Some(MountSeen { kind: "weft".into(), source: program.display().to_string(), ..MountSeen::default() }),
        Place::Word(word) => Some(MountSeen { source: word.to_string_lossy().into_owned(), ..MountSeen::default() }),
        Place::Temporary => Some(MountSeen { kind: "weft".into(), source: "temporary".into(), ..MountSeen::default() }),
    };
    MountSeen { place: name.to_string(), ..found.unwrap_or_default() }
}

fn mount_of(path: &Path) -> Option<MountSeen> {
    let all = mounts::list().ok()?;
    let mount = mounts::holding(&all, &mounts::resolve(path))?;
    Some(MountSeen { kind: mount.kind.clone(), source: mount.source.clone(), options: mount.options.clone(), ..MountSeen::default() })
}

/// Processes that were ready to run, over the last minute.
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_told_and_what_has_changed_on_it() {
        let now = Environment::look(&[("root".into(), Place::Directory("/".into()))]);
        assert!(now.processors > 0 && !now.kernel.is_empty() && now.memory_kib > 0, "{now:?}");
        assert!(!now.mounts[0].kind.is_empty() && !now.mounts[0].options.is_empty(), "{now:?}");
        assert!(now.changed(&now).is_empty());
        let mut then = now.clone();
        then.mounts[0].options = "ro".into();
        then.load += 1.0;
        let changes = now.changed(&then);
        assert!(changes.len() == 1 && changes[0].starts_with("what is mounted at root was"), "{changes:?}");
    }
}
