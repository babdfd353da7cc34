/* Datatypes as runs of bytes: taken apart constructor by constructor, with what their envelopes
 * say. Runs that touch become one.
 */
#include "mpiio.h"

#include <stdlib.h>
#include <string.h>

/* So many runs a datatype may have: 400 MB of memory. */
static const size_t RUNS_MAX = 16u << 20;

/* The constructor of a datatype and its arguments: integers, then addresses, then large counts. So
 * types made with 32-bit and with 64-bit counts look the same, except for arrays. */
typedef struct content {
    int combiner;
    int64_t *numbers;
    size_t count;
    MPI_Datatype *types;
    size_t type_count;
} content;

void shape_free(shape *shape)
{
    free(shape->runs);
    *shape = (struct shape){0};
}

int shape_push(shape *shape, int64_t offset, uint64_t bytes)
{
    run *last = shape->count ? &shape->runs[shape->count - 1] : NULL;
    if (bytes == 0)
        return MPI_SUCCESS;
    if (last && last->offset + (int64_t)last->bytes == offset) {
        last->bytes += bytes;
        shape->bytes += bytes;
        return MPI_SUCCESS;
    }
    /* Room grows at powers of two. */
    if (shape->count == RUNS_MAX)
        return MPI_ERR_NO_MEM;
    if ((shape->count & (shape->count - 1)) == 0) {
        run *more = realloc(shape->runs, (shape->count ? 2 * shape->count : 1) * sizeof *more);
        if (!more)
            return MPI_ERR_NO_MEM;
        shape->runs = more;
    }
    shape->runs[shape->count++] = (run){offset, bytes, shape->bytes};
    shape->bytes += bytes;
    return MPI_SUCCESS;
}

/* Adds so many of a part: the first at base, each a step behind the one before. */
int shape_repeat(shape *shape, const struct shape *part, int64_t base, int64_t count, int64_t step)
{
    int error = MPI_SUCCESS;
    if (count > 0 && part->count == 1 && part->runs[0].bytes == (uint64_t)step)
        return shape_push(shape, base + part->runs[0].offset, (uint64_t)step * (uint64_t)count);
    for (int64_t i = 0; i < count && part->count && error == MPI_SUCCESS; i++)
        for (size_t j = 0; j < part->count && error == MPI_SUCCESS; j++)
            error = shape_push(shape, base + i * step + part->runs[j].offset, part->runs[j].bytes);
    return error;
}

static void content_free(content *content)
{
    for (size_t i = 0; i < content->type_count; i++) {
        int integers, addresses, types, combiner;
        PMPI_Type_get_envelope(content->types[i], &integers, &addresses, &types, &combiner);
        if (combiner != MPI_COMBINER_NAMED)
            PMPI_Type_free(&content->types[i]);
    }
    free(content->types);
    free(content->numbers);
}

#if MPI_VERSION >= 4
typedef MPI_Count amount;
#else
typedef int amount;
#endif

static int get_envelope(MPI_Datatype type, amount counts[4], int *combiner)
{
#if MPI_VERSION >= 4
    return PMPI_Type_get_envelope_c(type, &counts[0], &counts[1], &counts[2], &counts[3], combiner);
#else
    counts[2] = 0;
    return PMPI_Type_get_envelope(type, &counts[0], &counts[1], &counts[3], combiner);
#endif
}

static int get_contents(MPI_Datatype type, const amount counts[4], int *integers, MPI_Aint *addresses, MPI_Count *large, MPI_Datatype *types)
{
#if MPI_VERSION >= 4
    return PMPI_Type_get_contents_c(type, counts[0], counts[1], counts[2], counts[3], integers, addresses, large, types);
#else
    (void)large;
    return PMPI_Type_get_contents(type, counts[0], counts[1], counts[3], integers, addresses, types);
#endif
}

