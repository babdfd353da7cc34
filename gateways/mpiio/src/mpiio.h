/* MPI-IO for files on Weft: what the files of this library know of each other.
 *
 * The library exports MPI_File_* and answers for files on Weft; calls about other files go on to
 * PMPI_File_* of the MPI library. Inside only PMPI_* is called, so that tools see what the program
 * did. Functions return an error class of MPI (MPI_SUCCESS if all is well); only entry.c tells
 * error handlers. It never keeps data of a file beyond a call.
 *
 * Offsets: a place in a file is a byte offset; a place in a view is the number of bytes of data
 * that the view shows before it ("shown byte"), whatever the elementary type.
 */
#ifndef WEFT_MPIIO_H
#define WEFT_MPIIO_H

#pragma GCC visibility push(default) /* of MPI_File_*; all else is hidden */
#include <mpi.h>
#pragma GCC visibility pop
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <weft.h>

/* One run of bytes of a datatype. */
typedef struct run {
    int64_t offset; /* from where the datatype is put */
    uint64_t bytes;
    uint64_t before; /* bytes of the datatype in runs before this one */
} run;

/* A datatype as runs, in the order of its data. */
typedef struct shape {
    run *runs;
    size_t count;
    uint64_t bytes;   /* of data */
    int64_t extent;   /* from one of them to the next */
    int is_ascending; /* runs, also those of the next one, follow each other in the file */
    int is_solid;     /* many of them are one piece */
} shape;

/* Many of a datatype, one behind the other, somewhere: in a file or in memory. */
typedef struct tiling {
    const shape *shape;
    int64_t base;
} tiling;

/* A place in a tiling. */
typedef struct walk {
    tiling of;
    int64_t tile;
    size_t run;
    uint64_t in_run;
} walk;

typedef struct view {
    MPI_Offset disp;
    MPI_Datatype etype, filetype;
    uint64_t etype_bytes;
    shape shape;
} view;

enum method { DIRECT, TWO_PHASE, INTERLEAVED_TWO_PHASE, DOUBLE_BUFFERED, METHODS };

typedef struct hints {
    enum method method;
    uint64_t buffer; /* bytes of a part of a collective call */
    int nodes;       /* ranks that read and write for all */
} hints;

/* The shared pointer of an open file: a small file beside it, made at its first use. */
typedef struct shared_pointer {
    char *path;
    weft_file *file;
    uint64_t epoch;  /* counts the collective calls that set it */
    uint64_t origin; /* what the last of them set it to, a shown byte */
} shared_pointer;

/* A thread that reads or writes beside MPI calls. */
typedef struct worker worker;

/* What a split collective call owes its end. */
typedef struct split {
    int is_begun, writes;
    uint64_t bytes;
} split;

typedef struct file {
    MPI_File handle; /* a file of the MPI library, which stands for this one */
    MPI_Comm comm;
    int rank, ranks, amode, is_atomic;
    weft_fs *fs;
    weft_file *data;
    char *path;
    view view;
    uint64_t position; /* of this rank, a shown byte */
    hints hints;
    shared_pointer shared;
    split split;
    worker *worker;
    pthread_mutex_t lock; /* for position and shared */
    struct file *next;    /* in the table */
} file;

/* Bytes in a file and in memory that belong to each other. */
typedef struct portion {
    uint64_t at; /* shown byte of the view */
    uint64_t bytes;
    void *memory;
    const shape *shape; /* of the memory */
} portion;

/* errors.c */
int class_of(int error);    /* of an errno */
int failed(int class_here); /* says why if WEFT_MPIIO_VERBOSE is set; returns its argument */
int agree(const file *f, int class_here);

/* table.c */
file *file_of(MPI_File handle); /* NULL: not on Weft */
void table_add(file *f);
void table_remove(file *f);

/* where.c */
typedef struct place {
    char *fs;   /* how weft_open_fs finds the file system; NULL: not on Weft */
    char *path; /* in it */
    int is_mount;
} place;
int place_of(const char *name, place *place);
int place_is_closed(const place *place); /* below a mount that this process must go through */
void place_free(place *place);
int fs_of(const char *name, weft_fs **fs);

/* shape.c, arrays.c */
int shape_of(MPI_Datatype type, shape *shape);
void shape_free(shape *shape);
int shape_push(shape *shape, int64_t offset, uint64_t bytes);
int shape_repeat(shape *shape, const struct shape *part, int64_t base, int64_t count, int64_t step);
int shape_array(shape *shape, const struct shape *element, int combiner, const int64_t *numbers, size_t count);
/* The shape of a datatype is kept with it; it is valid as long as the datatype. */
int shape_kept(MPI_Datatype type, const shape **shape);

/* tiling.c */
tiling view_tiling(const view *view);
tiling memory_tiling(const portion *a);
void walk_begin(walk *w, tiling of, uint64_t at);
uint64_t walk_next(walk *w, uint64_t most, int64_t *offset); /* bytes at *offset */
uint64_t shown_before(tiling of, int64_t offset);            /* data bytes in front of a place */
void gather(void *to, const portion *a, uint64_t from, uint64_t bytes);
void scatter(const void *data, const portion *a, uint64_t from, uint64_t bytes);

/* view.c */
int view_default(view *view);
int view_set(file *f, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype, const char *representation);
int view_show(const view *view, MPI_Datatype *etype, MPI_Datatype *filetype);
void view_free(view *view);

/* hints.c */
int hints_begin(file *f, MPI_Info info); /* by all ranks, as the next one */
int hints_take(file *f, MPI_Info info);
int hints_show(file *f, MPI_Info *info);

/* open.c */
int file_open(MPI_Comm comm, const place *place, int amode, MPI_Info info, MPI_File *handle);
int file_close(file *f);

/* direct.c */
int direct(file *f, const portion *a, int writes, uint64_t *done);

/* collective.c */
int collective(file *f, const portion *a, int writes, int error, uint64_t *done);

/* worker.c */
int worker_of(file *f, worker **worker);
void worker_start(worker *w, int (*job)(void *), void *about);
int worker_wait(worker *w); /* what the job returned; MPI_SUCCESS if there is none */
void worker_end(worker *w);

/* pointers.c */
int seek_to(file *f, MPI_Offset offset, int whence, uint64_t here, uint64_t *there);
int shared_take(file *f, uint64_t bytes, uint64_t *at); /* where it was before it went on */
int shared_seek(file *f, MPI_Offset offset, int whence);
void shared_reset(file *f, uint64_t at); /* by all ranks, none of which uses it meanwhile */
int ordered_take(file *f, uint64_t bytes, uint64_t *at);
int shared_close(file *f, int *is_made);

/* transfer.c */
enum which { AT, OWN, SHARED };
enum how { ALONE, TOGETHER, IN_ORDER };
int transfer(file *f, enum which which, enum how how, int writes, MPI_Offset offset, const void *memory, MPI_Count count,
             MPI_Datatype type, uint64_t *bytes);

/* status.c */
void status_set(MPI_Status *status, uint64_t bytes);
int request_done(uint64_t bytes, MPI_Request *request);

#endif
