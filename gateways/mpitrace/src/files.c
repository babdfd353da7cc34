/* Calls about files. */
#include "mpitrace.h"

#include <stdio.h>

/* Questions to whoever answers for files: the MPI library, or libweft-mpiio. */
static int64_t asked(const char *name, MPI_File file)
{
    MPI_Offset found = -1;
    int error = ((int (*)(MPI_File, MPI_Offset *))next_of(name))(file, &found);
    return error == MPI_SUCCESS ? (int64_t)found : -1;
}

/* Where the pointer of this rank is, as a byte of the file; -1: nobody knows. */
static int64_t pointer_of(const state *s, MPI_File file)
{
    static int (*byte_of)(MPI_File, MPI_Offset, MPI_Offset *);
    MPI_Offset byte = -1;
    if (!s->lane)
        return -1;
    if (!byte_of)
        byte_of = (int (*)(MPI_File, MPI_Offset, MPI_Offset *))next_of("MPI_File_get_byte_offset");
    int64_t at = asked("MPI_File_get_position", file);
    return at >= 0 && byte_of(file, at, &byte) == MPI_SUCCESS ? (int64_t)byte : -1;
}

static void moved(state *s, MPI_File file, int64_t offset, int64_t count, MPI_Datatype type)
{
    if (!s->lane)
        return;
    file_facts(s, file);
    if (offset >= 0)
        number(s, "offset", offset);
    data_facts(s, count, type);
}

CALL(File_open, (MPI_Comm comm, const char *name, int amode, MPI_Info info, MPI_File *file), (comm, name, amode, info, file), , if (s.lane) {
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    if (error == MPI_SUCCESS)
        file_opened(&s, *file, comm, name, amode, rank == 0 ? asked("MPI_File_get_size", *file) : -1);
    else
        words(&s, "name", name);
})
CALL(File_close, (MPI_File * file), (file), int number_before = s.lane ? file_number(*file) : -1, if (s.lane) {
    number(&s, "fid", number_before);
    file_closed(number_before);
})
CALL(File_delete, (const char *name, MPI_Info info), (name, info), , words(&s, "name", name))
CALL(File_sync, (MPI_File file), (file), , file_facts(&s, file))
CALL(File_set_view, (MPI_File file, MPI_Offset offset, MPI_Datatype etype, MPI_Datatype filetype, const char *rep, MPI_Info info),
     (file, offset, etype, filetype, rep, info), , if (s.lane) {
         file_facts(&s, file);
         number(&s, "offset", offset);
         number(&s, "etid", type_number(etype));
         number(&s, "filetid", type_number(filetype));
         words(&s, "representation", rep);
     })
#define SIZED(NAME)                                                                                                    \
    CALL(NAME, (MPI_File file, MPI_Offset bytes), (file, bytes), , if (s.lane) {                                       \
        file_facts(&s, file);                                                                                          \
        number(&s, "to", bytes);                                                                                       \
    })
SIZED(File_set_size)
SIZED(File_preallocate)
#define SOUGHT(NAME)                                                                                                   \
    CALL(NAME, (MPI_File file, MPI_Offset offset, int whence), (file, offset, whence), , if (s.lane) {                 \
        file_facts(&s, file);                                                                                          \
        number(&s, "by", offset);                                                                                      \
        number(&s, "whence", whence);                                                                                  \
    })
SOUGHT(File_seek)
SOUGHT(File_seek_shared)

/* What kinds of calls have in common: their first parameters, what is handed on, and the place. */
#define TAKES_AT MPI_File file, MPI_Offset offset
#define GIVES_AT file, offset
#define PLACE_AT offset
#define TAKES_HERE MPI_File file
#define GIVES_HERE file
#define PLACE_HERE pointer_of(&s, file)
/* Where the pointer is shared nobody says where a call was. */
#define TAKES_SHARED MPI_File file
#define GIVES_SHARED file
#define PLACE_SHARED -1

#define TRANSFER(NAME, BUFFER, LAST, KIND)                                                                             \
    CALL(NAME, (TAKES_##KIND, BUFFER, int count, MPI_Datatype type, LAST *last), (GIVES_##KIND, buf, count, type, last), \
         int64_t place = PLACE_##KIND, moved(&s, file, place, count, type))
#define BOTH(END, LAST, KIND, BESIDE)                                                                                  \
    TRANSFER(File_##BESIDE##read##END, void *buf, LAST, KIND)                                                          \
    TRANSFER(File_##BESIDE##write##END, const void *buf, LAST, KIND)
BOTH(, MPI_Status, HERE, )
BOTH(_at, MPI_Status, AT, )
BOTH(_all, MPI_Status, HERE, )
BOTH(_at_all, MPI_Status, AT, )
BOTH(_shared, MPI_Status, SHARED, )
BOTH(_ordered, MPI_Status, SHARED, )
BOTH(, MPI_Request, HERE, i)
BOTH(_at, MPI_Request, AT, i)
BOTH(_all, MPI_Request, HERE, i)
BOTH(_at_all, MPI_Request, AT, i)
BOTH(_shared, MPI_Request, SHARED, i)

/* The beginning of a split call says what it is about, its end how long it was waited for. */
#define SPLIT_ONE(NAME, BUFFER, KIND)                                                                                  \
    CALL(NAME##_begin, (TAKES_##KIND, BUFFER, int count, MPI_Datatype type), (GIVES_##KIND, buf, count, type),         \
         int64_t place = PLACE_##KIND, moved(&s, file, place, count, type))                                            \
    CALL(NAME##_end, (MPI_File file, BUFFER, MPI_Status *status), (file, buf, status), , file_facts(&s, file))
#define SPLIT(END, KIND)                                                                                               \
    SPLIT_ONE(File_read##END, void *buf, KIND)                                                                         \
    SPLIT_ONE(File_write##END, const void *buf, KIND)
SPLIT(_all, HERE)
SPLIT(_at_all, AT)
SPLIT(_ordered, SHARED)
