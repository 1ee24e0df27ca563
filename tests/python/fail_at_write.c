/* Preloaded into a process, lets one call fail that changes something below a folder: bytes,
 * durability, names. `plait_fail(folder, n)` chooses the n-th from then on, counted from 0, and
 * `plait_calls()` says how many there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char below[4096] = "";
static int at = -1, calls = 0;

void plait_fail(const char *folder, int n) {
    strncpy(below, folder, sizeof below - 1);
    at = n;
    calls = 0;
}

int plait_calls(void) { return calls; }

static int fails(const char *path) {
    if (!*below || !path || !strstr(path, below)) return 0;
    if (__atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST) != at) return 0;
    errno = ENOSPC;
    return 1;
}

static int descriptor_fails(int descriptor) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return fails(path);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int descriptor, const void *bytes, size_t length) {
    if (descriptor > 2 && descriptor_fails(descriptor)) return -1;
    return NEXT(write)(descriptor, bytes, length);
}

int fsync(int descriptor) {
    if (descriptor_fails(descriptor)) return -1;
    return NEXT(fsync)(descriptor);
}

int rename(const char *from, const char *to) {
    if (fails(from)) return -1;
    return NEXT(rename)(from, to);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    if (fails(to)) return -1;
    return NEXT(linkat)(from_folder, from, to_folder, to, flags);
}
