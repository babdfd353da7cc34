/* File pointers. That of a rank is a number; the shared one lies in a small file beside the data,
 * so that ranks in different clients share it without anybody having to answer for it: it is read
 * and changed under a lock.
 *
 * Views and seeks set it without a message: they are collective, so every rank counts them
 * (epoch) and knows what they set it to (origin). A file of an earlier epoch says nothing.
 */
#include "mpiio.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static const uint32_t PATIENCE_MS = 120000;

/* What the small file says. */
typedef struct record {
    uint64_t epoch, at;
} record;

int seek_to(file *f, MPI_Offset offset, int whence, uint64_t here, uint64_t *there)
{
    uint64_t from = 0;
    if (whence == MPI_SEEK_END) {
        weft_attr attr;
        if (weft_fstat(f->data, &attr) != 0)
            return failed(class_of(errno));
        if (f->view.shape.bytes == 0 || !f->view.shape.is_ascending)
            return MPI_ERR_ARG;
        /* A last elementary type that the file has in part counts. */
        uint64_t shown = shown_before(view_tiling(&f->view), (int64_t)attr.size);
        from = (shown + f->view.etype_bytes - 1) / f->view.etype_bytes;
    } else if (whence == MPI_SEEK_CUR) {
        from = here / f->view.etype_bytes;
    } else if (whence != MPI_SEEK_SET) {
        return MPI_ERR_ARG;
    }
    MPI_Offset etypes;
    if (__builtin_add_overflow((MPI_Offset)from, offset, &etypes) || etypes < 0 ||
        __builtin_mul_overflow((uint64_t)etypes, f->view.etype_bytes, there) || *there > INT64_MAX)
        return MPI_ERR_ARG;
    return MPI_SUCCESS;
}

static int shared_open(file *f)
{
    if (!f->shared.file)
        f->shared.file = weft_open(f->fs, f->shared.path, O_RDWR | O_CREAT, 0600);
    return f->shared.file ? MPI_SUCCESS : failed(class_of(errno));
}

/* Reads it, and moves it on; the lock is held. */
static int advance(file *f, uint64_t bytes, uint64_t *at)
{
    record is;
    int64_t got = weft_pread(f->shared.file, &is, sizeof is, 0);
    if (got < 0)
        return failed(class_of(errno));
    if ((size_t)got < sizeof is || is.epoch != f->shared.epoch)
        is = (record){f->shared.epoch, f->shared.origin};
    *at = is.at;
    if (bytes == 0)
        return MPI_SUCCESS;
    if (__builtin_add_overflow(is.at, bytes, &is.at) || is.at > INT64_MAX)
        return MPI_ERR_ARG;
    return weft_pwrite(f->shared.file, &is, sizeof is, 0) < 0 ? failed(class_of(errno)) : MPI_SUCCESS;
}

int shared_take(file *f, uint64_t bytes, uint64_t *at)
{
    pthread_mutex_lock(&f->lock);
    int error = shared_open(f);
    if (error == MPI_SUCCESS) {
        int taken = weft_lock(f->shared.file, 0, sizeof(record), 1, PATIENCE_MS);
        error = taken > 0 ? MPI_ERR_IO : taken < 0 ? failed(class_of(errno)) : advance(f, bytes, at);
        if (taken == 0 && weft_unlock(f->shared.file, 0, sizeof(record)) != 0 && error == MPI_SUCCESS)
            error = failed(class_of(errno));
    }
    pthread_mutex_unlock(&f->lock);
    return error;
}

void shared_reset(file *f, uint64_t at)
{
    pthread_mutex_lock(&f->lock);
    f->shared.epoch++;
    f->shared.origin = at;
    pthread_mutex_unlock(&f->lock);
}

int shared_seek(file *f, MPI_Offset offset, int whence)
{
    /* All have done what they do with the pointer as it was. */
    int64_t ends[4] = {offset, -offset, whence, -whence}, all[4];
    int error = PMPI_Allreduce(ends, all, 4, MPI_INT64_T, MPI_MAX, f->comm);
    if (error == MPI_SUCCESS && (all[0] != -all[1] || all[2] != -all[3]))
        error = MPI_ERR_NOT_SAME;
    if (error != MPI_SUCCESS)
        return error;
    uint64_t said[2] = {0, 0}, here = 0;
    if (f->rank == 0) {
        int own = whence == MPI_SEEK_CUR ? shared_take(f, 0, &here) : MPI_SUCCESS;
        said[1] = (uint64_t)(own != MPI_SUCCESS ? own : seek_to(f, offset, whence, here, &said[0]));
    }
    error = PMPI_Bcast(said, 2, MPI_UINT64_T, 0, f->comm);
    if (error == MPI_SUCCESS && said[1] == 0)
        shared_reset(f, said[0]);
    return error != MPI_SUCCESS ? error : (int)said[1];
}

/* Ranks one behind the other: rank 0 takes for all. */
int ordered_take(file *f, uint64_t bytes, uint64_t *at)
{
    uint64_t sum = 0, before = 0, said[2] = {0, 0};
    int error = PMPI_Scan(&bytes, &sum, 1, MPI_UINT64_T, MPI_SUM, f->comm);
    before = sum - bytes;
    if (error == MPI_SUCCESS)
        error = PMPI_Bcast(&sum, 1, MPI_UINT64_T, f->ranks - 1, f->comm);
    if (error != MPI_SUCCESS)
        return error;
    if (f->rank == 0)
        said[1] = (uint64_t)shared_take(f, sum, &said[0]);
    error = PMPI_Bcast(said, 2, MPI_UINT64_T, 0, f->comm);
    *at = said[0] + before;
    return error != MPI_SUCCESS ? error : (int)said[1];
}

int shared_close(file *f, int *is_made)
{
    *is_made = f->shared.file != NULL;
    int error = f->shared.file && weft_close(f->shared.file) != 0 ? failed(class_of(errno)) : MPI_SUCCESS;
    f->shared.file = NULL;
    return error;
}
