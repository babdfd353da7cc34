/* A walk through the calls that the library takes the place of, and their edges. It is run in a
 * directory of the kernel first, so that what it expects is what Linux does, and below the prefix
 * then ("weft" as second argument), where some things are refused and must be refused so. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

extern char **environ;
static int is_weft;
static char *self;

#define CHECK(what)                                                                                 \
    do {                                                                                            \
        if (!(what)) {                                                                              \
            dprintf(2, "line %d: %s is not true (errno %d: %s)\n", __LINE__, #what, errno, strerror(errno)); \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)
#define FAILS(call, why)                                                                            \
    do {                                                                                            \
        errno = 0;                                                                                  \
        CHECK((call) == -1);                                                                        \
        CHECK(errno == (why));                                                                      \
    } while (0)

static void put(const char *path, const char *text)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

static int holds(const char *path, const char *text)
{
    char buffer[4096] = {0};
    int fd = open(path, O_RDONLY);
    ssize_t got = fd < 0 ? -1 : read(fd, buffer, sizeof buffer - 1);
    if (fd >= 0)
        close(fd);
    if (got != (ssize_t)strlen(text) || strcmp(buffer, text)) {
        dprintf(2, "%s holds \"%s\", not \"%s\"\n", path, buffer, text);
        return 0;
    }
    return 1;
}

static int ended_well(pid_t child)
{
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0;
}

static void descriptors(void)
{
    struct stat st;
    char buffer[64];
    int fd = open("f", O_CREAT | O_EXCL | O_RDWR, 0640), other;
    CHECK(fd >= 0);
    FAILS(open("f", O_CREAT | O_EXCL | O_RDWR, 0640), EEXIST);
    CHECK(write(fd, "0123456789", 10) == 10 && lseek(fd, 0, SEEK_CUR) == 10);
    CHECK((other = dup(fd)) >= 0 && other != fd && lseek(other, 2, SEEK_SET) == 2);
    CHECK(read(fd, buffer, 3) == 3 && !memcmp(buffer, "234", 3) && lseek(other, 0, SEEK_CUR) == 5);
    CHECK(pread(fd, buffer, 64, 8) == 2 && pread(fd, buffer, 64, 10) == 0 && lseek(fd, 0, SEEK_CUR) == 5);
    CHECK(pwrite(fd, "X", 1, 12) == 1 && lseek(fd, 0, SEEK_END) == 13 && lseek(fd, -3, SEEK_END) == 10);
    CHECK(read(fd, buffer, 64) == 3 && !memcmp(buffer, "\0\0X", 3));
    FAILS(lseek(fd, -1, SEEK_SET), EINVAL);
    CHECK(lseek(fd, 0, SEEK_HOLE) >= 10 && lseek(fd, 0, SEEK_DATA) == 0);
    FAILS(lseek(fd, 13, SEEK_DATA), ENXIO);
    CHECK(ftruncate(fd, 4) == 0 && fstat(fd, &st) == 0 && st.st_size == 4 && S_ISREG(st.st_mode) && (st.st_mode & 0777) == 0640);
    CHECK(dup2(fd, 100) == 100 && fcntl(100, F_GETFD) == 0 && fcntl(fd, F_DUPFD_CLOEXEC, 200) == 200);
    CHECK(fcntl(200, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
    CHECK(close(200) == 0 && close(100) == 0 && close(other) == 0 && fsync(fd) == 0 && fdatasync(fd) == 0);
    FAILS(close(100), EBADF);
    FAILS(ioctl(fd, 0x5401 /* TCGETS */, buffer), ENOTTY);
    CHECK(!isatty(fd) && posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL) == 0 && posix_fallocate(fd, 0, 100) == 0);
    CHECK(fstat(fd, &st) == 0 && st.st_size == 100);
    /* What lies at a number of its own is replaced, in both directions. */
    other = open("/dev/null", O_RDWR);
    CHECK(dup2(fd, other) == other && fstat(other, &st) == 0 && st.st_size == 100);
    int null = open("/dev/null", O_RDWR);
    CHECK(dup2(null, other) == other && fstat(other, &st) == 0 && S_ISCHR(st.st_mode) && write(other, "x", 1) == 1);
    CHECK(close(null) == 0 && close(other) == 0 && close(fd) == 0);
    FAILS(read(fd, buffer, 1), EBADF);
    CHECK((fd = open("f", O_RDONLY)) >= 0);
    FAILS(write(fd, "x", 1), EBADF);
    FAILS(ftruncate(fd, 0), EINVAL);
    if (is_weft) /* past the library nothing is read or written */
        FAILS((int)syscall(SYS_read, fd, buffer, 1), EBADF);
    CHECK(close(fd) == 0 && (fd = open("f", O_WRONLY | O_TRUNC)) >= 0);
    FAILS(read(fd, buffer, 1), EBADF);
    if (is_weft)
        FAILS((int)syscall(SYS_write, fd, "x", 1), EPERM);
    struct iovec list[2] = {{"ab", 2}, {"cde", 3}};
    CHECK(writev(fd, list, 2) == 5 && pwritev(fd, list, 2, 5) == 10 - 5 && close(fd) == 0 && holds("f", "abcdeabcde"));
    int one = open("f", O_WRONLY | O_APPEND), two = open("f", O_WRONLY | O_APPEND);
    CHECK(write(one, "1", 1) == 1 && write(two, "2", 1) == 1 && write(one, "3", 1) == 1 && lseek(one, 0, SEEK_CUR) == 13);
    CHECK(close(one) == 0 && close(two) == 0 && holds("f", "abcdeabcde123"));
    /* A file without a name. */
    CHECK((fd = open("gone", O_CREAT | O_RDWR, 0600)) >= 0 && unlink("gone") == 0);
    CHECK(write(fd, "still", 5) == 5 && pread(fd, buffer, 64, 0) == 5 && fstat(fd, &st) == 0 && st.st_nlink == 0 && close(fd) == 0);
    CHECK((fd = open(".", O_RDONLY | O_DIRECTORY)) >= 0);
    FAILS(read(fd, buffer, 1), EISDIR);
    CHECK(fsync(fd) == 0 && close(fd) == 0);
    FAILS(open(".", O_WRONLY), EISDIR);
    FAILS(open("f", O_DIRECTORY), ENOTDIR);
    FAILS(open("f/x", O_RDONLY), ENOTDIR);
    FAILS(open("nothing", O_RDONLY), ENOENT);
    CHECK((fd = open("f", O_PATH)) >= 0 && fstat(fd, &st) == 0 && st.st_size == 13);
    FAILS(read(fd, buffer, 1), EBADF);
    CHECK(close(fd) == 0);
    for (int at = 300; at < 305; at++)
        CHECK((fd = open("f", O_RDONLY)) >= 0 && dup2(fd, at) == at && close(fd) == 0);
    CHECK(close_range(301, 302, 0) == 0 && fcntl(300, F_GETFD) == 0 && fcntl(301, F_GETFD) == -1 && fcntl(303, F_GETFD) == 0);
    closefrom(300);
    CHECK(fcntl(300, F_GETFD) == -1 && fcntl(304, F_GETFD) == -1 && holds("f", "abcdeabcde123"));
}

