/* The calls of MPI that read and write. They differ in which pointer they use, whether all ranks
 * take part, and when the caller hears of the end; macros write each kind down once, with 32-bit
 * and, where MPI has them, with 64-bit counts.
 */
#include "entry.h"

static int now(file *f, enum which which, enum how how, int writes, MPI_Offset offset, const void *memory, MPI_Count count,
               MPI_Datatype type, MPI_Status *status)
{
    uint64_t bytes;
    int error = transfer(f, which, how, writes, offset, memory, count, type, &bytes);
    status_set(status, bytes);
    return told(f->handle, error);
}

/* Nobody may wait for others in a call that returns a request: each rank is on its own. */
static int later(file *f, enum which which, int writes, MPI_Offset offset, const void *memory, MPI_Count count, MPI_Datatype type,
                 MPI_Request *request)
{
    uint64_t bytes;
    int error = transfer(f, which, ALONE, writes, offset, memory, count, type, &bytes);
    if (error == MPI_SUCCESS)
        error = request_done(bytes, request);
    return told(f->handle, error);
}

static int begin(file *f, enum which which, enum how how, int writes, MPI_Offset offset, const void *memory, MPI_Count count,
                 MPI_Datatype type)
{
    uint64_t bytes;
    if (f->split.is_begun)
        return told(f->handle, MPI_ERR_OTHER);
    int error = transfer(f, which, how, writes, offset, memory, count, type, &bytes);
    if (error == MPI_SUCCESS)
        f->split = (split){1, writes, bytes};
    return told(f->handle, error);
}

static int end(file *f, int writes, MPI_Status *status)
{
    if (!f->split.is_begun || f->split.writes != writes)
        return told(f->handle, MPI_ERR_OTHER);
    f->split.is_begun = 0;
    status_set(status, f->split.bytes);
    return MPI_SUCCESS;
}

/* clang-format off */
#define AT_OFFSET(NAME, COUNT, CONST, HOW, WRITES) \
int MPI_File_##NAME(MPI_File handle, MPI_Offset offset, CONST void *memory, COUNT count, MPI_Datatype type, MPI_Status *status) \
{ \
    file *f = file_of(handle); \
    return f ? now(f, AT, HOW, WRITES, offset, memory, count, type, status) \
             : PMPI_File_##NAME(handle, offset, memory, count, type, status); \
}

#define AT_POINTER(NAME, COUNT, CONST, WHICH, HOW, WRITES) \
int MPI_File_##NAME(MPI_File handle, CONST void *memory, COUNT count, MPI_Datatype type, MPI_Status *status) \
{ \
    file *f = file_of(handle); \
    return f ? now(f, WHICH, HOW, WRITES, 0, memory, count, type, status) \
             : PMPI_File_##NAME(handle, memory, count, type, status); \
}

#define AT_OFFSET_LATER(NAME, COUNT, CONST, WRITES) \
int MPI_File_##NAME(MPI_File handle, MPI_Offset offset, CONST void *memory, COUNT count, MPI_Datatype type, MPI_Request *request) \
{ \
    file *f = file_of(handle); \
    return f ? later(f, AT, WRITES, offset, memory, count, type, request) \
             : PMPI_File_##NAME(handle, offset, memory, count, type, request); \
}

#define AT_POINTER_LATER(NAME, COUNT, CONST, WHICH, WRITES) \
int MPI_File_##NAME(MPI_File handle, CONST void *memory, COUNT count, MPI_Datatype type, MPI_Request *request) \
{ \
    file *f = file_of(handle); \
    return f ? later(f, WHICH, WRITES, 0, memory, count, type, request) \
             : PMPI_File_##NAME(handle, memory, count, type, request); \
}

#define AT_OFFSET_BEGIN(NAME, COUNT, CONST, WRITES) \
int MPI_File_##NAME(MPI_File handle, MPI_Offset offset, CONST void *memory, COUNT count, MPI_Datatype type) \
{ \
    file *f = file_of(handle); \
    return f ? begin(f, AT, TOGETHER, WRITES, offset, memory, count, type) \
             : PMPI_File_##NAME(handle, offset, memory, count, type); \
}

