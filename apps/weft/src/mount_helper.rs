//! The helper of `mount(8)`: under the name `mount.weft` or `mount.fuse.weft` this program takes
//! the arguments that `mount -t weft` and `/etc/fstab` give to helpers, and mounts or changes a
//! mount as they say.
//!
//! What is meant for others (`noauto`, `x-systemd...`) or always so (`nosuid`, `nodev`, `noatime`)
//! is passed over; what would need another file system than this one is refused; the rest are
//! options of `weft mount -o`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use rustix::mount::MountFlags;
use weft_host::mounts;

/// Names under which this program is the helper.
const NAMES: [&str; 2] = ["mount.weft", "mount.fuse.weft"];
/// For `mount`, its relatives and systemd, or always so.
const PASSED_OVER: [&str; 21] = [
    "defaults",
    "rw",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "nofail",
    "_netdev",
    "nosuid",
    "nodev",
    "nodiratime",
    "exec",
    "async",
    "silent",
    "loud",
    "nostrictatime",
];
/// A mount without these is not to be had.
const REFUSED: [&str; 2] = ["suid", "dev"];

/// What the arguments of the helper ask for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// To mount, by this command line of `weft`.
    Mount(Vec<OsString>),
    /// To change the flags of the mount at this place.
    Remount(PathBuf, MountFlags),
    /// Only to say whether it could.
    Nothing,
}

/// The command line to be executed in place of this one, if this process was started as the helper.
/// `Err` is the end of the process.
pub fn command_line(args: Vec<OsString>) -> Result<Vec<OsString>, Result<ExitCode>> {
    let name = args.first().and_then(|name| Path::new(name).file_name()).unwrap_or_default();
    if !NAMES.iter().any(|helper| name == *helper) {
        return Ok(args);
    }
    match parse(&args[1..]) {
        Ok(Asked::Mount(command)) => Ok(command),
        Ok(Asked::Nothing) => Err(Ok(ExitCode::SUCCESS)),
        Ok(Asked::Remount(place, flags)) => Err(remount(&place, flags).map(|()| ExitCode::SUCCESS)),
        Err(error) => Err(Err(error)),
    }
}

fn parse(args: &[OsString]) -> Result<Asked> {
    let (mut places, mut options, mut is_sloppy, mut is_fake) = (Vec::new(), Vec::new(), false, false);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let text = arg.to_str().unwrap_or_default();
        match text {
            "-o" => {
                let list = args.next().and_then(|list| list.to_str()).context("-o needs a list of options in UTF-8")?;
                options.extend(list.split(',').filter(|option| !option.is_empty()));
            }
            "-t" | "-N" => {
                args.next();
            }
            _ if text.len() > 1 && text.starts_with('-') => {
                for letter in text.chars().skip(1) {
                    match letter {
                        's' => is_sloppy = true,
                        'f' => is_fake = true,
                        'n' | 'v' => {}
                        _ => bail!("the helper of mount knows no -{letter}"),
                    }
                }
            }
            _ => places.push(arg),
        }
    }
    let [fs, place] = places[..] else { bail!("usage: mount.weft FS DIR [-sfnv] [-o OPTIONS], as `mount -t weft` calls it") };
    if options.contains(&"remount") {
        return Ok(Asked::Remount(mounts::resolve(Path::new(place)), flags(&options)));
    }
    let mut command: Vec<OsString> = vec!["weft".into(), "mount".into()];
    let mut own = Vec::new();
    for option in options {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let is_for_others = key.starts_with("x-") || key.starts_with("X-") || key == "comment" || key == "user";
        match key {
            _ if REFUSED.contains(&key) => bail!("-o {option}: set-uid programs and device files have no effect on a mount of Weft"),
            "key_file" => command.extend(["--key-file".into(), value.into()]),
            "timeout" => command.extend(["--timeout".into(), value.into()]),
            _ if is_for_others || PASSED_OVER.contains(&option) => {}
            _ if is_sloppy && !crate::commands::mount::knows_option(option) => {}
            _ => own.push(option),
        }
    }
    if !own.is_empty() {
        command.extend(["-o".into(), own.join(",").into()]);
    }
    command.extend(["--".into(), fs.clone(), place.clone()]);
    Ok(if is_fake { Asked::Nothing } else { Asked::Mount(command) })
}

/// The flags of a mount with these options. `mount` adds the present ones to what the user asks
/// for, so unknown ones mean nothing.
fn flags(options: &[&str]) -> MountFlags {
    let always = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    options.iter().fold(always, |flags, option| match *option {
        "ro" => flags | MountFlags::RDONLY,
        "rw" => flags - MountFlags::RDONLY,
        "noexec" => flags | MountFlags::NOEXEC,
        "exec" => flags - MountFlags::NOEXEC,
        _ => flags,
    })
}

fn remount(place: &Path, flags: MountFlags) -> Result<()> {
    match mounts::at(place)? {
        Some(mount) if mounts::is_weft(&mount) => {}
        _ => bail!("no file system of Weft is mounted at {}", place.display()),
    }
    rustix::mount::mount_remount(place, flags, c"").with_context(|| format!("cannot change the mount at {}", place.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Asked> {
        parse(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_line_of_fstab_becomes_a_command() {
        let command = |text: &str| Asked::Mount(text.split(' ').map(OsString::from).collect());
        let got = asked("/srv/weft /no/such/mnt -o rw,defaults,_netdev,x-systemd.requires=a,ro,threads=2,key_file=/k").unwrap();
        assert_eq!(got, command("weft mount --key-file /k -o ro,threads=2 -- /srv/weft /no/such/mnt"));
        assert_eq!(asked("weft://a:1/b /m -n -o rw").unwrap(), command("weft mount -- weft://a:1/b /m"));
        assert_eq!(asked("a /m -vs -o nonsense,ro").unwrap(), command("weft mount -o ro -- a /m"));
        assert_eq!(asked("a /m -o nonsense").unwrap(), command("weft mount -o nonsense -- a /m"), "it will be refused by name");
        // As `mount` says it of a line with `user`.
        let of_user = asked("a /m -o rw,noexec,nosuid,nodev,user,_netdev").unwrap();
        assert_eq!(of_user, command("weft mount -o noexec -- a /m"));
        assert!(crate::commands::mount::knows_option("noexec"));
        assert_eq!(asked("a /m -fv").unwrap(), Asked::Nothing);
        for bad in ["a", "a /m c", "a /m -o suid", "a /m -o dev", "a /m -x", "a /m -o"] {
            assert!(asked(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_remount_changes_flags() {
        let always = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
        let line = "weft:fs /no/such/mnt -o rw,nosuid,user_id=0,remount,ro";
        assert_eq!(asked(line).unwrap(), Asked::Remount("/no/such/mnt".into(), always | MountFlags::RDONLY));
        assert_eq!(asked("weft:fs /m -o ro,remount,rw").unwrap(), Asked::Remount("/m".into(), always));
    }

    #[test]
    fn only_its_names_make_it_the_helper() {
        let line = |name: &str| command_line(vec![name.into(), "a".into(), "/m".into()]);
        assert_eq!(line("/usr/bin/weft").unwrap()[0], "/usr/bin/weft");
        assert_eq!(line("/sbin/mount.weft").unwrap()[..2], ["weft", "mount"]);
        assert_eq!(line("mount.fuse.weft").unwrap()[..2], ["weft", "mount"]);
    }
}
