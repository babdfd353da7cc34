//! The checks of permissions, owners and set-id bits.

use super::*;

pub const CHECKS: &[(&str, Check)] = &[
    ("permissions_of_files", |at| {
        let file = at.join("file");
        fs::write(&file, "x").unwrap();
        chown(&file, Some(USER), Some(GROUP)).unwrap();
        let try_all = |uid, groups: &[u32]| {
            let file = file.clone();
            as_user(uid, groups, move || [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR].map(|flags| opened(&file, flags).is_ok()))
        };
        for (bits, owner, member, other) in [
            (0o600, true, false, false),
            (0o060, false, true, false),
            (0o006, false, false, true),
            (0o666, true, true, true),
            (0o000, false, false, false),
        ] {
            chmod(&file, bits).unwrap();
            assert_eq!(try_all(USER, &[1]), [owner; 3], "owner, {bits:o}");
            assert_eq!(try_all(OTHER, &[GROUP]), [member; 3], "group, {bits:o}");
            assert_eq!(try_all(OTHER, &[1, 2, GROUP]), [member; 3], "supplementary group, {bits:o}");
            assert_eq!(try_all(OTHER, &[1]), [other; 3], "other, {bits:o}");
        }
        chmod(&file, 0o444).unwrap();
        assert_eq!(try_all(USER, &[1]), [true, false, false]);
        assert_eq!(as_user(OTHER, &[1], || truncate(&file, 0)), Err(Errno::ACCESS));
        // What a descriptor may do was decided when it was opened.
        chmod(&file, 0o644).unwrap();
        as_user(USER, &[GROUP], || {
            let held = OpenOptions::new().write(true).open(&file).unwrap();
            chmod(&file, 0o000).unwrap();
            held.write_all_at(b"still", 0).unwrap();
            held.set_len(2).unwrap();
        });
        assert_eq!(fs::read(&file).unwrap(), b"st");
    }),
    ("set_id_bits_end_when_others_change_the_file", |at| {
        let file = at.join("program");
        fs::write(&file, "text").unwrap();
        chown(&file, Some(USER), Some(GROUP)).unwrap();
        let mode = |file: &Path| fs::metadata(file).unwrap().mode() & 0o7777;
        chmod(&file, 0o6777).unwrap();
        as_user(OTHER, &[1], || truncate(&file, 2)).unwrap();
        assert_eq!(mode(&file), 0o777, "cut by somebody else");
        chmod(&file, 0o6777).unwrap();
        as_user(OTHER, &[1], || nix::unistd::truncate(&file, 1)).unwrap();
        assert_eq!(mode(&file), 0o777, "cut by its name");
        chmod(&file, 0o6777).unwrap();
        as_user(OTHER, &[1], || OpenOptions::new().write(true).truncate(true).open(&file).map(drop)).unwrap();
        assert_eq!(mode(&file), 0o777, "cut by an open");
        let held = as_user(OTHER, &[1], || OpenOptions::new().write(true).open(&file).unwrap());
        for bits in [0o4777, 0o2777] {
            chmod(&file, bits).unwrap();
            assert_eq!(mode(&file), bits);
            as_user(OTHER, &[1], || held.write_all_at(b"changed", 0).unwrap());
            assert_eq!(mode(&file), 0o777, "set while somebody else had it open");
        }
        chmod(&file, 0o6777).unwrap();
        fs::write(&file, "by root").unwrap();
        assert_eq!(mode(&file), 0o6777, "the superuser may change programs");
    }),
    ("permissions_of_directories", |at| {
        let closed = at.join("closed");
        dir(&closed).unwrap();
        make(&closed.join("file"), 0o666).unwrap();
        chmod(&closed.join("file"), 0o666).unwrap();
        chmod(&closed, 0o744).unwrap();
        as_user(OTHER, &[1], || {
            assert_eq!(opened(&closed.join("file"), OFlags::RDONLY), Err(Errno::ACCESS), "no search permission");
            assert_eq!(fs::read_dir(&closed).unwrap().count(), 1, "but read permission");
        });
        chmod(&closed, 0o711).unwrap();
        as_user(OTHER, &[1], || {
            assert_eq!(opened(&closed.join("file"), OFlags::RDWR), Ok(()));
            assert!(fs::read_dir(&closed).is_err());
            assert_eq!(make(&closed.join("new"), 0o644), Err(Errno::ACCESS));
            assert_eq!(dir(&closed.join("new")), Err(Errno::ACCESS));
            assert_eq!(unlink(closed.join("file")), Err(Errno::ACCESS));
            assert_eq!(rename(closed.join("file"), closed.join("new")), Err(Errno::ACCESS));
            assert_eq!(rustix::fs::symlink("x", closed.join("new")), Err(Errno::ACCESS));
        });
        chmod(&closed, 0o777).unwrap();
        as_user(OTHER, &[77], || {
            make(&closed.join("own"), 0o640).unwrap();
            rename(closed.join("own"), closed.join("renamed")).unwrap();
            unlink(closed.join("file")).unwrap();
        });
        assert_eq!(owner(&closed.join("renamed")), (OTHER, 77));
    }),
    ("sticky_directories", |at| {
        let tmp = at.join("tmp");
        dir(&tmp).unwrap();
        chmod(&tmp, 0o1777).unwrap();
        as_user(USER, &[USER], || {
            make(&tmp.join("users"), 0o666).unwrap();
            dir(&tmp.join("dir")).unwrap();
        });
        as_user(OTHER, &[OTHER], || {
            assert_eq!(unlink(tmp.join("users")), Err(Errno::PERM));
            assert_eq!(rmdir(tmp.join("dir")), Err(Errno::PERM));
            assert_eq!(rename(tmp.join("users"), tmp.join("mine")), Err(Errno::PERM));
            make(&tmp.join("others"), 0o666).unwrap();
            assert_eq!(rename(tmp.join("others"), tmp.join("users")), Err(Errno::PERM), "not over somebody else's");
        });
        as_user(USER, &[USER], || {
            rename(tmp.join("users"), tmp.join("renamed")).unwrap();
            unlink(tmp.join("renamed")).unwrap();
            rmdir(tmp.join("dir")).unwrap();
        });
        chown(&tmp, Some(USER), None).unwrap();
        as_user(USER, &[USER], || unlink(tmp.join("others"))).unwrap();
    }),
    ("chmod_and_chown", |at| {
        let file = at.join("file");
        make(&file, 0o644).unwrap();
        chown(&file, Some(USER), Some(USER)).unwrap();
        as_user(OTHER, &[OTHER], || {
            assert_eq!(chmod(&file, 0o777), Err(Errno::PERM));
            assert_eq!(chown(&file, Some(OTHER), None), Err(Errno::PERM));
            assert_eq!(chown(&file, None, Some(OTHER)), Err(Errno::PERM));
        });
        as_user(USER, &[USER, GROUP], || {
            chmod(&file, 0o6755).unwrap();
            chown(&file, None, Some(GROUP)).unwrap();
            assert_eq!(chown(&file, None, Some(OTHER)), Err(Errno::PERM), "not a group of the owner");
            assert_eq!(chown(&file, Some(OTHER), None), Err(Errno::PERM), "files are not given away");
        });
        assert_eq!((owner(&file), mode(&file)), ((USER, GROUP), 0o755), "a change of the group clears the set-id bits");
        chmod(&file, 0o6755).unwrap();
        chown(&file, Some(OTHER), Some(OTHER)).unwrap();
        assert_eq!(mode(&file) & 0o6000, 0, "a change of the owner clears them too");
        // Set-group-id for a group that the owner is not in.
        chown(&file, Some(USER), Some(GROUP)).unwrap();
        as_user(USER, &[USER], || chmod(&file, 0o2755)).unwrap();
        assert_eq!(mode(&file), 0o755);
        symlink("file", at.join("link")).unwrap();
        chown(&at.join("link"), Some(OTHER), Some(OTHER)).unwrap();
        assert_eq!((owner(&at.join("link")), owner(&file)), ((OTHER, OTHER), (USER, GROUP)));
        assert_eq!(chmod(&at.join("missing"), 0o644), Err(Errno::NOENT));
        // A write by somebody without privilege clears them.
        chmod(&file, 0o6777).unwrap();
        as_user(OTHER, &[OTHER], || fs::write(&file, "x")).unwrap();
        assert_eq!(mode(&file), 0o777);
    }),
    ("set_group_id_directories", |at| {
        let shared = at.join("shared");
        dir(&shared).unwrap();
        chown(&shared, None, Some(GROUP)).unwrap();
        chmod(&shared, 0o2777).unwrap();
        as_user(USER, &[USER], || {
            make(&shared.join("file"), 0o644).unwrap();
            dir(&shared.join("dir")).unwrap();
            symlink("x", shared.join("link")).unwrap();
        });
        for name in ["file", "dir", "link"] {
            assert_eq!(owner(&shared.join(name)), (USER, GROUP), "{name}");
        }
        assert_eq!((mode(&shared.join("dir")), mode(&shared.join("file"))), (0o2755, 0o644));
    }),
    ("times_of_others", |at| {
        let file = at.join("file");
        make(&file, 0o644).unwrap();
        chown(&file, Some(USER), None).unwrap();
        let set = |nanos: i64| {
            let time = Timespec { tv_sec: 5, tv_nsec: nanos as _ };
            utimensat(CWD, &file, &Timestamps { last_access: time, last_modification: time }, AtFlags::empty())
        };
        let now = i64::from(UTIME_NOW as i32);
        as_user(OTHER, &[1], || {
            assert_eq!(set(0), Err(Errno::PERM));
            assert_eq!(set(now), Err(Errno::ACCESS));
        });
        chmod(&file, 0o666).unwrap();
        as_user(OTHER, &[1], || {
            assert_eq!(set(0), Err(Errno::PERM), "only the owner sets a time of choice");
            assert_eq!(set(now), Ok(()), "whoever may write may say now");
        });
        as_user(USER, &[1], || set(0)).unwrap();
    }),
    ("attributes_of_others", |at| {
        let file = at.join("file");
        make(&file, 0o644).unwrap();
        setxattr(&file, "user.x", b"1", XattrFlags::empty()).unwrap();
        chmod(&file, 0o600).unwrap();
        as_user(OTHER, &[1], || {
            let mut value = [0; 10];
            assert_eq!(getxattr(&file, "user.x", &mut value[..]), Err(Errno::ACCESS));
            assert_eq!(setxattr(&file, "user.x", b"2", XattrFlags::empty()), Err(Errno::ACCESS));
            assert_eq!(removexattr(&file, "user.x"), Err(Errno::ACCESS));
        });
    }),
];
