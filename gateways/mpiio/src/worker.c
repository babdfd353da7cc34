/* A thread that reads or writes while the rank exchanges data: it calls libweft, never MPI. */
#include "mpiio.h"

#include <stdlib.h>

struct worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int (*job)(void *); /* what it does, or NULL */
    void *about;
    int result, ends;
};

static void *work(void *of)
{
    worker *w = of;
    pthread_mutex_lock(&w->lock);
    while (!w->ends) {
        if (!w->job) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        int (*job)(void *) = w->job;
        pthread_mutex_unlock(&w->lock);
        int result = job(w->about);
        pthread_mutex_lock(&w->lock);
        w->result = result;
        w->job = NULL;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* That of a file, made when it is first wanted. */
int worker_of(file *f, worker **found)
{
    if (!f->worker) {
        worker *w = calloc(1, sizeof *w);
        if (!w)
            return MPI_ERR_NO_MEM;
        pthread_mutex_init(&w->lock, NULL);
        pthread_cond_init(&w->changed, NULL);
        if (pthread_create(&w->thread, NULL, work, w) != 0) {
            pthread_mutex_destroy(&w->lock);
            pthread_cond_destroy(&w->changed);
            free(w);
            return MPI_ERR_NO_MEM;
        }
        f->worker = w;
    }
    *found = f->worker;
    return MPI_SUCCESS;
}

/* After worker_wait only. */
void worker_start(worker *w, int (*job)(void *), void *about)
{
    pthread_mutex_lock(&w->lock);
    w->job = job;
    w->about = about;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* Jobs end by the deadlines of libweft. */
int worker_wait(worker *w)
{
    pthread_mutex_lock(&w->lock);
    while (w->job)
        pthread_cond_wait(&w->changed, &w->lock);
    int result = w->result;
    w->result = MPI_SUCCESS;
    pthread_mutex_unlock(&w->lock);
    return result;
}

void worker_end(worker *w)
{
    worker_wait(w);
    pthread_mutex_lock(&w->lock);
    w->ends = 1;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    free(w);
}
