/* Which file system a name leads to, and the file systems that this process has open.
 *
 * On Weft are, in this order: weft:/PATH in the file system of WEFT_FS, weft:FS:/PATH and
 * weft://HOST:PORT/NAME:/PATH, what lies below a prefix of WEFT_MPIIO (PREFIX=FS,PREFIX=FS,...),
 * and what lies below a mount of Weft, unless WEFT_MPIIO_MOUNTS is "no".
 */
#define _GNU_SOURCE
#include "mpiio.h"

#include <errno.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int place_set(place *place, const char *fs, size_t fs_bytes, const char *path)
{
    place->fs = strndup(fs, fs_bytes);
    place->path = strdup(*path ? path : "/");
    if (place->fs && place->path)
        return MPI_SUCCESS;
    place_free(place);
    return MPI_ERR_NO_MEM;
}

void place_free(place *place)
{
    free(place->fs);
    free(place->path);
    *place = (struct place){0};
}

/* weft:... */
static int place_named(const char *name, place *place)
{
    int is_address = strncmp(name, "weft://", 7) == 0;
    const char *rest = is_address ? name : name + 5;
    const char *colon = NULL;
    for (const char *at = rest + (is_address ? 7 : 0); (at = strstr(at, ":/")) != NULL; at++)
        colon = at;
    if (colon && colon > rest)
        return place_set(place, rest, (size_t)(colon - rest), colon + 1);
    const char *fs = getenv("WEFT_FS");
    if (!fs || is_address) {
        if (getenv("WEFT_MPIIO_VERBOSE"))
            fprintf(stderr, "weft mpiio: %s: no file system is named; set WEFT_FS, or write weft:FS:/PATH\n", name);
        return MPI_ERR_BAD_FILE;
    }
    return place_set(place, fs, strlen(fs), rest);
}

/* An absolute path without ".", ".." and double slashes; NULL if there is no memory. */
static char *absolute(const char *name)
{
    char *folder = *name == '/' ? NULL : getcwd(NULL, 0);
    size_t length = (folder ? strlen(folder) : 0) + strlen(name) + 2;
    char *from = malloc(length), *to = malloc(length), *rest = NULL;
    size_t end = 0;
    if (from && to) {
        snprintf(from, length, "%s/%s", folder ? folder : "", name);
        for (char *part = strtok_r(from, "/", &rest); part; part = strtok_r(NULL, "/", &rest)) {
            if (strcmp(part, ".") == 0)
                continue;
            if (strcmp(part, "..") == 0) {
                while (end > 0 && to[--end] != '/')
                    ;
                continue;
            }
            to[end++] = '/';
            memcpy(to + end, part, strlen(part));
            end += strlen(part);
        }
        to[end] = '\0';
    }
    free(folder);
    free(from);
    return to;
}

/* What of a path lies below a prefix, or NULL. */
static const char *below(const char *path, const char *prefix, size_t bytes)
{
    while (bytes > 0 && prefix[bytes - 1] == '/')
        bytes--;
    if (strncmp(path, prefix, bytes) != 0 || (path[bytes] != '/' && path[bytes] != '\0'))
        return NULL;
    return path + bytes;
}

/* WEFT_MPIIO; *place stays as it is if no prefix fits. */
static int place_by_prefix(const char *path, place *place)
{
    const char *list = getenv("WEFT_MPIIO");
    while (list && *list) {
        size_t item = strcspn(list, ","), prefix = strcspn(list, "=");
        const char *rest = prefix < item ? below(path, list, prefix) : NULL;
        if (rest)
            return place_set(place, list + prefix + 1, item - prefix - 1, rest);
        list += item + (list[item] == ',');
    }
    return MPI_SUCCESS;
}

/* The mount with the longest path above this one, if it is one of Weft. */
static int place_by_mount(const char *path, place *place)
{
    const char *wanted = getenv("WEFT_MPIIO_MOUNTS");
    if (wanted && strcmp(wanted, "no") == 0)
        return MPI_SUCCESS;
    FILE *mounts = setmntent("/proc/self/mounts", "r");
    char *found = NULL, lines[4096];
    int is_weft = 0;
    struct mntent entry;
    while (mounts && getmntent_r(mounts, &entry, lines, sizeof lines)) {
        if (!below(path, entry.mnt_dir, strlen(entry.mnt_dir)) || (found && strlen(entry.mnt_dir) < strlen(found)))
            continue;
        free(found);
        found = strdup(entry.mnt_dir);
        is_weft = strcmp(entry.mnt_type, "fuse.weft") == 0;
    }
    if (mounts)
        endmntent(mounts);
    int error = MPI_SUCCESS;
    if (found && is_weft)
        error = place_set(place, found, strlen(found), below(path, found, strlen(found)));
    place->is_mount = place->fs != NULL;
    free(found);
    return error;
}

int place_of(const char *name, place *place)
{
    *place = (struct place){0};
    if (strncmp(name, "weft:", 5) == 0)
        return place_named(name, place);
    char *path = absolute(name);
    if (!path)
        return MPI_ERR_NO_MEM;
    int error = place_by_prefix(path, place);
    if (error == MPI_SUCCESS && !place->fs)
        error = place_by_mount(path, place);
    free(path);
    return error;
}

typedef struct opened {
    char *name;
    weft_fs *fs;
    struct opened *next;
} opened;

static opened *all;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;

/* MPI_Finalize frees MPI_COMM_SELF first of all: then every file system is given back. */
static int give_back(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    pthread_mutex_lock(&all_lock);
    while (all) {
        opened *first = all;
        all = first->next;
        weft_close_fs(first->fs);
        free(first->name);
        free(first);
    }
    pthread_mutex_unlock(&all_lock);
    return MPI_SUCCESS;
}

static int open_one(const char *name)
{
    static int is_watched;
    if (!is_watched) {
        int key;
        int error = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, give_back, &key, NULL);
        if (error == MPI_SUCCESS)
            error = PMPI_Comm_set_attr(MPI_COMM_SELF, key, &is_watched);
        if (error != MPI_SUCCESS)
            return error;
        is_watched = 1;
    }
    opened *one = calloc(1, sizeof *one);
    if (!one || !(one->name = strdup(name))) {
        free(one);
        return MPI_ERR_NO_MEM;
    }
    one->fs = weft_open_fs(name, NULL);
    if (!one->fs) {
        int error = class_of(errno);
        free(one->name);
        free(one);
        /* A file system that is not there is no wrong argument. */
        return failed(error == MPI_ERR_ARG ? MPI_ERR_NO_SUCH_FILE : error);
    }
    one->next = all;
    all = one;
    return MPI_SUCCESS;
}

int fs_of(const char *name, weft_fs **fs)
{
    pthread_mutex_lock(&all_lock);
    int error = MPI_SUCCESS;
    opened *one = all;
    while (one && strcmp(one->name, name) != 0)
        one = one->next;
    if (!one && (error = open_one(name)) == MPI_SUCCESS)
        one = all;
    *fs = one ? one->fs : NULL;
    pthread_mutex_unlock(&all_lock);
    return error;
}

/* Others may use a mount of root's, and only root knows what it mounts. */
int place_is_closed(const place *place)
{
    weft_fs *fs;
    return place->is_mount && fs_of(place->fs, &fs) != MPI_SUCCESS;
}
