/* The calls of MPI that open, close and describe files, and move pointers. */
#include "entry.h"

#include <errno.h>

int MPI_File_open(MPI_Comm comm, const char *name, int amode, MPI_Info info, MPI_File *handle)
{
    place place;
    int error = place_of(name, &place);
    if (error == MPI_SUCCESS && place.is_mount) {
        /* All ranks go through the mount if one of them must. */
        int is_closed = place_is_closed(&place), some;
        error = PMPI_Allreduce(&is_closed, &some, 1, MPI_INT, MPI_MAX, comm);
        if (error == MPI_SUCCESS && some)
            place_free(&place);
    }
    if (error == MPI_SUCCESS && !place.fs)
        return PMPI_File_open(comm, name, amode, info, handle);
    *handle = MPI_FILE_NULL;
    if (error == MPI_SUCCESS)
        error = file_open(comm, &place, amode, info, handle);
    place_free(&place);
    return told_without_file(error);
}

int MPI_File_close(MPI_File *handle)
{
    file *f = file_of(*handle);
    if (!f)
        return PMPI_File_close(handle);
    *handle = MPI_FILE_NULL;
    return told_without_file(file_close(f));
}

int MPI_File_delete(const char *name, MPI_Info info)
{
    place place;
    weft_fs *fs;
    int error = place_of(name, &place);
    if (error == MPI_SUCCESS && place_is_closed(&place))
        place_free(&place);
    if (error == MPI_SUCCESS && !place.fs)
        return PMPI_File_delete(name, info);
    if (error == MPI_SUCCESS)
        error = fs_of(place.fs, &fs);
    if (error == MPI_SUCCESS && weft_unlink(fs, place.path) != 0)
        error = failed(class_of(errno));
    place_free(&place);
    return told_without_file(error);
}

/* What one rank does for all. */
static int by_rank_0(file *f, int is_wrong, int (*change)(weft_file *, uint64_t), MPI_Offset size)
{
    int64_t sizes[2] = {size, -size}, all[2];
    int error = PMPI_Allreduce(sizes, all, 2, MPI_INT64_T, MPI_MAX, f->comm);
    if (error != MPI_SUCCESS)
        return error;
    if (is_wrong || size < 0 || all[0] != -all[1])
        return is_wrong ? is_wrong : size < 0 ? MPI_ERR_ARG : MPI_ERR_NOT_SAME;
    if (f->rank == 0 && change(f->data, (uint64_t)size) != 0)
        error = failed(class_of(errno));
    return agree(f, error);
}

static int allocate(weft_file *data, uint64_t bytes)
{
    return bytes ? weft_allocate(data, 0, bytes) : 0;
}

static int unwritable(const file *f)
{
    return f->amode & MPI_MODE_RDONLY ? MPI_ERR_READ_ONLY : MPI_SUCCESS;
}

int MPI_File_set_size(MPI_File handle, MPI_Offset size)
{
    file *f = file_of(handle);
    return f ? told(handle, by_rank_0(f, unwritable(f), weft_ftruncate, size)) : PMPI_File_set_size(handle, size);
}

int MPI_File_preallocate(MPI_File handle, MPI_Offset size)
{
    file *f = file_of(handle);
    return f ? told(handle, by_rank_0(f, unwritable(f), allocate, size)) : PMPI_File_preallocate(handle, size);
}

int MPI_File_get_size(MPI_File handle, MPI_Offset *size)
{
    file *f = file_of(handle);
    weft_attr attr;
    if (!f)
        return PMPI_File_get_size(handle, size);
    if (weft_fstat(f->data, &attr) != 0)
        return told(handle, failed(class_of(errno)));
    *size = (MPI_Offset)attr.size;
    return MPI_SUCCESS;
}

int MPI_File_get_group(MPI_File handle, MPI_Group *group)
{
    file *f = file_of(handle);
    return f ? told(handle, PMPI_Comm_group(f->comm, group)) : PMPI_File_get_group(handle, group);
}

int MPI_File_get_amode(MPI_File handle, int *amode)
{
    file *f = file_of(handle);
    if (!f)
        return PMPI_File_get_amode(handle, amode);
    *amode = f->amode;
    return MPI_SUCCESS;
}

int MPI_File_set_info(MPI_File handle, MPI_Info info)
{
    file *f = file_of(handle);
    return f ? told(handle, hints_take(f, info)) : PMPI_File_set_info(handle, info);
}

int MPI_File_get_info(MPI_File handle, MPI_Info *info)
{
    file *f = file_of(handle);
    return f ? told(handle, hints_show(f, info)) : PMPI_File_get_info(handle, info);
}

int MPI_File_set_view(MPI_File handle, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype, const char *representation, MPI_Info info)
{
    file *f = file_of(handle);
    if (!f)
        return PMPI_File_set_view(handle, disp, etype, filetype, representation, info);
    int error = view_set(f, disp, etype, filetype, representation);
    if (error == MPI_SUCCESS)
        error = hints_take(f, info);
    return told(handle, error);
}

