/* Preloaded into a process, kills it before its PLAIT_KILL_AT-th call (counted from 0) that changes
 * something below the folder PLAIT_KILL_IN: bytes, durability, names. Counts to PLAIT_KILL_COUNT, a
 * file, when the process ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int calls = 0;

static void count(const char *path) {
    const char *at = getenv("PLAIT_KILL_AT"), *in = getenv("PLAIT_KILL_IN");
    if (!at || !in || !path || !strstr(path, in)) return;
    if (__atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST) == atoi(at)) raise(SIGKILL);
}

static void count_descriptor(int descriptor) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        count(path);
    }
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int descriptor, const void *bytes, size_t length) {
    if (descriptor > 2) count_descriptor(descriptor);
    return NEXT(write)(descriptor, bytes, length);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t length, off64_t at) {
    count_descriptor(descriptor);
    return NEXT(pwrite64)(descriptor, bytes, length, at);
}

int fsync(int descriptor) {
    count_descriptor(descriptor);
    return NEXT(fsync)(descriptor);
}

int rename(const char *from, const char *to) {
    count(from);
    return NEXT(rename)(from, to);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    count(from);
    return NEXT(linkat)(from_folder, from, to_folder, to, flags);
}

int unlink(const char *path) {
    count(path);
    return NEXT(unlink)(path);
}

__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("PLAIT_KILL_COUNT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "%d", calls);
        fclose(file);
    }
}
