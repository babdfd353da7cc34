/* Opening and closing. */
#include "mpiio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static int flags_of(int amode, int *flags)
{
    int ways = !!(amode & MPI_MODE_RDONLY) + !!(amode & MPI_MODE_WRONLY) + !!(amode & MPI_MODE_RDWR);
    if (ways != 1)
        return MPI_ERR_AMODE;
    if ((amode & MPI_MODE_RDONLY) && (amode & (MPI_MODE_CREATE | MPI_MODE_EXCL)))
        return MPI_ERR_AMODE;
    if ((amode & MPI_MODE_RDWR) && (amode & MPI_MODE_SEQUENTIAL))
        return MPI_ERR_AMODE;
    *flags = amode & MPI_MODE_RDONLY ? O_RDONLY : amode & MPI_MODE_WRONLY ? O_WRONLY : O_RDWR;
    return MPI_SUCCESS;
}

static void file_free(file *f)
{
    if (f->worker)
        worker_end(f->worker);
    if (f->data)
        weft_close(f->data);
    if (f->shared.file)
        weft_close(f->shared.file);
    view_free(&f->view);
    if (f->comm != MPI_COMM_NULL)
        PMPI_Comm_free(&f->comm);
    if (f->handle != MPI_FILE_NULL)
        PMPI_File_close(&f->handle);
    pthread_mutex_destroy(&f->lock);
    free(f->shared.path);
    free(f->path);
    free(f);
}

/* A file beside this one, with a name that only this opening of it has. */
static int shared_name(file *f)
{
    unsigned long long number = 0;
    static unsigned count;
    if (f->rank == 0) {
        double now = PMPI_Wtime();
        memcpy(&number, &now, sizeof number);
        number = (number * 0x9e3779b97f4a7c15u) ^ (uintptr_t)f ^ ((unsigned long long)++count << 40);
    }
    int error = PMPI_Bcast(&number, 1, MPI_UNSIGNED_LONG_LONG, 0, f->comm);
    const char *slash = strrchr(f->path, '/');
    size_t folder = slash ? (size_t)(slash - f->path) + 1 : 0;
    size_t room = folder + sizeof ".weft-shared-0123456789abcdef";
    f->shared.path = calloc(1, room);
    if (error != MPI_SUCCESS || !f->shared.path)
        return error != MPI_SUCCESS ? error : MPI_ERR_NO_MEM;
    memcpy(f->shared.path, f->path, folder);
    strcpy(f->shared.path + folder, ".weft-shared-");
    for (int i = 0; i < 16; i++)
        f->shared.path[room - 2 - (size_t)i] = "0123456789abcdef"[number >> (4 * i) & 15];
    return MPI_SUCCESS;
}

/* Rank 0 makes the file, if it is to be made; then all open it. */
static int open_data(file *f, int flags)
{
    int made = (f->amode & MPI_MODE_CREATE ? O_CREAT : 0) | (f->amode & MPI_MODE_EXCL ? O_EXCL : 0);
    int error = MPI_SUCCESS;
    if (f->rank == 0 && !(f->data = weft_open(f->fs, f->path, flags | made, 0666)))
        error = failed(class_of(errno));
    int all = agree(f, error);
    if (all != MPI_SUCCESS)
        return all;
    if (f->rank != 0 && !(f->data = weft_open(f->fs, f->path, flags, 0)))
        error = failed(class_of(errno));
    return agree(f, error);
}

/* Pointers are at the end of a file that is appended to. */
static int go_to_end(file *f)
{
    weft_attr attr = {0};
    unsigned long long size = 0;
    int error = MPI_SUCCESS;
    if (f->rank == 0 && weft_fstat(f->data, &attr) != 0)
        error = failed(class_of(errno));
    size = attr.size;
    int all = agree(f, error);
    if (all == MPI_SUCCESS)
        all = PMPI_Bcast(&size, 1, MPI_UNSIGNED_LONG_LONG, 0, f->comm);
    f->position = size;
    f->shared.origin = size;
    return all;
}

