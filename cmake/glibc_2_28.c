/* Functions that Debian 12's archives call and glibc 2.28 does not have: see portable.cmake. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* Since 2.32. Zero: always count references atomically. */
HIDDEN char __libc_single_threaded = 0;

/* Since 2.36; std::random_device and expat. Like glibc's, they do not fail. */
HIDDEN void arc4random_buf(void* buffer, size_t size) {
  for (char* at = buffer; size > 0;) {
    const ssize_t got = getrandom(at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) abort();
    at += got;
    size -= (size_t)got;
  }
}

HIDDEN uint32_t arc4random(void) {
  uint32_t value;
  arc4random_buf(&value, sizeof(value));
  return value;
}

/* Since 2.30; waits with a time limit on std::condition_variable. What libstdc++ does where glibc is older. */
HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const struct timespec* until) {
  struct timespec now, real;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &real);
  real.tv_sec += until->tv_sec - now.tv_sec;
  real.tv_nsec += until->tv_nsec - now.tv_nsec;
  for (; real.tv_nsec < 0; real.tv_nsec += 1000000000) --real.tv_sec;
  for (; real.tv_nsec >= 1000000000; real.tv_nsec -= 1000000000) ++real.tv_sec;
  return pthread_cond_timedwait(condition, mutex, &real);
}