static void names(void)
{
    struct stat st, other;
    char buffer[4096];
    put("a", "one");
    CHECK(rename("a", "b") == 0 && access("a", F_OK) == -1 && access("b", R_OK | W_OK) == 0);
    put("a", "two");
    FAILS(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE), EEXIST);
    CHECK(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE) == 0 && holds("a", "one") && holds("b", "two"));
    CHECK(link("a", "hard") == 0 && stat("a", &st) == 0 && stat("hard", &other) == 0 && st.st_nlink == 2);
    CHECK(st.st_ino == other.st_ino && st.st_dev == other.st_dev && unlink("hard") == 0);
    CHECK(symlink("a", "soft") == 0 && readlink("soft", buffer, sizeof buffer) == 1 && buffer[0] == 'a' && holds("soft", "one"));
    CHECK(lstat("soft", &st) == 0 && S_ISLNK(st.st_mode) && stat("soft", &st) == 0 && S_ISREG(st.st_mode));
    FAILS(open("soft", O_RDONLY | O_NOFOLLOW), ELOOP);
    FAILS(open("soft", O_RDONLY | O_CREAT | O_EXCL, 0600), EEXIST);
    CHECK(symlink("made", "dangling") == 0);
    put("dangling", "through");
    CHECK(holds("made", "through") && symlink("loop", "loop") == 0);
    FAILS(open("loop", O_RDONLY), ELOOP);
    CHECK(symlink("/etc/passwd", "far") == 0 && stat("far", &st) == 0 && stat("/etc/passwd", &other) == 0 && st.st_ino == other.st_ino);
    CHECK(mkdir("dir", 0750) == 0 && mkdir("dir/sub", 0700) == 0 && stat("dir", &st) == 0 && (st.st_mode & 07777) == 0750);
    FAILS(mkdir("dir", 0700), EEXIST);
    FAILS(rmdir("dir"), ENOTEMPTY);
    FAILS(unlink("dir"), EISDIR);
    FAILS(rmdir("a"), ENOTDIR);
    FAILS(rmdir("dir/sub/."), EINVAL);
    FAILS(unlink("a/"), ENOTDIR);
    FAILS(rename("a", "/dev/shm/out-of-it"), EXDEV);
    FAILS(link("/dev/null", "into"), EXDEV);
    memset(buffer, 'x', 300);
    buffer[300] = 0;
    FAILS(mkdir(buffer, 0700), ENAMETOOLONG);
    FAILS(open("", O_RDONLY), ENOENT);
    /* A directory that is open stays the same one, whatever its name. */
    int dir = open("dir", O_RDONLY);
    CHECK(dir >= 0 && rename("dir", "moved") == 0 && mkdir("dir", 0700) == 0 && mkdirat(dir, "in", 0700) == 0);
    CHECK(access("moved/in", F_OK) == 0 && access("dir/in", F_OK) == -1 && unlinkat(dir, "in", AT_REMOVEDIR) == 0);
    CHECK(fstatat(dir, "../a", &st, 0) == 0 && st.st_size == 3 && fstatat(dir, "", &st, AT_EMPTY_PATH) == 0 && S_ISDIR(st.st_mode));
    int file = openat(dir, "deep", O_CREAT | O_WRONLY, 0600);
    CHECK(file >= 0 && close(file) == 0 && renameat(dir, "deep", AT_FDCWD, "up") == 0 && symlinkat("x", dir, "s") == 0 && close(dir) == 0);
    CHECK(chmod("a", 0600) == 0 && stat("a", &st) == 0 && (st.st_mode & 0777) == 0600 && faccessat(AT_FDCWD, "a", X_OK, AT_EACCESS) == -1);
    struct timespec times[2] = {{1, 2}, {3, 4}};
    CHECK(utimensat(AT_FDCWD, "a", times, 0) == 0 && stat("a", &st) == 0 && st.st_mtim.tv_sec == 3 && st.st_mtim.tv_nsec == 4);
    CHECK(truncate("a", 1) == 0 && holds("a", "o") && mkfifo("pipe", 0600) == 0 && stat("pipe", &st) == 0 && S_ISFIFO(st.st_mode));
    struct statx sx;
    CHECK(statx(AT_FDCWD, "a", 0, STATX_ALL, &sx) == 0 && sx.stx_size == 1 && stat("a", &st) == 0 && sx.stx_ino == st.st_ino);
    if (is_weft)
        CHECK(setxattr("a", "user.k", "value", 5, 0) == 0 && getxattr("a", "user.k", buffer, 64) == 5 && listxattr("a", buffer, 64) == 7
              && removexattr("a", "user.k") == 0);
    FAILS(getxattr("a", "user.none", buffer, 64), ENODATA);
    struct statvfs space;
    CHECK(statvfs(".", &space) == 0 && space.f_blocks > 0 && umask(027) != 0777 && mkdir("masked", 0777) == 0);
    CHECK(stat("masked", &st) == 0 && (st.st_mode & 0777) == 0750);
    umask(022);
    CHECK(remove("masked") == 0 && remove("pipe") == 0);
}