int MPI_File_get_view(MPI_File handle, MPI_Offset *disp, MPI_Datatype *etype, MPI_Datatype *filetype, char *representation)
{
    file *f = file_of(handle);
    if (!f)
        return PMPI_File_get_view(handle, disp, etype, filetype, representation);
    *disp = f->view.disp;
    for (const char *from = "native"; (*representation++ = *from) != '\0'; from++)
        ;
    return told(handle, view_show(&f->view, etype, filetype));
}

int MPI_File_seek(MPI_File handle, MPI_Offset offset, int whence)
{
    file *f = file_of(handle);
    uint64_t there;
    if (!f)
        return PMPI_File_seek(handle, offset, whence);
    if (f->amode & MPI_MODE_SEQUENTIAL)
        return told(handle, MPI_ERR_UNSUPPORTED_OPERATION);
    pthread_mutex_lock(&f->lock);
    int error = seek_to(f, offset, whence, f->position, &there);
    if (error == MPI_SUCCESS)
        f->position = there;
    pthread_mutex_unlock(&f->lock);
    return told(handle, error);
}

int MPI_File_seek_shared(MPI_File handle, MPI_Offset offset, int whence)
{
    file *f = file_of(handle);
    if (!f)
        return PMPI_File_seek_shared(handle, offset, whence);
    if (f->amode & MPI_MODE_SEQUENTIAL)
        return told(handle, MPI_ERR_UNSUPPORTED_OPERATION);
    return told(handle, shared_seek(f, offset, whence));
}

int MPI_File_get_position(MPI_File handle, MPI_Offset *offset)
{
    file *f = file_of(handle);
    if (!f)
        return PMPI_File_get_position(handle, offset);
    pthread_mutex_lock(&f->lock);
    *offset = (MPI_Offset)(f->position / f->view.etype_bytes);
    pthread_mutex_unlock(&f->lock);
    return MPI_SUCCESS;
}

int MPI_File_get_position_shared(MPI_File handle, MPI_Offset *offset)
{
    file *f = file_of(handle);
    uint64_t at = 0;
    if (!f)
        return PMPI_File_get_position_shared(handle, offset);
    int error = shared_take(f, 0, &at);
    *offset = (MPI_Offset)(at / f->view.etype_bytes);
    return told(handle, error);
}

int MPI_File_get_byte_offset(MPI_File handle, MPI_Offset offset, MPI_Offset *disp)
{
    file *f = file_of(handle);
    walk w;
    int64_t at = 0;
    uint64_t shown;
    if (!f)
        return PMPI_File_get_byte_offset(handle, offset, disp);
    if (offset < 0 || __builtin_mul_overflow((uint64_t)offset, f->view.etype_bytes, &shown))
        return told(handle, MPI_ERR_ARG);
    walk_begin(&w, view_tiling(&f->view), shown);
    if (walk_next(&w, 1, &at) == 0)
        return told(handle, MPI_ERR_ARG);
    *disp = at;
    return MPI_SUCCESS;
}

int MPI_File_get_type_extent(MPI_File handle, MPI_Datatype type, MPI_Aint *extent)
{
    file *f = file_of(handle);
    MPI_Aint low;
    return f ? told(handle, PMPI_Type_get_extent(type, &low, extent)) : PMPI_File_get_type_extent(handle, type, extent);
}

#if MPI_VERSION >= 4
int MPI_File_get_type_extent_c(MPI_File handle, MPI_Datatype type, MPI_Count *extent)
{
    file *f = file_of(handle);
    MPI_Count low;
    return f ? told(handle, PMPI_Type_get_extent_c(type, &low, extent)) : PMPI_File_get_type_extent_c(handle, type, extent);
}
#endif

int MPI_File_set_atomicity(MPI_File handle, int flag)
{
    file *f = file_of(handle);
    if (!f)
        return PMPI_File_set_atomicity(handle, flag);
    int ends[2] = {!!flag, -!!flag}, all[2];
    int error = PMPI_Allreduce(ends, all, 2, MPI_INT, MPI_MAX, f->comm);
    if (error == MPI_SUCCESS && all[0] != -all[1])
        error = MPI_ERR_NOT_SAME;
    if (error == MPI_SUCCESS)
        f->is_atomic = !!flag;
    return told(handle, error);
}

int MPI_File_get_atomicity(MPI_File handle, int *flag)
{
    file *f = file_of(handle);
    if (!f)
        return PMPI_File_get_atomicity(handle, flag);
    *flag = f->is_atomic;
    return MPI_SUCCESS;
}

/* What was written is at the servers already, and every rank sees it. */
int MPI_File_sync(MPI_File handle)
{
    file *f = file_of(handle);
    if (!f)
        return PMPI_File_sync(handle);
    int error = unwritable(f) == MPI_SUCCESS && weft_fsync(f->data) != 0 ? failed(class_of(errno)) : MPI_SUCCESS;
    return told(handle, agree(f, error));
}
