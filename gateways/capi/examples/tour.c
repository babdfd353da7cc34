/* Every call of libweft once, and what it must do: `tour FS`. It leaves nothing behind. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <weft.h>

#include "check.h"

#define MEBI (1 << 20)

static void names(weft_fs *fs)
{
    weft_attr attr;
    char target[16];

    CHECK(weft_mkdir(fs, "/tour", 0777) == 0);
    FAILS(weft_mkdir(fs, "/tour", 0777), EEXIST, "mkdir /tour: the name exists");
    CHECK(weft_stat(fs, "/tour", &attr) == 0 && attr.mode == (S_IFDIR | 0750)); /* less the umask */
    CHECK(weft_symlink(fs, "file", "/tour/link") == 0);
    FAILS(weft_symlink(fs, "", "/tour/none"), ENOENT, "symlink /tour/none");
    CHECK(weft_readlink(fs, "/tour/link", target, sizeof target) == 4 && memcmp(target, "file", 4) == 0);
    CHECK(weft_readlink(fs, "/tour/link", NULL, 0) == 4);
    FAILS(weft_stat(fs, "/tour/link", &attr), ENOENT, "stat /tour/link");
    CHECK(weft_lstat(fs, "/tour/link", &attr) == 0 && S_ISLNK(attr.mode));

    /* O_CREAT goes through the link, as open(2) does. */
    weft_file *file = weft_open(fs, "/tour/link", O_WRONLY | O_CREAT, 0666);
    CHECK(file != NULL && weft_close(file) == 0);
    CHECK(weft_stat(fs, "/tour/file", &attr) == 0 && S_ISREG(attr.mode) && attr.size == 0);
    FAILS(weft_open(fs, "/tour/link", O_RDONLY | O_NOFOLLOW, 0), ELOOP, "/tour/link");
    FAILS(weft_open(fs, "/tour/file", O_RDWR | O_CREAT | O_EXCL, 0666), EEXIST, "/tour/file");
    FAILS(weft_open(fs, "/tour", O_RDONLY, 0), EISDIR, "/tour");
    FAILS(weft_open(fs, "/tour/none/file", O_RDWR | O_CREAT, 0666), ENOENT, "no such file");
    FAILS(weft_open(fs, "/tour/file/below", O_RDONLY, 0), ENOTDIR, "not a directory");
    FAILS(weft_open(fs, "/tour/file", O_RDONLY | O_TRUNC, 0), EINVAL, "must be open for writing");

    CHECK(weft_link(fs, "/tour/file", "/tour/second") == 0);
    CHECK(weft_stat(fs, "/tour/second", &attr) == 0 && attr.nlink == 2);
    FAILS(weft_rename(fs, "/tour/file", "/tour/second", RENAME_NOREPLACE), EEXIST, "rename /tour/file to /tour/second");
    CHECK(weft_rename(fs, "/tour/second", "/tour/third", 0) == 0);
    CHECK(weft_rename(fs, "/tour/link", "/tour/third", RENAME_EXCHANGE) == 0);
    CHECK(weft_lstat(fs, "/tour/third", &attr) == 0 && S_ISLNK(attr.mode));
    FAILS(weft_rmdir(fs, "/tour"), ENOTEMPTY, "not empty");
    /* With a slash behind it, a path means a directory, as for the calls of the same names. */
    FAILS(weft_rename(fs, "/tour/file", "/tour/none/", 0), ENOTDIR, "rename /tour/file");
    FAILS(weft_rename(fs, "/tour/file/", "/tour/none", 0), ENOTDIR, "rename /tour/file/");
    FAILS(weft_unlink(fs, "/tour/link/"), ENOTDIR, "unlink /tour/link/");
    FAILS(weft_unlink(fs, "/tour/"), EISDIR, "unlink /tour/");
    FAILS(weft_rmdir(fs, "/tour/third/"), ENOTDIR, "rmdir /tour/third/");
    FAILS(weft_rmdir(fs, "/tour/."), EINVAL, "rmdir /tour/.");
    FAILS(weft_mkdir(fs, "/tour/file/", 0777), EEXIST, "mkdir /tour/file/");
    FAILS(weft_link(fs, "/tour/file", "/tour/none/"), ENOENT, "link /tour/file to /tour/none/");
    FAILS(weft_symlink(fs, "file", "/tour/none/"), ENOENT, "symlink /tour/none/");
    FAILS(weft_open(fs, "/tour/file/", O_RDONLY, 0), ENOTDIR, "/tour/file/");
    FAILS(weft_open(fs, "/tour/file/.", O_RDONLY, 0), ENOTDIR, "/tour/file/.");
    FAILS(weft_open(fs, "/tour/none/", O_WRONLY | O_CREAT, 0666), EISDIR, "/tour/none/");
    FAILS(weft_lstat(fs, "/tour/third/", &attr), ENOTDIR, "stat /tour/third/");
    CHECK(weft_mkdir(fs, "/tour/dir/", 0777) == 0 && weft_rename(fs, "/tour/dir/", "/tour/other/", 0) == 0);
    CHECK(weft_rmdir(fs, "/tour/other/") == 0);
    CHECK(weft_unlink(fs, "/tour/link") == 0 && weft_unlink(fs, "/tour/third") == 0);
    CHECK(weft_stat(fs, "tour/file", &attr) == 0 && attr.nlink == 1); /* without a slash in front */
}

