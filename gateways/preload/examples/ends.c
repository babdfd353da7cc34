/* What calls make of paths that end with slashes, with `.` and with `..`: each call with each such
 * path, what it has said, and what it has changed. `ends DIR` below the prefix must say the same as
 * in a directory of the kernel. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

static char before[1024], after[1024];

static int must(int result, const char *what)
{
    if (result < 0) {
        dprintf(2, "%s: %s\n", what, strerror(errno));
        exit(1);
    }
    return result;
}

static void make(const char *path, int mode)
{
    must(close(must(open(path, O_CREAT | O_WRONLY, mode), path)), path);
}

/* What is here, in the order of names. */
static void look(char *into)
{
    struct dirent **all;
    int count = must(scandir(".", &all, NULL, alphasort), "scandir");
    char *at = into;
    for (int i = 0; i < count; i++) {
        struct stat st;
        if (all[i]->d_name[0] != '.') {
            must(lstat(all[i]->d_name, &st), all[i]->d_name);
            int links = S_ISREG(st.st_mode) ? (int)st.st_nlink : 0;
            at += sprintf(at, " %s:%o,%d", all[i]->d_name, st.st_mode & (S_IFMT | 0777), links);
            ssize_t bytes = S_ISLNK(st.st_mode) ? readlink(all[i]->d_name, at, 64) : 0;
            at += must(bytes, all[i]->d_name);
        }
        free(all[i]);
    }
    free(all);
    *at = 0;
}

static void build(void)
{
    static int number;
    char name[16];
    snprintf(name, sizeof name, "%d", number++);
    must(chdir(".."), "..");
    must(mkdir(name, 0700), name);
    must(chdir(name), name);
    make("f", 0600);
    make("g", 0640);
    must(mkdir("d", 0700), "d");
    must(mkdir("e", 0750), "e");
    const char *links[][2] = {{"f", "lf"}, {"d", "ld"}, {"f/", "lfs"}, {"d/.", "lds"}, {"new", "gone"}, {"loop", "loop"}};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        must(symlink(links[i][0], links[i][1]), links[i][1]);
    look(before);
}

/* One call has returned; errno is 0 if it did what it was asked for. */
static void tell(const char *call, const char *path, const char *second, long result)
{
    int why = result < 0 ? errno : 0;
    look(after);
    printf("%s %s %s: %s", call, path, second, why ? strerrorname_np(why) : "well");
    if (strcmp(before, after)) {
        printf(",%s", after);
        build();
    }
    printf("\n");
}

static long opened(const char *path, int flags)
{
    int fd = open(path, flags, 0600);
    return fd < 0 ? -1 : close(fd);
}

static long listed(const char *path)
{
    DIR *dir = opendir(path);
    return dir ? closedir(dir) : -1;
}

static long streamed(const char *path, const char *mode)
{
    FILE *file = fopen(path, mode);
    return file ? fclose(file) : -1;
}

static long moved(const char *path)
{
    char here[4096];
    must(getcwd(here, sizeof here) ? 0 : -1, "getcwd");
    int result = chdir(path), why = errno;
    must(chdir(here), here);
    errno = why;
    return result;
}

static long real(const char *path)
{
    char *found = realpath(path, NULL);
    free(found);
    return found ? 0 : -1;
}

static void one(const char *path)
{
    struct stat st;
    struct statvfs space;
    char buffer[64];
#define TRY(call) tell(#call, path, "", call)
    TRY(stat(path, &st));
    TRY(lstat(path, &st));
    TRY(access(path, F_OK));
    TRY(opened(path, O_RDONLY));
    TRY(opened(path, O_RDONLY | O_NOFOLLOW));
    TRY(opened(path, O_RDONLY | O_DIRECTORY));
    TRY(opened(path, O_PATH));
    TRY(opened(path, O_PATH | O_NOFOLLOW));
    TRY(opened(path, O_WRONLY));
    TRY(opened(path, O_WRONLY | O_TRUNC));
    if (strcmp(path, "lfs")) { /* where the slash is in a symlink it is refused, too: as ENOTDIR */
        TRY(opened(path, O_WRONLY | O_CREAT));
        TRY(opened(path, O_RDONLY | O_CREAT));
        TRY(streamed(path, "w"));
    }
    TRY(opened(path, O_WRONLY | O_CREAT | O_EXCL));
    TRY(streamed(path, "r"));
    TRY(listed(path));
    TRY(moved(path));
    TRY(real(path));
    TRY(readlink(path, buffer, sizeof buffer));
    TRY(statvfs(path, &space));
    TRY(truncate(path, 0));
    TRY(chmod(path, 0701));
    TRY(lchown(path, getuid(), -1));
    TRY(utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW));
    TRY(getxattr(path, "user.none", buffer, sizeof buffer));
    TRY(unlink(path));
    TRY(rmdir(path));
    TRY(remove(path));
    TRY(mkdir(path, 0700));
    TRY(mkfifo(path, 0600));
    TRY(symlink("to", path));
}

static void two(const char *from, const char *to)
{
#define BOTH(call) tell(#call, from, to, call)
    BOTH(rename(from, to));
    BOTH(renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE));
    BOTH(renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE));
    BOTH(link(from, to));
    BOTH(linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW));
}

int main(int count, char **args)
{
    static const char *names[] = {"f", "d", "lf", "ld", "lfs", "lds", "gone", "loop", "none", "f/x", "none/x"};
    static const char *ends[] = {"", "/", "//", "/.", "/./", "/.."};
    static const char *some[] = {"f", "d", "lf", "ld", "gone", "none"};
    static const char *others[] = {"g", "e", "ld", "none"};
    static const char *few[] = {"", "/", "/."};
    char from[4096], to[4096];
    if (count < 2)
        return 2;
    umask(0);
    must(chdir(args[1]), args[1]);
    must(mkdir("here", 0700), "here");
    must(chdir("here"), "here");
    build();
    for (size_t name = 0; name < sizeof names / sizeof *names; name++) {
        for (size_t end = 0; end < sizeof ends / sizeof *ends; end++) {
            snprintf(from, sizeof from, "%s%s", names[name], ends[end]);
            one(from);
        }
    }
    for (size_t name = 0; name < sizeof some / sizeof *some; name++) {
        for (size_t other = 0; other < sizeof others / sizeof *others; other++) {
            /* Which of two that end with `.` is told of first is not promised. */
            for (int both = 0; both < 8; both++) {
                snprintf(from, sizeof from, "%s%s", some[name], few[both / 3]);
                snprintf(to, sizeof to, "%s%s", others[other], few[both % 3]);
                two(from, to);
            }
        }
    }
    return 0;
}