static int seen;
static int visit(const char *path, const struct stat *st, int kind, struct FTW *place)
{
    (void)path, (void)st, (void)place;
    seen += kind == FTW_D || kind == FTW_F || kind == FTW_SL;
    return 0;
}

static void listings(const char *root)
{
    char path[4096];
    CHECK(mkdir("list", 0700) == 0);
    for (int at = 0; at < 50; at++) {
        snprintf(path, sizeof path, "list/n%02d", at);
        put(path, "");
    }
    DIR *dir = opendir("list");
    int count = 0;
    long middle = -1;
    char after[256] = "";
    CHECK(dir && dirfd(dir) >= 0);
    for (struct dirent *entry; (entry = readdir(dir)); count++) {
        if (count == 26)
            strcpy(after, entry->d_name);
        if (count == 25)
            middle = telldir(dir);
    }
    CHECK(count == 52);
    seekdir(dir, middle);
    CHECK(!strcmp(readdir(dir)->d_name, after));
    rewinddir(dir);
    for (count = 0; readdir(dir); count++)
        ;
    CHECK(count == 52 && closedir(dir) == 0);
    int fd = open("list", O_RDONLY);
    CHECK((dir = fdopendir(fd)) && readdir(dir) && closedir(dir) == 0 && fcntl(fd, F_GETFD) == -1);
    struct dirent **all;
    CHECK(scandir("list", &all, NULL, alphasort) == 52 && !strcmp(all[0]->d_name, ".") && !strcmp(all[51]->d_name, "n49"));
    for (count = 0; count < 52; count++)
        free(all[count]);
    free(all);
    errno = 0;
    CHECK(!opendir("f") && errno == ENOTDIR && !opendir("nothing") && errno == ENOENT);
    glob_t found;
    CHECK(glob("list/n0*", 0, NULL, &found) == 0 && found.gl_pathc == 10 && !strcmp(found.gl_pathv[9], "list/n09"));
    globfree(&found);
    CHECK(nftw("list", visit, 8, FTW_PHYS) == 0 && seen == 51);
    /* Working directories and canonical paths. */
    char here[4096], *real;
    CHECK(chdir("list") == 0 && getcwd(here, sizeof here) && access("n00", F_OK) == 0 && access("../f", F_OK) == 0);
    CHECK(chdir("..") == 0 && getcwd(here, sizeof here) && !strcmp(here, root));
    CHECK((real = realpath("list/../soft", NULL)) && !strcmp(strrchr(real, '/'), "/a"));
    free(real);
    CHECK(!realpath("nothing", NULL) && errno == ENOENT && (fd = open("list", O_RDONLY)) >= 0 && fchdir(fd) == 0 && close(fd) == 0);
    CHECK((real = getcwd(NULL, 0)) && strlen(real) == strlen(root) + 5 && chdir(root) == 0);
    free(real);
    FAILS(chdir("f"), ENOTDIR);
    snprintf(path, sizeof path, "%s/../%s/f", root, strrchr(root, '/') + 1);
    CHECK(access(path, F_OK) == 0);
    char name[] = "tmpXXXXXX", folder[] = "dirXXXXXX";
    CHECK((fd = mkstemp(name)) >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0 && unlink(name) == 0 && mkdtemp(folder) && rmdir(folder) == 0);
}