static void attributes(weft_fs *fs)
{
    weft_attr attr;
    char value[8];
    char list[64];

    CHECK(weft_chmod(fs, "/tour/file", 0604) == 0);
    CHECK(weft_utimens(fs, "/tour/file", 1500000000, -5) == 0);
    CHECK(weft_stat(fs, "/tour/file", &attr) == 0);
    CHECK(attr.mode == (S_IFREG | 0604) && attr.atime_ns == 1500000000 && attr.mtime_ns == -5);
    CHECK(weft_utimens(fs, "/tour/file", WEFT_TIME_OMIT, WEFT_TIME_NOW) == 0);
    CHECK(weft_stat(fs, "/tour/file", &attr) == 0 && attr.atime_ns == 1500000000 && attr.mtime_ns > 1500000000);
    CHECK(weft_chown(fs, "/tour/file", UINT32_MAX, attr.gid) == 0);
    CHECK(weft_truncate(fs, "/tour/file", 12345) == 0);
    CHECK(weft_stat(fs, "/tour/file", &attr) == 0 && attr.size == 12345);

    CHECK(weft_setxattr(fs, "/tour/file", "user.a", "value", 5, XATTR_CREATE) == 0);
    FAILS(weft_setxattr(fs, "/tour/file", "user.a", "v", 1, XATTR_CREATE), EEXIST, "setxattr /tour/file");
    CHECK(weft_getxattr(fs, "/tour/file", "user.a", NULL, 0) == 5);
    CHECK(weft_getxattr(fs, "/tour/file", "user.a", value, sizeof value) == 5 && memcmp(value, "value", 5) == 0);
    FAILS(weft_getxattr(fs, "/tour/file", "user.a", value, 4), ERANGE, "too small");
    CHECK(weft_listxattr(fs, "/tour/file", list, sizeof list) >= 7 && memcmp(list, "user.a", 7) == 0);
    CHECK(weft_removexattr(fs, "/tour/file", "user.a") == 0);
    FAILS(weft_getxattr(fs, "/tour/file", "user.a", value, sizeof value), ENODATA, "attribute");
}

