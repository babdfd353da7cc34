/* One program that makes and reads small files, for the plan `doors`: by system calls (through a mount, `weft run`, or
 * `weft preload`) or by the C library. It does one thing and prints `rate` and how often it did it in a second, without its start.
 *
 *     cc -O2 -I gateways/capi/include door-files.c -o door-files -L LIBRARIES -lweft
 *     door-files create|write|stat|read|remove FILES     in the directory of $TARGET; with $FS by the library, below its root
 *
 * `create` makes empty files, `write` files of 3,901 bytes, each opened, written and closed; `read` opens, reads and closes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <weft.h>

enum { BYTES = 3901 };
static char bytes[BYTES];
static weft_fs *fs;

static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void must(int is_good, const char *what, const char *name) {
    if (!is_good) {
        fprintf(stderr, "%s %s: %s\n", what, name, fs != NULL ? weft_error() : strerror(errno));
        exit(1);
    }
}

static void by_call(char what, const char *name) {
    struct stat found;
    int file;
    switch (what) {
    case 's': must(stat(name, &found) == 0, "stat", name); return;
    case 'm': must(unlink(name) == 0, "remove", name); return;
    }
    file = open(name, what == 'r' ? O_RDONLY : O_CREAT | O_EXCL | O_WRONLY, 0644);
    must(file >= 0, "open", name);
    if (what == 'w') must(write(file, bytes, BYTES) == BYTES, "write", name);
    if (what == 'r') must(read(file, bytes, BYTES) == BYTES, "read", name);
    must(close(file) == 0, "close", name);
}

static void by_library(char what, const char *name) {
    weft_attr found;
    weft_file *file;
    switch (what) {
    case 's': must(weft_stat(fs, name, &found) == 0, "stat", name); return;
    case 'm': must(weft_unlink(fs, name) == 0, "remove", name); return;
    }
    file = weft_open(fs, name, what == 'r' ? O_RDONLY : O_CREAT | O_EXCL | O_WRONLY, 0644);
    must(file != NULL, "open", name);
    if (what == 'w') must(weft_pwrite(file, bytes, BYTES, 0) == BYTES, "write", name);
    if (what == 'r') must(weft_pread(file, bytes, BYTES, 0) == BYTES, "read", name);
    must(weft_close(file) == 0, "close", name);
}

int main(int count, char **arguments) {
    static const char *const words[] = { "create", "write", "stat", "read", "remove" };
    const char *what = count == 3 ? arguments[1] : "", *target = getenv("TARGET"), *served = getenv("FS");
    int number = count == 3 ? atoi(arguments[2]) : 0, is_known = 0;
    for (int word = 0; word < 5; word++) is_known |= strcmp(words[word], what) == 0;
    if (number < 1 || !is_known || target == NULL) {
        fprintf(stderr, "usage: TARGET=DIR [FS=FS] %s create|write|stat|read|remove FILES\n", arguments[0]);
        return 2;
    }
    if (served != NULL) must((fs = weft_open_fs(served, NULL)) != NULL, "open", served);
    char kind = strcmp(what, "remove") == 0 ? 'm' : *what, name[4096];
    double start_s = now_s();
    for (int done = 0; done < number; done++) {
        snprintf(name, sizeof name, "%s/%d", target, done);
        (fs != NULL ? by_library : by_call)(kind, name);
    }
    printf("rate %f\n", number / (now_s() - start_s));
    if (fs != NULL) weft_close_fs(fs);
    return 0;
}
