/* Subarrays and distributed arrays: one dimension after the other, from that whose neighbours lie
 * side by side.
 */
#include "mpiio.h"

#include <stdlib.h>

enum { DIMENSIONS_MAX = 64 };

/* A dimension, and which indices of it belong to the datatype: blocks, each a step behind the one
 * before. */
typedef struct dimension {
    int64_t size;
    int64_t first, block, step; /* a step of 0: one block only */
} dimension;

/* What `inner` is for one index, the result is for all those that belong to the datatype. */
static int widen(const dimension *d, int64_t slab, shape *inner)
{
    shape wide = {0};
    int error = MPI_SUCCESS;
    inner->extent = slab;
    for (int64_t at = d->first; at < d->size && error == MPI_SUCCESS; at += d->step) {
        int64_t count = d->block < d->size - at ? d->block : d->size - at;
        error = shape_repeat(&wide, inner, at * slab, count, slab);
        if (d->step == 0)
            break;
    }
    shape_free(inner);
    *inner = wide;
    return error;
}

static int build(shape *shape, const struct shape *element, const dimension *dimensions, int count, int order)
{
    struct shape inner = {0};
    int64_t slab = element->extent;
    int error = shape_repeat(&inner, element, 0, 1, element->extent);
    for (int i = 0; i < count && error == MPI_SUCCESS; i++) {
        const dimension *d = &dimensions[order == MPI_ORDER_FORTRAN ? i : count - 1 - i];
        error = widen(d, slab, &inner);
        slab *= d->size;
    }
    if (error == MPI_SUCCESS)
        error = shape_repeat(shape, &inner, 0, 1, slab);
    shape_free(&inner);
    return error;
}

/* Where the integers of a datatype made with 64-bit counts lie: sizes stand behind all others. */
static int subarray(dimension *dimensions, const int64_t *numbers, size_t count, int *order)
{
    int64_t n = numbers[0];
    if (n < 1 || n > DIMENSIONS_MAX || count != (size_t)(3 * n + 2))
        return MPI_ERR_TYPE;
    /* Small counts have the order last, large ones behind the number of dimensions. */
    int is_small = numbers[3 * n + 1] == MPI_ORDER_C || numbers[3 * n + 1] == MPI_ORDER_FORTRAN;
    int is_large = numbers[1] == MPI_ORDER_C || numbers[1] == MPI_ORDER_FORTRAN;
    if (!is_small && !is_large)
        return MPI_ERR_TYPE;
    const int64_t *sizes = numbers + (is_small ? 1 : 2);
    *order = (int)numbers[is_small ? 3 * n + 1 : 1];
    for (int64_t i = 0; i < n; i++)
        dimensions[i] = (dimension){sizes[i], sizes[2 * n + i], sizes[n + i], 0};
    return MPI_SUCCESS;
}

static int distribution(dimension *d, int64_t size, int64_t kind, int64_t argument, int64_t processes, int64_t me)
{
    d->size = size;
    if (kind == MPI_DISTRIBUTE_NONE) {
        *d = (dimension){size, 0, size, 0};
    } else if (kind == MPI_DISTRIBUTE_BLOCK) {
        int64_t block = argument == MPI_DISTRIBUTE_DFLT_DARG ? (size + processes - 1) / processes : argument;
        *d = (dimension){size, me * block, block, 0};
    } else if (kind == MPI_DISTRIBUTE_CYCLIC) {
        int64_t block = argument == MPI_DISTRIBUTE_DFLT_DARG ? 1 : argument;
        *d = (dimension){size, me * block, block, processes * block};
    } else {
        return MPI_ERR_TYPE;
    }
    return MPI_SUCCESS;
}

static int darray(dimension *dimensions, const int64_t *numbers, size_t count, int *order)
{
    int64_t processes = numbers[0], rank = numbers[1], n = numbers[2];
    if (n < 1 || n > DIMENSIONS_MAX || count != (size_t)(4 * n + 4) || processes < 1)
        return MPI_ERR_TYPE;
    /* Small counts: sizes, kinds, arguments, processes, order; large ones have the sizes last. */
    int is_small = numbers[4 * n + 3] == MPI_ORDER_C || numbers[4 * n + 3] == MPI_ORDER_FORTRAN;
    const int64_t *kinds = numbers + 3 + (is_small ? n : 0);
    const int64_t *sizes = is_small ? numbers + 3 : numbers + 4 + 3 * n;
    *order = (int)(is_small ? numbers[4 * n + 3] : numbers[3 + 3 * n]);
    /* Ranks lie in the grid of processes as in an array of C. */
    for (int64_t i = 0; i < n; i++) {
        int64_t here = kinds[2 * n + i];
        if (here < 1)
            return MPI_ERR_TYPE;
        processes /= here;
        int64_t me = processes ? rank / processes : 0;
        rank -= me * processes;
        int error = distribution(&dimensions[i], sizes[i], kinds[i], kinds[n + i], here, me);
        if (error != MPI_SUCCESS)
            return error;
    }
    return MPI_SUCCESS;
}

int shape_array(shape *shape, const struct shape *element, int combiner, const int64_t *numbers, size_t count)
{
    dimension dimensions[DIMENSIONS_MAX];
    int order = MPI_ORDER_C, error = MPI_ERR_TYPE;
    size_t n = 0;
    if (combiner == MPI_COMBINER_SUBARRAY && count > 1) {
        n = (size_t)numbers[0];
        error = subarray(dimensions, numbers, count, &order);
    } else if (combiner == MPI_COMBINER_DARRAY && count > 3) {
        n = (size_t)numbers[2];
        error = darray(dimensions, numbers, count, &order);
    }
    return error != MPI_SUCCESS ? error : build(shape, element, dimensions, (int)n, order);
}
