/* One part of the file in memory: read as a whole, written as what of it was given. */
#include "together.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Room for them is there. */
void slot_add(slot *slot, const extent *extents, size_t count)
{
    memcpy(slot->extents + slot->count, extents, count * sizeof *extents);
    slot->count += count;
}

static int by_offset(const void *left, const void *right)
{
    const extent *one = left, *other = right;
    return (one->offset > other->offset) - (one->offset < other->offset);
}

/* Those of all ranks in order; those that touch or overlap become one. */
void slot_settle(slot *slot)
{
    size_t kept = 0;
    qsort(slot->extents, slot->count, sizeof *slot->extents, by_offset);
    for (size_t i = 0; i < slot->count; i++) {
        extent *last = kept ? &slot->extents[kept - 1] : NULL, *next = &slot->extents[i];
        if (!last || last->offset + last->bytes < next->offset)
            slot->extents[kept++] = *next;
        else if (last->offset + last->bytes < next->offset + next->bytes)
            last->bytes = next->offset + next->bytes - last->offset;
    }
    slot->count = kept;
}

int slot_write(void *of)
{
    slot *slot = of;
    if (slot->count == 0)
        return MPI_SUCCESS;
    weft_range *ranges = calloc(slot->count, sizeof *ranges);
    if (!ranges)
        return MPI_ERR_NO_MEM;
    for (size_t i = 0; i < slot->count; i++) {
        const extent *e = &slot->extents[i];
        ranges[i] = (weft_range){e->offset, e->bytes, slot->bytes + (e->offset - slot->part.offset), 0};
    }
    int is_done = slot->count == 1 ? weft_pwrite(slot->f->data, ranges->data, ranges->bytes, ranges->offset) >= 0
                                   : weft_write_list(slot->f->data, ranges, slot->count) == 0;
    int error = is_done ? MPI_SUCCESS : failed(class_of(errno));
    free(ranges);
    return error;
}

/* With the holes between what ranks want; behind the end of the file there are zeros. */
int slot_read(void *of)
{
    slot *slot = of;
    if (slot->part.bytes == 0)
        return MPI_SUCCESS;
    int64_t got = weft_pread(slot->f->data, slot->bytes, slot->part.bytes, slot->part.offset);
    int error = got < 0 ? failed(class_of(errno)) : MPI_SUCCESS;
    uint64_t there = got < 0 ? 0 : (uint64_t)got;
    memset(slot->bytes + there, 0, slot->part.bytes - there);
    if (there < slot->part.bytes && slot->part.offset + there < slot->end)
        slot->end = slot->part.offset + there;
    return error;
}
