/* Other ways to files than their names: symlinks of the kernel that stand for descriptors, walks
 * through trees with circles, and streams at the end of a program. `ways DIR` is run in a directory
 * of the kernel first, so that what it expects is what Linux does, and below the prefix then. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                 \
    do {                                                                                            \
        if (!(what)) {                                                                              \
            dprintf(2, "line %d: %s is not true (errno %d: %s)\n", __LINE__, #what, errno, strerror(errno)); \
            _exit(1);                                                                               \
        }                                                                                           \
    } while (0)

static int put(const char *path, const char *text)
{
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    return fd;
}

static int holds(const char *path, const char *text)
{
    char buffer[256] = {0};
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, buffer, sizeof buffer - 1) >= 0 && close(fd) == 0);
    return !strcmp(buffer, text);
}

static void descriptors(const char *root)
{
    char path[64], buffer[4200], expected[4200];
    struct stat st, other;
    int fd = put("f", "0123456789"), again;
    const char *forms[] = {"/dev/fd/%d", "/proc/self/fd/%d", "/proc/thread-self/fd/%d"};
    snprintf(expected, sizeof expected, "%s/f", root);
    for (size_t form = 0; form < 3; form++) {
        snprintf(path, sizeof path, forms[form], fd);
        CHECK(holds(path, "0123456789")); /* from its beginning: the offset is a new one */
        CHECK((again = open(path, O_RDWR)) >= 0 && read(again, buffer, 3) == 3 && lseek(fd, 0, SEEK_CUR) == 10 && close(again) == 0);
        CHECK(stat(path, &st) == 0 && fstat(fd, &other) == 0 && st.st_ino == other.st_ino && st.st_size == 10 && S_ISREG(st.st_mode));
        CHECK(lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && access(path, R_OK | W_OK) == 0);
        ssize_t bytes = readlink(path, buffer, sizeof buffer);
        CHECK(bytes == (ssize_t)strlen(expected) && !memcmp(buffer, expected, bytes));
        CHECK(realpath(path, buffer) && !strcmp(buffer, expected));
        CHECK(open(path, O_RDONLY | O_NOFOLLOW) == -1 && errno == ELOOP);
        CHECK(open(path, O_RDWR | O_CREAT | O_EXCL, 0600) == -1 && errno == EEXIST);
        CHECK(open(path, O_RDONLY | O_DIRECTORY) == -1 && errno == ENOTDIR);
        FILE *file = fopen(path, "r");
        CHECK(file && fgets(buffer, 5, file) && !strcmp(buffer, "0123") && fclose(file) == 0);
        CHECK(chmod(path, 0600 + form) == 0 && fstat(fd, &st) == 0 && (st.st_mode & 0777) == 0600 + form);
    }
    CHECK((again = open(path, O_WRONLY | O_APPEND)) >= 0 && write(again, "", 0) == 0 && lseek(again, 0, SEEK_CUR) == 0);
    CHECK(write(again, "x", 1) == 1 && close(again) == 0 && holds("f", "0123456789x"));
    CHECK(truncate(path, 2) == 0 && holds("f", "01") && (again = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600)) >= 0 && close(again) == 0);
    CHECK(holds("f", "") && pwrite(fd, "left", 4, 0) == 4);
    /* Without a name it still has its descriptor. */
    CHECK(unlink("f") == 0 && holds(path, "left") && close(fd) == 0 && open(path, O_RDONLY) == -1 && errno == ENOENT);
    /* Rights are looked at anew, and are those of the file. */
    CHECK(close(put("read", "only")) == 0 && (fd = open("read", O_RDONLY)) >= 0);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
    CHECK((again = open(path, O_WRONLY)) >= 0 && write(again, "ONLY", 4) == 4 && close(again) == 0 && close(fd) == 0 && holds("read", "ONLY"));
    /* A directory, and what is below it. */
    CHECK(mkdir("dir", 0700) == 0 && close(put("dir/in", "within")) == 0 && (fd = open("dir", O_RDONLY)) >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d/in", fd);
    CHECK(holds(path, "within"));
    snprintf(path, sizeof path, "/dev/fd/%d", fd);
    DIR *dir = opendir(path);
    int count = 0;
    CHECK(dir != NULL);
    while (readdir(dir))
        count++;
    CHECK(count == 3 && closedir(dir) == 0 && chdir(path) == 0 && holds("in", "within") && chdir("..") == 0 && close(fd) == 0);
    /* As standard input and output. */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CHECK((fd = open("read", O_RDONLY)) >= 0 && dup2(fd, 0) == 0 && (fd = put("out", "")) >= 0 && dup2(fd, 1) == 1);
        CHECK(holds("/dev/stdin", "ONLY") && stat("/dev/stdout", &st) == 0 && S_ISREG(st.st_mode));
        FILE *file = fopen("/dev/stdout", "a");
        CHECK(file && fputs("by name\n", file) >= 0 && fclose(file) == 0);
        execlp("sh", "sh", "-c", "cat /dev/stdin - && cat < /dev/fd/0 > /dev/null && test -s /dev/stdin && echo by shell >> /dev/stdout", (char *)0);
        _exit(127);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    /* The shell's programs begin where its offset is, and that is not moved by other opens. */
    CHECK((fd = open("out", O_RDONLY)) >= 0 && (count = read(fd, buffer, sizeof buffer)) > 0 && close(fd) == 0);
    buffer[count] = 0;
    CHECK(!strcmp(buffer, "ONLYONLYby shell\n"));
}