static void streams(void)
{
    char line[256];
    FILE *file = fopen("s", "w");
    CHECK(file && fprintf(file, "one\ntwo\nthree\n") == 14 && fileno(file) >= 0 && fclose(file) == 0 && holds("s", "one\ntwo\nthree\n"));
    CHECK((file = fopen("s", "r")) && fgets(line, sizeof line, file) && !strcmp(line, "one\n") && ftell(file) == 4);
    CHECK(fseek(file, -6, SEEK_END) == 0 && fgets(line, sizeof line, file) && !strcmp(line, "three\n") && fgetc(file) == EOF && feof(file));
    CHECK(fputc('x', file) == EOF && fclose(file) == 0);
    CHECK((file = fopen("s", "a")) && fputs("four\n", file) >= 0 && fclose(file) == 0 && holds("s", "one\ntwo\nthree\nfour\n"));
    CHECK((file = fopen("s", "r+")) && fseek(file, 4, SEEK_SET) == 0 && fputs("TWO", file) >= 0 && fflush(file) == 0);
    rewind(file);
    CHECK(fgetc(file) == 'o' && ungetc('O', file) == 'O' && fgets(line, 9, file) && !strcmp(line, "One\n") && fclose(file) == 0);
    CHECK(!fopen("s", "wx") && errno == EEXIST && !fopen("nothing", "r") && errno == ENOENT && !fopen("s", "q") && errno == EINVAL);
    if (is_weft) /* nothing is written in another encoding than the program asked for */
        CHECK(!fopen("s", "w,ccs=UTF-8") && errno == EINVAL && holds("s", "one\nTWO\nthree\nfour\n"));
    int fd = open("s", O_RDWR);
    CHECK((file = fdopen(fd, "r+")) && fgets(line, sizeof line, file) && fclose(file) == 0 && fcntl(fd, F_GETFD) == -1);
    /* More than a buffer, and a buffer of one's own. */
    static char big[300000], buffer[5000];
    memset(big, 'b', sizeof big);
    CHECK((file = fopen("big", "w+")) && !setvbuf(file, buffer, _IOFBF, sizeof buffer) && fwrite(big, 1, sizeof big, file) == sizeof big);
    rewind(file);
    CHECK(fread(big, 1, sizeof big, file) == sizeof big && big[299999] == 'b' && fclose(file) == 0);
    /* The standard output, by its number and by its name. */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fd = open("out", O_CREAT | O_WRONLY, 0644);
        CHECK(dup2(fd, 1) == 1 && close(fd) == 0);
        printf("by number\n");
        fflush(stdout);
        CHECK(freopen("out2", "w", stdout) == stdout);
        printf("by name\n");
        exit(0); /* writes what is left */
    }
    CHECK(ended_well(child) && holds("out", "by number\n") && holds("out2", "by name\n"));
    CHECK(system("echo shell > out3 && cat out3 > out4") == 0 && holds("out4", "shell\n"));
    CHECK((file = popen("cat out3", "r")) && fgets(line, sizeof line, file) && !strcmp(line, "shell\n") && pclose(file) == 0);
}

