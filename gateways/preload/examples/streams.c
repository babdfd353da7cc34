/* Streams of the C library in all modes, at random: `streams DIR FROM TO` does what comes of each of
 * these numbers, and says what the calls have said and what is in the file then. Below the prefix it
 * must say the same as in a directory of the kernel. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned long state;
static unsigned long sum;
static char buffer[20000];

static unsigned random_below(unsigned end)
{
    state = state * 6364136223846793005UL + 1442695040888963407UL;
    return (state >> 33) % end;
}

static void add(long value)
{
    sum = sum * 33 + value;
}

static long amount(void)
{
    return random_below(2) ? random_below(10) : random_below(9000);
}

static FILE *begin(const char *name, const char *mode)
{
    static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR};
    FILE *file;
    switch (random_below(3)) {
    case 0:
        return fopen(name, mode);
    case 1:
        if (!(file = fopen("other", "w+")))
            return NULL;
        fputs("what is left in a buffer", file);
        return freopen(name, mode, file);
    default:
        return fdopen(open(name, flags[mode[1] == '+' ? 2 : mode[0] != 'r'], 0600), mode);
    }
}

static void step(FILE *file, int at)
{
    long result = 0, bytes;
    switch (random_below(10)) {
    case 0:
        bytes = amount();
        memset(buffer, 'A' + at % 26, bytes);
        result = fwrite(buffer, 1, bytes, file);
        fseek(file, 0, SEEK_CUR); /* between reads and writes, as C wants it; the same below */
        break;
    case 1:
        result = fread(buffer, 1, amount(), file);
        for (long byte = 0; byte < result; byte++)
            add(buffer[byte]);
        fseek(file, 0, SEEK_CUR);
        break;
    case 2:
        result = fseek(file, random_below(40), SEEK_SET);
        break;
    case 3:
        result = fseek(file, (long)random_below(20) - 10, SEEK_CUR);
        break;
    case 4:
        result = fseek(file, -(long)random_below(20), SEEK_END);
        break;
    case 5:
        result = ftell(file);
        break;
    case 6:
        result = fflush(file);
        break;
    case 7:
        result = fgetc(file);
        if (result >= 0 && random_below(2))
            ungetc(result, file);
        fseek(file, 0, SEEK_CUR);
        break;
    case 8:
        result = fputc('z', file);
        fseek(file, 0, SEEK_CUR);
        break;
    case 9:
        result = fseek(file, -1, SEEK_CUR);
        if (result == 0)
            result = fseek(file, 1, SEEK_CUR);
        break;
    }
    add(result);
    add(!!ferror(file) + 2 * !!feof(file));
    if (random_below(3) == 0)
        clearerr(file);
}

int main(int count, char **args)
{
    static const char *modes[] = {"w+", "w", "r+", "a", "a+", "r"};
    if (count < 4 || chdir(args[1]) != 0)
        return 2;
    for (int seed = atoi(args[2]); seed < atoi(args[3]); seed++) {
        state = seed * 7919 + 13;
        for (int at = 0; at < 5; at++)
            random_below(2);
        FILE *file = fopen("file", "w");
        for (int left = random_below(2) ? random_below(40) : random_below(12000); file && left > 0; left--)
            fputc('a' + left % 26, file);
        const char *mode = modes[random_below(6)];
        if (!file || fclose(file) != 0 || !(file = begin("file", mode))) {
            perror("file");
            return 1;
        }
        if (random_below(3) == 0)
            setvbuf(file, NULL, random_below(2) ? _IOFBF : _IONBF, random_below(2) ? 7 : 4096);
        sum = 5381;
        for (int at = 0; at < 25; at++)
            step(file, at);
        long place = ftell(file);
        int closed = fclose(file);
        printf("%d: %s, %lx at %ld, %d;", seed, mode, sum, place, closed);
        sum = 5381;
        long bytes = 0;
        if (!(file = fopen("file", "r")))
            return 1;
        for (int byte; (byte = fgetc(file)) != EOF; bytes++)
            add(byte);
        printf(" %ld bytes, %lx\n", bytes, sum);
        fclose(file);
    }
    return 0;
}