static char seen[4096];

static int visit(const char *path, const struct stat *st, int kind, struct FTW *place)
{
    (void)st;
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), " %s:%d,%d", path, kind, place->level);
    return 0;
}

static int visit_simply(const char *path, const struct stat *st, int kind)
{
    struct FTW place = {0};
    return visit(path, st, kind, &place);
}

static int saw(const char *expected)
{
    int is_same = !strcmp(seen, expected);
    if (!is_same)
        dprintf(2, "seen:%s\n", seen);
    seen[0] = 0;
    return is_same;
}

static void circles(void)
{
    CHECK(mkdir("tree", 0700) == 0 && mkdir("tree/a", 0700) == 0 && mkdir("tree/a/b", 0700) == 0);
    CHECK(symlink("../..", "tree/a/b/up") == 0);
    CHECK(nftw("tree", visit, 8, 0) == 0 && saw(" tree:1,0 tree/a:1,1 tree/a/b:1,2"));
    CHECK(nftw("tree", visit, 8, FTW_DEPTH) == 0 && saw(" tree/a/b:5,2 tree/a:5,1 tree:5,0"));
    CHECK(nftw("tree", visit, 8, FTW_PHYS) == 0 && saw(" tree:1,0 tree/a:1,1 tree/a/b:1,2 tree/a/b/up:4,3"));
    CHECK(ftw("tree", visit_simply, 8) == 0 && saw(" tree:1,0 tree/a:1,0 tree/a/b:1,0"));
    CHECK(unlink("tree/a/b/up") == 0 && symlink("nowhere", "tree/a/b/up") == 0);
    CHECK(nftw("tree/a/b", visit, 8, 0) == 0 && saw(" tree/a/b:1,0 tree/a/b/up:6,1"));
    CHECK(ftw("tree/a/b", visit_simply, 8) == 0 && saw(" tree/a/b:1,0 tree/a/b/up:3,0"));
}

static void *wait_for_input(void *told)
{
    flockfile(stdin);
    CHECK(write(*(int *)told, "!", 1) == 1);
    getchar(); /* there is none, and it has the stream's lock */
    return NULL;
}

/* A program that ends while a thread waits for input ends, and what it has printed is there. */
static void ends(void)
{
    int input[2], told[2];
    char byte;
    CHECK(pipe(input) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        alarm(60); /* it is killed where it does not end */
        CHECK(dup2(input[0], 0) == 0 && pipe(told) == 0 && freopen("printed", "w", stdout));
        CHECK(pthread_create(&thread, NULL, wait_for_input, &told[1]) == 0 && read(told[0], &byte, 1) == 1);
        printf("in a buffer\n");
        exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && close(input[0]) == 0 && close(input[1]) == 0);
    CHECK(holds("printed", "in a buffer\n"));
}

int main(int count, char **args)
{
    umask(022);
    CHECK(count > 1 && chdir(args[1]) == 0);
    descriptors(args[1]);
    circles();
    ends();
    printf("all is well\n");
    return 0;
}
