/* Errors: classes of MPI for the errnos of libweft. */
#include "mpiio.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int class_of(int error)
{
    switch (error) {
    case 0:
        return MPI_SUCCESS;
    case ENOENT:
        return MPI_ERR_NO_SUCH_FILE;
    case EEXIST:
        return MPI_ERR_FILE_EXISTS;
    case EACCES:
    case EPERM:
        return MPI_ERR_ACCESS;
    case EROFS:
        return MPI_ERR_READ_ONLY;
    case ENOSPC:
        return MPI_ERR_NO_SPACE;
    case EDQUOT:
        return MPI_ERR_QUOTA;
    case ENAMETOOLONG:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
        return MPI_ERR_BAD_FILE;
    case ENOMEM:
        return MPI_ERR_NO_MEM;
    case EINVAL:
        return MPI_ERR_ARG;
    default:
        return MPI_ERR_IO;
    }
}

int failed(int class_here)
{
    if (class_here != MPI_SUCCESS && getenv("WEFT_MPIIO_VERBOSE")) {
        char text[MPI_MAX_ERROR_STRING];
        int length;
        PMPI_Error_string(class_here, text, &length);
        fprintf(stderr, "weft mpiio: %s (%s)\n", weft_error(), text);
    }
    return class_here;
}

/* All ranks return an error if one of them has one: the greatest. */
int agree(const file *f, int class_here)
{
    int all;
    int error = PMPI_Allreduce(&class_here, &all, 1, MPI_INT, MPI_MAX, f->comm);
    return error != MPI_SUCCESS ? error : all;
}
