/* What calls return beside their error: statuses, and requests that are done already.
 *
 * A call that returns a request has done its work: libweft has no thread that could, and whoever
 * finishes a request must be allowed to call MPI, which few programs ask for. The request is a real
 * one (generalized), to be waited for with all others.
 */
#include "mpiio.h"

#include <stdlib.h>

void status_set(MPI_Status *status, uint64_t bytes)
{
    if (status == MPI_STATUS_IGNORE)
        return;
    PMPI_Status_set_elements_x(status, MPI_BYTE, (MPI_Count)bytes);
    PMPI_Status_set_cancelled(status, 0);
}

static int query(void *bytes, MPI_Status *status)
{
    status_set(status, *(uint64_t *)bytes);
    if (status != MPI_STATUS_IGNORE) {
        status->MPI_SOURCE = MPI_UNDEFINED;
        status->MPI_TAG = MPI_UNDEFINED;
    }
    return MPI_SUCCESS;
}

static int give_back(void *bytes)
{
    free(bytes);
    return MPI_SUCCESS;
}

static int cancel(void *bytes, int is_complete)
{
    (void)bytes, (void)is_complete;
    return MPI_SUCCESS;
}

int request_done(uint64_t bytes, MPI_Request *request)
{
    uint64_t *kept = malloc(sizeof *kept);
    if (!kept)
        return MPI_ERR_NO_MEM;
    *kept = bytes;
    int error = PMPI_Grequest_start(query, give_back, cancel, kept, request);
    if (error != MPI_SUCCESS) {
        free(kept);
        return error;
    }
    return PMPI_Grequest_complete(*request);
}