static void data(weft_fs *fs)
{
    char *big = malloc(3 * MEBI);
    char *back = malloc(3 * MEBI + 1);
    char words[3][8];
    weft_attr attr;

    CHECK(big != NULL && back != NULL);
    for (int i = 0; i < 3 * MEBI; i++)
        big[i] = (char)(i * 31 + i / 4096);
    weft_file *file = weft_open(fs, "/tour/file", O_RDWR | O_TRUNC, 0);
    CHECK(file != NULL);
    CHECK(weft_pwrite(file, big, 3 * MEBI, 100) == 3 * MEBI);
    CHECK(weft_fstat(file, &attr) == 0 && attr.size == 3 * MEBI + 100);
    CHECK(weft_pread(file, back, 3 * MEBI + 1, 100) == 3 * MEBI && memcmp(big, back, 3 * MEBI) == 0);
    CHECK(weft_pread(file, back, 100, 0) == 100 && back[0] == 0 && back[99] == 0); /* a hole */
    CHECK(weft_pread(file, back, 1, 5 * MEBI) == 0);
    CHECK(weft_pread(file, NULL, 0, 0) == 0);
    CHECK(weft_fsync(file) == 0 && weft_fdatasync(file) == 0);

    weft_range put[] = {{2 * MEBI, 6, (void *)"second", 0}, {10, 5, (void *)"first", 0}};
    CHECK(weft_write_list(file, put, 2) == 0 && put[0].done == 6 && put[1].done == 5);
    weft_range get[] = {{2 * MEBI, 6, words[0], 0}, {10, 5, words[1], 0}, {3 * MEBI + 98, 8, words[2], 7}};
    CHECK(weft_read_list(file, get, 3) == 0);
    CHECK(get[0].done == 6 && memcmp(words[0], "second", 6) == 0);
    CHECK(get[1].done == 5 && memcmp(words[1], "first", 5) == 0);
    CHECK(get[2].done == 2 && memcmp(words[2], big + 3 * MEBI - 2, 2) == 0);
    weft_range over[] = {{0, 4, words[0], 0}, {2, 4, words[1], 0}};
    CHECK(weft_read_list(file, over, 2) == 0 && over[0].done == 4 && over[1].done == 4);
    FAILS(weft_write_list(file, over, 2), EINVAL, "overlap");
    CHECK(weft_ftruncate(file, 7) == 0);
    CHECK(weft_close(file) == 0);

    file = weft_open(fs, "/tour/file", O_WRONLY | O_APPEND, 0);
    CHECK(file != NULL && weft_pwrite(file, "more", 4, 0) == 4 && weft_pwrite(file, "!", 1, 0) == 1);
    FAILS(weft_pread(file, back, 1, 0), EBADF, "read /tour/file: the file is not open for reading");
    FAILS(weft_read_list(file, get, 1), EBADF, "not open for reading");
    CHECK(weft_close(file) == 0);
    file = weft_open(fs, "/tour/file", O_RDONLY, 0);
    CHECK(file != NULL);
    FAILS((int)weft_pwrite(file, "no", 2, 0), EBADF, "write /tour/file: the file is not open for writing");
    FAILS(weft_write_list(file, put, 1), EBADF, "not open for writing");
    FAILS(weft_allocate(file, 0, 10), EBADF, "not open for writing");
    CHECK(weft_close(file) == 0);
    CHECK(weft_stat(fs, "/tour/file", &attr) == 0 && attr.size == 12);
    free(big);
    free(back);
}

static void lists(weft_fs *fs)
{
    enum { COUNT = 300 };
    char path[COUNT + 2][32] = {{0}};
    const char *paths[COUNT + 2];
    weft_whole files[COUNT + 2];
    weft_entry entry;
    int seen = 0;

    CHECK(weft_mkdir(fs, "/tour/many", 0755) == 0);
    CHECK(weft_setxattr(fs, "/tour/many", "user.weft.inline_limit", "10", 2, 0) == 0);
    for (int i = 0; i < COUNT; i++) {
        snprintf(path[i], sizeof path[i], "/tour/many/%d", i);
        paths[i] = path[i];
        if (i % 2) {
            CHECK(weft_put(fs, path[i], path[i], (size_t)i % 20, 0644) == 0);
            continue;
        }
        weft_file *file = weft_open(fs, path[i], O_WRONLY | O_CREAT | O_EXCL, 0644);
        CHECK(file != NULL && weft_pwrite(file, path[i], (size_t)i % 20, 0) == i % 20 && weft_close(file) == 0);
    }
    paths[COUNT] = "/tour/many/none";
    paths[COUNT + 1] = "/tour/many";
    CHECK(weft_read_many(fs, paths, COUNT + 2, files) == 2);
    CHECK(strstr(weft_error(), "read /tour/many/none: no such file") != NULL);
    for (int i = 0; i < COUNT; i++) {
        CHECK(files[i].error == 0 && files[i].bytes == (size_t)i % 20);
        CHECK(memcmp(files[i].data, path[i], files[i].bytes) == 0);
    }
    CHECK(files[COUNT].error == ENOENT && files[COUNT + 1].error == EISDIR && files[COUNT].data == NULL);
    CHECK(weft_free_many(files, COUNT + 2) == 0 && weft_free_many(files, COUNT + 2) == 0);

    weft_dir *dir = weft_opendir(fs, "/tour/many", 1);
    CHECK(dir != NULL);
    while (weft_readdir(dir, &entry) == 1) {
        CHECK(S_ISREG(entry.kind) && entry.has_attr && entry.attr.size == (uint64_t)(atoi(entry.name) % 20));
        seen++;
    }
    CHECK(seen == COUNT && weft_readdir(dir, &entry) == 0 && weft_closedir(dir) == 0);
    FAILS(weft_opendir(fs, "/tour/file", 0), ENOTDIR, "list /tour/file");
    for (int i = 0; i < COUNT; i++)
        CHECK(weft_unlink(fs, path[i]) == 0);
    CHECK(weft_rmdir(fs, "/tour/many") == 0);
}

