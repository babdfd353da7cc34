/* Reading and writing by each rank on its own: lists of ranges, one request for each server. */
#include "mpiio.h"

#include <errno.h>
#include <stdlib.h>

enum { RANGES_MAX = 16384 };
static const uint64_t BYTES_MAX = 64u << 20; /* of one call of libweft, which has a deadline */
static const uint32_t LOCK_PATIENCE_MS = 120000;

/* One call of libweft. */
typedef struct batch {
    weft_range *ranges;
    size_t count, room;
    uint64_t bytes;
} batch;

static int batch_add(batch *b, uint64_t offset, uint64_t bytes, void *data)
{
    if (b->count == b->room) {
        size_t room = b->room ? 2 * b->room : 64;
        weft_range *more = realloc(b->ranges, room * sizeof *more);
        if (!more)
            return MPI_ERR_NO_MEM;
        b->ranges = more;
        b->room = room;
    }
    b->ranges[b->count++] = (weft_range){offset, bytes, data, 0};
    return MPI_SUCCESS;
}

/* The next ranges of an access, from its byte `from` on; their memory is one piece. */
static int batch_fill(batch *b, walk *file_walk, uint64_t most, char *memory)
{
    int error = MPI_SUCCESS;
    b->count = 0;
    b->bytes = 0;
    while (b->bytes < most && b->count < RANGES_MAX && error == MPI_SUCCESS) {
        int64_t offset = 0;
        uint64_t got = walk_next(file_walk, most - b->bytes, &offset);
        if (got == 0)
            return MPI_ERR_ARG; /* the view shows no data */
        error = batch_add(b, (uint64_t)offset, got, memory + b->bytes);
        b->bytes += got;
    }
    return error;
}

static int batch_write(file *f, batch *b)
{
    int is_done = b->count == 1 ? weft_pwrite(f->data, b->ranges->data, b->ranges->bytes, b->ranges->offset) >= 0
                                : weft_write_list(f->data, b->ranges, b->count) == 0;
    return is_done ? MPI_SUCCESS : failed(class_of(errno));
}

static int batch_read(file *f, batch *b, uint64_t *done)
{
    *done = 0;
    if (b->count == 1) {
        int64_t got = weft_pread(f->data, b->ranges->data, b->ranges->bytes, b->ranges->offset);
        *done = got > 0 ? (uint64_t)got : 0;
        return got >= 0 ? MPI_SUCCESS : failed(class_of(errno));
    }
    if (weft_read_list(f->data, b->ranges, b->count) != 0)
        return failed(class_of(errno));
    for (size_t i = 0; i < b->count; i++)
        *done += b->ranges[i].done;
    return MPI_SUCCESS;
}

/* From where in memory, or through which buffer, a batch goes. */
static int transfer_batch(file *f, const portion *a, uint64_t from, walk *file_walk, batch *b, char *buffer, int writes, uint64_t *done)
{
    uint64_t most = a->bytes - from < BYTES_MAX ? a->bytes - from : BYTES_MAX;
    char *memory = buffer ? buffer : (char *)a->memory + a->shape->runs[0].offset + from;
    int error = batch_fill(b, file_walk, most, memory);
    if (error != MPI_SUCCESS)
        return error;
    if (writes) {
        if (buffer)
            gather(buffer, a, from, b->bytes);
        *done = b->bytes;
        return batch_write(f, b);
    }
    error = batch_read(f, b, done);
    if (buffer && error == MPI_SUCCESS)
        scatter(buffer, a, from, *done);
    return error;
}

static int unlocked(file *f, const portion *a, int writes, uint64_t *done)
{
    batch b = {0};
    walk file_walk;
    char *buffer = NULL;
    int error = MPI_SUCCESS;
    walk_begin(&file_walk, view_tiling(&f->view), a->at);
    /* One datatype of one run is a piece as well. */
    int is_piece = a->shape->is_solid || (a->shape->count == 1 && a->bytes <= a->shape->bytes);
    if (!is_piece) {
        buffer = malloc(a->bytes < BYTES_MAX ? a->bytes : BYTES_MAX);
        if (!buffer)
            return MPI_ERR_NO_MEM;
    }
    while (*done < a->bytes && error == MPI_SUCCESS) {
        uint64_t part = 0;
        error = transfer_batch(f, a, *done, &file_walk, &b, buffer, writes, &part);
        if (error == MPI_SUCCESS)
            *done += part;
        if (part < b.bytes)
            break; /* the end of the file */
    }
    free(buffer);
    free(b.ranges);
    return error;
}

/* In atomic mode others see all of a write or nothing: a lock on all that lies between its first
 * and its last byte. */
static int locked(file *f, const portion *a, int writes, uint64_t *done)
{
    walk w;
    int64_t offset = 0, low = INT64_MAX, high = 0;
    walk_begin(&w, view_tiling(&f->view), a->at);
    for (uint64_t at = 0, got; at < a->bytes; at += got) {
        got = walk_next(&w, a->bytes - at, &offset);
        if (got == 0)
            return MPI_ERR_ARG;
        low = offset < low ? offset : low;
        high = offset + (int64_t)got > high ? offset + (int64_t)got : high;
    }
    int taken = weft_lock(f->data, (uint64_t)low, (uint64_t)(high - low), writes, LOCK_PATIENCE_MS);
    if (taken != 0)
        return taken > 0 ? MPI_ERR_IO : failed(class_of(errno));
    int error = unlocked(f, a, writes, done);
    if (weft_unlock(f->data, (uint64_t)low, (uint64_t)(high - low)) != 0 && error == MPI_SUCCESS)
        error = failed(class_of(errno));
    return error;
}

int direct(file *f, const portion *a, int writes, uint64_t *done)
{
    *done = 0;
    if (a->bytes == 0)
        return MPI_SUCCESS;
    return f->is_atomic ? locked(f, a, writes, done) : unlocked(f, a, writes, done);
}