static void processes(void)
{
    char text[256];
    int fd = open("p", O_CREAT | O_RDWR, 0644), pipes[2];
    CHECK(fd >= 0 && write(fd, "parent ", 7) == 7);
    pid_t child = fork();
    if (child == 0) {
        CHECK(write(fd, "child ", 6) == 6);
        _exit(0);
    }
    CHECK(ended_well(child) && write(fd, "parent", 6) == 6 && holds("p", "parent child parent"));
    /* Processes that write, and read, with one description at the same time get different places. */
    int shared = open("shared", O_CREAT | O_RDWR, 0644);
    pid_t all[4];
    for (int at = 0; at < 4; at++) {
        if ((all[at] = fork()) == 0) {
            for (int line = 0; line < 50; line++)
                CHECK(write(shared, "line\n", 5) == 5);
            _exit(0);
        }
    }
    for (int at = 0; at < 4; at++)
        CHECK(ended_well(all[at]));
    CHECK(lseek(shared, 0, SEEK_CUR) == 1000 && lseek(shared, 0, SEEK_END) == 1000);
    CHECK(lseek(shared, 0, SEEK_SET) == 0 && pipe(pipes) == 0);
    for (int at = 0; at < 4; at++) {
        if ((all[at] = fork()) == 0) {
            while (read(shared, text, 5) == 5)
                CHECK(!memcmp(text, "line\n", 5) && write(pipes[1], ".", 1) == 1);
            _exit(0);
        }
    }
    for (int at = 0; at < 4; at++)
        CHECK(ended_well(all[at]));
    CHECK(read(pipes[0], text, sizeof text) == 200 && lseek(shared, 0, SEEK_CUR) == 1000);
    CHECK(read(shared, text, 5) == 0 && lseek(shared, 0, SEEK_CUR) == 1000);
    CHECK(close(shared) == 0 && close(pipes[0]) == 0 && close(pipes[1]) == 0);
    /* A program that is started goes on in the descriptor, at its offset. */
    snprintf(text, sizeof text, "%d", fd);
    child = fork();
    if (child == 0) {
        execl(self, self, "go-on", text, (char *)NULL);
        _exit(127);
    }
    CHECK(ended_well(child) && holds("p", "parent child parent and on"));
    child = vfork();
    if (child == 0) {
        execlp("sh", "sh", "-c", "pwd > where; echo $0 $1 $2 $3 $4 $5 $6 > many", "1", "2", "3", "4", "5", "6", (char *)NULL);
        _exit(127);
    }
    char here[4096], where[4100];
    CHECK(ended_well(child) && getcwd(here, sizeof here) && snprintf(where, sizeof where, "%s\n", here) > 0 && holds("where", where));
    CHECK(holds("many", "1 2 3 4 5 6\n"));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "where", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 9, "spawned", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, 9, 1);
    posix_spawn_file_actions_addclose(&actions, 9);
    char *cat[] = {"cat", NULL};
    CHECK(posix_spawnp(&child, "cat", &actions, NULL, cat, environ) == 0 && ended_well(child) && holds("spawned", where));
    CHECK(posix_spawn(&child, "/no/such/program", &actions, NULL, cat, environ) == ENOENT);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    CHECK(posix_spawn(&child, "/no/such/program", &actions, NULL, cat, environ) == ENOENT);
    posix_spawn_file_actions_destroy(&actions);
    /* A descriptor that is to be closed is not handed on. */
    CHECK(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0);
    child = fork();
    if (child == 0) {
        execl(self, self, "is-closed", text, (char *)NULL);
        _exit(127);
    }
    CHECK(ended_well(child) && close(fd) == 0);
    /* Programs and scripts that lie here. */
    int from = open(self, O_RDONLY), to = open("program", O_CREAT | O_WRONLY, 0755);
    struct stat st;
    CHECK(fstat(from, &st) == 0);
    for (off_t left = st.st_size; left > 0;) {
        ssize_t moved = sendfile(to, from, NULL, left);
        CHECK(moved > 0);
        left -= moved;
    }
    CHECK(close(from) == 0 && close(to) == 0 && stat("program", &st) == 0 && st.st_size > 0);
    put("script", "#!./program is-argument\n");
    CHECK(chmod("script", 0755) == 0);
    child = fork();
    if (child == 0) {
        execl("./script", "script", "more", (char *)NULL);
        _exit(127);
    }
    CHECK(ended_well(child) && chmod("script", 0644) == 0);
    FAILS(execl("./script", "script", (char *)NULL), EACCES);
    FAILS(execl("./nothing", "nothing", (char *)NULL), ENOENT);
    /* Locks of other processes. */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};
    CHECK((fd = open("p", O_RDWR)) >= 0 && fcntl(fd, F_SETLK, &lock) == 0 && pipe(pipes) == 0);
    child = fork();
    if (child == 0) {
        int mine = open("p", O_RDWR);
        FAILS(fcntl(mine, F_SETLK, &lock), EAGAIN);
        lock.l_start = 10;
        CHECK(fcntl(mine, F_SETLK, &lock) == 0);
        lock.l_start = 0;
        CHECK(fcntl(mine, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK);
        CHECK(flock(mine, LOCK_EX | LOCK_NB) == 0);
        if (is_weft) /* the lock of an open file is not shared with the process that opened it */
            FAILS(flock(fd, LOCK_EX | LOCK_NB), ENOLCK);
        _exit(0);
    }
    CHECK(ended_well(child) && close(fd) == 0 && close(pipes[0]) == 0 && close(pipes[1]) == 0);
}

