/* Looks at a file again and again, as busy programs do, and ends without closing the file system:
 * `leaves FS PATH ends|dies`. */
#include <signal.h>
#include <stdint.h>
#include <time.h>

#include <weft.h>

#include "check.h"

int main(int argc, char **argv)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    weft_attr attr;

    CHECK(argc == 4);
    weft_fs *fs = weft_open_fs(argv[1], NULL);
    CHECK(fs != NULL);
    /* From some call on it believes what it was told. */
    for (int call = 0; call < 50; call++) {
        CHECK(weft_stat(fs, argv[2], &attr) == 0);
        nanosleep(&pause, NULL);
    }
    if (strcmp(argv[3], "dies") == 0)
        raise(SIGKILL);
    return 0;
}
