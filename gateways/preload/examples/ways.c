/* Streams at the end of a program. `ways DIR` is run in a directory of the kernel first, so that what
 * it expects is what Linux does, and below the prefix then. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
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
    ends();
    printf("all is well\n");
    return 0;
}