static void memory(void)
{
    char *map;
    put("m", "mapped");
    int fd = open("m", O_RDWR), out = open("m2", O_CREAT | O_RDWR, 0644);
    CHECK((map = mmap(NULL, 6, PROT_READ, MAP_PRIVATE, fd, 0)) != MAP_FAILED && !memcmp(map, "mapped", 6) && munmap(map, 6) == 0);
    CHECK((map = mmap(NULL, 6, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0)) != MAP_FAILED && (map[0] = 'M') && munmap(map, 6) == 0);
    CHECK(holds("m", "mapped"));
    if (is_weft)
        CHECK(mmap(NULL, 6, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENODEV);
    off_t at = 2;
    CHECK(sendfile(out, fd, &at, 100) == 4 && at == 6 && holds("m2", "pped") && lseek(fd, 0, SEEK_CUR) == 0);
    /* What a target does not take is not passed over. */
    static char zeros[1 << 20];
    int sockets[2], much = open("much", O_CREAT | O_RDWR, 0644);
    CHECK(write(much, zeros, sizeof zeros) == sizeof zeros && lseek(much, 0, SEEK_SET) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets) == 0);
    ssize_t sent = 0, part;
    while ((part = sendfile(sockets[0], much, NULL, sizeof zeros)) > 0)
        sent += part;
    CHECK(errno == EAGAIN && sent < (ssize_t)sizeof zeros && lseek(much, 0, SEEK_CUR) == sent);
    CHECK(close(sockets[0]) == 0 && close(sockets[1]) == 0 && close(much) == 0);
    if (is_weft)
        FAILS(copy_file_range(fd, NULL, out, NULL, 1, 0), EXDEV);
    CHECK(close(fd) == 0 && close(out) == 0);
}

