/* Reads the files of a list and says how fast: `readers FS BATCH < PATHS`, in the order of the
 * list, so many with each call. */
#define _GNU_SOURCE
#include <time.h>

#include <weft.h>

#include "check.h"

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t room = 0, count = 0, space = 0;
    const char **paths = NULL;
    unsigned long long bytes = 0;
    struct timespec begun, ended;

    CHECK(argc == 3);
    size_t batch = strtoul(argv[2], NULL, 10);
    CHECK(batch > 0);
    for (ssize_t length; (length = getline(&line, &room, stdin)) > 0;) {
        line[strcspn(line, "\n")] = 0;
        if (count == space)
            paths = realloc(paths, (space = 2 * space + 256) * sizeof *paths);
        CHECK(paths != NULL);
        paths[count++] = strdup(line);
    }
    weft_whole *files = malloc(batch * sizeof *files);
    weft_fs *fs = weft_open_fs(argv[1], NULL);
    CHECK(files != NULL && fs != NULL);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (size_t at = 0; at < count; at += batch) {
        size_t some = count - at < batch ? count - at : batch;
        CHECK(weft_read_many(fs, paths + at, some, files) == 0);
        for (size_t i = 0; i < some; i++)
            bytes += files[i].bytes;
        CHECK(weft_free_many(files, some) == 0);
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double seconds = (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9;
    CHECK(weft_close_fs(fs) == 0);
    printf("{\"files\": %zu, \"bytes\": %llu, \"seconds\": %.6f}\n", count, bytes, seconds);
    free(files);
    for (size_t i = 0; i < count; i++)
        free((void *)paths[i]);
    free(paths);
    free(line);
    return 0;
}
