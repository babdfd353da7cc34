/* What the examples do when something is not as it should be. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(is_true)                                                                                     \
    do {                                                                                                   \
        if (!(is_true)) {                                                                                  \
            fprintf(stderr, "%s:%d: not so: %s (errno %d, %s)\n", __FILE__, __LINE__, #is_true, errno,     \
                    weft_error());                                                                         \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

/* A call that must fail with this errno and this word in its sentence. */
#define FAILS(call, expected, word)                                                                        \
    do {                                                                                                   \
        errno = 0;                                                                                         \
        CHECK(!(call) || (intptr_t)(call) == -1);                                                          \
        CHECK(errno == (expected));                                                                        \
        CHECK(strstr(weft_error(), (word)) != NULL);                                                       \
    } while (0)
