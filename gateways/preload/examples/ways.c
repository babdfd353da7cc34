/* Walks through trees with circles, and streams at the end of a program. `ways DIR` is run in a
 * directory of the kernel first, so that what it expects is what Linux does, and below the prefix
 * then. */
#define _GNU_SOURCE
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

static int holds(const char *path, const char *text)
{
    char buffer[256] = {0};
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, buffer, sizeof buffer - 1) >= 0 && close(fd) == 0);
    return !strcmp(buffer, text);
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
    circles();
    ends();
    printf("all is well\n");
    return 0;
}
