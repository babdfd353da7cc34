/* What all calls that read or write have in common: what may be asked for, where it begins, and
 * which pointer goes on.
 */
#include "mpiio.h"

static int check(const file *f, enum which which, int writes, MPI_Offset offset, MPI_Count count)
{
    if (count < 0)
        return MPI_ERR_COUNT;
    if (which == AT && offset < 0)
        return MPI_ERR_ARG;
    if (writes && (f->amode & MPI_MODE_RDONLY))
        return MPI_ERR_READ_ONLY;
    if (!writes && (f->amode & MPI_MODE_WRONLY))
        return MPI_ERR_ACCESS;
    if ((f->amode & MPI_MODE_SEQUENTIAL) && which != SHARED)
        return MPI_ERR_UNSUPPORTED_OPERATION;
    return MPI_SUCCESS;
}

/* Bytes, and what they look like in memory. */
static int measure(const file *f, MPI_Count count, MPI_Datatype type, portion *a)
{
    int error = shape_kept(type, &a->shape);
    if (error != MPI_SUCCESS)
        return error;
    if (__builtin_mul_overflow((uint64_t)count, a->shape->bytes, &a->bytes) || a->bytes > INT64_MAX)
        return MPI_ERR_COUNT;
    if (a->bytes % f->view.etype_bytes != 0)
        return MPI_ERR_IO; /* no whole number of elementary types */
    return a->bytes > 0 && f->view.shape.bytes == 0 ? MPI_ERR_IO : MPI_SUCCESS;
}

static int begin_at(file *f, enum which which, enum how how, MPI_Offset offset, portion *a)
{
    uint64_t end;
    if (which == AT && __builtin_mul_overflow((uint64_t)offset, f->view.etype_bytes, &a->at))
        return MPI_ERR_ARG;
    if (which == SHARED)
        return how == IN_ORDER ? ordered_take(f, a->bytes, &a->at) : shared_take(f, a->bytes, &a->at);
    if (which == OWN) {
        pthread_mutex_lock(&f->lock);
        a->at = f->position;
        f->position += a->bytes;
        pthread_mutex_unlock(&f->lock);
    }
    return __builtin_add_overflow(a->at, a->bytes, &end) || end > INT64_MAX ? MPI_ERR_ARG : MPI_SUCCESS;
}

int transfer(file *f, enum which which, enum how how, int writes, MPI_Offset offset, const void *memory, MPI_Count count,
             MPI_Datatype type, uint64_t *bytes)
{
    /* Memory that is read from is not const; one function serves both ways. */
    portion a = {.memory = (void *)(uintptr_t)memory};
    *bytes = 0;
    int error = check(f, which, writes, offset, count);
    if (error == MPI_SUCCESS)
        error = measure(f, count, type, &a);
    if (how == IN_ORDER) {
        /* Nobody waits for a rank that has made a mistake. */
        int all = agree(f, error);
        error = error != MPI_SUCCESS ? error : all;
    }
    if (error == MPI_SUCCESS)
        error = begin_at(f, which, how, offset, &a);
    if (how == TOGETHER)
        return collective(f, &a, writes, error, bytes);
    return error != MPI_SUCCESS ? error : direct(f, &a, writes, bytes);
}
