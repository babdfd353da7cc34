/* weft.h: a Weft file system from C, without a mount. Link with libweft: docs/doors.md.
 *
 * Every call runs on the thread that makes it, waits at most as long as the file system was opened
 * for (30 s by default), and may be made by any number of threads at once; one listing is used by
 * one thread at a time. A call that fails returns -1 or NULL, sets errno, and leaves a sentence for
 * its thread in weft_error(). There are no asynchronous calls: a call is driven by its thread, and
 * many things at once are lists (weft_read_many, weft_read_list, weft_write_list) or threads.
 *
 * Paths begin at the root of the file system, with or without a slash in front. Rights and umask
 * are those that the process had when it opened the file system; the servers check them. Nothing is
 * cached: what a call returns is true during the call, and what weft_pwrite has written others read.
 * A child of fork() opens the file system itself: handles of its parent answer EINVAL.
 */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_fs weft_fs;     /* a file system */
typedef struct weft_file weft_file; /* an open file */
typedef struct weft_dir weft_dir;   /* a directory that is being listed */

typedef struct weft_options {
    size_t size;              /* sizeof(weft_options): later versions add fields */
    const char *key_file;     /* for weft:// addresses; NULL: what WEFT_KEY_FILE or the config says */
    uint32_t timeout_seconds; /* longest time of one call; 0: 30 */
} weft_options;

typedef struct weft_attr {
    uint64_t inode;        /* number of the object, never used again */
    uint64_t size;         /* bytes of a file or of a symlink's target, entries of a directory */
    uint32_t mode;         /* kind and permission bits, as st_mode */
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    int64_t atime_ns;      /* nanoseconds since 1970 */
    int64_t mtime_ns;
    int64_t ctime_ns;
    uint32_t rdev;
    uint32_t stripe_bytes; /* how a file is cut; of a directory: how new files in it are */
    uint32_t stripe_width; /* over how many datafiles */
    uint32_t reserved;     /* 0 */
} weft_attr;

typedef struct weft_range {
    uint64_t offset; /* in the file */
    size_t bytes;
    void *data;      /* where they go to or come from; buffers of one list do not overlap */
    size_t done;     /* set by the call: fewer only at the end of the file */
} weft_range;

typedef struct weft_whole {
    const void *data; /* all bytes of the file; no NUL behind them */
    size_t bytes;
    int error;        /* 0, or the errno of this file */
    void *owner;      /* for weft_free_many */
} weft_whole;

typedef struct weft_entry {
    uint64_t inode;
    uint32_t kind;     /* S_IFREG, S_IFDIR, ... */
    uint32_t has_attr; /* 1: attr is given */
    weft_attr attr;
    char name[256];    /* with NUL behind it */
} weft_entry;

typedef struct weft_space {
    uint64_t capacity_bytes;
    uint64_t free_bytes;
    uint64_t inodes;
    uint64_t unanswered; /* servers that did not answer and are missing in the sums */
} weft_space;

/* Times of weft_utimens: that of the server now; as it is. */
#define WEFT_TIME_NOW INT64_MAX
#define WEFT_TIME_OMIT INT64_MIN

/* The sentence about this thread's last failed call, until its next one. Never NULL. */
const char *weft_error(void);
/* The version of the library. */
const char *weft_version(void);

/* Opens the file system that a state directory, a config file, weft://HOST:PORT/NAME or a mount
 * point names. options may be NULL. From the 16th call on what nobody has changed is not asked for
 * again; WEFT_LEASES=never in the environment asks with every call. */
weft_fs *weft_open_fs(const char *fs, const weft_options *options);
/* Gives it back. Files and listings that are open stay usable; with the last of them the servers
 * hear of every close (at most 10 s). Before the end of the process: servers take files that a lost
 * client had open for open for 30 s more. */
int weft_close_fs(weft_fs *fs);
/* How full it is. */
int weft_statfs(weft_fs *fs, weft_space *space);

/* Opens a file with the flags of open(2): O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC,
 * O_APPEND, O_NOFOLLOW, O_SYNC, O_DSYNC. mode (less the umask) is for O_CREAT. Directories are
 * opened by weft_opendir. */
weft_file *weft_open(weft_fs *fs, const char *path, int flags, uint32_t mode);
/* Gives it back. What was written is at the servers already; with WEFT_ABSORB=yes the first half
 * MiB of a new file may go there now, and -1 says that it could not. */
int weft_close(weft_file *file);
/* Reads; fewer bytes than asked for only at the end of the file. */
int64_t weft_pread(weft_file *file, void *buffer, size_t bytes, uint64_t offset);
/* Writes all bytes; after an error parts of them may have been written. With O_APPEND they go to
 * the end of the file as it is then. */