/* What a datatype was made of. A named one has no content. */
static int content_of(MPI_Datatype type, content *content)
{
    amount counts[4]; /* integers, addresses, large counts, datatypes */
    *content = (struct content){0};
    int error = get_envelope(type, counts, &content->combiner);
    if (error != MPI_SUCCESS || content->combiner == MPI_COMBINER_NAMED)
        return error;
    size_t ints = (size_t)counts[0], addrs = (size_t)counts[1], larges = (size_t)counts[2];
    int *integers = calloc(ints + 1, sizeof *integers);
    MPI_Aint *addresses = calloc(addrs + 1, sizeof *addresses);
    MPI_Count *large = calloc(larges + 1, sizeof *large);
    content->count = ints + addrs + larges;
    content->numbers = calloc(content->count + 1, sizeof *content->numbers);
    content->types = calloc((size_t)counts[3] + 1, sizeof *content->types);
    error = MPI_ERR_NO_MEM;
    if (integers && addresses && large && content->numbers && content->types)
        error = get_contents(type, counts, integers, addresses, large, content->types);
    if (error == MPI_SUCCESS) {
        content->type_count = (size_t)counts[3];
        for (size_t i = 0; i < ints; i++)
            content->numbers[i] = integers[i];
        for (size_t i = 0; i < addrs; i++)
            content->numbers[ints + i] = addresses[i];
        for (size_t i = 0; i < larges; i++)
            content->numbers[ints + addrs + i] = large[i];
    } else {
        content_free(content);
    }
    free(integers);
    free(addresses);
    free(large);
    return error;
}

/* A predefined datatype: its bytes, with the gap that some pairs have. */
static int shape_named(MPI_Datatype type, shape *shape)
{
    MPI_Count bytes;
    int error = PMPI_Type_size_x(type, &bytes);
    if (error == MPI_SUCCESS && type == MPI_SHORT_INT) {
        error = shape_push(shape, 0, sizeof(short));
        return error != MPI_SUCCESS ? error : shape_push(shape, sizeof(int), sizeof(int));
    }
    return error != MPI_SUCCESS ? error : shape_push(shape, 0, (uint64_t)bytes);
}

/* Blocks of one datatype: lengths and places from arrays. A step of 0 means that all lengths are
 * the first one. */
static int shape_blocks(shape *shape, const struct shape *part, int64_t count, const int64_t *lengths, int step, const int64_t *places,
                        int64_t unit)
{
    int error = MPI_SUCCESS;
    for (int64_t i = 0; i < count && error == MPI_SUCCESS; i++)
        error = shape_repeat(shape, part, places[i] * unit, lengths[i * step], part->extent);
    return error;
}

static int shape_struct(shape *shape, const content *content)
{
    int64_t count = content->numbers[0];
    const int64_t *lengths = content->numbers + 1, *places = lengths + count;
    int error = MPI_SUCCESS;
    for (int64_t i = 0; i < count && error == MPI_SUCCESS; i++) {
        struct shape part;
        error = shape_of(content->types[i], &part);
        if (error == MPI_SUCCESS)
            error = shape_repeat(shape, &part, places[i], lengths[i], part.extent);
        shape_free(&part);
    }
    return error;
}

static int shape_vector(shape *shape, const struct shape *part, const int64_t *numbers, int64_t unit)
{
    int error = MPI_SUCCESS;
    /* However many blocks there are of nothing, nobody walks over them. */
    if (numbers[1] == 0 || part->count == 0)
        return MPI_SUCCESS;
    for (int64_t i = 0; i < numbers[0] && error == MPI_SUCCESS; i++)
        error = shape_repeat(shape, part, i * numbers[2] * unit, numbers[1], part->extent);
    return error;
}

