/* Views: which bytes of the file a rank sees, and in which order. */
#include "mpiio.h"

#include <string.h>

static int type_keep(MPI_Datatype type, MPI_Datatype *kept)
{
    int integers, addresses, types, combiner;
    int error = PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    if (error != MPI_SUCCESS)
        return error;
    *kept = type;
    return combiner == MPI_COMBINER_NAMED ? MPI_SUCCESS : PMPI_Type_dup(type, kept);
}

static void type_give(MPI_Datatype *type)
{
    int integers, addresses, types, combiner;
    if (*type == MPI_DATATYPE_NULL)
        return;
    if (PMPI_Type_get_envelope(*type, &integers, &addresses, &types, &combiner) == MPI_SUCCESS && combiner != MPI_COMBINER_NAMED)
        PMPI_Type_free(type);
    *type = MPI_DATATYPE_NULL;
}

static int view_make(view *view, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype)
{
    MPI_Count bytes = 0;
    *view = (struct view){.disp = disp, .etype = MPI_DATATYPE_NULL, .filetype = MPI_DATATYPE_NULL};
    int error = etype == MPI_DATATYPE_NULL ? MPI_ERR_TYPE : PMPI_Type_size_x(etype, &bytes);
    if (error == MPI_SUCCESS)
        error = shape_of(filetype, &view->shape);
    if (error == MPI_SUCCESS && (bytes <= 0 || view->shape.bytes % (uint64_t)bytes != 0))
        error = MPI_ERR_ARG;
    /* No view shows what is before the file. */
    for (size_t i = 0; i < view->shape.count && error == MPI_SUCCESS; i++)
        if (view->shape.runs[i].offset + disp < 0)
            error = MPI_ERR_ARG;
    view->etype_bytes = (uint64_t)bytes;
    if (error == MPI_SUCCESS)
        error = type_keep(etype, &view->etype);
    if (error == MPI_SUCCESS)
        error = type_keep(filetype, &view->filetype);
    if (error != MPI_SUCCESS)
        view_free(view);
    return error;
}

void view_free(view *view)
{
    type_give(&view->etype);
    type_give(&view->filetype);
    shape_free(&view->shape);
}

int view_default(view *view)
{
    return view_make(view, 0, MPI_BYTE, MPI_BYTE);
}

/* The program frees what is not predefined. */
int view_show(const view *view, MPI_Datatype *etype, MPI_Datatype *filetype)
{
    int error = type_keep(view->etype, etype);
    return error != MPI_SUCCESS ? error : type_keep(view->filetype, filetype);
}

/* Both pointers go to the beginning. */
int view_set(file *f, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype, const char *representation)
{
    view view = {.etype = MPI_DATATYPE_NULL, .filetype = MPI_DATATYPE_NULL};
    int error = MPI_SUCCESS;
    if (disp == MPI_DISPLACEMENT_CURRENT && (f->amode & MPI_MODE_SEQUENTIAL)) {
        walk w;
        int64_t here = 0;
        walk_begin(&w, view_tiling(&f->view), f->position);
        walk_next(&w, 1, &here);
        disp = here;
    }
    if (!representation || strlen(representation) >= MPI_MAX_DATAREP_STRING)
        error = MPI_ERR_ARG;
    else if (strcmp(representation, "native") != 0)
        error = MPI_ERR_UNSUPPORTED_DATAREP;
    else if (disp < 0)
        error = MPI_ERR_ARG;
    else
        error = view_make(&view, disp, etype, filetype);
    int all = agree(f, error);
    if (all != MPI_SUCCESS) {
        view_free(&view);
        return error != MPI_SUCCESS ? error : all;
    }
    view_free(&f->view);
    f->view = view;
    pthread_mutex_lock(&f->lock);
    f->position = 0;
    pthread_mutex_unlock(&f->lock);
    shared_reset(f, 0);
    return MPI_SUCCESS;
}
