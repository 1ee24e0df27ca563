/* Preloaded into a process, kills it before its PLAIT_KILL_AT-th call (counted from 0) that gives a
 * file below PLAIT_KILL_IN a name or takes it away: the moments between which a table changes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void count(const char *path) {
    static int calls = 0;
    const char *at = getenv("PLAIT_KILL_AT"), *in = getenv("PLAIT_KILL_IN");
    if (at && in && strstr(path, in) && __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST) == atoi(at))
        raise(SIGKILL);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int rename(const char *from, const char *to) {
    count(to);
    return NEXT(rename)(from, to);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    count(to);
    return NEXT(linkat)(from_folder, from, to_folder, to, flags);
}

int unlink(const char *path) {
    count(path);
    return NEXT(unlink)(path);
}