static void *many(void *which)
{
    char path[64], text[64];
    for (int at = 0; at < 30; at++) {
        snprintf(path, sizeof path, "t%ld-%d", (long)which, at);
        snprintf(text, sizeof text, "%ld %d", (long)which, at);
        put(path, text);
        CHECK(holds(path, text) && unlink(path) == 0);
    }
    return NULL;
}

static int told = -1;
static void on_signal(int signal)
{
    (void)signal;
    (void)!write(told, ".", 1); /* a descriptor of the kernel: that is allowed at any moment */
}

static void threads(void)
{
    pthread_t all[4];
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    told = pipes[1];
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (long at = 0; at < 4; at++)
        CHECK(pthread_create(&all[at], NULL, many, (void *)at) == 0);
    for (int at = 0; at < 20; at++)
        CHECK(kill(getpid(), SIGUSR1) == 0 && usleep(1000) <= 0);
    for (int at = 0; at < 4; at++)
        CHECK(pthread_join(all[at], NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        many((void *)9L);
        _exit(0);
    }
    CHECK(ended_well(child));
}

int main(int count, char **args)
{
    self = realpath(args[0], NULL);
    if (count == 3 && !strcmp(args[1], "go-on"))
        return write(atoi(args[2]), " and on", 7) != 7;
    if (count == 3 && !strcmp(args[1], "is-closed"))
        return fcntl(atoi(args[2]), F_GETFD) != -1;
    if (count == 4 && !strcmp(args[1], "is-argument"))
        return strcmp(args[2], "./script") || strcmp(args[3], "more");
    is_weft = count > 2 && !strcmp(args[2], "weft");
    umask(022);
    CHECK(count > 1 && chdir(args[1]) == 0);
    descriptors();
    names();
    listings(args[1]);
    streams();
    processes();
    memory();
    threads();
    printf("all is well\n");
    return 0;
}
