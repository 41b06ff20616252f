/* Loaded before a PostgreSQL server program by LD_PRELOAD: prints word, class and event of all wait events,
   as the program's own functions call them, and ends it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void print_names(void)
{
    const char *(*event)(unsigned) = dlsym(RTLD_DEFAULT, "pgstat_get_wait_event");
    const char *(*class)(unsigned) = dlsym(RTLD_DEFAULT, "pgstat_get_wait_event_type");
    /* 7 and 11, Extension and InjectionPoint, ask shared memory: there is none yet */
    static const unsigned classes[] = {1, 3, 4, 5, 6, 8, 9, 10};

    if (event == NULL || class == NULL)
        return;
    for (unsigned n = 0; n < sizeof classes / sizeof *classes; n++)
        for (unsigned id = 0; id < 300; id++) {
            unsigned word = classes[n] << 24 | id;
            const char *name = event(word);
            printf("%u\t%s\t%s\n", word, class(word), name ? name : "");
        }
    fflush(stdout);
    _exit(0);
}