int64_t weft_pwrite(weft_file *file, const void *data, size_t bytes, uint64_t offset);
/* Reads a list of ranges in any order: one message to each data server that has any of them. Ranges
 * that overlap cost further messages. */
int weft_read_list(weft_file *file, weft_range *ranges, size_t count);
/* Writes a list of ranges in any order, without overlaps: one message to each data server. Not for
 * files that were opened with O_APPEND. */
int weft_write_list(weft_file *file, weft_range *ranges, size_t count);
int weft_fstat(weft_file *file, weft_attr *attr);
int weft_ftruncate(weft_file *file, uint64_t bytes);
int weft_fsync(weft_file *file);
int weft_fdatasync(weft_file *file);
/* Reserves space for a range; a file that is shorter becomes so long. */
int weft_allocate(weft_file *file, uint64_t offset, uint64_t bytes);

/* Takes a lock on a range (0 bytes: to the end, wherever that will be), shared or exclusive, and
 * waits patience_ms for others. 0: it is held; 1: others have it still, or wait for what this file
 * has. It belongs to this open file, which may change its kind, and ends with weft_unlock or
 * weft_close, or when the servers give its client up. Locks of fcntl(2) in mounts respect it, and
 * it them; reads and writes ask for none. */
int weft_lock(weft_file *file, uint64_t offset, uint64_t bytes, int exclusive, uint32_t patience_ms);
int weft_unlock(weft_file *file, uint64_t offset, uint64_t bytes);

/* Reads whole files. Up to 1024 small ones at a time cost one message to each metadata server and
 * one to each data server (and 8 MiB), behind one walk to each directory; nothing is opened. Fills
 * files[0..count] in and returns how many of them have an error (weft_error() is about the first);
 * -1: nothing was filled in. Ends with weft_free_many. */
int64_t weft_read_many(weft_fs *fs, const char *const *paths, size_t count, weft_whole *files);
int weft_free_many(weft_whole *files, size_t count);

/* Makes a file that holds exactly these bytes, with these permission bits less the umask, or gives
 * the one at the path this content, and closes it. In a directory with the hint inline_limit a
 * small content that is new, or replaces one that came so, is one message behind the walk to its
 * directory, and others see the old content or the new one; any other file is opened, cut, written
 * and closed. */
int weft_put(weft_fs *fs, const char *path, const void *data, size_t bytes, uint32_t mode);

int weft_stat(weft_fs *fs, const char *path, weft_attr *attr);
int weft_lstat(weft_fs *fs, const char *path, weft_attr *attr);
int weft_truncate(weft_fs *fs, const char *path, uint64_t bytes);
int weft_chmod(weft_fs *fs, const char *path, uint32_t mode);
/* UINT32_MAX leaves an owner or a group as it is. */
int weft_chown(weft_fs *fs, const char *path, uint32_t uid, uint32_t gid);
int weft_utimens(weft_fs *fs, const char *path, int64_t atime_ns, int64_t mtime_ns);

int weft_mkdir(weft_fs *fs, const char *path, uint32_t mode);
int weft_unlink(weft_fs *fs, const char *path);
int weft_rmdir(weft_fs *fs, const char *path);
/* flags: 0, RENAME_NOREPLACE or RENAME_EXCHANGE of renameat2(2). */
int weft_rename(weft_fs *fs, const char *from, const char *to, uint32_t flags);
/* Gives what is at path (a symlink itself) one more name. */
int weft_link(weft_fs *fs, const char *path, const char *name);
int weft_symlink(weft_fs *fs, const char *target, const char *path);
/* Returns the length of what was copied, without NUL; with 0 bytes that of the target. */
int64_t weft_readlink(weft_fs *fs, const char *path, char *buffer, size_t bytes);

/* Begins a listing, without "." and "..". With with_attrs attributes come with the names. */
weft_dir *weft_opendir(weft_fs *fs, const char *path, int with_attrs);
/* 1: entry is filled in; 0: the end. */
int weft_readdir(weft_dir *dir, weft_entry *entry);
int weft_closedir(weft_dir *dir);

/* Extended attributes, as getxattr(2) and its relatives: with 0 bytes the length is returned. */
int64_t weft_getxattr(weft_fs *fs, const char *path, const char *name, void *value, size_t bytes);
int weft_setxattr(weft_fs *fs, const char *path, const char *name, const void *value, size_t bytes, int flags);
int64_t weft_listxattr(weft_fs *fs, const char *path, char *names, size_t bytes);
int weft_removexattr(weft_fs *fs, const char *path, const char *name);

/* For the library's own tests: sizes and places of the fields above. */
int weft_abi_layout(size_t *numbers, size_t count);

#ifdef __cplusplus
}
#endif

#endif
