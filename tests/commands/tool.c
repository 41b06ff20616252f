/* Programs of known CPU, sleep, threads and children: tool WHAT [N] MS. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long ms;

static void burn(clockid_t clock)
{
	struct timespec begin, now;

	clock_gettime(clock, &begin);
	do
		clock_gettime(clock, &now);
	while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec < ms * 1000000L);
}

static void *thread(void *unused)
{
	burn(CLOCK_THREAD_CPUTIME_ID);
	return unused;
}

static void one_child(void)
{
	if (!fork()) {
		burn(CLOCK_PROCESS_CPUTIME_ID);
		_exit(0);
	}
}

int main(int argc, char **argv)
{
	const char *what = argv[1];
	int n = argc > 3 ? atoi(argv[2]) : 1;
	struct timespec nap;
	pthread_t threads[64];

	ms = atol(argv[argc - 1]);
	nap.tv_sec = ms / 1000;
	nap.tv_nsec = ms % 1000 * 1000000;
	if (!strcmp(what, "spin")) {
		burn(CLOCK_PROCESS_CPUTIME_ID);
	} else if (!strcmp(what, "nap")) {
		nanosleep(&nap, 0);
	} else if (!strcmp(what, "renamed")) {
		prctl(PR_SET_NAME, "caf\xc3) R 1 (\xff");
		nanosleep(&nap, 0);
	} else if (!strcmp(what, "threads")) {
		for (int i = 0; i < n; i++)
			pthread_create(&threads[i], 0, thread, 0);
		for (int i = 0; i < n; i++)
			pthread_join(threads[i], 0);
	} else if (!strcmp(what, "brood")) { /* one after another */
		for (int i = 0; i < n; i++) {
			one_child();
			wait(0);
		}
	} else if (!strcmp(what, "daemon")) {
		int ends[2];
		char none;
		if (pipe(ends))
			return 1;
		if (!fork()) {
			setsid();
			one_child();
			_exit(0);
		}
		wait(0);
		close(ends[1]); /* the daemon, nobody's child by now but the subreaper's, has the other one */
		while (read(ends[0], &none, 1) < 0)
			;
	}
	return 0;
}
