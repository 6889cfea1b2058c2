/* Threads that share the units of a loop.

   The caller takes units until none is left. A thread of the pool takes some if it is there in time: the caller waits for
   units that were taken, and for no thread. A sleeping thread needs as long as a short loop to wake, and on a busy machine
   it may come much later. OpenMP would wait for it.

   The loops of a step follow one another. So a thread stays awake for a while after a loop, and a step wakes it once.
   As many threads take part as torch has set for the calling thread. Results do not depend on the number. */

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "pool.h"

#define MAX_THREADS 256 /* of the pool */
#define SPIN_NS 50000   /* nanoseconds that a thread spins before it sleeps */
#define LINE 64         /* bytes that one core writes at a time */

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_int is_asleep;
} Sleeper;

static atomic_flag is_used = ATOMIC_FLAG_INIT; /* by the thread whose loop runs; it owns all that is not atomic */
static struct {
    Units units;
    const void *loop;
    int64_t count, threads;
} job;
static int64_t num_threads; /* in the pool */
static unsigned last_number;
static Sleeper caller, sleepers[MAX_THREADS];
/* The number of the job that threads may enter, or 0. */
static _Alignas(LINE) atomic_uint open_job;
/* Threads of the pool that may read the job. A thread enters before it reads `open_job`. */
static _Alignas(LINE) atomic_int num_inside;
/* The first unit that no thread has taken. */
static _Alignas(LINE) atomic_llong next_unit;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline void pause_core(void) {
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

/* Each thread takes a part of what is left: large parts first, so that few are taken, and small ones last. */
static void take_units(void) {
    long long first = atomic_load(&next_unit), end;
    for (;;) {
        do {
            if (first >= job.count) return;
            int64_t share = (job.count - first) / (2 * job.threads);
            end = first + (share ? share : 1);
        } while (!atomic_compare_exchange_weak(&next_unit, &first, end));
        job.units(job.loop, first, end);
        first = atomic_load(&next_unit);
    }
}

/* Wait until `is_ready(number)`, spinning at first. What makes it ready calls `wake` after that. */
static void await(Sleeper *sleeper, int (*is_ready)(unsigned number), unsigned number) {
    for (int64_t end = now() + SPIN_NS; now() < end;)
        for (int i = 0; i < 32; i++) {
            if (is_ready(number)) return;
            pause_core();
        }
    pthread_mutex_lock(&sleeper->lock);
    atomic_store(&sleeper->is_asleep, 1);
    while (!is_ready(number)) pthread_cond_wait(&sleeper->wake, &sleeper->lock);
    atomic_store(&sleeper->is_asleep, 0);
    pthread_mutex_unlock(&sleeper->lock);
}

static void wake(Sleeper *sleeper) {
    if (!atomic_load(&sleeper->is_asleep)) return;
    pthread_mutex_lock(&sleeper->lock);
    pthread_cond_signal(&sleeper->wake);
    pthread_mutex_unlock(&sleeper->lock);
}

static int is_empty(unsigned number) { return !atomic_load(&num_inside); }
static int is_new(unsigned number) {
    unsigned at = atomic_load(&open_job);
    return at && at != number;
}

static void *work(void *sleeper) {
    unsigned number = 0;
    for (;;) {
        await(sleeper, is_new, number);
        atomic_fetch_add(&num_inside, 1);
        unsigned at = atomic_load(&open_job);
        if (at) {
            number = at;
            if ((Sleeper *)sleeper - sleepers < job.threads - 1) take_units();
        }
        if (atomic_fetch_sub(&num_inside, 1) == 1) wake(&caller);
    }
    return NULL;
}

static void add_threads(int64_t wanted) {
    pthread_t thread;
    for (; num_threads < wanted && num_threads < MAX_THREADS; num_threads++) {
        if (pthread_create(&thread, NULL, work, &sleepers[num_threads])) return;
        pthread_detach(thread);
    }
}

void run_loop(Units units, const void *loop, int64_t count, int is_shared) {
    int64_t threads = is_shared && count > 1 ? omp_get_max_threads() : 1;
    if (threads == 1 || atomic_flag_test_and_set(&is_used)) { /* in use: another thread's loop has the pool */
        units(loop, 0, count);
        return;
    }
    add_threads(threads - 1);
    job.units = units;
    job.loop = loop;
    job.count = count;
    job.threads = threads;
    atomic_store(&next_unit, 0);
    last_number = last_number + 1 ? last_number + 1 : 1;
    atomic_store(&open_job, last_number);
    for (int64_t i = 0; i < threads - 1 && i < num_threads; i++) wake(&sleepers[i]);
    take_units();
    atomic_store(&open_job, 0);
    await(&caller, is_empty, 0);
    atomic_flag_clear(&is_used);
}

/* A forked process has none of the threads. */
static void reset(void) {
    num_threads = 0;
    atomic_store(&open_job, 0);
    atomic_store(&num_inside, 0);
    atomic_flag_clear(&is_used);
    pthread_mutex_init(&caller.lock, NULL);
    pthread_cond_init(&caller.wake, NULL);
    atomic_store(&caller.is_asleep, 0);
    for (int i = 0; i < MAX_THREADS; i++) {
        pthread_mutex_init(&sleepers[i].lock, NULL);
        pthread_cond_init(&sleepers[i].wake, NULL);
        atomic_store(&sleepers[i].is_asleep, 0);
    }
}
__attribute__((constructor)) static void prepare(void) {
    reset();
    pthread_atfork(NULL, NULL, reset);
}
