/* A client of one NFSv3 server for lab/compare-nfs.sh: prints a line `phase<TAB>rate<TAB>unit` for each phase.
 *
 *     cc -O2 nfs-client.c -o nfs-client -lnfs
 *     nfs-client URL FILES MIB     (URL as libnfs takes it: nfs://HOST/EXPORT/?version=3&nfsport=...)
 *
 * One connection, one call at a time: FILES empty files made, looked at and removed in a directory of their own, then one
 * file of MIB MiB written in calls of 1 MiB, committed, and read again. The server's own caches may serve the read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <nfsc/libnfs.h>

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

int main(int count, char **arguments) {
    if (count != 4) {
        fprintf(stderr, "usage: %s URL FILES MIB\n", arguments[0]);
        return 2;
    }
    int files = atoi(arguments[2]), mib = atoi(arguments[3]);
    nfs = nfs_init_context();
    struct nfs_url *url = nfs_parse_url_dir(nfs, arguments[1]);
    if (url == NULL) {
        fprintf(stderr, "%s: %s\n", arguments[1], nfs_get_error(nfs));
        return 1;
    }
    must(nfs_mount(nfs, url->server, url->path), "mount");
    char directory[64], name[96];
    snprintf(directory, sizeof directory, "/nfs-client-%d", getpid());
    must(nfs_mkdir(nfs, directory), "mkdir");

    double start_s = now_s();
    for (int file = 0; file < files; file++) {
        struct nfsfh *handle;
        snprintf(name, sizeof name, "%s/%d", directory, file);
        must(nfs_creat(nfs, name, 0644, &handle), "create");
        must(nfs_close(nfs, handle), "close");
    }
    printf("create\t%f\t1/s\n", files / (now_s() - start_s));

    start_s = now_s();
    for (int file = 0; file < files; file++) {
        struct nfs_stat_64 found;
        snprintf(name, sizeof name, "%s/%d", directory, file);
        must(nfs_stat64(nfs, name, &found), "stat");
    }
    printf("stat\t%f\t1/s\n", files / (now_s() - start_s));

    start_s = now_s();
    for (int file = 0; file < files; file++) {
        snprintf(name, sizeof name, "%s/%d", directory, file);
        must(nfs_unlink(nfs, name), "remove");
    }
    printf("remove\t%f\t1/s\n", files / (now_s() - start_s));

    size_t piece = 1 << 20;
    char *bytes = malloc(piece);
    memset(bytes, 7, piece);
    struct nfsfh *handle;
    snprintf(name, sizeof name, "%s/stream", directory);
    must(nfs_creat(nfs, name, 0644, &handle), "create");
    start_s = now_s();
    for (int done = 0; done < mib; done++) {
        int written = nfs_pwrite(nfs, handle, (uint64_t)done << 20, piece, bytes);
        must(written == (int)piece ? 0 : written < 0 ? written : -EIO, "write");
    }
    must(nfs_fsync(nfs, handle), "commit");
    printf("write 1 MiB\t%f\tMiB/s\n", mib / (now_s() - start_s));
    must(nfs_close(nfs, handle), "close");
    must(nfs_open(nfs, name, O_RDONLY, &handle), "open");
    start_s = now_s();
    for (int done = 0; done < mib; done++) {
        int found = nfs_pread(nfs, handle, (uint64_t)done << 20, piece, bytes);
        must(found == (int)piece ? 0 : found < 0 ? found : -EIO, "read");
    }
    printf("read 1 MiB\t%f\tMiB/s\n", mib / (now_s() - start_s));
    must(nfs_close(nfs, handle), "close");
    must(nfs_unlink(nfs, name), "remove");
    must(nfs_rmdir(nfs, directory), "rmdir");
    free(bytes);
    nfs_destroy_url(url);
    nfs_destroy_context(nfs);
    return 0;
}
