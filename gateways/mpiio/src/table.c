/* Which handles are ours.
 *
 * A handle must be a file of the MPI library: programs hand it to MPI_File_set_errhandler,
 * MPI_File_c2f and their like, which are not answered here. So each file on Weft opens /dev/null
 * by the MPI library and goes by that handle; here is noted which handles stand for ours.
 */
#include "mpiio.h"

enum { BUCKETS = 64 };

static file *table[BUCKETS];
static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;

static file **bucket(MPI_File handle)
{
    return &table[((uintptr_t)handle >> 5) % BUCKETS];
}

file *file_of(MPI_File handle)
{
    pthread_rwlock_rdlock(&table_lock);
    file *f = *bucket(handle);
    while (f && f->handle != handle)
        f = f->next;
    pthread_rwlock_unlock(&table_lock);
    return f;
}

void table_add(file *f)
{
    pthread_rwlock_wrlock(&table_lock);
    f->next = *bucket(f->handle);
    *bucket(f->handle) = f;
    pthread_rwlock_unlock(&table_lock);
}

void table_remove(file *f)
{
    pthread_rwlock_wrlock(&table_lock);
    file **at = bucket(f->handle);
    while (*at && *at != f)
        at = &(*at)->next;
    if (*at)
        *at = f->next;
    pthread_rwlock_unlock(&table_lock);
}