#define AT_POINTER_BEGIN(NAME, COUNT, CONST, WHICH, HOW, WRITES) \
int MPI_File_##NAME(MPI_File handle, CONST void *memory, COUNT count, MPI_Datatype type) \
{ \
    file *f = file_of(handle); \
    return f ? begin(f, WHICH, HOW, WRITES, 0, memory, count, type) : PMPI_File_##NAME(handle, memory, count, type); \
}

#define END(NAME, CONST, WRITES) \
int MPI_File_##NAME(MPI_File handle, CONST void *memory, MPI_Status *status) \
{ \
    file *f = file_of(handle); \
    return f ? end(f, WRITES, status) : PMPI_File_##NAME(handle, memory, status); \
}

/* All calls with a count; C is what their names end with. */
#define COUNTED(C, COUNT) \
AT_OFFSET(read_at##C, COUNT, , ALONE, 0) \
AT_OFFSET(read_at_all##C, COUNT, , TOGETHER, 0) \
AT_OFFSET(write_at##C, COUNT, const, ALONE, 1) \
AT_OFFSET(write_at_all##C, COUNT, const, TOGETHER, 1) \
AT_POINTER(read##C, COUNT, , OWN, ALONE, 0) \
AT_POINTER(read_all##C, COUNT, , OWN, TOGETHER, 0) \
AT_POINTER(write##C, COUNT, const, OWN, ALONE, 1) \
AT_POINTER(write_all##C, COUNT, const, OWN, TOGETHER, 1) \
AT_POINTER(read_shared##C, COUNT, , SHARED, ALONE, 0) \
AT_POINTER(write_shared##C, COUNT, const, SHARED, ALONE, 1) \
AT_POINTER(read_ordered##C, COUNT, , SHARED, IN_ORDER, 0) \
AT_POINTER(write_ordered##C, COUNT, const, SHARED, IN_ORDER, 1) \
AT_OFFSET_LATER(iread_at##C, COUNT, , 0) \
AT_OFFSET_LATER(iread_at_all##C, COUNT, , 0) \
AT_OFFSET_LATER(iwrite_at##C, COUNT, const, 1) \
AT_OFFSET_LATER(iwrite_at_all##C, COUNT, const, 1) \
AT_POINTER_LATER(iread##C, COUNT, , OWN, 0) \
AT_POINTER_LATER(iread_all##C, COUNT, , OWN, 0) \
AT_POINTER_LATER(iwrite##C, COUNT, const, OWN, 1) \
AT_POINTER_LATER(iwrite_all##C, COUNT, const, OWN, 1) \
AT_POINTER_LATER(iread_shared##C, COUNT, , SHARED, 0) \
AT_POINTER_LATER(iwrite_shared##C, COUNT, const, SHARED, 1) \
AT_OFFSET_BEGIN(read_at_all_begin##C, COUNT, , 0) \
AT_OFFSET_BEGIN(write_at_all_begin##C, COUNT, const, 1) \
AT_POINTER_BEGIN(read_all_begin##C, COUNT, , OWN, TOGETHER, 0) \
AT_POINTER_BEGIN(write_all_begin##C, COUNT, const, OWN, TOGETHER, 1) \
AT_POINTER_BEGIN(read_ordered_begin##C, COUNT, , SHARED, IN_ORDER, 0) \
AT_POINTER_BEGIN(write_ordered_begin##C, COUNT, const, SHARED, IN_ORDER, 1)

COUNTED(, int)
#if MPI_VERSION >= 4
COUNTED(_c, MPI_Count)
#endif

END(read_at_all_end, , 0)
END(write_at_all_end, const, 1)
END(read_all_end, , 0)
END(write_all_end, const, 1)
END(read_ordered_end, , 0)
END(write_ordered_end, const, 1)
