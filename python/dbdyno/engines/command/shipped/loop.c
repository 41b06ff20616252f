/* loop [THREADS [MILLIONS [SERIAL]]]: a fixed amount of arithmetic, shared evenly by threads.
 *
 * Each round is one step of a linear congruential generator: a multiplication and an addition that wait for the
 * round before, no memory. SERIAL per cent of the rounds are done by the main thread before the others start.
 * Every thread's last number is checked against the one that arithmetic without the loop gives.
 * Prints "done N rounds"; exit code 1: a wrong number or a missing thread, 2: wrong arguments.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define A UINT64_C(6364136223846793005)
#define C UINT64_C(1442695040888963407)
#define MOST 4096

struct part {
    pthread_t thread;
    uint64_t seed, rounds, last;
};

static void *run(void *given)
{
    struct part *p = given;
    uint64_t x = p->seed;
    for (uint64_t i = 0; i < p->rounds; i++) {
        x = x * A + C;
        __asm__ volatile("" : "+r"(x)); /* each round is done */
    }
    p->last = x;
    return NULL;
}

/* n rounds in log n steps: Brown, "Random number generation with arbitrary strides" (1994). */
static uint64_t after(uint64_t x, uint64_t n)
{
    uint64_t mul = 1, add = 0, a = A, c = C;
    for (; n; n >>= 1, c *= a + 1, a *= a)
        if (n & 1)
            mul *= a, add = add * a + c;
    return x * mul + add;
}

static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
    char *end;
    uint64_t n = strtoull(text, &end, 10);
    if (*end || end == text || n < least || n > most) {
        fprintf(stderr, "loop: %s is not a number from %llu to %llu\n", text, (unsigned long long)least,
                (unsigned long long)most);
        exit(2);
    }
    return n;
}

int main(int argc, char **argv)
{
    uint64_t threads = argc > 1 ? number(argv[1], 1, MOST) : 1;
    uint64_t rounds = 1000000 * (argc > 2 ? number(argv[2], 0, 1000000000) : 0);
    uint64_t alone = rounds / 100 * (argc > 3 ? number(argv[3], 0, 100) : 0);
    static struct part parts[MOST + 1];
    uint64_t done = 0;

    parts[MOST] = (struct part){.seed = MOST, .rounds = alone};
    run(&parts[MOST]);
    for (uint64_t i = 0; i < threads; i++) {
        parts[i].seed = i;
        parts[i].rounds = (rounds - alone) / threads + (i < (rounds - alone) % threads);
        if (i && pthread_create(&parts[i].thread, NULL, run, &parts[i])) {
            fprintf(stderr, "loop: thread %llu of %llu cannot be started\n", (unsigned long long)i + 1,
                    (unsigned long long)threads);
            exit(1);
        }
    }
    run(&parts[0]);
    for (uint64_t i = 0; i <= MOST; i++) {
        if (i && i < threads)
            pthread_join(parts[i].thread, NULL);
        if ((i < threads || i == MOST) && parts[i].last != after(parts[i].seed, parts[i].rounds)) {
            fprintf(stderr, "loop: thread %llu came to a wrong number\n", (unsigned long long)i + 1);
            return 1;
        }
        done += parts[i].rounds;
    }
    printf("done %llu rounds\n", (unsigned long long)done);
    return done == rounds ? 0 : 1;
}