/* Locks belong to open files; space is there before it is written. */
static void locks(weft_fs *fs)
{
    weft_attr attr;
    weft_file *one = weft_open(fs, "/tour/locked", O_RDWR | O_CREAT, 0600);
    weft_file *other = weft_open(fs, "/tour/locked", O_RDWR, 0);

    CHECK(one != NULL && other != NULL);
    CHECK(weft_allocate(one, 0, 10000) == 0 && weft_fstat(other, &attr) == 0 && attr.size == 10000);
    CHECK(weft_lock(one, 0, 10, 1, 0) == 0 && weft_lock(one, 100, 0, 0, 0) == 0);
    CHECK(weft_lock(other, 9, 1, 0, 0) == 1 && weft_lock(other, 9, 1, 1, 60) == 1);
    CHECK(weft_lock(other, 10, 90, 1, 0) == 0 && weft_lock(other, 5000, 1, 0, 0) == 0);
    CHECK(weft_unlock(one, 0, 10) == 0 && weft_lock(other, 9, 1, 1, 1000) == 0);
    CHECK(weft_lock(one, 0, 10, 1, 0) == 1 && weft_close(other) == 0 && weft_lock(one, 0, 10, 1, 20000) == 0);
    FAILS(weft_lock(one, UINT64_MAX, 2, 1, 0), EINVAL, "/tour/locked");
    FAILS(weft_unlock(NULL, 0, 1), EINVAL, "NULL");
    CHECK(weft_close(one) == 0 && weft_unlink(fs, "/tour/locked") == 0);
}

/* A child has none of its parent's connections, and takes none of them down. */
static void children(weft_fs *fs, const char *name)
{
    weft_attr attr;
    int status;

    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        FAILS(weft_stat(fs, "/", &attr), EINVAL, "fork");
        CHECK(weft_close_fs(fs) == 0);
        weft_fs *own = weft_open_fs(name, NULL);
        CHECK(own != NULL && weft_stat(own, "/tour", &attr) == 0 && weft_close_fs(own) == 0);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(weft_stat(fs, "/", &attr) == 0);
}

int main(int argc, char **argv)
{
    weft_options options = {.size = sizeof options, .timeout_seconds = 20};
    weft_options small = {.size = 1};
    weft_space space;

    CHECK(argc == 2);
    umask(027);
    FAILS(weft_open_fs("/no/such/place", NULL), EINVAL, "/no/such/place is no file system");
    FAILS(weft_open_fs("", NULL), EINVAL, "an empty name is no file system");
    FAILS(weft_open_fs(NULL, NULL), EINVAL, "NULL");
    FAILS(weft_open_fs(argv[1], &small), EINVAL, "sizeof");
    weft_fs *fs = weft_open_fs(argv[1], &options);
    CHECK(fs != NULL);
    FAILS(weft_mkdir(fs, NULL, 0777), EINVAL, "NULL");
    CHECK(weft_statfs(fs, &space) == 0 && space.capacity_bytes > 0 && space.unanswered == 0);
    names(fs);
    attributes(fs);
    data(fs);
    lists(fs);
    locks(fs);
    children(fs, argv[1]);
    CHECK(weft_unlink(fs, "/tour/file") == 0 && weft_rmdir(fs, "/tour") == 0);
    /* A file outlives the handle of its file system. */
    weft_file *last = weft_open(fs, "/last", O_RDWR | O_CREAT, 0600);
    CHECK(last != NULL && weft_unlink(fs, "/last") == 0 && weft_close_fs(fs) == 0);
    CHECK(weft_pwrite(last, "x", 1, 0) == 1 && weft_close(last) == 0);
    printf("libweft %s: all is well\n", weft_version());
    return 0;
}
