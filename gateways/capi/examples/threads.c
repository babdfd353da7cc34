/* Threads that share a file system, a file and nothing else: `threads FS [THREADS [FILES]]`. Each
 * writes files of its own, its part of one file, and reads what all have written. */
#include <fcntl.h>
#include <pthread.h>

#include <weft.h>

#include "check.h"

#define PART 70000

static weft_fs *fs;
static weft_file *shared;
static int threads = 4, files = 50;
static pthread_barrier_t all_written;

static void *work(void *argument)
{
    int me = (int)(intptr_t)argument;
    char path[64] = {0}, *part = malloc(PART);
    weft_attr attr;

    CHECK(part != NULL);
    memset(part, 'a' + me, PART);
    for (int i = 0; i < files; i++) {
        snprintf(path, sizeof path, "/threads/%d-%d", me, i);
        weft_file *file = weft_open(fs, path, O_WRONLY | O_CREAT | O_EXCL, 0644);
        CHECK(file != NULL && weft_pwrite(file, path, sizeof path, 0) == sizeof path && weft_close(file) == 0);
        CHECK(weft_pwrite(shared, part + i * PART / files, PART / files, (uint64_t)me * PART + i * PART / files) == PART / files);
        /* The sentence is this thread's. */
        snprintf(path, sizeof path, "/threads/none-%d-%d", me, i);
        FAILS(weft_stat(fs, path, &attr), ENOENT, path);
    }
    pthread_barrier_wait(&all_written);
    int other = (me + 1) % threads;
    CHECK(weft_pread(shared, part, PART / files * files, (uint64_t)other * PART) == PART / files * files);
    CHECK(part[0] == 'a' + other && part[PART / files * files - 1] == 'a' + other);

    char (*names)[64] = malloc((size_t)files * sizeof *names);
    const char **paths = malloc((size_t)files * sizeof *paths);
    weft_whole *whole = malloc((size_t)files * sizeof *whole);
    CHECK(names != NULL && paths != NULL && whole != NULL);
    for (int i = 0; i < files; i++) {
        memset(names[i], 0, sizeof names[i]);
        snprintf(names[i], sizeof names[i], "/threads/%d-%d", other, i);
        paths[i] = names[i];
    }
    CHECK(weft_read_many(fs, paths, (size_t)files, whole) == 0);
    for (int i = 0; i < files; i++)
        CHECK(whole[i].bytes == sizeof *names && strcmp(whole[i].data, names[i]) == 0);
    CHECK(weft_free_many(whole, (size_t)files) == 0);
    pthread_barrier_wait(&all_written);
    for (int i = 0; i < files; i++)
        CHECK(weft_unlink(fs, paths[i]) == 0);
    free(names);
    free(paths);
    free(whole);
    free(part);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t ids[16];

    CHECK(argc >= 2);
    if (argc > 2)
        threads = atoi(argv[2]);
    if (argc > 3)
        files = atoi(argv[3]);
    CHECK(threads >= 1 && threads <= 16 && files >= 1);
    fs = weft_open_fs(argv[1], NULL);
    CHECK(fs != NULL && weft_mkdir(fs, "/threads", 0755) == 0);
    shared = weft_open(fs, "/threads/shared", O_RDWR | O_CREAT, 0644);
    CHECK(shared != NULL && pthread_barrier_init(&all_written, NULL, (unsigned)threads) == 0);
    for (int i = 0; i < threads; i++)
        CHECK(pthread_create(&ids[i], NULL, work, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < threads; i++)
        CHECK(pthread_join(ids[i], NULL) == 0);
    CHECK(weft_close(shared) == 0 && weft_unlink(fs, "/threads/shared") == 0);
    CHECK(weft_rmdir(fs, "/threads") == 0 && weft_close_fs(fs) == 0);
    printf("%d threads: all is well\n", threads);
    return 0;
}