static file *file_new(MPI_Comm comm, int *error)
{
    file *f = calloc(1, sizeof *f);
    if (!f) {
        *error = MPI_ERR_NO_MEM;
        return NULL;
    }
    f->handle = MPI_FILE_NULL;
    f->view.etype = f->view.filetype = MPI_DATATYPE_NULL;
    f->comm = MPI_COMM_NULL;
    pthread_mutex_init(&f->lock, NULL);
    *error = PMPI_Comm_dup(comm, &f->comm);
    if (*error == MPI_SUCCESS) {
        PMPI_Comm_set_errhandler(f->comm, MPI_ERRORS_RETURN);
        PMPI_Comm_rank(f->comm, &f->rank);
        PMPI_Comm_size(f->comm, &f->ranks);
        return f;
    }
    f->comm = MPI_COMM_NULL;
    file_free(f);
    return NULL;
}

/* What each rank does by itself before the file is opened. */
static int prepare(file *f, const place *place)
{
    f->path = strdup(place->path);
    if (!f->path)
        return MPI_ERR_NO_MEM;
    int error = PMPI_File_open(MPI_COMM_SELF, "/dev/null", MPI_MODE_RDWR, MPI_INFO_NULL, &f->handle);
    if (error == MPI_SUCCESS)
        error = view_default(&f->view);
    if (error == MPI_SUCCESS)
        error = fs_of(place->fs, &f->fs);
    return error;
}

int file_open(MPI_Comm comm, const place *place, int amode, MPI_Info info, MPI_File *handle)
{
    int error, flags = 0, modes[2] = {amode, -amode}, all[2] = {0, 0};
    file *f = file_new(comm, &error);
    if (!f)
        return error;
    f->amode = amode;
    error = PMPI_Allreduce(modes, all, 2, MPI_INT, MPI_MAX, f->comm);
    if (error == MPI_SUCCESS && all[0] != -all[1])
        error = MPI_ERR_NOT_SAME;
    if (error == MPI_SUCCESS)
        error = flags_of(amode, &flags);
    /* All know of it already. */
    if (error == MPI_SUCCESS)
        error = agree(f, prepare(f, place));
    if (error == MPI_SUCCESS)
        error = hints_begin(f, info);
    if (error == MPI_SUCCESS)
        error = open_data(f, flags);
    if (error == MPI_SUCCESS)
        error = agree(f, shared_name(f));
    if (error == MPI_SUCCESS && (amode & MPI_MODE_APPEND))
        error = go_to_end(f);
    if (error != MPI_SUCCESS) {
        file_free(f);
        return error;
    }
    table_add(f);
    *handle = f->handle;
    return MPI_SUCCESS;
}

int file_close(file *f)
{
    int is_made = 0;
    int error = shared_close(f, &is_made);
    int gone = weft_close(f->data);
    f->data = NULL;
    if (gone != 0 && error == MPI_SUCCESS)
        error = failed(class_of(errno));
    /* Everybody has closed it when it is removed. */
    int some[2] = {error, is_made}, all[2] = {0, 0};
    int told = PMPI_Allreduce(some, all, 2, MPI_INT, MPI_MAX, f->comm);
    error = told != MPI_SUCCESS ? told : all[0];
    if (f->rank == 0 && all[1] && weft_unlink(f->fs, f->shared.path) != 0 && error == MPI_SUCCESS)
        error = failed(class_of(errno));
    if (f->rank == 0 && (f->amode & MPI_MODE_DELETE_ON_CLOSE) && weft_unlink(f->fs, f->path) != 0 && error == MPI_SUCCESS)
        error = failed(class_of(errno));
    /* A rank that goes on finds it gone. */
    if (all[1] || (f->amode & MPI_MODE_DELETE_ON_CLOSE))
        error = agree(f, error);
    table_remove(f);
    file_free(f);
    return error;
}
