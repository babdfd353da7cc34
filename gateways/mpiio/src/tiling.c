/* Walking over many of a datatype, one behind the other: in a file (a view) or in memory. */
#include "mpiio.h"

#include <string.h>

tiling view_tiling(const view *view)
{
    return (tiling){&view->shape, view->disp};
}

tiling memory_tiling(const portion *a)
{
    return (tiling){a->shape, (int64_t)(intptr_t)a->memory};
}

/* The run in which a byte of a datatype's data lies. */
static size_t run_of(const shape *shape, uint64_t byte)
{
    size_t low = 0, high = shape->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (shape->runs[middle].before <= byte)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void walk_begin(walk *w, tiling of, uint64_t at)
{
    *w = (walk){.of = of};
    if (of.shape->bytes == 0)
        return;
    uint64_t inside = at % of.shape->bytes;
    w->tile = (int64_t)(at / of.shape->bytes);
    w->run = run_of(of.shape, inside);
    w->in_run = inside - of.shape->runs[w->run].before;
}

static int64_t spot(const walk *w)
{
    return w->of.base + w->tile * w->of.shape->extent + w->of.shape->runs[w->run].offset + (int64_t)w->in_run;
}

/* Up to `most` bytes that lie side by side; 0 if the datatype has no data. */
uint64_t walk_next(walk *w, uint64_t most, int64_t *offset)
{
    const shape *shape = w->of.shape;
    uint64_t got = 0;
    if (shape->count == 0)
        return 0;
    *offset = spot(w);
    if (shape->is_solid) {
        uint64_t all = w->in_run + most;
        w->tile += (int64_t)(all / shape->bytes);
        w->in_run = all % shape->bytes;
        return most;
    }
    while (got < most && spot(w) == *offset + (int64_t)got) {
        uint64_t left = shape->runs[w->run].bytes - w->in_run;
        if (left > most - got) {
            w->in_run += most - got;
            return most;
        }
        got += left;
        w->in_run = 0;
        if (++w->run == shape->count) {
            w->run = 0;
            w->tile++;
        }
    }
    return got;
}

/* Data bytes in front of a place of an ascending tiling. */
uint64_t shown_before(tiling of, int64_t offset)
{
    const shape *shape = of.shape;
    if (shape->count == 0)
        return 0;
    int64_t inside = offset - of.base - shape->runs[0].offset;
    if (inside <= 0)
        return 0;
    uint64_t tile = shape->extent > 0 ? (uint64_t)(inside / shape->extent) : 0;
    inside -= (int64_t)tile * shape->extent;
    size_t low = 0, high = shape->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (shape->runs[middle].offset - shape->runs[0].offset <= inside)
            low = middle;
        else
            high = middle;
    }
    const run *run = &shape->runs[low];
    uint64_t in_run = (uint64_t)(inside - (run->offset - shape->runs[0].offset));
    return tile * shape->bytes + run->before + (in_run < run->bytes ? in_run : run->bytes);
}

/* Copies bytes of an access out of the program's memory. */
void gather(void *to, const portion *a, uint64_t from, uint64_t bytes)
{
    walk w;
    int64_t place_of_piece;
    walk_begin(&w, memory_tiling(a), from);
    for (uint64_t done = 0, piece; done < bytes; done += piece) {
        piece = walk_next(&w, bytes - done, &place_of_piece);
        memcpy((char *)to + done, (const void *)(intptr_t)place_of_piece, piece);
    }
}

/* Copies bytes of an access into the program's memory. */
void scatter(const void *data, const portion *a, uint64_t from, uint64_t bytes)
{
    walk w;
    int64_t place_of_piece;
    walk_begin(&w, memory_tiling(a), from);
    for (uint64_t done = 0, piece; done < bytes; done += piece) {
        piece = walk_next(&w, bytes - done, &place_of_piece);
        memcpy((void *)(intptr_t)place_of_piece, (const char *)data + done, piece);
    }
}