static int shape_made(MPI_Datatype type, const content *content, shape *shape)
{
    const int64_t *numbers = content->numbers;
    struct shape part = {0};
    int error;
    if (content->combiner == MPI_COMBINER_STRUCT)
        return shape_struct(shape, content);
    if (content->type_count != 1)
        return shape_named(type, shape); /* MPI_Type_create_f90_real and its like */
    error = shape_of(content->types[0], &part);
    if (error == MPI_SUCCESS) {
        switch (content->combiner) {
        case MPI_COMBINER_DUP:
        case MPI_COMBINER_RESIZED:
            error = shape_repeat(shape, &part, 0, 1, part.extent);
            break;
        case MPI_COMBINER_CONTIGUOUS:
            error = shape_repeat(shape, &part, 0, numbers[0], part.extent);
            break;
        case MPI_COMBINER_VECTOR:
            error = shape_vector(shape, &part, numbers, part.extent);
            break;
        case MPI_COMBINER_HVECTOR:
            error = shape_vector(shape, &part, numbers, 1);
            break;
        case MPI_COMBINER_INDEXED:
            error = shape_blocks(shape, &part, numbers[0], numbers + 1, 1, numbers + 1 + numbers[0], part.extent);
            break;
        case MPI_COMBINER_HINDEXED:
            error = shape_blocks(shape, &part, numbers[0], numbers + 1, 1, numbers + 1 + numbers[0], 1);
            break;
        case MPI_COMBINER_INDEXED_BLOCK:
            error = shape_blocks(shape, &part, numbers[0], numbers + 1, 0, numbers + 2, part.extent);
            break;
        case MPI_COMBINER_HINDEXED_BLOCK:
            error = shape_blocks(shape, &part, numbers[0], numbers + 1, 0, numbers + 2, 1);
            break;
        default:
            error = shape_array(shape, &part, content->combiner, numbers, content->count);
        }
    }
    shape_free(&part);
    return error;
}

/* What follows from runs and extent. */
static void shape_finish(shape *shape)
{
    int is_ascending = 1;
    for (size_t i = 1; i < shape->count; i++)
        is_ascending &= shape->runs[i - 1].offset + (int64_t)shape->runs[i - 1].bytes <= shape->runs[i].offset;
    if (shape->count) {
        const run *last = &shape->runs[shape->count - 1];
        is_ascending &= last->offset + (int64_t)last->bytes <= shape->runs[0].offset + shape->extent;
    }
    shape->is_ascending = is_ascending;
    shape->is_solid = shape->count == 1 && shape->runs[0].bytes == (uint64_t)shape->extent;
}

int shape_of(MPI_Datatype type, shape *shape)
{
    content content;
    MPI_Count low, extent;
    *shape = (struct shape){0};
    /* MPI itself ends the program that asks it about this one. */
    int error = type == MPI_DATATYPE_NULL ? MPI_ERR_TYPE : content_of(type, &content);
    if (error != MPI_SUCCESS)
        return error;
    if (content.combiner == MPI_COMBINER_NAMED) {
        error = shape_named(type, shape);
    } else {
        error = shape_made(type, &content, shape);
        content_free(&content);
    }
    if (error == MPI_SUCCESS)
        error = PMPI_Type_get_extent_x(type, &low, &extent);
    if (error != MPI_SUCCESS) {
        shape_free(shape);
        return error;
    }
    shape->extent = extent;
    shape_finish(shape);
    return MPI_SUCCESS;
}

static int forget(MPI_Datatype type, int key, void *value, void *extra)
{
    (void)type, (void)key, (void)extra;
    shape_free(value);
    free(value);
    return MPI_SUCCESS;
}

int shape_kept(MPI_Datatype type, const shape **shape)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int key = MPI_KEYVAL_INVALID;
    int error = MPI_SUCCESS, is_there = 0;
    struct shape *made = NULL;
    if (type == MPI_DATATYPE_NULL)
        return MPI_ERR_TYPE;
    pthread_mutex_lock(&lock);
    if (key == MPI_KEYVAL_INVALID)
        error = PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, forget, &key, NULL);
    if (error == MPI_SUCCESS)
        error = PMPI_Type_get_attr(type, key, &made, &is_there);
    if (error == MPI_SUCCESS && !is_there) {
        made = calloc(1, sizeof *made);
        error = made ? shape_of(type, made) : MPI_ERR_NO_MEM;
        if (error == MPI_SUCCESS)
            error = PMPI_Type_set_attr(type, key, made);
        if (error != MPI_SUCCESS) {
            if (made)
                shape_free(made);
            free(made);
        }
    }
    pthread_mutex_unlock(&lock);
    *shape = error == MPI_SUCCESS ? made : NULL;
    return error;
}
