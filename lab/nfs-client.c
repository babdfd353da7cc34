/* A client of one NFSv3 server for the plan `nfs`: does one thing and prints `rate` and how often it did it in a second.
 *
 *     cc -O2 nfs-client.c -o nfs-client -lnfs
 *     nfs-client URL create|stat|remove FILES    empty files in a directory
 *     nfs-client URL write|read MIB              one file in calls of 1 MiB; the read removes it
 *
 * URL is as libnfs takes it: nfs://HOST/EXPORT/?version=3&nfsport=... There is one connection, with one call at a time.
 * The server's own caches may serve what was just written.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <nfsc/libnfs.h>

static const char DIRECTORY[] = "/nfs-client", STREAM[] = "/nfs-client-stream";
enum { PIECE = 1 << 20 };
static struct nfs_context *nfs;

static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void must(int result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s (%s)\n", what, nfs_get_error(nfs), strerror(-result));
        exit(1);
    }
}

static void on_file(const char *what, int number) {
    char name[64];
    struct nfsfh *handle;
    struct nfs_stat_64 found;
    snprintf(name, sizeof name, "%s/%d", DIRECTORY, number);
    switch (*what) {
    case 'c':
        must(nfs_creat(nfs, name, 0644, &handle), what);
        must(nfs_close(nfs, handle), what);
        break;
    case 's': must(nfs_stat64(nfs, name, &found), what); break;
    default: must(nfs_unlink(nfs, name), what);
    }
}

int main(int count, char **arguments) {
    const char *what = count == 4 ? arguments[2] : "";
    int number = count == 4 ? atoi(arguments[3]) : 0, is_write = strcmp(what, "write") == 0;
    int is_stream = is_write || strcmp(what, "read") == 0;
    if (number < 1 || (!is_stream && strcmp(what, "create") && strcmp(what, "stat") && strcmp(what, "remove"))) {
        fprintf(stderr, "usage: %s URL create|stat|remove FILES, or write|read MIB\n", arguments[0]);
        return 2;
    }
    nfs = nfs_init_context();
    struct nfs_url *url = nfs_parse_url_dir(nfs, arguments[1]);
    if (url == NULL) {
        fprintf(stderr, "%s: %s\n", arguments[1], nfs_get_error(nfs));
        return 1;
    }
    must(nfs_mount(nfs, url->server, url->path), "mount");
    if (*what == 'c') must(nfs_mkdir(nfs, DIRECTORY), "mkdir");
    struct nfsfh *handle = NULL;
    char *bytes = malloc(PIECE);
    memset(bytes, 7, PIECE);
    if (is_stream) must(is_write ? nfs_creat(nfs, STREAM, 0644, &handle) : nfs_open(nfs, STREAM, O_RDONLY, &handle), "open");
    double start_s = now_s();
    for (int done = 0; done < number; done++) {
        if (!is_stream) {
            on_file(what, done);
            continue;
        }
        uint64_t offset = (uint64_t)done * PIECE;
        int moved = is_write ? nfs_pwrite(nfs, handle, offset, PIECE, bytes) : nfs_pread(nfs, handle, offset, PIECE, bytes);
        must(moved == PIECE ? 0 : moved < 0 ? moved : -EIO, what);
    }
    if (is_write) must(nfs_fsync(nfs, handle), "commit");
    printf("rate %f\n", number / (now_s() - start_s));
    if (is_stream) must(nfs_close(nfs, handle), "close");
    if (is_stream && !is_write) must(nfs_unlink(nfs, STREAM), "unlink");
    if (*what == 'r' && !is_stream) must(nfs_rmdir(nfs, DIRECTORY), "rmdir");
    free(bytes);
    nfs_destroy_url(url);
    nfs_destroy_context(nfs);
    return 0;
}
