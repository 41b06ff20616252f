/* starts SECONDS RATE PROGRAM [WORD...]: the least that starting a command and waiting for its end can take.
 *
 * posix_spawn (of glibc: clone with CLONE_VM and CLONE_VFORK, then execve), then wait4, one after another; RATE
 * starts a second (0: as fast as they go). Prints JSON: starts, their latency in us (from before the spawn to after
 * the wait), and CPU in us a start: of this process, and of the commands.
 */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu_us(int whose)
{
    struct rusage u;
    getrusage(whose, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

static int order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    double seconds = atof(argv[1]), rate = atof(argv[2]), sum = 0;
    size_t room = 1 << 20, n = 0;
    double *us = malloc(room * sizeof *us), begin = now_s();
    double own = cpu_us(RUSAGE_SELF), theirs = cpu_us(RUSAGE_CHILDREN);

    while (n < room && now_s() < begin + seconds) {
        double due = rate > 0 ? begin + n / rate : 0;
        if (due > now_s()) {
            struct timespec t = {(time_t)due, (long)((due - (time_t)due) * 1e9)};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        }
        double before = now_s();
        pid_t pid;
        int status;
        if (posix_spawn(&pid, argv[3], NULL, NULL, argv + 3, environ) || wait4(pid, &status, 0, NULL) != pid || status)
            return 1;
        us[n] = (now_s() - before) * 1e6;
        sum += us[n++];
    }
    qsort(us, n, sizeof *us, order);
    printf("{\"starts\": %zu, \"mean_us\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"cpu_us\": %.1f, "
           "\"command_cpu_us\": %.1f}\n",
           n, sum / n, us[n / 2], us[n * 99 / 100], (cpu_us(RUSAGE_SELF) - own) / n,
           (cpu_us(RUSAGE_CHILDREN) - theirs) / n);
    return 0;
}
