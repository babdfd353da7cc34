/* What all calls of MPI owe their callers: an error goes to the error handler of the file. */
#ifndef WEFT_MPIIO_ENTRY_H
#define WEFT_MPIIO_ENTRY_H

#include "mpiio.h"

static inline int told(MPI_File handle, int error)
{
    if (error != MPI_SUCCESS)
        PMPI_File_call_errhandler(handle, error);
    return error;
}

/* Where there is no file, that of MPI_FILE_NULL is meant. Not every MPI library calls it for that
 * handle; all of them give it to a file that is opened. */
static inline int told_without_file(int error)
{
    MPI_File handle;
    if (error != MPI_SUCCESS && PMPI_File_open(MPI_COMM_SELF, "/dev/null", MPI_MODE_RDWR, MPI_INFO_NULL, &handle) == MPI_SUCCESS) {
        PMPI_File_call_errhandler(handle, error);
        PMPI_File_close(&handle);
    }
    return error;
}

#endif
